"""The directories of a table on a file system: engines that create none can write at once."""

import json
from pathlib import Path

import pytest

from sandur.catalog.records import Stage
from sandur.errors import BadRequest, SandurError
from sandur.operations.delta.tables import drop_table
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.views import create_view
from sandur.server.metrics import MeasuredStore, Metrics
from sandur.storage.local import LocalStore
from sandur.storage.retry import RetryingStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.delta_requests import D, create_managed
from tests.operations.lakes import OWN_ADDRESS, make_lake
from tests.operations.requests import NAMESPACE, content, create, identifier_of, request, set_up_catalog, table, view

T = identifier_of("t")
# Later than the modification time of every file, which comes from the real clock.
FAR_MS = 4_000_000_000_000


class Folder:
    """A lake in a folder, behind all the stores that the server wraps around it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FixedClock()
        store = MeasuredStore(RetryingStore(LocalStore(path, fsync="never"), self.clock), Metrics())
        self.lake: Lake = make_lake(store, self.clock)

    def at(self, location: str) -> Path:
        return self.path / location.removeprefix(f"{OWN_ADDRESS}/")

    async def stage(self, **fields: object) -> Path:
        staged = await create_table(self.lake, NAMESPACE, table("t", stage_create=True, **fields), request("stage t"))
        return self.at(content(staged)["location"])

    async def sweep(self) -> None:
        """Run all janitors."""

        def fail(what: str, error: SandurError) -> None:
            pytest.fail(f"{what}: {error}")

        self.clock.advance(FAR_MS - self.clock.now_ms())
        await run_janitors(self.lake, {}, on_error=fail)
        await self.lake.background.drain()


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    await set_up_catalog(folder.lake)
    return folder


def folders_in(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


async def test_a_new_table_has_folders_for_its_data_and_its_metadata(folder: Folder) -> None:
    made = await create(folder.lake, "t")

    assert folders_in(folder.at(content(made)["location"])) == ["data", "metadata"]


async def test_a_staged_table_has_folders_for_its_data_and_its_metadata(folder: Folder) -> None:
    location = await folder.stage()

    assert folders_in(location) == ["data", "metadata"]
    assert not await table_exists(folder.lake, T)


async def test_a_view_has_no_folder_for_data(folder: Folder) -> None:
    made = await create_view(folder.lake, NAMESPACE, view("v"), request("create v"))

    assert folders_in(folder.at(json.loads(made.metadata)["location"])) == ["metadata"]


async def test_a_file_at_the_path_of_a_folder_refuses_the_table(folder: Folder) -> None:
    wanted = content(await create(folder.lake, "u"))["location"].rpartition("/")[0] + "/wanted"
    folder.at(wanted).mkdir()
    (folder.at(wanted) / "data").write_bytes(b"")

    with pytest.raises(BadRequest):
        await folder.stage(location=wanted)
    with pytest.raises(BadRequest):
        await create_table(folder.lake, NAMESPACE, table("t", location=wanted), request("create t"))

    assert not await table_exists(folder.lake, T)


async def test_a_purge_removes_the_empty_folders_of_a_table(folder: Folder) -> None:
    location = folder.at(content(await create(folder.lake, "t"))["location"])

    await drop_name(folder.lake, T, kind="table", purge=True, request=request("drop t"))
    await folder.lake.background.drain()
    await folder.sweep()

    assert not location.exists()


async def test_the_empty_folders_of_an_expired_stage_are_removed(folder: Folder) -> None:
    location = await folder.stage()

    await folder.sweep()

    assert not location.exists()


async def test_the_files_of_an_expired_stage_stay(folder: Folder) -> None:
    location = await folder.stage()
    (location / "data" / "part.parquet").write_bytes(b"by an engine")

    await folder.sweep()

    assert folders_in(location) == ["data"]


async def test_a_live_table_keeps_its_folders_when_its_old_stage_expires(folder: Folder) -> None:
    """The commit died before it deleted the stage; the janitor finds the stage of a live table."""
    made = content(await create(folder.lake, "t"))
    stage = Stage(table_uuid="u", identifier=T, location=made["location"], created_ms=0, expires_ms=1)
    await folder.lake.stage(T, "u").create(stage)

    await folder.sweep()

    assert await folder.lake.stage(T, "u").read() is None
    assert folders_in(folder.at(made["location"])) == ["data", "metadata"]


async def test_a_purged_delta_table_leaves_no_directories(folder: Folder) -> None:
    """Its directory for commits may never have had a file."""
    made = await create_managed(folder.lake)
    await folder.lake.locations.create(f"{made.location}/_delta_log/{0:020d}.json", b"{}")
    await folder.lake.background.drain()
    assert (folder.at(made.location) / "_delta_log" / "_staged_commits").is_dir()

    await drop_table(folder.lake, D, request=request("drop"))
    await folder.sweep()

    assert not folder.at(made.location).exists()
