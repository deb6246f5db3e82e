"""The local store beyond the contract: its own folder, files of other programs, clocks that go back."""

import os
from pathlib import Path

import pytest

from sandur.errors import BadRequest, SwapLost, Unavailable
from sandur.storage.contract import ABSENT, Stored, Version, list_pages
from sandur.storage.local import Fsync, LocalStore

FUTURE_NS = 4_000_000_000_000_000_000


@pytest.fixture(params=["always", "never"])
def fsync(request: pytest.FixtureRequest) -> Fsync:
    return "always" if request.param == "always" else "never"


@pytest.fixture
def store(tmp_path: Path, fsync: Fsync) -> LocalStore:
    return LocalStore(tmp_path / "store", fsync=fsync)


@pytest.mark.parametrize("key", [".sandur", ".sandur/x", ".sandur/locks/00", ".sandur/writing/x"])
async def test_keys_in_the_stores_own_folder_are_refused(store: LocalStore, key: str) -> None:
    for attempt in (
        store.get(key),
        store.head(key),
        store.get_if_changed(key, seen=Version("1")),
        store.put(key, b"1", expected=ABSENT),
        store.put(key, b"1", expected=Version("1")),
        store.delete(key, expected=Version("1")),
    ):
        with pytest.raises(BadRequest):
            await attempt


async def test_the_stores_own_folder_is_not_listed(store: LocalStore) -> None:
    version = await store.put("a", b"1", expected=ABSENT)
    await store.delete("a", expected=version)
    await store.put("below/.sandur/x", b"1", expected=ABSENT)

    assert [entry.key for entry in await store.list("")] == ["below/.sandur/x"]
    for prefix in (".sandur/", ".sandur/locks/"):
        with pytest.raises(BadRequest):
            await store.list(prefix)


async def test_pages_of_a_large_folder_are_its_sorted_keys_for_every_size(tmp_path: Path) -> None:
    """A small page of a large folder is found without sorting it; empty folders in between are left out."""
    store = LocalStore(tmp_path / "store", fsync="never")
    names = [f"{number * 7_919 % 1_000_003:06}" for number in range(150)]
    below = {f"f/{name}-d/{one}" for name in names[:40] for one in ("a", "b/c")}
    keys = sorted({f"f/{name}" for name in names} | below)
    for key in keys:
        await store.put(key, b"1", expected=ABSENT)
    for name in names[:60]:
        (tmp_path / "store" / "f" / f"{name}-empty").mkdir()

    for limit in (1, 2, 7, 20, 1_000):
        pages = [page async for page in list_pages(store, "f/", limit=limit)]
        assert [listed.key for page in pages for listed in page] == keys


async def test_names_similar_to_the_stores_own_folder_are_valid_keys(store: LocalStore) -> None:
    for key in (".sandur2", ".sandur-x/y", "x/.sandur"):
        await store.put(key, b"1", expected=ABSENT)

    assert [entry.key for entry in await store.list("")] == [".sandur-x/y", ".sandur2", "x/.sandur"]


async def test_a_file_written_by_another_program_is_an_object(store: LocalStore, tmp_path: Path) -> None:
    file = tmp_path / "store" / "data" / "part.parquet"
    file.parent.mkdir()
    file.write_bytes(b"by an engine")

    stored = await store.get("data/part.parquet")

    assert stored
    assert stored.data == b"by an engine"
    assert [entry.version for entry in await store.list("data/")] == [stored.version]
    await store.put("data/part.parquet", b"ours", expected=stored.version)
    assert file.read_bytes() == b"ours"


async def test_a_key_that_is_a_folder_is_refused_and_changes_nothing(store: LocalStore) -> None:
    version = await store.put("a/b", b"1", expected=ABSENT)

    with pytest.raises(BadRequest):
        await store.put("a", b"2", expected=ABSENT)
    with pytest.raises(BadRequest):
        await store.put("a/b/c", b"2", expected=ABSENT)

    assert await store.get("a/b") == Stored(b"1", version)
    assert [entry.key for entry in await store.list("")] == ["a/b"]


async def test_a_version_advances_although_the_clock_is_behind(store: LocalStore, tmp_path: Path) -> None:
    await store.put("a", b"1", expected=ABSENT)
    os.utime(tmp_path / "store" / "a", ns=(FUTURE_NS, FUTURE_NS))
    seen = [Version(str(FUTURE_NS))]

    for number in range(3):
        seen.append(await store.put("a", b"%d" % number, expected=seen[-1]))

    assert [int(version) for version in seen] == [FUTURE_NS, FUTURE_NS + 1, FUTURE_NS + 2, FUTURE_NS + 3]


async def test_a_version_does_not_repeat_after_a_delete_although_the_clock_is_behind(
    store: LocalStore, tmp_path: Path, fsync: Fsync
) -> None:
    await store.put("a", b"1", expected=ABSENT)
    os.utime(tmp_path / "store" / "a", ns=(FUTURE_NS, FUTURE_NS))
    await store.delete("a", expected=Version(str(FUTURE_NS)))

    again = await LocalStore(tmp_path / "store", fsync=fsync).put("a", b"1", expected=ABSENT)

    assert int(again) > FUTURE_NS


