"""Stages that were never committed (S4): the record goes, and on a file system the folders that nobody used."""

from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.operations.tables.locations import remove_empty_directories
from sandur.settings import seconds_of
from sandur.storage.contract import Listed
from sandur.storage.layout import Layout


async def visit(lake: Lake, listed: Listed) -> Outcome:
    identifier, uuid = lake.layout.parse_stage(listed.key)
    cell = lake.stage(identifier, uuid)
    stage = await cell.read()
    if stage is None:
        return "changed"
    if stage.value.expires_ms > lake.clock.now_ms():
        return "kept"
    await cell.empty(expected=stage.version)
    # A client that still comes with its commit has its files there, and then they are not empty.
    remove_empty_directories(lake, stage.value.location)
    return "removed"


STAGES = Janitor("stages", Layout.stages_folder, lambda settings: seconds_of(settings.stage_ttl) * 1_000, visit)
