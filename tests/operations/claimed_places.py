"""What tests check about places: no two living owners overlap, and each has its claims."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import Address, canonical_address
from sandur.catalog.records import BoundRecord, DeltaTable, Pointer, Request, Securable
from sandur.errors import SandurError
from sandur.operations.delta.tables import NewTable, create_external
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import locations_of
from sandur.operations.tables.documents import load_head
from sandur.operations.tables.names import resolve_name
from sandur.operations.transactions.resolution import effective_record
from sandur.operations.unity.securables import create_volume
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ObjectStore, list_all
from sandur.storage.layout import LOCATION_CLAIMS, parse_location_claim
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.operations.janitor_runs import Cluster
from tests.operations.requests import identifier_of, request

T = TypeVar("T")

VOLUME: Final = identifier_of("v")


def at(lake: Lake, place: str) -> str:
    """A place below the root of the catalog."""
    return f"{lake.area}/main/{place}"


async def make_volume(lake: Lake, place: str, sent: Request | None = None, name: Identifier = VOLUME) -> Securable:
    """An external volume at a place below the root of the catalog."""
    made = await create_volume(
        lake,
        name,
        volume_type="EXTERNAL",
        location=at(lake, place),
        comment=None,
        request=sent or request(f"volume {place}"),
    )
    await lake.background.drain()
    return made


async def external_delta(lake: Lake, place: str, name: str = "d") -> None:
    wanted = NewTable(identifier=identifier_of(name), table_type="EXTERNAL", location=at(lake, place))
    await create_external(lake, wanted, request=request(f"delta {place}"))
    await lake.background.drain()


async def older_volume(lake: Lake, location: str) -> None:
    """A volume as an earlier version of the server let it be created: at any place, and without a claim."""
    record = Securable(
        uuid="older", table_uuid="older", state="live", kind="volume", location=location, volume_type="EXTERNAL"
    )
    await lake.securable("older").create(record)


async def forget_claims(cluster: Cluster) -> None:
    """Make a store look as if it was older than location claims."""
    for listed in await list_all(cluster.store, "_shared/"):
        await cluster.store.delete(listed.key, expected=listed.version)


async def migrate(cluster: Cluster) -> Mapping[str, int]:
    """P13: let the janitors claim the places of everything, as on a store that is older than claims."""
    await forget_claims(cluster)
    return await cluster.sweep()


async def outcome(work: Awaitable[object]) -> str:
    try:
        await work
    except SandurError as error:
        return type(error).__name__
    return "ok"


async def claimed(lake: Lake) -> list[str]:
    """The addresses with a claim."""
    return [str(parse_location_claim(listed.key)) for listed in await list_all(lake.store, LOCATION_CLAIMS)]


async def living_places(lake: Lake) -> dict[str, list[Address]]:
    """The places of everything that a reader finds, by uuid."""
    found: dict[str, list[Address]] = {}
    layout = lake.layout
    folders: tuple[tuple[str, type[BoundRecord]], ...] = (
        (layout.pointers_folder(), Pointer),
        (layout.delta_tables_folder(), DeltaTable),
        (layout.securables_folder(), Securable),
    )
    for folder, kind in folders:
        for listed in await list_all(lake.store, folder):
            held = await Cell(lake.store, listed.key, kind, lake.clock).read()
            if held and await _is_living(lake, held):
                record = (await effective_record(lake, held)).value
                found[record.uuid] = [canonical_address(one) for one in await _locations(lake, record)]
    return found


async def _is_living(lake: Lake, held: Versioned[BoundRecord]) -> bool:
    if held.value.state == "live":
        return True
    named = await resolve_name(lake, held.value.made_for) if held.value.made_for else None
    return named is not None and named.uuid == held.value.uuid


async def _locations(lake: Lake, record: BoundRecord) -> list[str]:
    if not isinstance(record, Pointer):
        return [record.location] if record.location else []
    assert record.head
    return [*locations_of((await load_head(lake, record.kind, record.head)).metadata), *record.places]


async def check_places(lake: Lake) -> None:
    """No two living owners overlap, and every named place of a living owner has a claim of its own."""
    found = await living_places(lake)
    claims = {one: await lake.location_claim(canonical_address(one)).read() for one in await claimed(lake)}
    for uuid, places in found.items():
        for place in places:
            others = [(other, beside) for other, those in found.items() if other != uuid for beside in those]
            assert not [beside for _, beside in others if place.overlaps(beside)], f"{uuid} at {place}"
            if place.generated_for != uuid:
                holding = [
                    claim
                    for one, claim in claims.items()
                    if claim and place.is_within(canonical_address(one))
                    if uuid in {holder.owner.uuid for holder in claim.value.holders}
                ]
                assert holding, f"{uuid} lives at {place} without a claim; claimed: {sorted(claims)}"


class InterruptedStore(WrappingStore):
    """A store that runs a hook once, before the call with that number."""

    def __init__(self, inner: ObjectStore, at: int, hook: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._left = at
        self._hook = hook

    @property
    def is_over(self) -> bool:
        """Whether there were fewer calls than that."""
        return self._left > 0

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        del call
        self._left -= 1
        if self._left == 0:
            await self._hook()
        return await perform()
