"""The contract of every store for one object: reads, swaps, deletes, versions, and valid keys."""

import asyncio
import os
from pathlib import Path

import pytest

from sandur.errors import BadRequest, Invalid, SwapLost
from sandur.storage.contract import ABSENT, UNCHANGED, ObjectStore, Stored, Version, get_many
from sandur.storage.keys import KEY_BYTES_MAX, SEGMENT_BYTES_MAX
from tests.contract.conftest import STORES, VERSIONS_ARE_HASHES, Address

MALFORMED_VERSIONS = ["", "0", "x", '"', "*", "W/", "-1", "9" * 40, "a b", "a\nb", "a\0b", "ü", "1|", "|", "None|x"]


async def test_reading_an_absent_object_returns_none(store: ObjectStore) -> None:
    assert await store.get("a/b.json") is None
    assert await store.head("a/b.json") is None
    assert await store.get_if_changed("a/b.json", seen=Version("1")) is None


async def test_a_created_object_is_read_with_its_version(store: ObjectStore) -> None:
    version = await store.put("a/b.json", b"one", expected=ABSENT)

    assert await store.get("a/b.json") == Stored(b"one", version)


async def test_a_very_large_object_is_refused_before_it_is_read(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandur.storage.contract.OBJECT_BYTES_MAX", 3 << 19)
    small = await store.put("small", b"x" * (3 << 19), expected=ABSENT)
    large = await store.put("large", b"x" * (1 << 21), expected=ABSENT)

    with pytest.raises(Invalid, match="2097152 bytes, at most 1572864"):
        await store.get("large")
    with pytest.raises(Invalid, match="2097152 bytes"):
        await store.get_if_changed("large", seen=small)

    assert await store.get_if_changed("large", seen=large) is UNCHANGED
    found = await store.get("small")
    assert found
    assert len(found.data) == 3 << 19


async def test_creating_an_existing_object_is_lost_and_changes_nothing(store: ObjectStore) -> None:
    version = await store.put("a", b"one", expected=ABSENT)

    with pytest.raises(SwapLost) as lost:
        await store.put("a", b"two", expected=ABSENT)

    assert lost.value.is_definite
    assert await store.get("a") == Stored(b"one", version)


async def test_a_swap_replaces_the_bytes_and_the_version(store: ObjectStore) -> None:
    first = await store.put("a", b"one", expected=ABSENT)

    second = await store.put("a", b"two", expected=first)
    third = await store.put("a", b"three", expected=second)

    assert len({first, second, third}) == 3
    assert await store.get("a") == Stored(b"three", third)


async def test_a_swap_of_a_stale_version_is_lost_and_changes_nothing(store: ObjectStore) -> None:
    first = await store.put("a", b"one", expected=ABSENT)
    second = await store.put("a", b"two", expected=first)

    with pytest.raises(SwapLost):
        await store.put("a", b"stale", expected=first)

    assert await store.get("a") == Stored(b"two", second)


async def test_a_swap_of_a_missing_object_is_lost_and_creates_nothing(store: ObjectStore) -> None:
    version = await store.put("elsewhere", b"one", expected=ABSENT)

    with pytest.raises(SwapLost):
        await store.put("a", b"two", expected=version)

    assert await store.get("a") is None


@pytest.mark.parametrize("malformed", MALFORMED_VERSIONS)
async def test_a_malformed_version_loses_like_a_stale_one(store: ObjectStore, malformed: str) -> None:
    version = await store.put("a", b"one", expected=ABSENT)

    with pytest.raises(SwapLost):
        await store.put("a", b"two", expected=Version(malformed))
    with pytest.raises(SwapLost):
        await store.put("absent", b"two", expected=Version(malformed))
    with pytest.raises(SwapLost):
        await store.delete("a", expected=Version(malformed))
    assert await store.get_if_changed("a", seen=Version(malformed)) == Stored(b"one", version)

    assert await store.get("absent") is None
    assert await store.put("a", b"two", expected=version) != version


async def test_objects_are_current_until_one_of_them_changes(store: ObjectStore) -> None:
    first = await store.put("a", b"one", expected=ABSENT)
    second = await store.put("b/c", b"two", expected=ABSENT)
    versions = [("a", first), ("b/c", second)]

    assert await store.are_current([])
    assert await store.are_current(versions)

    await store.put("b/c", b"three", expected=second)
    assert not await store.are_current(versions)


async def test_a_deleted_object_is_not_current(store: ObjectStore) -> None:
    version = await store.put("a", b"one", expected=ABSENT)
    await store.delete("a", expected=version)

    assert not await store.are_current([("a", version)])


async def test_a_version_read_synchronously_is_the_one_that_was_written(store: ObjectStore) -> None:
    if not store.has_instant_reads:
        with pytest.raises(NotImplementedError):
            store.version_now("a")
        return
    assert store.version_now("a") is None

    version = await store.put("a", b"one", expected=ABSENT)
    assert store.version_now("a") == version

    await store.delete("a", expected=version)
    assert store.version_now("a") is None


async def test_a_delete_removes_the_object_at_its_version(store: ObjectStore) -> None:
    version = await store.put("a/b/c", b"one", expected=ABSENT)

    await store.delete("a/b/c", expected=version)

    assert await store.get("a/b/c") is None
    assert await store.head("a/b/c") is None
    assert await store.list("") == []


async def test_a_delete_of_a_stale_version_is_lost_and_removes_nothing(store: ObjectStore) -> None:
    first = await store.put("a", b"one", expected=ABSENT)
    second = await store.put("a", b"two", expected=first)

    with pytest.raises(SwapLost):
        await store.delete("a", expected=first)

    assert await store.get("a") == Stored(b"two", second)


async def test_a_delete_of_a_missing_object_is_lost(store: ObjectStore) -> None:
    version = await store.put("a", b"one", expected=ABSENT)
    await store.delete("a", expected=version)

    with pytest.raises(SwapLost):
        await store.delete("a", expected=version)
    with pytest.raises(SwapLost):
        await store.delete("never/was", expected=version)


async def test_the_version_of_a_deleted_object_never_swaps_its_successor(store: ObjectStore) -> None:
    old = await store.put("a/b", b"one", expected=ABSENT)
    await store.delete("a/b", expected=old)
    with pytest.raises(SwapLost):
        await store.put("a/b", b"from the grave", expected=old)
    new = await store.put("a/b", b"two", expected=ABSENT)

    with pytest.raises(SwapLost):
        await store.put("a/b", b"three", expected=old)
    with pytest.raises(SwapLost):
        await store.delete("a/b", expected=old)

    assert new != old
    assert await store.get("a/b") == Stored(b"two", new)


async def test_versions_never_repeat(store: ObjectStore) -> None:
    seen: list[Version] = []
    for number in range(10):
        seen.append(await store.put("a", b"created %d" % number, expected=ABSENT))
        seen.append(await store.put("a", b"swapped %d" % number, expected=seen[-1]))
        await store.delete("a", expected=seen[-1])

    assert len(set(seen)) == 20


@pytest.mark.parametrize("address", [name for name in STORES if name not in VERSIONS_ARE_HASHES], indirect=True)
async def test_equal_bytes_get_a_new_version(store: ObjectStore) -> None:
    first = await store.put("a", b"same", expected=ABSENT)
    second = await store.put("a", b"same", expected=first)
    await store.delete("a", expected=second)
    third = await store.put("a", b"same", expected=ABSENT)

    assert len({first, second, third}) == 3
    for stale in (first, second):
        with pytest.raises(SwapLost):
            await store.put("a", b"other", expected=stale)
    assert await store.get("a") == Stored(b"same", third)


@pytest.mark.parametrize("address", VERSIONS_ARE_HASHES, indirect=True)
async def test_equal_bytes_have_equal_versions_on_s3(store: ObjectStore) -> None:
    first = await store.put("a", b"same", expected=ABSENT)

    assert await store.put("a", b"same", expected=first) == first
    assert await store.put("a", b"other", expected=first) != first


async def test_a_conditional_get_transfers_only_changed_objects(store: ObjectStore) -> None:
    first = await store.put("a", b"one", expected=ABSENT)
    assert await store.get_if_changed("a", seen=first) is UNCHANGED

    second = await store.put("a", b"two", expected=first)
    assert await store.get_if_changed("a", seen=first) == Stored(b"two", second)
    assert await store.get_if_changed("a", seen=second) is UNCHANGED

    await store.delete("a", expected=second)
    assert await store.get_if_changed("a", seen=second) is None


async def test_a_head_returns_the_version_and_the_size(store: ObjectStore) -> None:
    version = await store.put("a/b.json", b"12345", expected=ABSENT)

    head = await store.head("a/b.json")

    assert head
    assert (head.key, head.version, head.size_bytes) == ("a/b.json", version, 5)
    assert head.modified_ms > 1_600_000_000_000


@pytest.mark.parametrize("size", [0, 1, 8 << 20], ids=["empty", "one byte", "8 MiB"])
async def test_objects_of_any_size_are_read_completely(store: ObjectStore, size: int) -> None:
    data = os.urandom(size)

    version = await store.put("a", data, expected=ABSENT)

    assert await store.get("a") == Stored(data, version)
    head = await store.head("a")
    assert head
    assert head.size_bytes == size


async def test_large_objects_swap_like_small_ones(store: ObjectStore) -> None:
    first = await store.put("a", b"1" * (8 << 20), expected=ABSENT)
    with pytest.raises(SwapLost):
        await store.put("a", b"2" * (8 << 20), expected=ABSENT)
    second = await store.put("a", b"3" * (8 << 20), expected=first)
    with pytest.raises(SwapLost):
        await store.put("a", b"4" * (8 << 20), expected=first)

    stored = await store.get("a")

    assert stored
    assert (stored.version, stored.data[:1], len(stored.data)) == (second, b"3", 8 << 20)


async def test_a_reader_never_sees_a_partly_written_object(store: ObjectStore) -> None:
    """Each body repeats one byte, and its length depends on the byte; a mixture would be detected."""
    bodies = [bytes([number]) * (100_000 + number) for number in range(1, 13)]
    version = await store.put("a", bodies[0], expected=ABSENT)
    is_done = False

    async def read() -> None:
        while not is_done:
            stored = await store.get("a")
            assert stored
            assert stored.data == bodies[stored.data[0] - 1]
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read()) for _ in range(3)]
    for body in bodies[1:]:
        version = await store.put("a", body, expected=version)
    is_done = True
    await asyncio.gather(*readers)


