"""Files that change places, and what a store without syncs makes of it."""

import sys
from pathlib import Path

import pytest

from sandur.storage.exchange import exchanged
from sandur.storage.local import LocalStore
from sandur.storage.object_store import ABSENT, Stored

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere files are renamed")


def test_two_files_change_places(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "zweite Datei é"
    first.write_bytes(b"1")
    second.write_bytes(b"2")

    assert exchanged(str(first), str(second))
    assert (first.read_bytes(), second.read_bytes()) == (b"2", b"1")


@pytest.mark.parametrize("missing", ["first", "second"])
def test_with_one_of_them_missing_nothing_happens(tmp_path: Path, missing: str) -> None:
    there = {"first": "second", "second": "first"}[missing]
    (tmp_path / there).write_bytes(b"x")

    assert not exchanged(str(tmp_path / "first"), str(tmp_path / "second"))
    assert [path.name for path in tmp_path.iterdir()] == [there]


async def test_a_swap_without_syncs_leaves_the_new_object_and_nothing_else(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync="never")
    version = await store.put("a/b", b"1", expected=ABSENT)
    inode = (tmp_path / "a" / "b").stat().st_ino

    version = await store.put("a/b", b"2", expected=version)

    assert await store.get("a/b") == Stored(b"2", version)
    assert (tmp_path / "a" / "b").stat().st_ino != inode, "what a reader has open stays as it is"
    assert list((tmp_path / ".sandur" / "writing").iterdir()) == []