async def test_a_lost_delete_does_not_raise_the_minimum_version(store: LocalStore) -> None:
    await store.put("a", b"1", expected=ABSENT)

    with pytest.raises(SwapLost):
        await store.delete("a", expected=Version(str(FUTURE_NS)))

    stored = await store.get("a")
    assert stored
    assert int(await store.put("a", b"2", expected=stored.version)) < FUTURE_NS


async def test_a_lost_swap_leaves_no_file_behind(store: LocalStore, tmp_path: Path) -> None:
    version = await store.put("a", b"1", expected=ABSENT)
    for number in range(3):
        version = await store.put("a", b"%d" % number, expected=version)
    with pytest.raises(SwapLost):
        await store.put("a", b"2", expected=ABSENT)

    await store.close()  # Until then the previous file is kept for the next write.
    assert list((tmp_path / "store" / ".sandur" / "writing").iterdir()) == []


async def test_old_files_of_killed_writers_are_deleted_and_young_ones_stay(tmp_path: Path) -> None:
    writing = tmp_path / ".sandur" / "writing"
    writing.mkdir(parents=True)
    (writing / "old").write_bytes(b"x")
    (writing / "young").write_bytes(b"x")
    os.utime(writing / "old", (1, 1))

    LocalStore(tmp_path)

    assert [path.name for path in writing.iterdir()] == ["young"]


async def test_a_root_that_cannot_be_a_folder_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(Unavailable):
        LocalStore(tmp_path / "file")


async def test_a_folder_that_vanished_is_unavailable_and_not_a_success(store: LocalStore, tmp_path: Path) -> None:
    """The disk may be unmounted; an error is better than an object in the wrong place."""
    (tmp_path / "store").rename(tmp_path / "gone")

    with pytest.raises(Unavailable):
        await store.put("a", b"1", expected=ABSENT)


def test_an_empty_folder_is_removed_with_its_empty_parents(store: LocalStore, tmp_path: Path) -> None:
    store.make_folder("a/b/c")
    store.make_folder("a/b/c")
    assert (tmp_path / "store" / "a" / "b" / "c").is_dir()

    assert store.remove_empty_folder("a/b/c")
    assert store.remove_empty_folder("a/b/c")

    assert [path.name for path in (tmp_path / "store").iterdir()] == [".sandur"]


async def test_a_folder_with_files_is_not_removed(store: LocalStore, tmp_path: Path) -> None:
    version = await store.put("a/b/c", b"1", expected=ABSENT)

    assert not store.remove_empty_folder("a/b")
    assert not store.remove_empty_folder("a")

    assert await store.get("a/b/c") == Stored(b"1", version)
    store.make_folder("a/d")
    await store.delete("a/b/c", expected=version)
    assert [path.name for path in (tmp_path / "store" / "a").iterdir()] == ["d"]


async def test_a_folder_that_is_used_repeatedly_is_kept_and_blocks_no_object(store: LocalStore, tmp_path: Path) -> None:
    folder = tmp_path / "store" / "a" / "b"
    for is_there in (False, True, True):
        version = await store.put("a/b/c", b"1", expected=ABSENT)
        await store.delete("a/b/c", expected=version)
        assert folder.is_dir() == is_there

    version = await store.put("a/b", b"2", expected=ABSENT)

    assert await store.get("a/b") == Stored(b"2", version)
    await store.delete("a/b", expected=version)
    assert await store.list("") == []


async def test_a_kept_folder_is_removed_on_request(store: LocalStore, tmp_path: Path) -> None:
    for _ in range(2):
        await store.delete("a/b/c", expected=await store.put("a/b/c", b"1", expected=ABSENT))
    assert (tmp_path / "store" / "a" / "b").is_dir()

    assert store.remove_empty_folder("a/b")

    assert not (tmp_path / "store" / "a" / "b").exists()


async def test_a_created_folder_is_not_an_object(store: LocalStore) -> None:
    store.make_folder("a/b")

    assert await store.get("a/b") is None
    assert await store.list("") == []


async def test_a_folder_cannot_replace_an_object(store: LocalStore) -> None:
    version = await store.put("a/b", b"1", expected=ABSENT)

    for key in ("a/b", "a/b/c", ".sandur/x", "a/../b"):
        with pytest.raises(BadRequest):
            store.make_folder(key)

    assert await store.get("a/b") == Stored(b"1", version)


async def test_a_store_that_is_moved_away_during_a_write_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be unmounted for a moment: an empty folder in its place would hide that, and be in its way."""
    root, away = tmp_path / "store", tmp_path / "away"
    store = LocalStore(root, fsync="always")
    sync = os.fsync

    def moved(descriptor: int) -> None:
        sync(descriptor)
        if root.exists():
            root.rename(away)

    monkeypatch.setattr(os, "fsync", moved)
    with pytest.raises(Unavailable):
        await store.put("a/b", b"1", expected=ABSENT)
    with pytest.raises(Unavailable):
        store.make_folder("a/c")

    assert not root.exists()
