"""Lists of Unity Catalog's API, read from the index alone: its entries hold the JSON of the answer."""

import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from sandur.catalog.identifiers import Kind, Namespace, has_full_name
from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Chain
from sandur.errors import NotFound
from sandur.operations.containers.catalogs import find_catalog, load_catalog
from sandur.operations.index.lists import Container, EntriesPage, FindContainer, find_namespace, read_visible_page
from sandur.operations.lake import Lake
from sandur.operations.name_access import naming_missing_parent

_SEPARATOR = "\x1f"


class ListRequest(NamedTuple):
    """The page after a token (None: the first page), with at most `size` entries (None: all)."""

    token: str | None
    size: int | None


class ListPage(NamedTuple):
    """One page of a list, the index that it was read from, and whether that index was unusable."""

    infos: Sequence[memoryview | bytes]
    next_token: str | None
    collection: str
    index_path: str
    is_fallback: bool


async def list_catalogs(lake: Lake, request: ListRequest) -> ListPage:
    return await _read_list(lake, CATALOGS, "catalogs", request, find_metastore)


async def list_schemas(lake: Lake, catalog: str, request: ListRequest) -> ListPage:
    """List the schemas of a catalog, its namespaces on the first level; NotFound if the catalog does not exist."""
    scope = namespaces_scope(catalog, None)
    return await _read_list(lake, scope, "schemas", request, partial(find_catalog, lake, catalog))


async def list_in_schema(
    lake: Lake, namespace: Namespace, kinds: Collection[str], collection: str, request: ListRequest
) -> ListPage:
    """List the names of some kinds in a schema; NotFound with the part of its name that does not exist."""
    find_container = partial(find_namespace, lake, namespace)
    async with naming_missing_parent(lake, namespace):
        return await _read_list(lake, names_scope(namespace), collection, request, find_container, kinds)


async def list_everywhere(
    lake: Lake, catalog: str | None, kind: Kind, collection: str, request: ListRequest
) -> ListPage:
    """List the names of one kind in all schemas of a catalog, or of all catalogs, in the order of the schemas."""
    subject = (lake.layout.root, collection, catalog or "")
    last = decode_page_token(request.token, subject).split(_SEPARATOR) if request.token else ["", "", ""]
    infos: list[memoryview] = []
    is_fallback = False
    async for schema, after in _schemas_from(lake, catalog, last):
        wanted = None if request.size is None else request.size - len(infos)
        page = await _read_schema(lake, schema, kind, last=after, wanted=wanted)
        infos += [memoryview(entry.info) for entry in page.entries]
        is_fallback |= page.is_fallback
        if request.size is not None and len(infos) >= request.size:
            end = page.entries[-1].name if page.entries else after or ""
            token = encode_page_token(subject, _SEPARATOR.join((schema.catalog, *schema.levels, end)))
            return ListPage(infos, token, collection, lake.layout.list_index(names_scope(schema)), is_fallback)
    path = lake.layout.list_index(namespaces_scope(catalog, None) if catalog else CATALOGS)
    if catalog and not infos:
        await load_catalog(lake, catalog)
    return ListPage(infos, None, collection, path, is_fallback)


async def _schemas_from(
    lake: Lake, catalog: str | None, last: Sequence[str]
) -> AsyncIterator[tuple[Namespace, str | None]]:
    """The schemas from that of the page token on; for that one also the name after which its page begins."""
    last_catalog, last_schema, last_name = last
    for found in [catalog] if catalog else await _names(lake, CATALOGS, find_metastore):
        if found < last_catalog:
            continue
        for schema in await _names(lake, namespaces_scope(found, None), partial(find_catalog, lake, found)):
            if (found, schema) >= (last_catalog, last_schema):
                is_last = (found, schema) == (last_catalog, last_schema)
                yield Namespace(found, (schema,)), last_name or None if is_last else None


async def _names(lake: Lake, scope: Scope, find_container: FindContainer) -> Sequence[str]:
    """The names in a scope that the caller may see; none if the container was dropped or hidden meanwhile."""
    with contextlib.suppress(NotFound):
        page = await read_visible_page(
            lake, scope, find_container, last=None, wanted=None, accepts=lambda entry: has_full_name(entry.name)
        )
        return sorted(entry.name for entry in page.entries)
    return ()


async def _read_schema(
    lake: Lake, schema: Namespace, kind: Kind, *, last: str | None, wanted: int | None
) -> EntriesPage:
    """The names of one kind in a schema; none if the schema was dropped or hidden meanwhile."""
    with contextlib.suppress(NotFound):
        return await read_visible_page(
            lake,
            names_scope(schema),
            partial(find_namespace, lake, schema),
            last=last,
            wanted=wanted,
            accepts=lambda entry: has_full_name(entry.name) and entry.kind == kind,
        )
    return EntriesPage((), None)


async def find_metastore() -> Container:
    async def chain(authority: Authority) -> Chain:
        return (authority.metastore,)

    return Container(chain, _METASTORE)


_METASTORE: Final = NotFound("Metastore does not exist", subject="metastore")  # Never raised: every caller sees it.


async def _read_list(
    lake: Lake,
    scope: Scope,
    collection: str,
    request: ListRequest,
    find_container: FindContainer,
    kinds: Collection[str] | None = None,
) -> ListPage:
    """Read the page; the container is found in the same round, and its error is raised."""
    subject = (lake.layout.root, collection, scope.text)
    page = await read_visible_page(
        lake,
        scope,
        find_container,
        last=decode_page_token(request.token, subject) if request.token else None,
        wanted=request.size,
        accepts=lambda entry: has_full_name(entry.name) and (kinds is None or entry.kind in kinds),
    )
    return ListPage(
        infos=[memoryview(entry.info) for entry in page.entries],
        next_token=None if page.next_last is None else encode_page_token(subject, page.next_last),
        collection=collection,
        index_path=lake.layout.list_index(scope),
        is_fallback=page.is_fallback,
    )
