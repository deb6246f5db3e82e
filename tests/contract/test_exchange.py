"""Files that change places, and what a store without syncs makes of it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandur.errors import SwapLost
from sandur.storage import local
from sandur.storage.contract import ABSENT, Stored
from sandur.storage.exchange import exchanged
from sandur.storage.local import LocalStore

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


async def test_swaps_without_syncs_write_over_what_they_replaced_and_leave_nothing_at_the_end(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync="never")
    version = await store.put("a/b", b"a long first one", expected=ABSENT)

    for number in range(10):
        version = await store.put("a/b", b"%d" % number, expected=version)

    assert await store.get("a/b") == Stored(b"9", version)
    assert len(list(_written_aside(tmp_path))) == 1, "one spare file serves all swaps"
    await store.close()
    assert list(_written_aside(tmp_path)) == []


async def test_a_lost_swap_takes_its_spare_file_away(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync="never")
    first = await store.put("a", b"1", expected=ABSENT)
    second = await store.put("a", b"2", expected=first)

    with pytest.raises(SwapLost):
        store._write("a", str(tmp_path / "a"), b"3", first)

    assert await store.get("a") == Stored(b"2", second)
    assert list(_written_aside(tmp_path)) == []


async def test_a_reader_whose_file_is_written_over_meanwhile_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, fsync="never")
    versions = [await store.put("a", b"old " * 1_000, expected=ABSENT)]
    read = local._read

    def read_late(descriptor: int, size: int) -> bytes:
        """Between the look at a file and its reading it is replaced, and replaced again: written over."""
        while len(versions) < 3:
            body = b"new %d" % len(versions)
            versions.append(store._write("a", str(tmp_path / "a"), body, versions[-1]))
        return read(descriptor, size)

    monkeypatch.setattr(local, "_read", read_late)

    assert await store.get("a") == Stored(b"new 2", versions[-1])


def _written_aside(root: Path) -> Iterator[Path]:
    return (root / ".sandur" / "writing").iterdir()
