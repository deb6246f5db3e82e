"""Published files have a bounded size, and a dataset has no more files than it needs."""

from typing import Any

import pytest

from sandur.operations.published import FILES_MAX, ROWS_PER_FILE_MAX, Dataset, PublishedFile
from sandur.pipeline.executor_tasks.write import BYTES_PER_FILE_MAX, FileWriter
from sandur.pipeline.sources.range_reader import shaped_batch
from sandur.pipeline.tables import QUARANTINE
from tests.pipeline.world import World


def files_written(writer: FileWriter, rows: list[dict[str, Any]]) -> int:
    """The number of files that some rows caused."""
    return len(list(writer.add(shaped_batch(QUARANTINE, rows))))


def test_a_task_writes_a_file_when_it_is_full_by_rows_or_by_bytes(world: World) -> None:
    short = {"key": "k", "problem": "corrupt", "detail": "", "size_bytes": 1}
    long = {**short, "body": "x" * (BYTES_PER_FILE_MAX // 2)}
    writer = FileWriter(world.blocking, "attempt", QUARANTINE)

    by_bytes = [files_written(writer, [row]) for row in (long, long, long)]
    rest = len(list(writer.flush()))
    by_rows = [files_written(writer, [short] * count) for count in (ROWS_PER_FILE_MAX - 1, 1, 1)]

    assert (by_bytes, rest, by_rows) == ([0, 1, 0], 1, [0, 1, 0])


@pytest.mark.parametrize(
    ("count", "rows", "size_bytes", "is_scattered"),
    [
        (FILES_MAX - 1, 1, 1, False),
        (FILES_MAX, 1, 1, True),
        (2 * FILES_MAX, ROWS_PER_FILE_MAX, 1, False),
        (2 * FILES_MAX, 1, BYTES_PER_FILE_MAX, False),
    ],
)
def test_a_dataset_with_many_small_files_is_scattered(
    count: int, rows: int, size_bytes: int, *, is_scattered: bool
) -> None:
    file = PublishedFile(key="k", rows=rows, size_bytes=size_bytes, sha256="")

    assert Dataset(sequence=1, files=(file,) * count).is_scattered is is_scattered