async def test_a_cancelled_read_does_not_affect_other_reads(store: ObjectStore) -> None:
    bodies = {f"large/{number}": bytes([number]) * ((2 << 20) + number) for number in range(4)}
    for key, body in bodies.items():
        await store.put(key, body, expected=ABSENT)

    for _ in range(10):
        cancelled = [asyncio.create_task(store.get(key)) for key in bodies]
        await asyncio.sleep(0)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)

        found = await get_many(store, list(bodies))
        assert [stored and stored.data for stored in found] == list(bodies.values())


async def test_concurrent_gets_keep_the_order_of_the_keys(store: ObjectStore) -> None:
    for name in ("c", "a", "b"):
        await store.put(f"x/{name}", name.encode(), expected=ABSENT)

    found = await get_many(store, ["x/b", "x/missing", "x/a", "x/c", "x/a"])

    assert [stored and stored.data for stored in found] == [b"b", None, b"a", b"c", b"a"]


TRICKY_KEYS = [
    "a%b", "a%2Fb", "a%252Fb", "a%1Fb", "a+b", "a b", "a=b", "a&b", "a?b", "a#b", "a;b", "a:b", "a@b", "a'b", 'a"b',
    "a<b", "a~b", "a*b", "a|b", "a{b}", "a[b]", "a^b", "a`b", "a,b", "a$b", "a!b", "a(b)",
    "ä", "a\u0308", "日本語", "🧊", "A", "a", ".hidden", "a.", "...", "tenant=default/workspace=default/_x/%C3%A4.json",
]  # fmt: skip


