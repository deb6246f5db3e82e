"""Whether the namespace or catalog that something was made for is still there (N4, N6)."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Catalog, NamespaceRecord
from sandur.errors import Busy, SwapLost
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Held

H = TypeVar("H", Catalog, NamespaceRecord)

TRIES_MAX: Final = 8


async def look_up_namespace(lake: Lake, namespace: Namespace) -> Held[NamespaceRecord] | None:
    """The namespace as a reader sees it; None when there is none. One that is being dropped still exists."""
    found = await lake.namespace(namespace).read()
    if found is None or not await is_shown(lake, namespace, found.value):
        return None
    return found


async def confirm_namespace(lake: Lake, namespace: Namespace, namespace_id: str) -> bool:
    """N4: after a child was written, whether its namespace is there; `dropping` is called off by the child (N6)."""

    async def is_there(record: NamespaceRecord) -> bool:
        return await is_shown(lake, namespace, record)

    return await _confirm(lake.namespace(namespace), namespace_id, is_there)


async def is_shown(lake: Lake, namespace: Namespace, record: NamespaceRecord) -> bool:
    """A `new` namespace is a child like any other: it exists if its parent, read after it, is that it was made for."""
    if record.state == "dropped":
        return False
    if record.state != "new":
        return True
    return await confirm_parent(lake, namespace, record.parent_id)


async def confirm_parent(lake: Lake, namespace: Namespace, parent_id: str) -> bool:
    """As `confirm_namespace`, for a namespace that was written: its parent is another one, or the catalog."""
    if namespace.parent is not None:
        return await confirm_namespace(lake, namespace.parent, parent_id)

    async def is_there(record: Catalog) -> bool:
        return exists(record)

    return await _confirm(lake.catalog(namespace.catalog), parent_id, is_there)


async def _confirm(cell: Cell[H], home_id: str, is_there: Callable[[H], Awaitable[bool]]) -> bool:
    for _ in range(TRIES_MAX):
        found = await cell.read()
        if found is None or found.value.id != home_id or not await is_there(found.value):
            return False
        if found.value.state != "dropping":
            return True
        try:
            await cell.swap(replace(found.value, state="active"), expected=found.version)
        except SwapLost:
            continue
        return True
    raise Busy(f"{cell.key}: it keeps changing")


def exists(catalog: Catalog) -> bool:
    """Whether readers see the catalog; one that is being dropped still exists."""
    return catalog.state != "dropped"
