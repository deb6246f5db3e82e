"""One tree, two protocols, three servers: both protocols return the same names after every change."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from sandur.catalog.identifiers import Identifier, Kind, Namespace
from sandur.catalog.records import Request
from sandur.errors import AlreadyExists, NotEmpty, NotFound, SandurError
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.drop import drop_catalog, drop_namespace
from sandur.operations.containers.namespaces import create_namespace, list_namespaces, namespace_exists
from sandur.operations.delta.tables import NewTable, rename_table
from sandur.operations.index.lists import list_names
from sandur.operations.lake import Lake, complete_new_store
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import table_exists
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.operations.unity import schemas, securables, tables
from sandur.operations.unity.lists import ListRequest, list_catalogs, list_in_schema, list_schemas
from sandur.storage.memory import MemoryStore
from tests.crash.unity_mutations import FUNCTION
from tests.fakes.fixed_clock import FixedClock
from tests.operations.lakes import make_lake
from tests.operations.requests import request, table

SERVERS: Final = 3
CATALOGS: Final = ("c", "d")
SCHEMAS: Final = ("s", "t")
NAMES: Final = ("x", "y", "z")
KINDS: Final = ("iceberg", "csv", "volume", "function", "model")
ALL: Final = ListRequest(None, None)
TABLES: Final = ("table", "view")

places = st.tuples(st.sampled_from(CATALOGS), st.sampled_from(SCHEMAS))
kinds = st.sampled_from(KINDS)
servers = st.integers(0, SERVERS - 1)

Tree = dict[str, dict[str, dict[str, str]]]
Expected = type[SandurError] | tuple[type[SandurError], ...] | None


class TreeMachine(RuleBasedStateMachine):
    """The model is a tree of dictionaries; after every step each server returns it through both protocols."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tree: Tree = {}
        self.number = 0

    @initialize(seed=st.integers(0, 2**16))
    def open(self, seed: int) -> None:
        clock = FixedClock(seed=seed)
        store = MemoryStore(seed=seed, clock=clock)
        self.servers = [make_lake(store, clock) for _ in range(SERVERS)]
        self.tree = {}
        self._do(complete_new_store(store, clock), None)
        for catalog in CATALOGS:
            self._do(create_catalog(self.servers[0], catalog, root=None, properties={}, request=self._request()), None)
            self._do(create_namespace(self.servers[0], Namespace(catalog, ("s",)), {}, self._request()), None)
            self.tree[catalog] = {"s": {}}

    @rule(catalog=st.sampled_from(CATALOGS), server=servers)
    def make_catalog(self, catalog: str, server: int) -> None:
        expected = AlreadyExists if catalog in self.tree else None
        work = create_catalog(self.servers[server], catalog, root=None, properties={}, request=self._request())
        if self._do(work, expected):
            self.tree[catalog] = {}

    @rule(catalog=st.sampled_from(CATALOGS), server=servers, force=st.booleans())
    def drop_one_catalog(self, catalog: str, server: int, force: bool) -> None:  # noqa: FBT001 - Hypothesis gives names
        expected: Expected = None
        if catalog not in self.tree:
            expected = NotFound
        elif self.tree[catalog] and not force:
            expected = NotEmpty
        if self._do(drop_catalog(self.servers[server], catalog, force=force, request=self._request()), expected):
            del self.tree[catalog]

    @rule(place=places, server=servers, through_unity=st.booleans())
    def make_schema(self, place: tuple[str, str], server: int, through_unity: bool) -> None:  # noqa: FBT001 - as above
        catalog, schema = place
        expected: Expected = None
        if catalog not in self.tree:
            expected = NotFound
        elif schema in self.tree[catalog]:
            expected = AlreadyExists
        lake, namespace = self.servers[server], Namespace(catalog, (schema,))
        work: Awaitable[object]
        if through_unity:
            work = schemas.create_schema(
                lake, namespace, comment=None, properties={}, storage_root=None, request=self._request()
            )
        else:
            work = create_namespace(lake, namespace, {}, self._request())
        if self._do(work, expected):
            self.tree[catalog][schema] = {}

    @rule(place=places, server=servers, way=st.sampled_from(["iceberg", "unity", "force"]))
    def drop_one_schema(self, place: tuple[str, str], server: int, way: str) -> None:
        catalog, schema = place
        content = self.tree.get(catalog, {}).get(schema)
        expected: Expected = None
        if content is None:
            expected = NotFound
        elif content and way != "force":
            expected = NotEmpty
        lake, namespace = self.servers[server], Namespace(catalog, (schema,))
        work: Awaitable[object]
        if way == "iceberg":
            work = drop_namespace(lake, namespace, self._request())
        else:
            work = schemas.drop_schema(lake, namespace, force=way == "force", request=self._request())
        if self._do(work, expected):
            del self.tree[catalog][schema]

    @rule(place=places, name=st.sampled_from(NAMES), kind=kinds, server=servers)
    def make(self, place: tuple[str, str], name: str, kind: str, server: int) -> None:
        content = self._content(place)
        expected: Expected = NotFound if content is None else AlreadyExists if name in content else None
        if self._do(self._made(self.servers[server], Identifier(place[0], (place[1],), name), kind), expected):
            self.tree[place[0]][place[1]][name] = kind

    @rule(place=places, name=st.sampled_from(NAMES), kind=kinds, server=servers)
    def drop(self, place: tuple[str, str], name: str, kind: str, server: int) -> None:
        content = self._content(place)
        is_there = content is not None and content.get(name) == kind
        identifier = Identifier(place[0], (place[1],), name)
        if kind == "csv" and content is not None and content.get(name) == "iceberg":
            is_there = True  # This operation drops tables of every format.
        if self._do(self._dropped(self.servers[server], identifier, kind), None if is_there else NotFound):
            del self.tree[place[0]][place[1]][name]

    @rule(place=places, pair=st.permutations(NAMES), kind=kinds, server=servers)
    def move(self, place: tuple[str, str], pair: list[str], kind: str, server: int) -> None:
        if kind == "function":
            return
        content = self._content(place)
        source, target = pair[:2]
        found = content.get(source) if content is not None else None
        is_there = found == kind or (kind == "csv" and found == "iceberg")
        expected: Expected = None if is_there else NotFound
        if is_there and content is not None and target in content:
            expected = AlreadyExists
        one, other = (Identifier(place[0], (place[1],), name) for name in (source, target))
        if self._do(self._moved(self.servers[server], one, other, kind), expected) and found:
            renamed = self.tree[place[0]][place[1]]
            renamed[target] = renamed.pop(source)

    def teardown(self) -> None:
        self.loop.close()

    def _content(self, place: tuple[str, str]) -> dict[str, str] | None:
        return self.tree.get(place[0], {}).get(place[1])

    def _made(self, server: Lake, identifier: Identifier, kind: str) -> Awaitable[object]:
        sent = self._request()
        match kind:
            case "iceberg":
                return create_table(server, identifier.namespace, table(identifier.name), sent)
            case "csv":
                location = f"{server.area}/{identifier.catalog}/{self.number}"
                wanted = NewTable(
                    identifier=identifier, table_type="EXTERNAL", data_source_format="CSV", location=location
                )
                return tables.create_table(server, wanted, sent)
            case "volume":
                return securables.create_volume(
                    server, identifier, volume_type="MANAGED", location=None, comment=None, request=sent
                )
            case "function":
                return securables.create_function(server, identifier, FUNCTION, comment=None, request=sent)
            case _:
                return securables.create_model(server, identifier, comment=None, request=sent)

    def _dropped(self, server: Lake, identifier: Identifier, kind: str) -> Awaitable[object]:
        match kind:
            case "iceberg":
                return drop_name(server, identifier, kind="table", request=self._request())
            case "csv":
                return tables.drop_table(server, identifier, self._request())
            case _:
                return securables.drop_securable(server, identifier, _kind_of(kind), self._request())

    def _moved(self, server: Lake, source: Identifier, target: Identifier, kind: str) -> Awaitable[object]:
        match kind:
            case "iceberg":
                return rename(server, source, target, kind="table", request=self._request())
            case "csv":
                return rename_table(server, source, target.name, request=self._request())
            case _:
                return securables.update_securable(
                    server, source, _kind_of(kind), comment=None, new_name=target.name, request=self._request()
                )

    def _request(self) -> Request:
        self.number += 1
        return request(f"request {self.number}")

    def _do(self, work: Awaitable[object], expected: Expected) -> bool:
        """Returns whether it succeeded. The outcome and the state of all servers must match the model."""
        return self.loop.run_until_complete(self._done(work, expected))

    async def _done(self, work: Awaitable[object], expected: Expected) -> bool:
        refusal: SandurError | None = None
        try:
            await work
        except SandurError as error:
            refusal = error
        assert isinstance(refusal, expected or type(None)), f"{refusal!r} instead of {expected}"
        await asyncio.gather(*(server.background.drain() for server in self.servers))
        return refusal is None

    @rule()
    def look(self) -> None:
        for server in self.servers:
            self.loop.run_until_complete(self._seen_by(server))

    async def _seen_by(self, server: Lake) -> None:
        listed = await list_catalogs(server, ALL)
        assert _names(listed.infos) == sorted(self.tree)
        for catalog, content in self.tree.items():
            assert _names((await list_schemas(server, catalog, ALL)).infos) == sorted(content)
            spaces = await list_namespaces(server, catalog, parent=None, page_token=None, page_size=None)
            assert [space.levels[-1] for space in spaces.entries] == sorted(content)
            for schema, names in content.items():
                await self._schema_seen_by(server, Namespace(catalog, (schema,)), names)

    async def _schema_seen_by(self, server: Lake, namespace: Namespace, names: dict[str, str]) -> None:
        assert await namespace_exists(server, namespace)
        by_kind = {kind: sorted(name for name, found in names.items() if found == kind) for kind in KINDS}
        iceberg = await list_names(server, namespace, kind="table", page_token=None, page_size=None)
        assert [entry.name for entry in iceberg.entries] == by_kind["iceberg"]
        unity = await list_in_schema(server, namespace, TABLES, "tables", ALL)
        assert _names(unity.infos) == sorted([*by_kind["iceberg"], *by_kind["csv"]])
        for kind in ("volume", "function", "model"):
            assert _names((await list_in_schema(server, namespace, (kind,), kind, ALL)).infos) == by_kind[kind]
        for name in NAMES:
            assert await table_exists(server, Identifier(*namespace, name)) == (names.get(name) == "iceberg")


def _kind_of(kind: str) -> Kind:
    known: dict[str, Kind] = {"volume": "volume", "function": "function", "model": "model"}
    return known[kind]


def _names(infos: Sequence[memoryview | bytes]) -> list[str]:
    return [msgspec.json.decode(info)["name"] for info in infos]


def _run(examples: int, steps: int, profile: settings | None = None) -> None:
    run_state_machine_as_test(
        TreeMachine,
        settings=settings(
            profile,
            max_examples=examples,
            stateful_step_count=steps,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_both_protocols_return_the_same_tree() -> None:
    _run(examples=25, steps=25)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_both_protocols_return_the_same_tree_in_a_long_run() -> None:
    _run(examples=1_000, steps=50, profile=settings.get_profile("by-chance"))