async def test_keys_with_any_characters_are_distinct_and_listed_unchanged(store: ObjectStore) -> None:
    for key in TRICKY_KEYS:
        await store.put(f"k/{key}", key.encode(), expected=ABSENT)

    found = await get_many(store, [f"k/{key}" for key in TRICKY_KEYS])
    listed = await store.list("k/")

    assert [stored and stored.data for stored in found] == [key.encode() for key in TRICKY_KEYS]
    assert [entry.key for entry in listed] == sorted(f"k/{key}" for key in TRICKY_KEYS)


async def test_keys_with_any_characters_can_be_swapped_and_deleted(store: ObjectStore) -> None:
    for key in TRICKY_KEYS:
        first = await store.put(f"k/{key}", b"1", expected=ABSENT)
        second = await store.put(f"k/{key}", b"2", expected=first)
        with pytest.raises(SwapLost):
            await store.delete(f"k/{key}", expected=first)
        await store.delete(f"k/{key}", expected=second)

    assert await store.list("") == []


BAD_KEYS = [
    "", "/", "/x", "x/", "x//y", ".", "..", "../x", "x/..", "x/../y", "x/./y", "./x", "x/../../y", "x\\y", "..\\y",
    "\0", "x\0y", "x\ny", "x\ry", "x\ty", "x\x7fy", "x\x1by", "x\u2028y", "x\ud800y", "x" * 256, "ü" * 128,
    "/".join(["x" * 200] * 6),
]  # fmt: skip


