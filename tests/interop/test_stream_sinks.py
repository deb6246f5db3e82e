"""The stream of receipts, merged by `commit_key` into a real Delta and a real Iceberg table: each commit once."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sandur.operations.feed import Feed
from sandur.operations.feed_readers import FeedReaders
from sandur.operations.receipts import receipt_of_key
from sandur.settings import Settings
from tests.interop.stream_sinks_session import KILLED, SINKS
from tests.pipeline.world import World

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]


def follow(folder: Path, *sinks: str) -> dict[str, list[list[Any]]] | None:
    """The rows of each table after the stream has ended; None if the stream was killed."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.interop.stream_sinks_session", str(folder), *sinks],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env={**os.environ, "SANDUR_FSYNC": "never"},
    )
    said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
    is_killed = ran.returncode == KILLED and sinks[-1].endswith("!")
    assert said or is_killed, f"{ran.returncode}\n{ran.stdout[-2_000:]}\n{ran.stderr[-6_000:]}"
    found: dict[str, list[list[Any]]] | None = json.loads(said[0]) if said else None
    return found


def test_a_killed_stream_a_repeated_batch_and_a_second_position_leave_each_commit_once(tmp_path: Path) -> None:
    with World(Settings(store=str(tmp_path / "store"), fsync="never")) as world:
        world.make("orders")
        world.commits("orders", 3)

        killed = [follow(tmp_path, f"{sink}!") for sink in SINKS]
        offsets = {sink: _batches(tmp_path, sink) for sink in SINKS}
        world.commits("orders", 1)
        resumed = follow(tmp_path, *SINKS)
        assert resumed
        keys = sorted(world.layout.parse_receipt(key).commit_key for key in world.all_receipts())
        known = [receipt_of_key(world.layout, key) for key in world.receipts()][:2]
        world.wait(Feed(world.lake).append_again(known))
        for sink in SINKS:  # As if the process had died after the merge, before the batch was in the checkpoint.
            newest = max((tmp_path / f"checkpoint-{sink}" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
            newest.unlink()
            newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        again = follow(tmp_path, *SINKS)
        readers = {one.name: one.position for one in world.wait(FeedReaders(world.lake).read_all())}
        newest_entry = world.wait(Feed(world.lake).catch_up()).sequence

    assert killed == [None, None]
    assert offsets == dict.fromkeys(SINKS, (1, 0)), "a batch was planned and not completed"
    assert {sink: sorted(key for key, _ in rows) for sink, rows in resumed.items()} == dict.fromkeys(SINKS, keys)
    assert again == resumed
    assert Counter(key for key, _ in resumed["delta"]).most_common(1)[0][1] == 1
    # Spark reports a batch as done when it plans the next one.
    assert readers == {f"history-{sink}": newest_entry - 1 for sink in SINKS}


def _batches(folder: Path, sink: str) -> tuple[int, int]:
    """How many batches were planned, and how many were completed."""
    planned, completed = (
        list((folder / f"checkpoint-{sink}" / name).glob("[0-9]*")) for name in ("offsets", "commits")
    )
    return len(planned), len(completed)
