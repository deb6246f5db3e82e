"""The listing contract of every store: byte order, whole folders, pages without gaps or repeats."""

import asyncio
from collections.abc import Sequence

import pytest

from sandur.storage.contract import ABSENT, LIST_LIMIT_MAX, ObjectStore, list_all, list_pages
from sandur.storage.memory import MemoryStore
from tests.contract.conftest import STORES
from tests.fakes.spy_store import SpyStore

AT_ONCE_MAX = 64


async def fill(store: ObjectStore, keys: Sequence[str]) -> None:
    """Create an object under every key, with bounded concurrency."""
    waiting = iter(keys)

    async def work() -> None:
        for key in waiting:
            await store.put(key, key.encode(), expected=ABSENT)

    await asyncio.gather(*(work() for _ in range(AT_ONCE_MAX)))


async def page_keys(store: ObjectStore, prefix: str, *, after: str | None = None, limit: int = 1_000) -> list[str]:
    return [entry.key for entry in await store.list(prefix, after=after, limit=limit)]


async def paged_keys(store: ObjectStore, prefix: str, *, limit: int) -> list[str]:
    """All keys, page by page; a page that is not full must be the last."""
    found: list[str] = []
    while True:
        page = await page_keys(store, prefix, after=found[-1] if found else None, limit=limit)
        assert len(page) <= limit
        found += page
        if len(page) < limit:
            return found


# In byte order `-` and `.` come before `/` and digits after it; a folder-by-folder order would differ.
ORDERED = [
    "f/%1F", "f/%252F", "f/%2F", "f/A", "f/B/a", "f/a", "f/a-", "f/a--/x", "f/a.json", "f/a.json.d/x", "f/a0", "f/ab/x",
    "f/abc/x", "f/b/c/d/e/f/g/h/i/j", "f/b/c/d0", "f/b0/x", "f/z~", "f/z~1/z", "f/ä", "f/日", "f/🧊",
]  # fmt: skip
NESTED_BESIDE = ["g/a/b", "g/a/b.json", "g/a/c", "g/a-b", "g/a.json", "g/a0", "h"]


async def test_an_empty_folder_lists_nothing(store: ObjectStore) -> None:
    assert await store.list("") == []
    assert await store.list("nothing/here/") == []
    assert await store.list("nothing/", after="nothing/a") == []
    assert await list_all(store, "") == []


async def test_keys_are_listed_in_the_byte_order_of_whole_keys(store: ObjectStore) -> None:
    keys = [*ORDERED, *NESTED_BESIDE]
    await fill(store, list(reversed(keys)))

    assert await page_keys(store, "") == sorted(keys, key=str.encode)
    assert await page_keys(store, "f/") == sorted(ORDERED, key=str.encode)
    assert await page_keys(store, "g/") == ["g/a-b", "g/a.json", "g/a/b", "g/a/b.json", "g/a/c", "g/a0"]


async def test_a_listing_has_the_version_and_the_size_of_each_object(store: ObjectStore) -> None:
    await fill(store, ["a", "b/c"])
    first = await store.put("d", b"1", expected=ABSENT)
    await store.put("d", b"12345", expected=first)

    for entry in await store.list(""):
        stored = await store.get(entry.key)
        assert stored
        assert (entry.version, entry.size_bytes) == (stored.version, len(stored.data))
        assert await store.head(entry.key) == entry._replace(modified_ms=(await _modified_ms(store, entry.key)))


async def _modified_ms(store: ObjectStore, key: str) -> int:
    head = await store.head(key)
    assert head
    return head.modified_ms


async def test_a_version_from_a_listing_works_for_swaps_and_deletes(store: ObjectStore) -> None:
    await fill(store, ["a", "b"])
    a, b = await store.list("")

    await store.put("a", b"swapped", expected=a.version)
    await store.delete("b", expected=b.version)

    assert await page_keys(store, "") == ["a"]


@pytest.mark.parametrize("limit", [*range(1, 9), len(ORDERED) - 1, len(ORDERED), len(ORDERED) + 1, 1_000])
async def test_pages_of_any_size_list_every_key_once(store: ObjectStore, limit: int) -> None:
    await fill(store, [*ORDERED, "e", "g"])

    assert await paged_keys(store, "f/", limit=limit) == sorted(ORDERED, key=str.encode)


