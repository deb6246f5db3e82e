"""Every object of a folder is in exactly one range."""

from sandur.pipeline.sources.range_reader import KeyRange, folder_ranges, hashed_ranges, hex_ranges, list_range
from sandur.storage.contract import ABSENT, ObjectStore
from sandur.storage.memory import MemoryStore


async def store_with(*keys: str) -> ObjectStore:
    store = MemoryStore()
    for key in keys:
        await store.put(key, b"", expected=ABSENT)
    return store


async def keys_in(store: ObjectStore, ranges: list[KeyRange]) -> list[str]:
    return [listed.key for keys in ranges for page in [p async for p in list_range(store, keys)] for listed in page]


async def test_sixteen_ranges_contain_every_name_once() -> None:
    names = [f"f/{first}{second}" for first in "0123456789abcdefGXzé-_." for second in ("", "0", "ff.json")]
    names = [name for name in names if name != "f/."]
    store = await store_with("e/before", *names, "g/behind")

    ranges = list(hex_ranges("f/"))

    assert len(ranges) == 16
    assert sorted(await keys_in(store, ranges)) == sorted(names)


async def test_a_large_folder_is_split_by_its_subfolders() -> None:
    names = [f"t/only/{folder}/{number}" for folder in ("a", "b", "b0", "c/d") for number in range(300)]
    beside = ["t/only/aa", "t/only/zz", "t/only/b.json"]
    store = await store_with(*names, *beside, "u/1")

    ranges = list(await folder_ranges(store, "t/"))

    assert len(ranges) == 5
    assert sorted(await keys_in(store, ranges)) == sorted([*names, *beside])


async def test_the_last_range_contains_the_folders_beyond_the_limit() -> None:
    names = [f"t/{folder:03d}/{number}" for folder in range(30) for number in range(40)]
    store = await store_with(*names)

    ranges = list(await folder_ranges(store, "t/", ranges_max=7))

    assert len(ranges) == 8
    assert sorted(await keys_in(store, ranges)) == sorted(names)


async def test_a_small_folder_is_one_range() -> None:
    store = await store_with("t/a/1", "t/b/1")

    assert await folder_ranges(store, "t/") == [KeyRange("t/")]
    assert await hashed_ranges(store, "t/") == [KeyRange("t/")]
    assert await folder_ranges(store, "nothing/") == [KeyRange("nothing/")]
