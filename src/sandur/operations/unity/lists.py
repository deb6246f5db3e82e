"""Lists as Unity Catalog's API gives them: from the index alone, each entry as it lies there."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from sandur.catalog.identifiers import Kind, Namespace, has_full_name
from sandur.catalog.index import CATALOGS, Entry, Scope, names_scope, namespaces_scope
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.operations.concurrency import gather_all
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.records import namespace_not_found
from sandur.operations.index.lists import prefetch, read_page
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_namespace

_SEPARATOR = "\x1f"


class ListRequest(NamedTuple):
    """What comes behind the token, at most so many; without a token from the beginning, without a size everything."""

    token: str | None
    size: int | None


class ListPage(NamedTuple):
    """A part of a list, and how it was come by: which index was asked, and whether it was of no use."""

    infos: Sequence[memoryview | bytes]
    next_token: str | None
    collection: str
    index_path: str
    is_fallback: bool


async def list_catalogs(lake: Lake, asked: ListRequest) -> ListPage:
    return await _read_list(lake, CATALOGS, "catalogs", asked, _nothing(), lambda _: True)


async def list_schemas(lake: Lake, catalog: str, asked: ListRequest) -> ListPage:
    """The schemas of a catalog: its namespaces of the first level. NotFound when the catalog does not exist."""
    scope = namespaces_scope(catalog, None)
    return await _read_list(lake, scope, "schemas", asked, load_catalog(lake, catalog), lambda _: True)


async def list_in_schema(
    lake: Lake, namespace: Namespace, kinds: Collection[str], collection: str, asked: ListRequest
) -> ListPage:
    """What has a name of some kinds in a schema; NotFound when it does not exist."""
    exists = _require_schema(lake, namespace)
    return await _read_list(lake, names_scope(namespace), collection, asked, exists, lambda entry: entry.kind in kinds)


async def list_everywhere(lake: Lake, catalog: str | None, kind: Kind, collection: str, asked: ListRequest) -> ListPage:
    """What has a name of a kind in all schemas of a catalog, or of all catalogs, schema by schema in their order."""
    what = (lake.layout.root, collection, catalog or "")
    last = decode_page_token(asked.token, what).split(_SEPARATOR) if asked.token else ["", "", ""]
    infos: list[memoryview] = []
    is_fallback = False
    for found_catalog in [catalog] if catalog else await _names(lake, CATALOGS):
        if found_catalog < last[0]:
            continue
        for schema in await _names(lake, namespaces_scope(found_catalog, None)):
            place = [found_catalog, schema]
            if place < last[:2]:
                continue
            after = last[2] if place == last[:2] else None
            left = None if asked.size is None else asked.size - len(infos)
            scope = names_scope(Namespace(found_catalog, (schema,)))
            page = await read_page(
                lake,
                scope,
                last=after or None,
                wanted=left,
                accepts=lambda entry: has_full_name(entry.name) and entry.kind == kind,
            )
            infos += [memoryview(entry.info) for entry in page.entries]
            is_fallback |= page.is_fallback
            if asked.size is not None and len(infos) >= asked.size:
                end = page.entries[-1].name if page.entries else after or ""
                token = encode_page_token(what, _SEPARATOR.join((*place, end)))
                return ListPage(infos, token, collection, lake.layout.list_index(scope), is_fallback)
    path = lake.layout.schemas_index(catalog) if catalog else lake.layout.catalogs_index()
    if catalog and not infos:
        await load_catalog(lake, catalog)
    return ListPage(infos, None, collection, path, is_fallback)


async def _names(lake: Lake, scope: Scope) -> Sequence[str]:
    page = await read_page(lake, scope, last=None, wanted=None)
    return [entry.name for entry in page.entries if has_full_name(entry.name)]


async def _read_list(
    lake: Lake,
    scope: Scope,
    collection: str,
    asked: ListRequest,
    exists: Awaitable[object],
    accepts: Callable[[Entry], bool],
) -> ListPage:
    """The page; `exists` is asked in the same round, and what it raises is raised."""
    what = (lake.layout.root, collection, scope.text)
    try:
        last = decode_page_token(asked.token, what) if asked.token else None
    except BaseException:
        asyncio.ensure_future(exists).cancel()
        raise
    _, seen = await gather_all((exists, prefetch(lake, scope, last=last, wanted=asked.size)))
    page = await read_page(
        lake,
        scope,
        last=last,
        wanted=asked.size,
        accepts=lambda entry: has_full_name(entry.name) and accepts(entry),
        seen=seen,
    )
    return ListPage(
        infos=[memoryview(entry.info) for entry in page.entries],
        next_token=None if page.next_last is None else encode_page_token(what, page.next_last),
        collection=collection,
        index_path=lake.layout.list_index(scope),
        is_fallback=page.is_fallback,
    )


async def _require_schema(lake: Lake, namespace: Namespace) -> None:
    _, found = await gather_all((load_catalog(lake, namespace.catalog), resolve_namespace(lake, namespace)))
    if found is None:
        raise namespace_not_found(namespace)


async def _nothing() -> None:
    """There is nothing that a list of catalogs belongs to."""