@pytest.mark.parametrize("key", BAD_KEYS, ids=lambda key: ascii(key)[:20])
async def test_an_invalid_key_is_refused_and_touches_nothing(store: ObjectStore, address: Address, key: str) -> None:
    outside_before = _names_around(address)

    for attempt in (
        store.get(key),
        store.head(key),
        store.get_if_changed(key, seen=Version("1")),
        store.put(key, b"1", expected=ABSENT),
        store.put(key, b"1", expected=Version("1")),
        store.delete(key, expected=Version("1")),
        store.list(f"{key}/"),
    ):
        with pytest.raises(BadRequest):
            await attempt

    assert await store.list("") == []
    assert _names_around(address) == outside_before


async def test_a_prefix_that_is_not_a_folder_is_refused(store: ObjectStore) -> None:
    for prefix in ("x", "/", "x//", "../", "x/../", "\0/"):
        with pytest.raises(BadRequest):
            await store.list(prefix)


def _names_around(address: Address) -> list[str]:
    """Everything in the folder around a local store; nothing for the others."""
    if not address.is_local:
        return []
    around = Path(address.url.removeprefix("file://")).parent
    return sorted(str(path.relative_to(around)) for path in around.rglob("*"))


async def test_the_longest_keys_work(store: ObjectStore) -> None:
    segment = "x" * SEGMENT_BYTES_MAX
    key = f"{segment}/{segment}/{segment}/".ljust(KEY_BYTES_MAX, "y")

    version = await store.put(key, b"1", expected=ABSENT)

    assert await store.get(key) == Stored(b"1", version)
    assert [entry.key for entry in await store.list(f"{segment}/")] == [key]
    await store.delete(key, expected=version)


@pytest.mark.parametrize("address", [name for name in STORES if name != "memory"], indirect=True)
async def test_two_stores_at_one_address_see_the_same_objects(store: ObjectStore, address: Address) -> None:
    other = address.open()
    first = await store.put("a", b"one", expected=ABSENT)

    second = await other.put("a", b"two", expected=first)

    with pytest.raises(SwapLost):
        await store.put("a", b"three", expected=first)
    assert await store.get("a") == Stored(b"two", second)
    await other.close()
