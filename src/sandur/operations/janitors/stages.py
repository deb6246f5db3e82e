"""Stages that were never committed (S4): the record goes, and nothing else; there is nothing else."""

from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.workspace import Workspace
from sandur.settings import seconds_of
from sandur.storage.layout import Layout
from sandur.storage.object_store import Listed


async def visit(workspace: Workspace, listed: Listed) -> Outcome:
    identifier, uuid = workspace.layout.read_stage(listed.key)
    cell = workspace.stage(identifier, uuid)
    stage = await cell.read()
    if stage is None:
        return "changed"
    if stage.value.expires_ms > workspace.clock.now_ms():
        return "kept"
    await cell.empty(expected=stage.version)
    return "removed"


STAGES = Janitor("stages", Layout.stages_folder, lambda settings: seconds_of(settings.stage_ttl) * 1_000, visit)
