"""What only Unity Catalog's API makes, once it is over: records without a name, and what stands where something was."""

from sandur.catalog.records import Catalog
from sandur.catalog.securables import ModelVersion
from sandur.catalog.users import User
from sandur.operations.janitors.pointers import age_ms, visit_cell
from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import help_predecessor
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout


async def visit_securable(lake: Lake, listed: Listed) -> Outcome:
    """A volume, function or model, which is a pointer like any other (GC2, GC3)."""
    cell = lake.pointer(lake.layout.parse_securable(listed.key), "unity")
    return await visit_cell(lake, cell, listed)


async def visit_catalog(lake: Lake, listed: Listed) -> Outcome:
    return await _visit(lake, lake.catalog(lake.layout.parse_catalog(listed.key)), listed)


async def visit_model_version(lake: Lake, listed: Listed) -> Outcome:
    return await _visit(lake, Cell(lake.store, listed.key, ModelVersion, lake.clock), listed)


async def visit_user(lake: Lake, listed: Listed) -> Outcome:
    return await _visit(lake, Cell(lake.store, listed.key, User, lake.clock), listed)


async def _visit(lake: Lake, cell: Cell[Catalog] | Cell[ModelVersion] | Cell[User], listed: Listed) -> Outcome:
    """N9: a day after it was dropped nothing that expects it absent can still be on its way."""
    found = await cell.read()
    if found is None or found.version != listed.version:
        return "changed"
    if found.value.state != "dropped":
        return "kept"
    await help_predecessor(lake, found.value)  # G6: whoever dropped it is told.
    await cell.empty(expected=found.version)
    return "removed"


def _age_ms(settings: Settings) -> int:
    return seconds_of(settings.name_retention) * 1_000


SECURABLES = Janitor("securables", Layout.securables_folder, age_ms, visit_securable)
CATALOGS = Janitor("catalogs", Layout.catalogs_folder, _age_ms, visit_catalog)
MODEL_VERSIONS = Janitor("model_versions", Layout.all_model_versions_folder, _age_ms, visit_model_version)
USERS = Janitor("users", Layout.users_folder, _age_ms, visit_user)

UNITY = (CATALOGS, SECURABLES, MODEL_VERSIONS, USERS)