async def test_a_page_starts_after_any_given_key(store: ObjectStore) -> None:
    keys = sorted([*ORDERED, *NESTED_BESIDE], key=str.encode)
    await fill(store, keys)

    for after in [*keys, *(f"{key}!" for key in keys), "a", "f", "f!", "f/b/c/d", "g/a/bb", "zzz"]:
        behind = [key for key in keys if key.encode() > after.encode()]
        assert await page_keys(store, "", after=after) == behind
        assert await page_keys(store, "f/", after=after) == [key for key in behind if key.startswith("f/")]
        assert await page_keys(store, "g/a/", after=after) == [key for key in behind if key.startswith("g/a/")]


async def test_a_limit_bounds_the_page(store: ObjectStore) -> None:
    await fill(store, ["a/1", "a/2", "a/3"])

    assert await page_keys(store, "a/", limit=0) == []
    assert await page_keys(store, "a/", limit=2) == ["a/1", "a/2"]
    assert await page_keys(store, "a/", limit=2, after="a/1") == ["a/2", "a/3"]
    assert await page_keys(store, "a/", limit=3) == ["a/1", "a/2", "a/3"]


async def test_a_prefix_is_a_folder_and_not_the_start_of_a_name(store: ObjectStore) -> None:
    await fill(store, ["ab/x", "abc/x", "ab.json", "a/b/x", "x/ab/y"])

    assert await page_keys(store, "ab/") == ["ab/x"]
    assert await page_keys(store, "a/") == ["a/b/x"]
    assert await page_keys(store, "a/b/") == ["a/b/x"]
    assert await page_keys(store, "b/") == []


async def test_an_object_is_not_a_folder(store: ObjectStore) -> None:
    await fill(store, ["a"])

    assert await page_keys(store, "a/") == []
    assert await store.get("a/b") is None
    assert await store.head("a/b") is None


async def test_a_folder_is_not_an_object(store: ObjectStore) -> None:
    await fill(store, ["a/b/c"])

    assert await store.get("a/b") is None
    assert await store.head("a") is None
    assert await page_keys(store, "") == ["a/b/c"]


async def test_deleted_objects_and_their_empty_folders_are_not_listed(store: ObjectStore) -> None:
    await fill(store, ["a/b/c/d", "a/e"])
    deep = await store.head("a/b/c/d")
    assert deep
    await store.delete("a/b/c/d", expected=deep.version)

    assert await page_keys(store, "") == ["a/e"]
    assert await page_keys(store, "a/b/") == []


# SeaweedFS keeps an empty folder for a while, and no object can have its name.
@pytest.mark.parametrize("address", [name for name in STORES if name != "seaweedfs"], indirect=True)
async def test_the_name_of_a_deleted_folder_can_become_a_key(store: ObjectStore) -> None:
    version = await store.put("a/b/c/d", b"1", expected=ABSENT)
    await store.delete("a/b/c/d", expected=version)

    await fill(store, ["a/b"])

    assert await page_keys(store, "") == ["a/b"]


@pytest.mark.timeout(600)
async def test_ten_thousand_keys_are_listed_in_order_page_by_page(store: ObjectStore) -> None:
    keys = sorted(f"n/{number % 7}/{number:05d}.json" for number in range(10_000))
    await fill(store, keys)

    assert [entry.key for entry in await list_all(store, "n/")] == keys
    assert len(await store.list("")) == LIST_LIMIT_MAX
    assert await page_keys(store, "n/3/", after="n/3/05001.json", limit=2) == ["n/3/05008.json", "n/3/05015.json"]
    assert await paged_keys(store, "n/6/", limit=700) == [key for key in keys if key.startswith("n/6/")]


async def test_pages_of_a_whole_listing_grow_and_repeat_nothing() -> None:
    store = SpyStore(MemoryStore())
    keys = [f"f/{number:05}" for number in range(5 * LIST_LIMIT_MAX)]
    await fill(store, keys)
    store.reset()

    pages = [page async for page in list_pages(store, "f/")]

    assert [listed.key for page in pages for listed in page] == keys
    assert [len(page) for page in pages] == [1_000, 2_000, 2_000]
    assert len(store.calls) == len(pages)
