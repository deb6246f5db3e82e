"""Whether the namespace that something was made for is still there (N4, N6)."""

from typing import Final

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Catalog, NamespaceRecord
from sandur.errors import Busy, SwapLost
from sandur.operations.workspace import Workspace
from sandur.storage.cell import Held

TRIES_MAX: Final = 8


async def look_up_namespace(workspace: Workspace, namespace: Namespace) -> Held[NamespaceRecord] | None:
    """The namespace as a reader sees it; None when there is none. One that is being dropped still exists."""
    found = await workspace.namespace(namespace).read()
    if found is None or not await is_shown(workspace, namespace, found.value):
        return None
    return found


async def confirm_namespace(workspace: Workspace, namespace: Namespace, namespace_id: str) -> bool:
    """N4: after a child was written, whether its namespace is there; `dropping` is called off by the child (N6)."""
    cell = workspace.namespace(namespace)
    for _ in range(TRIES_MAX):
        found = await cell.read()
        if found is None or found.value.id != namespace_id or not await is_shown(workspace, namespace, found.value):
            return False
        if found.value.state != "dropping":
            return True
        try:
            await cell.swap(replace(found.value, state="active"), expected=found.version)
        except SwapLost:
            continue
        return True
    raise Busy(f"namespace {namespace}: it keeps changing")


async def is_shown(workspace: Workspace, namespace: Namespace, record: NamespaceRecord) -> bool:
    """A `new` namespace is a child like any other: it exists if its parent, read after it, is that it was made for."""
    if record.state == "dropped":
        return False
    if record.state != "new":
        return True
    return await confirm_parent(workspace, namespace, record.parent_id)


async def confirm_parent(workspace: Workspace, namespace: Namespace, parent_id: str) -> bool:
    """As `confirm_namespace`, for a namespace that was written: its parent is another one, or the catalog."""
    if namespace.parent is not None:
        return await confirm_namespace(workspace, namespace.parent, parent_id)
    return await _confirm_catalog(workspace, namespace.catalog, parent_id)


async def _confirm_catalog(workspace: Workspace, name: str, catalog_id: str) -> bool:
    cell = workspace.catalog(name)
    for _ in range(TRIES_MAX):
        found = await cell.read()
        if found is None or not exists(found.value) or found.value.id != catalog_id:
            return False
        if found.value.state != "dropping":
            return True
        try:
            await cell.swap(replace(found.value, state="active"), expected=found.version)
        except SwapLost:
            continue
        return True
    raise Busy(f"catalog {name}: it keeps changing")


def exists(catalog: Catalog) -> bool:
    """Whether readers see the catalog; one that is being dropped still exists."""
    return catalog.state != "dropped"
