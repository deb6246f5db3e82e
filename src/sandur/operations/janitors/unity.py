"""What only Unity Catalog's API makes, once it is over: records without a name, and what stands where something was."""

from sandur.catalog.model_versions import ModelVersion
from sandur.catalog.records import Catalog
from sandur.catalog.users import User
from sandur.operations.janitors.pointers import age_ms, visit_cell
from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.namespace_changes import help_predecessor
from sandur.operations.workspace import Workspace
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell
from sandur.storage.layout import Layout
from sandur.storage.object_store import Listed


async def visit_securable(workspace: Workspace, listed: Listed) -> Outcome:
    """A volume, function or model, which is a pointer like any other (GC2, GC3)."""
    cell = workspace.pointer(workspace.layout.read_securable(listed.key), "unity")
    return await visit_cell(workspace, cell, listed)


async def visit_catalog(workspace: Workspace, listed: Listed) -> Outcome:
    return await _visit(workspace, workspace.catalog(workspace.layout.read_catalog(listed.key)), listed)


async def visit_model_version(workspace: Workspace, listed: Listed) -> Outcome:
    return await _visit(workspace, Cell(workspace.store, listed.key, ModelVersion, workspace.clock), listed)


async def visit_user(workspace: Workspace, listed: Listed) -> Outcome:
    return await _visit(workspace, Cell(workspace.store, listed.key, User, workspace.clock), listed)


async def _visit(
    workspace: Workspace, cell: Cell[Catalog] | Cell[ModelVersion] | Cell[User], listed: Listed
) -> Outcome:
    """N9: a day after it was dropped nothing that expects it absent can still be on its way."""
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(workspace, found.value)  # G6: whoever dropped it is told.
    await cell.empty(expected=found.version)
    return "removed"


def _age_ms(settings: Settings) -> int:
    return seconds_of(settings.name_retention) * 1_000


SECURABLES = Janitor("securables", Layout.securables_folder, age_ms, visit_securable)
CATALOGS = Janitor("catalogs", Layout.catalogs_folder, _age_ms, visit_catalog)
MODEL_VERSIONS = Janitor("model_versions", Layout.all_model_versions_folder, _age_ms, visit_model_version)
USERS = Janitor("users", Layout.users_folder, _age_ms, visit_user)

UNITY = (CATALOGS, SECURABLES, MODEL_VERSIONS, USERS)
