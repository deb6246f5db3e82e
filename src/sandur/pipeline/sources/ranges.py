"""How the objects below a folder are shared out among tasks: by ranges of keys, planned without listing everything."""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from sandur.storage.contract import Listed, ObjectStore

RANGES_MAX: Final = 256
LEVELS_MAX: Final = 16
SMALL: Final = 1_000
"""A folder with fewer objects than this is read by one task."""
LISTED_AT_ONCE: Final = 20_000
_HEX: Final = "0123456789abcdef"
# In the order of bytes, `0` is what follows `/`: it comes behind everything in a folder.
_BEHIND_FOLDER: Final = "0"


class KeyRange(NamedTuple):
    """The objects below the folder `prefix` whose keys come behind `after` and not behind `until`; None: no bound."""

    prefix: str
    after: str | None = None
    until: str | None = None


def hex_ranges(folder: str) -> Sequence[KeyRange]:
    """A folder whose names begin with hex digits (uuids, hashes), in sixteen parts; together they hold every name."""
    bounds = [f"{folder}{digit}" for digit in _HEX[1:]]
    return [KeyRange(folder, after, until) for after, until in zip([None, *bounds], [*bounds, None], strict=True)]


async def hashed_ranges(store: ObjectStore, folder: str) -> Sequence[KeyRange]:
    """As `hex_ranges`, but one range while there is little in the folder."""
    return [KeyRange(folder)] if await _is_small(store, folder) else hex_ranges(folder)


async def _is_small(store: ObjectStore, prefix: str) -> bool:
    return len(await store.list(prefix, limit=SMALL)) < SMALL


async def folder_ranges(store: ObjectStore, prefix: str, *, ranges_max: int = RANGES_MAX) -> Sequence[KeyRange]:
    """A folder by the folders in it, one listing of one object for each; a folder with one folder in it by that one's.

    Beyond `ranges_max` folders the last range holds the rest. A folder without folders, or with little in it, is one
    range.
    """
    if await _is_small(store, prefix):
        return [KeyRange(prefix)]
    folders: Sequence[str] = ()
    for _ in range(LEVELS_MAX):
        folders = await _folders(store, prefix, ranges_max)
        if len(folders) != 1:
            break
        alone = folders[0]
        behind = await store.list(prefix, after=f"{alone[:-1]}{_BEHIND_FOLDER}", limit=1)
        first = await store.list(prefix, limit=1)
        if behind or not first or not first[0].key.startswith(alone):
            break  # Files lie beside it.
        prefix = alone
    bounds = [f"{folder[:-1]}{_BEHIND_FOLDER}" for folder in folders]
    return [KeyRange(prefix, after, until) for after, until in zip([None, *bounds], [*bounds, None], strict=True)]


async def _folders(store: ObjectStore, prefix: str, count_max: int) -> Sequence[str]:
    found: list[str] = []
    after: str | None = None
    for _ in range(count_max):
        page = await store.list(prefix, after=after, limit=1)
        if not page:
            break
        name, slash, _ = page[0].key[len(prefix) :].partition("/")
        if slash:
            found.append(f"{prefix}{name}/")
            after = f"{prefix}{name}{_BEHIND_FOLDER}"
        else:
            after = page[0].key
    return found


async def listed_in(store: ObjectStore, keys: KeyRange) -> AsyncIterator[Sequence[Listed]]:
    """The objects of a range, in order, some at a time."""
    after = keys.after
    while True:
        page = await store.list(keys.prefix, after=after, limit=LISTED_AT_ONCE)
        inside = [listed for listed in page if keys.until is None or listed.key <= keys.until]
        if inside:
            yield inside
        if len(page) < LISTED_AT_ONCE or len(inside) < len(page):
            return
        after = page[-1].key
