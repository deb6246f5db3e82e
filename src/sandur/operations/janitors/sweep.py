"""The sweep of one janitor over its folder: bounded, resumed where it stopped, over old objects only."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeVar

from sandur.catalog.record_versions import Record
from sandur.errors import SandurError, SwapLost
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.cell import Cell, Versioned, gather_in_batches
from sandur.storage.contract import Listed, ObjectStore
from sandur.storage.layout import TENANT_PREFIX, Layout, layout_of

T = TypeVar("T", bound=Record)

DAY_MS: Final = 86_400_000
VISITS_AT_ONCE: Final = 16
LISTED_AT_ONCE: Final = 10_000
PAGES_MAX: Final = 10
LAKES_MAX: Final = 10_000

Outcome = Literal["removed", "settled", "kept", "changed", "failed"]
"""The result for one object: deleted, brought to a final state, left as it is, changed by another process since the
listing (the next sweep visits it again), or not readable."""

OnError = Callable[[str, SandurError], None]
"""Receives the key of an object and the error of its visit; the sweep continues."""


class Janitor(NamedTuple):
    """A rule for the objects of one folder: their minimum age by the store's clock, and the visit of each object.

    With `age_max_ms`, objects that were last written before that are left out.
    A visit may raise SwapLost: the object has changed, and is visited again by the next sweep.
    """

    name: str
    folder: Callable[[Layout], str]
    age_ms: Callable[[Settings], int]
    visit: Callable[[Lake, Listed], Awaitable[Outcome]]
    age_max_ms: Callable[[Settings], int] | None = None


DELTA_UNPUBLISHED: Final = "delta_unpublished"
RECEIPTS_OVERDUE: Final = "receipts_overdue"


def findings(_lake: Lake) -> Counter[str]:
    """What the janitors found in one run, beside the outcomes of their visits: for metrics."""
    return Counter({DELTA_UNPUBLISHED: 0})


class Swept(NamedTuple):
    """The number of objects by outcome, and the key after which the next sweep continues; empty: from the start."""

    counts: Mapping[str, int]
    position: str


async def sweep(lake: Lake, janitor: Janitor, *, position: str, on_error: OnError) -> Swept:
    """Visit at most `janitor_objects_max` objects that are old enough, in at most PAGES_MAX pages of the listing."""
    counts: Counter[str] = Counter()
    folder, age_ms = janitor.folder(lake.layout), janitor.age_ms(lake.settings)
    age_max_ms = janitor.age_max_ms(lake.settings) if janitor.age_max_ms else None

    async def visit(listed: Listed) -> Outcome:
        try:
            return await janitor.visit(lake, listed)
        except SwapLost:
            return "changed"
        except SandurError as error:
            # One object that cannot be read, or keeps changing, does not stop the sweep.
            on_error(listed.key, error)
            return "failed"

    for _ in range(PAGES_MAX):
        page = await lake.store.list(folder, after=position or None, limit=LISTED_AT_ONCE)
        old = [listed for listed in page if is_older(lake, listed, age_ms)]
        if age_max_ms is not None:
            old = [listed for listed in old if not is_older(lake, listed, age_max_ms)]
        room = lake.settings.janitor_objects_max - counts.total()
        counts.update(await gather_in_batches(old[:room], visit, at_once=VISITS_AT_ONCE))
        if len(old) > room:
            return Swept(counts, old[room - 1].key if room else position)
        if len(page) < LISTED_AT_ONCE:
            return Swept(counts, "")
        position = page[-1].key
    return Swept(counts, position)


async def read_listed(cell: Cell[T], listed: Listed) -> Versioned[T]:
    """The record as it was listed; SwapLost if it has changed since, because its age is then unknown."""
    found = await cell.read()
    if found is None or found.version != listed.version:
        raise SwapLost(f"object {listed.key}: has changed since it was listed")
    return found


async def delete_listed(lake: Lake, listed: Listed) -> Outcome:
    """The visit of objects that are garbage once they are old."""
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def is_older(lake: Lake, listed: Listed, age_ms: int) -> bool:
    """Whether the last write of an object is at least this long ago, by the store's clock."""
    return listed.modified_ms + age_ms <= lake.clock.now_ms()


def key_age_ms(settings: Settings) -> int:
    """How long a replay may need an object: the lifetime of an idempotency key and a day."""
    return seconds_of(settings.idempotency_key_lifetime) * 1_000 + DAY_MS


async def list_layouts(store: ObjectStore, settings: Settings) -> AsyncIterator[Layout]:
    """The layouts of the lakes on a store that the settings allow, found by one listing each."""
    if settings.tenant and settings.workspace:
        yield Layout(settings.tenant, settings.workspace)
        return
    after = TENANT_PREFIX
    for _ in range(LAKES_MAX):
        page = await store.list("", after=after, limit=1)
        if not page or not page[0].key.startswith(TENANT_PREFIX):
            return
        layout = layout_of(page[0].key)
        after = layout.end if layout else page[0].key
        if layout and settings.tenant in {"", layout.tenant} and settings.workspace in {"", layout.workspace}:
            yield layout
