"""Lists of Unity Catalog's API, read from the index alone: its entries hold the JSON of the answer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import NamedTuple

from sandur.catalog.identifiers import Kind, Namespace, has_full_name
from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.index.lists import find_namespace, prefetch, read_page
from sandur.operations.lake import Lake
from sandur.storage.cell import gather_all

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
    return await _read_list(lake, CATALOGS, "catalogs", request)


async def list_schemas(lake: Lake, catalog: str, request: ListRequest) -> ListPage:
    """List the schemas of a catalog, its namespaces on the first level; NotFound if the catalog does not exist."""
    scope = namespaces_scope(catalog, None)
    return await _read_list(lake, scope, "schemas", request, lambda: load_catalog(lake, catalog))


async def list_in_schema(
    lake: Lake, namespace: Namespace, kinds: Collection[str], collection: str, request: ListRequest
) -> ListPage:
    """List the names of some kinds in a schema; NotFound if the schema does not exist."""

    async def require_schema() -> None:
        await gather_all((load_catalog(lake, namespace.catalog), find_namespace(lake, namespace)))

    return await _read_list(lake, names_scope(namespace), collection, request, require_schema, kinds)


async def list_everywhere(
    lake: Lake, catalog: str | None, kind: Kind, collection: str, request: ListRequest
) -> ListPage:
    """List the names of one kind in all schemas of a catalog, or of all catalogs, in the order of the schemas."""
    subject = (lake.layout.root, collection, catalog or "")
    last = decode_page_token(request.token, subject).split(_SEPARATOR) if request.token else ["", "", ""]
    infos: list[memoryview] = []
    is_fallback = False
    async for schema, after in _schemas_from(lake, catalog, last):
        page = await read_page(
            lake,
            names_scope(schema),
            last=after,
            wanted=None if request.size is None else request.size - len(infos),
            accepts=lambda entry: has_full_name(entry.name) and entry.kind == kind,
        )
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
    for found in [catalog] if catalog else await _names(lake, CATALOGS):
        if found < last_catalog:
            continue
        for schema in await _names(lake, namespaces_scope(found, None)):
            if (found, schema) >= (last_catalog, last_schema):
                is_last = (found, schema) == (last_catalog, last_schema)
                yield Namespace(found, (schema,)), last_name or None if is_last else None


async def _names(lake: Lake, scope: Scope) -> Sequence[str]:
    page = await read_page(lake, scope, last=None, wanted=None)
    return [entry.name for entry in page.entries if has_full_name(entry.name)]


async def _read_list(
    lake: Lake,
    scope: Scope,
    collection: str,
    request: ListRequest,
    require_parent: Callable[[], Awaitable[object]] | None = None,
    kinds: Collection[str] | None = None,
) -> ListPage:
    """Read the page; the check of the parent runs in the same round, and its error is raised."""
    subject = (lake.layout.root, collection, scope.text)
    last = decode_page_token(request.token, subject) if request.token else None
    fetching = prefetch(lake, scope, last=last, wanted=request.size)
    seen = (await gather_all((require_parent(), fetching)))[1] if require_parent else await fetching
    page = await read_page(
        lake,
        scope,
        last=last,
        wanted=request.size,
        accepts=lambda entry: has_full_name(entry.name) and (kinds is None or entry.kind in kinds),
        seen=seen,
    )
    return ListPage(
        infos=[memoryview(entry.info) for entry in page.entries],
        next_token=None if page.next_last is None else encode_page_token(subject, page.next_last),
        collection=collection,
        index_path=lake.layout.list_index(scope),
        is_fallback=page.is_fallback,
    )
