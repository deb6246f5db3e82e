"""Servers on one store with a generated table, and functions that send requests to them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import Request
from sandur.iceberg.scan.requests import decode_scan_request
from sandur.operations.lake import Lake
from sandur.operations.planning import plans
from sandur.operations.planning.cache import PlanningCache
from sandur.operations.planning.plans import Completed, Result, Submitted
from sandur.operations.tables.register import register_table
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from sandur.storage.locations import Locations
from tests.fakes.fixed_clock import FixedClock
from tests.operations.requests import NAMESPACE, identifier_of, request, set_up_catalog
from tests.planning.planners import Task, scan_request, tasks_in
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec

TABLE: Final = identifier_of("t")
PLAIN: Final = Spec(0)
LAYOUT: Final = Layout()
SMALL: Final[Mapping[str, Any]] = {"plan_inline_files_max": 5, "plan_task_files": 4}
"""Settings with which even small plans have tasks."""
LOOKS_MAX: Final = 5


class Fleet:
    """Servers that share a store and a clock, and nothing else."""

    def __init__(self, folder: Path, *, store: ObjectStore | None = None, **settings: Any) -> None:
        self.folder = folder
        self.clock = FixedClock()
        self.store = store or LocalStore(folder, fsync="never")
        self.settings = msgspec.convert({"store": str(folder), "plan_wait": "PT2M", **settings}, Settings)

    def server(self, layout: Layout = LAYOUT, **settings: Any) -> Lake:
        """A server that has just started."""
        locations = Locations(f"file://{self.folder}", self.store, open_store=lambda _: self.store)
        changed = msgspec.structs.replace(self.settings, **settings)
        return Lake(store=self.store, layout=layout, clock=self.clock, settings=changed, locations=locations)

    @property
    def table_folder(self) -> Path:
        return self.folder / "tables/default/default/main/a/t"

    async def serve_table(self, table: MadeTable, layout: Layout = LAYOUT) -> Lake:
        """A server on which the table is registered."""
        server = self.server(layout)
        await set_up_catalog(server)
        await register_table(
            server, NAMESPACE, "t", f"file://{table.write()}", overwrite=False, request=request("register")
        )
        await server.background.drain()
        return server


def numbered(first: int, count: int) -> list[MadeFile]:
    """Files with one row each, whose id is their number."""
    return [
        MadeFile(f"file:///t/data/{number}.parquet", (), [{"id": number, "name": f"n{number}"}])
        for number in range(first, first + count)
    ]


def paths(first: int, stop: int) -> list[str]:
    """The paths of the files with these numbers."""
    return [f"file:///t/data/{number}.parquet" for number in range(first, stop)]


def made_table(folder: Path, *sizes: int) -> MadeTable:
    """A table with one manifest for each size."""
    table = MadeTable(folder, [PLAIN])
    first = 0
    manifests = []
    for size in sizes:
        manifests.append(MadeManifest(PLAIN, numbered(first, size)))
        first += size
    table.add_snapshot(manifests)
    return table


def request_by(principal: str = "ann", *, key: str | None = None) -> Request:
    return Request("hash", key, Source(kind="rest", principal=principal))


async def request_plan(
    server: Lake, *, by: Request | None = None, table: Identifier = TABLE, body: bytes | None = None, **said: Any
) -> Result:
    """The result of a plan request with these fields, or with this body."""
    wanted = scan_request(**said) if body is None else decode_scan_request(body)
    return await plans.plan_table_scan(server, table, wanted, by or request_by())


async def polled(server: Lake, plan_id: str, principal: str = "ann", *, table: Identifier = TABLE) -> Result:
    return await plans.fetch_planning_result(server, table, plan_id, principal=principal)


async def cancelled(server: Lake, plan_id: str, principal: str = "ann", *, table: Identifier = TABLE) -> None:
    await plans.cancel_planning(server, table, plan_id, principal=principal)


async def fetched(server: Lake, token: str, principal: str = "ann", *, table: Identifier = TABLE) -> list[Task]:
    return tasks_in(await plans.fetch_scan_tasks(server, table, token, principal=principal))


async def finished(server: Lake, result: Result) -> Result:
    """The final result: fetched again each time this server's work on it has ended."""
    for _ in range(LOOKS_MAX):
        if not isinstance(result, Submitted):
            return result
        if under_way := tuple(server.feature(PlanningCache).plans._tasks.values()):
            await asyncio.wait(under_way)
        result = await polled(server, result.plan_id)
    raise AssertionError("the plan is never finished")


async def everything(server: Lake, result: Result, *, table: Identifier = TABLE) -> Sequence[str]:
    """The paths of all files of a completed plan, in the answer and in its tasks, including repetitions."""
    assert isinstance(result, Completed)
    paths = [task.path for task in tasks_in(result.result.fields)]
    for token in result.result.plan_tasks:
        paths += [task.path for task in await fetched(server, token, table=table)]
    return paths
