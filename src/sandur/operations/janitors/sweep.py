"""The sweep of one janitor over its folder: bounded, resumed where it stopped, over old objects only."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Literal, NamedTuple

from sandur.errors import SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import LIST_LIMIT_MAX, Listed
from sandur.storage.layout import Layout

DAY_MS: Final = 86_400_000
VISITS_AT_ONCE: Final = 16
PAGES_MAX: Final = 100

Outcome = Literal["removed", "settled", "kept", "changed", "failed"]
"""What became of an object: taken away, brought to its end, left as it is, changed by somebody else meanwhile (it is
seen again next time), not understood or not reached."""

OnError = Callable[[str, SandurError], None]
"""Hears of what went wrong with an object, by its key; the sweep goes on."""


class Janitor(NamedTuple):
    """What a janitor looks at (`folder`), how old it must be by the store's own time (`age_ms`), and what it does."""

    name: str
    folder: Callable[[Layout], str]
    age_ms: Callable[[Settings], int]
    visit: Callable[[Lake, Listed], Awaitable[Outcome]]


class Swept(NamedTuple):
    """What a sweep did, by outcome, and after which key the next one goes on; empty to begin again."""

    counts: Mapping[str, int]
    position: str


async def sweep(lake: Lake, janitor: Janitor, *, position: str, tell: OnError) -> Swept:
    """Visit at most `janitor_objects_max` objects that are old enough, and list at most PAGES_MAX pages for them."""
    folder = janitor.folder(lake.layout)
    age_ms = janitor.age_ms(lake.settings)
    counts: Counter[str] = Counter()
    after = position or None
    for _ in range(PAGES_MAX):
        page = await lake.store.list(folder, after=after)
        old = [listed for listed in page if is_older(lake, listed, age_ms)]
        room = lake.settings.janitor_objects_max - counts.total()
        counts.update(await _visited(lake, janitor, old[:room], tell))
        if len(old) > room:
            return Swept(counts, old[room - 1].key if room else after or "")
        if len(page) < LIST_LIMIT_MAX:
            return Swept(counts, "")
        after = page[-1].key
    return Swept(counts, after or "")


async def _visited(lake: Lake, janitor: Janitor, old: Iterable[Listed], tell: OnError) -> list[Outcome]:
    waiting = list(old)
    outcomes: list[Outcome] = []
    for start in range(0, len(waiting), VISITS_AT_ONCE):
        some = waiting[start : start + VISITS_AT_ONCE]
        outcomes += await gather_all(_visit(lake, janitor, listed, tell) for listed in some)
    return outcomes


async def _visit(lake: Lake, janitor: Janitor, listed: Listed, tell: OnError) -> Outcome:
    try:
        return await janitor.visit(lake, listed)
    except SwapLost:
        return "changed"
    except SandurError as error:
        # One object that cannot be read, or that others keep changing, must not keep all behind it from being swept.
        tell(listed.key, error)
        return "failed"


def is_older(lake: Lake, listed: Listed, age_ms: int) -> bool:
    """Whether an object was written last so long ago, by the time that the store noted."""
    return listed.modified_ms + age_ms <= lake.clock.now_ms()


def key_age_ms(settings: Settings) -> int:
    """How long what a replay may need is kept: the lifetime of a key and a day."""
    return seconds_of(settings.idempotency_key_lifetime) * 1_000 + DAY_MS
