"""Random histories of a Delta table against a model: commits, replays, reports, restarts."""

import asyncio
import contextlib
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandur.catalog.records import DeltaTable
from sandur.delta.requests import Comment, DeltaChange
from sandur.errors import Invalid, SwapLost, VersionTaken
from sandur.operations.delta.commit import update_table
from sandur.operations.delta.publishing import published_location, staged_location, unpublished_commits
from sandur.operations.delta.tables import load_delta_table
from sandur.operations.lake import Lake
from sandur.storage.memory import MemoryStore
from tests.fakes.fixed_clock import FixedClock
from tests.operations.delta_requests import D, commit_file, create_managed
from tests.operations.lakes import make_lake
from tests.operations.requests import request, set_up_catalog

ROOM = 1_000


class Commit(NamedTuple):
    """A commit `ahead` of the newest version, from one of a few files, with a report of published versions."""

    beyond: int
    file: str
    reported: int | None


class Publish(NamedTuple):
    """The client publishes a number of the oldest unpublished commits."""

    commits: int


class Report(NamedTuple):
    behind: int


class Annotate(NamedTuple):
    text: str


class Restart(NamedTuple):
    """Another server with empty caches takes over."""


Step = Commit | Publish | Report | Annotate | Restart

STEPS = st.one_of(
    st.builds(Commit, st.integers(-4, 2), st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3))),
    st.builds(Commit, st.just(1), st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 3))),
    st.builds(Publish, st.integers(1, 4)),
    st.builds(Report, st.integers(0, 3)),
    st.builds(Annotate, st.sampled_from(["x", "y"])),
    st.builds(Restart),
)


class History:
    """The table and its model: which file became which version, and which versions are published."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.store = MemoryStore(clock=self.clock)
        self.server = self.restarted()
        self.accepted: dict[int, str] = {}
        self.published: set[int] = set()
        self.comment: str | None = None

    def restarted(self) -> Lake:
        return make_lake(self.store, self.clock, delta_unpublished_max=ROOM)

    @property
    def newest(self) -> int:
        return len(self.accepted)

    async def begin(self) -> None:
        await set_up_catalog(self.server)
        self.table: DeltaTable = await create_managed(self.server)

    async def take(self, step: Step) -> None:
        match step:
            case Commit():
                await self._commit(step)
            case Publish():
                for version in sorted(set(self.accepted) - self.published)[: step.commits]:
                    location = published_location(self.table, version)
                    await self.server.locations.create(location, self.accepted[version].encode())
                    self.published.add(version)
            case Report():
                await self._report(max(self.newest - step.behind, 0))
            case Annotate():
                change = DeltaChange(asserted_uuid=self.table.uuid, comment=Comment(step.text))
                await update_table(self.server, D, change, request("annotate"))
                self.comment = step.text
            case Restart():
                await self.server.background.drain()
                self.server = self.restarted()
        await self._judge()

    async def _commit(self, step: Commit) -> None:
        version = self.newest + step.beyond
        name = f"{version}-{step.file}.json"
        with contextlib.suppress(SwapLost):  # The file was staged before.
            await self.server.locations.create(staged_location(self.table, name), name.encode())
        reported = None if step.reported is None else max(self.newest - step.reported, 0)
        change = DeltaChange(asserted_uuid=self.table.uuid, commit=commit_file(version, name), published=reported)
        said = "ok"
        try:
            await update_table(self.server, D, change, request("commit"))
        except (Invalid, VersionTaken) as error:
            said = type(error).__name__
        assert said == self._expected(version, name), (step, said)
        if version == self.newest + 1:
            self.accepted[version] = name

    def _expected(self, version: int, name: str) -> str:
        if version < 1 or version > self.newest + 1:
            return "Invalid"
        if version == self.newest + 1:
            return "ok"
        return "ok" if self.accepted[version] == name else "VersionTaken"

    async def _report(self, upto: int) -> None:
        change = DeltaChange(asserted_uuid=self.table.uuid, published=upto)
        if self.newest:
            await update_table(self.server, D, change, request("report"))

    async def _judge(self) -> None:
        for server in (self.server, self.restarted()):
            table = await load_delta_table(server, D)
            unpublished = {row.version: row.file_name for row in unpublished_commits(server, table)}
            assert table.last_version == self.newest
            assert table.comment == self.comment
            assert set(self.accepted) - set(unpublished) <= self.published, (
                "a version is neither unpublished nor published"
            )
            assert all(self.accepted[version] == name for version, name in unpublished.items())
            versions = sorted(unpublished)
            assert versions == list(range(self.newest - len(versions) + 1, self.newest + 1))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, max_size=30))
def test_every_history_of_a_delta_table_matches_the_model(steps: list[Step]) -> None:
    async def live() -> None:
        history = History()
        await history.begin()
        for step in steps:
            await history.take(step)
        await history.server.background.drain()

    asyncio.run(live())
