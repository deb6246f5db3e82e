"""`verify` finds every kind of damage by its kind, and nothing in a store that requests, crashes and janitors left."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx
import msgspec
import pytest

from sandur.catalog.verification.findings import PROBLEMS, Finding
from sandur.clock import SystemClock
from sandur.operations.dry_run import DryRunStore
from sandur.operations.lake import Lakes
from sandur.operations.published import CoreManifest, CorePointer, Dataset, PublishedFile
from sandur.operations.verification.run import verify
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.layout import Layout
from tests.compatibility.tour import NAMESPACES, KeptStore, fill, texts
from tests.crash.mutations import MUTATIONS, Mutation, World, make_world
from tests.fakes.dying_store import Died, DyingStore
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.yielding_store import YieldingStore
from tests.operations.mixed_load import Load
from tests.server.conftest import with_plain_names
from tests.server.requests import create_table, set_properties

DAY_MS: Final = 86_400_000
CALLS_MAX: Final = 80
SETTINGS: Final = Settings(store="memory:", log_level="error", janitors=False)
NAMED: Final = "memory://store/tables/default/default/main/named"
ROOT: Final = Layout().root

Objects = dict[str, str]
Damage = Callable[[Objects], None]


class LaterClock(SystemClock):
    """Some days from now. Pauses take no time."""

    def __init__(self, days: int = 0) -> None:
        super().__init__()
        self._later_ms = days * DAY_MS

    def now_ms(self) -> int:
        return super().now_ms() + self._later_ms

    async def sleep(self, seconds: float) -> None:
        del seconds
        await asyncio.sleep(0)


async def findings_of(store: ObjectStore, *, days: int = 3, settings: Settings = SETTINGS) -> list[Finding]:
    """The findings that call for action, as they are some days later."""
    lakes = Lakes(settings, LaterClock(days), DryRunStore(store))
    return [one async for one in verify(lakes, settings) if one.severity != "in_flight"]


async def _filled() -> Objects:
    """One object of every kind, of both formats; a table at a named place; a feed, and something published."""
    store = KeptStore()
    app, catalog = build(SETTINGS, store=store)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        await fill(client)
        for body in ({**create_table("named"), "location": NAMED}, create_table("other")):
            assert (await client.post(f"{NAMESPACES}/s/tables", json=body)).status_code == 200
        for number in range(3):
            path = f"{NAMESPACES}/s/tables/named"
            assert (await client.post(path, json=set_properties(number=str(number)))).status_code == 200
        assert (await client.get("/api/sandur/v1/events")).status_code == 200
    await catalog.close()
    await _publish(store)
    objects = await texts(store)
    (table,) = _of(objects, "delta_tables/").values()
    objects[_staged_key(table)] = "{}"
    return objects


def _staged_key(table: Mapping[str, Any]) -> str:
    location, name = table["location"], table["commits"][-1]["file_name"]
    return f"{location.removeprefix('memory://store/')}/_delta_log/_staged_commits/{name}"


async def _publish(store: ObjectStore) -> None:
    layout = Layout()
    file = PublishedFile(key=layout.core_snapshot("a", "f.parquet"), rows=1, size_bytes=5, sha256="")
    manifest = CoreManifest(sequence=1, datasets={"commits": Dataset(sequence=1, files=(file,))})
    place = layout.core_snapshot("a", "manifest.json")
    pointer = CorePointer(sequence=1, manifest=place, published_ms=1, v=3, event_id=("x",))
    await store.put(file.key, b"12345", expected=ABSENT)
    await store.put(place, msgspec.json.encode(manifest), expected=ABSENT)
    await store.put(layout.core_manifest(), msgspec.json.encode(pointer), expected=ABSENT)


def _of(objects: Objects, part: str) -> dict[str, Any]:
    return {key: json.loads(text) for key, text in objects.items() if key.startswith(f"{ROOT}{part}")}


@pytest.fixture(scope="module")
def objects() -> Objects:
    return asyncio.run(_filled())


async def _stored(objects: Objects) -> KeptStore:
    store = KeptStore()
    for key, text in objects.items():
        await store.put(key, text.encode(), expected=ABSENT)
    return store


NAME: Final = f"{ROOT}names/main/s/named.json"


def change(part: str, **fields: object) -> Damage:
    """Change fields of the first record whose key contains the part; None removes one."""

    def damage(objects: Objects) -> None:
        key = next(key for key in sorted(objects) if part in key)
        record = {**json.loads(objects[key]), **fields}
        objects[key] = json.dumps({name: value for name, value in record.items() if value is not None})

    return damage


def remove(part: str) -> Damage:
    def damage(objects: Objects) -> None:
        del objects[next(key for key in sorted(objects) if part in key)]

    return damage


def garble(part: str) -> Damage:
    def damage(objects: Objects) -> None:
        objects[next(key for key in sorted(objects) if part in key)] = "{"

    return damage


def pointer_of(objects: Objects, name: str = "named") -> tuple[str, dict[str, Any]]:
    uuid = json.loads(objects[f"{ROOT}names/main/s/{name}.json"])["uuid"]
    key = f"{ROOT}iceberg_pointers/{uuid}.json"
    return key, json.loads(objects[key])


def change_pointer(**fields: object) -> Damage:
    return lambda objects: change(pointer_of(objects)[0], **fields)(objects)


def _metadata_key(objects: Objects, name: str = "named") -> str:
    location: str = pointer_of(objects, name)[1]["head"]["metadata_location"]
    return location.removeprefix("memory://store/")


def remove_metadata(objects: Objects) -> None:
    del objects[_metadata_key(objects)]


def move_metadata(objects: Objects) -> None:
    """To a place that the settings do not allow."""
    key, pointer = pointer_of(objects)
    head = {**pointer["head"], "metadata_location": "s3://elsewhere/metadata/00001-a.metadata.json"}
    objects[key] = json.dumps({**pointer, "head": head})


def garble_metadata(objects: Objects) -> None:
    objects[_metadata_key(objects)] = "no metadata"


def exchange_metadata(objects: Objects) -> None:
    objects[_metadata_key(objects)] = objects[_metadata_key(objects, "other")]


def move_snapshot(objects: Objects) -> None:
    key, pointer = pointer_of(objects)
    objects[key] = json.dumps({**pointer, "head": {**pointer["head"], "snapshot_id": 7}})


def _receipts(objects: Objects, family: str) -> dict[str, dict[str, Any]]:
    return {key: json.loads(text) for key, text in objects.items() if f"/{family}/committed/" in key}


def _chain(objects: Objects) -> list[str]:
    """The keys of the receipts of the named table, oldest first."""
    uuid = pointer_of(objects)[1]["table_uuid"]
    own = {key: one for key, one in _receipts(objects, "iceberg").items() if one["table_uuid"] == uuid}
    return sorted(own, key=lambda key: own[key]["metadata_version"])


def remove_middle_receipt(objects: Objects) -> None:
    del objects[_chain(objects)[1]]


def remove_head_receipt(objects: Objects) -> None:
    del objects[_chain(objects)[-1]]


def fork_chain(objects: Objects) -> None:
    first, second, third, *_ = _chain(objects)
    del second
    receipt = json.loads(objects[third])
    objects[third] = json.dumps({**receipt, "previous_commit_key": json.loads(objects[first])["commit_key"]})


def misplace_receipt(objects: Objects) -> None:
    first, second, *_ = _chain(objects)
    objects[second] = objects[first]


def remove_middle_event(objects: Objects) -> None:
    previous = {one["previous_commit_key"] for one in _receipts(objects, "catalog").values()}
    key = next(key for key, one in _receipts(objects, "catalog").items() if one["commit_key"] in previous)
    del objects[key]


def second_name(objects: Objects) -> None:
    objects[f"{ROOT}names/main/s/second.json"] = objects[NAME]


def change_delta(**fields: object) -> Damage:
    return change("/delta_tables/", **fields)


def remove_staged(objects: Objects) -> None:
    (table,) = _of(objects, "delta_tables/").values()
    del objects[_staged_key(table)]


def publish_other_bytes(objects: Objects) -> None:
    (table,) = _of(objects, "delta_tables/").values()
    folder = _staged_key(table).partition("_staged_commits/")[0]
    objects[f"{folder}{table['last_version']:020d}.json"] = "other"


def publish_a_later_version(objects: Objects) -> None:
    (table,) = _of(objects, "delta_tables/").values()
    folder = _staged_key(table).partition("_staged_commits/")[0]
    objects[f"{folder}{table['last_version'] + 1:020d}.json"] = "{}"


def index_entries(change_entries: Callable[[list[Any]], list[Any]]) -> Damage:
    def damage(objects: Objects) -> None:
        key = f"{ROOT}index/tables/main/s.v1.json"
        index = json.loads(objects[key])
        objects[key] = json.dumps({**index, "entries": change_entries(index["entries"])})

    return damage


def overlap(objects: Objects) -> None:
    """Another table claims a place within that of the named one."""
    key = next(key for key in objects if key.startswith("_shared/locations/") and key.endswith("main/named/!.json"))
    claim = json.loads(objects[key])
    other, pointer = pointer_of(objects, "other")
    owner = {**claim["holders"][0]["owner"], "uuid": pointer["uuid"]}
    objects[key.replace("named/!", "named/below/!")] = json.dumps(
        {**claim, "holders": [{**claim["holders"][0], "owner": owner}]}
    )
    objects[other] = json.dumps({**pointer, "places": [f"{NAMED}/below"]})


def remove_entry(objects: Objects) -> None:
    """The feed has two entries, of which the first is missing."""
    key = next(key for key in objects if "/operational/feed/0" in key)
    objects[key[:-6] + "2.json"] = json.dumps({**json.loads(objects[key]), "sequence": 2})
    del objects[key]


def cursor(*, subscription: bool) -> Damage:
    def damage(objects: Objects) -> None:
        record = {"v": 3, "event_id": ["x"]}
        objects[f"{ROOT}deliveries/s1/cursor.json"] = json.dumps({**record, "position": [99, 0]})
        if subscription:
            objects[f"{ROOT}subscriptions/s1.json"] = json.dumps({**record, "id": "s1", "url": "http://x"})

    return damage


def old_claim(objects: Objects) -> None:
    """Of a table that does not have the place."""
    key = next(key for key in objects if key.startswith("_shared/locations/") and key.endswith("main/named/!.json"))
    objects[key.replace("named/!", "elsewhere/!")] = objects[key]


DAMAGES: Final[Mapping[str, Damage]] = {
    "unreadable-record": garble("/names/main/s/named"),
    "newer-record": change("/names/main/s/named", v=9),
    "old-record": change("/namespaces/main/s.json", v=1, event_id="x"),
    "misplaced-record": change("/catalogs/main.json", name="another"),
    "name-without-record": lambda objects: remove(pointer_of(objects)[0])(objects),
    "name-of-dead-record": change_pointer(state="killed"),
    "name-of-another-kind": change_pointer(kind="view"),
    "name-without-namespace": change("/names/main/s/named", namespace_id="another"),
    "two-names": second_name,
    "record-without-name": remove("/names/main/s/named"),
    "namespace-without-parent": remove("/catalogs/main.json"),
    "version-without-model": change("/model_versions/", version=9),
    "record-without-head": change_pointer(head=None),
    "metadata-missing": remove_metadata,
    "metadata-unreadable": garble_metadata,
    "metadata-not-allowed": move_metadata,
    "metadata-of-another-table": exchange_metadata,
    "metadata-differs": move_snapshot,
    "receipt-missing": remove_head_receipt,
    "receipt-differs": misplace_receipt,
    "chain-hole": remove_middle_receipt,
    "chain-fork": fork_chain,
    "delta-gap": change_delta(last_version=4),
    "delta-file-missing": remove_staged,
    "delta-file-differs": publish_other_bytes,
    "delta-log-ahead": publish_a_later_version,
    "index-unreadable": garble("/index/tables/main/s.v1"),
    "index-misses-entry": index_entries(lambda entries: entries[1:]),
    "index-has-another-entry": index_entries(lambda entries: [{**entries[0], "uuid": "x"}, *entries[1:]]),
    "stale-mark": lambda objects: objects.update({f"{ROOT}index/marks/x/y": "{}"}),
    "segment-missing": remove("/security/segments/"),
    "segment-unreadable": garble("/security/segments/"),
    "place-without-claim": remove("main/named/!.json"),
    "places-overlap": overlap,
    "stale-claim": old_claim,
    "stale-request": change_pointer(state="unbound"),
    "order-of-living-table": lambda objects: change("/operational/purge/", uuid=pointer_of(objects)[1]["uuid"])(
        objects
    ),
    "feed-gap": remove_entry,
    "feed-unreadable": garble("/operational/feed/0"),
    "cursor-without-subscription": cursor(subscription=False),
    "cursor-beyond-feed": cursor(subscription=True),
    "dataset-missing": remove("/core/snapshots/a/f.parquet"),
    "dataset-file-differs": lambda objects: objects.update({f"{ROOT}core/snapshots/a/f.parquet": "123"}),
}
"""One damage by hand for every kind of finding."""


def test_every_kind_of_finding_has_its_damage() -> None:
    assert set(DAMAGES) == set(PROBLEMS) - {"in-flight"}


@pytest.mark.parametrize("days", [0, 3])
async def test_a_store_with_one_object_of_every_kind_has_no_finding(objects: Objects, days: int) -> None:
    assert await findings_of(await _stored(objects), days=days) == []


@pytest.mark.parametrize("kind", DAMAGES)
async def test_damage_by_hand_is_found_with_its_kind(objects: Objects, kind: str) -> None:
    damaged = dict(objects)
    DAMAGES[kind](damaged)

    found = await findings_of(await _stored(damaged))

    assert kind in {one.kind for one in found}, found
    for one in found:
        assert (one.severity, one.remedy) == PROBLEMS[one.kind]
        assert one.key
        assert one.expected
        assert one.found


async def test_a_hole_in_the_events_of_the_catalog_is_found(objects: Objects) -> None:
    damaged = dict(objects)
    remove_middle_event(damaged)

    assert "chain-hole" in {one.kind for one in await findings_of(await _stored(damaged))}


async def _all_findings(store: ObjectStore, clock: FixedClock) -> list[Finding]:
    lakes = Lakes(SETTINGS, clock, DryRunStore(store))
    return [one async for one in verify(lakes, SETTINGS)]


async def _serious(store: ObjectStore, clock: FixedClock) -> list[Finding]:
    return [one for one in await _all_findings(store, clock) if one.severity != "in_flight"]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
async def test_a_mixed_load_has_no_finding_during_it_and_after_it(seed: int) -> None:
    load = Load(seed)
    await load.start()

    running = asyncio.create_task(load.run(60))
    looks = 0
    while not running.done():
        assert await _serious(YieldingStore(load.store, seed=seed), load.clock) == []
        looks += 1
    await running

    assert looks > 1
    assert len(load.acknowledged) > 10
    assert await _serious(load.store, load.clock) == []


@pytest.fixture(scope="module")
def origin() -> World:
    return asyncio.run(make_world())


@pytest.mark.crash
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
async def test_what_a_killed_request_leaves_is_in_flight_and_no_more(mutation: Mutation, origin: World) -> None:
    in_flight = 0
    for dies_at in range(1, CALLS_MAX):
        world = origin.copy()
        store = DyingStore(world.store, dies_at=dies_at, after=True)
        server = world.server(store)
        with contextlib.suppress(Died):
            await mutation.apply(world, server)
        await server.background.drain()

        found = await _all_findings(world.store, world.clock)

        assert [one for one in found if one.severity != "in_flight"] == [], dies_at
        in_flight += len(found)
        if not store.has_died:
            break
    else:
        raise AssertionError("the request makes more calls than expected")
    assert in_flight or mutation.name == "stage", "only the records of unfinished work"
