"""Plan tasks: each file is in one of them, and every answer stays within its limit, for tables of any shape."""

import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from sandur.iceberg.scan.manifests import ManifestFile
from sandur.iceberg.scan.selection import RESIDUAL_BYTES_MAX
from sandur.operations.lake import Lake
from sandur.operations.planning import plans
from sandur.operations.planning.cache import SELECTED_BYTES_MAX, PlanningCache
from sandur.operations.planning.plan_tasks import (
    PLAN_TASKS_MAX,
    TOKEN_CHARS_MAX,
    encode_task,
    entries_per_task,
    group_runs,
)
from sandur.operations.planning.plans import Completed
from sandur.operations.planning.scan import ANSWER_BYTES_MAX
from tests.planning.filters import holds
from tests.planning.plan_servers import SMALL, TABLE, Fleet, everything, fetched, made_table, paths, request_plan
from tests.planning.planners import tasks_in
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec


def change_manifest_list(folder: Path, place: int, **said: Any) -> None:
    """Change what the manifest list of the first snapshot says about one manifest."""
    listed = folder / "metadata" / "snap-1.avro"
    with listed.open("rb") as file:
        reader = fastavro.reader(file)
        records: list[Any] = list(reader)
        schema = reader.writer_schema
    records[place] |= said
    with listed.open("wb") as file:
        fastavro.writer(file, schema, records)


@pytest.mark.parametrize("said", [1, 4, 5, 8, 30, -3])
async def test_all_files_of_a_manifest_with_a_wrong_count_in_its_list_are_planned(tmp_path: Path, said: int) -> None:
    fleet = Fleet(tmp_path, **SMALL)
    table = made_table(fleet.table_folder, 9, 3)
    change_manifest_list(fleet.table_folder, 0, added_files_count=said)
    server = await fleet.serve_table(table)

    result = await request_plan(server)

    assert isinstance(result, Completed)
    assert result.result.plan_tasks
    assert sorted(await everything(server, result)) == sorted(paths(0, 12))


def test_the_number_of_tasks_is_bounded_for_any_declared_number_of_files() -> None:
    counts = [(2**31 - 1, 2**31 - 1), (-(2**31), 0), (-(2**31), 5), (-(2**31), -7), (5, -5)]
    manifests = [ManifestFile(manifest_path="m", added_files_count=a, existing_files_count=b) for a, b in counts]
    size = entries_per_task(sum(manifest.live_files or 0 for manifest in manifests), 128)

    groups = group_runs(enumerate(manifests), entries_per_task=size, matched={})

    assert len(groups) <= PLAN_TASKS_MAX + len(manifests)
    assert {run.place for group in groups for run in group} == set(range(len(manifests)))


def test_the_task_token_of_many_small_manifests_is_valid() -> None:
    manifests = [ManifestFile(manifest_path="m", added_files_count=1, existing_files_count=0)] * 10_000
    placed = enumerate(manifests, start=990_000)

    groups = group_runs(placed, entries_per_task=entries_per_task(1_000_000, 128), matched={})

    assert sum(map(len, groups)) == 10_000
    assert max(len(encode_task("0" * 36, 2**63 - 1, group)) for group in groups) <= TOKEN_CHARS_MAX


async def answers(server: Lake, tokens: list[str]) -> list[tuple[int, list[str]]]:
    """Fetch the tasks and all tasks that they return: the length of each answer, and its files."""
    found = []
    while tokens:
        body = await plans.fetch_scan_tasks(server, TABLE, tokens.pop(0), principal="ann")
        answer = msgspec.json.decode(b"{" + body + b"}")
        found.append((len(body), [task["data-file"]["file-path"] for task in answer["file-scan-tasks"]]))
        tokens += answer.get("plan-tasks", [])
    return found


LONG: dict[str, Any] = {"type": "not-in", "term": "name", "values": [f"{n:06d}" + 160 * "x" for n in range(5_000)]}
"""Between 800 and 900 kB, so that an answer has room for about 20 files."""


@pytest.mark.parametrize(("count", "files_per_task"), [(15, 128), (50, 128), (50, 8)])
async def test_answers_stay_within_their_limit_for_a_long_filter(
    tmp_path: Path, count: int, files_per_task: int
) -> None:
    fleet = Fleet(tmp_path, plan_task_files=files_per_task)
    server = await fleet.serve_table(made_table(fleet.table_folder, count, 3))

    result = await request_plan(server, filter=LONG)

    assert isinstance(result, Completed)
    found = await answers(server, list(result.result.plan_tasks))
    inline = [task.path for task in tasks_in(result.result.fields)]
    fetched = [path for _, some in found for path in some]
    assert bool(inline) is (count == 15)
    assert sorted(inline + fetched) == sorted(paths(0, count + 3))
    assert all(length < ANSWER_BYTES_MAX and some for length, some in found)


async def test_the_cache_counts_the_memory_of_a_plan_with_a_long_filter(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    server = await fleet.serve_table(made_table(fleet.table_folder, *[12] * 6))
    result = await request_plan(server, filter=LONG)
    assert isinstance(result, Completed)

    await answers(server, list(result.result.plan_tasks))

    remembered = list(server.feature(PlanningCache).selected._entries.values())
    written = sum(len(lines._content) for found in remembered for lines in found._portions.values())
    assert SELECTED_BYTES_MAX / 2 < written < server.feature(PlanningCache).selected.bytes <= SELECTED_BYTES_MAX


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_files_that_repeat_a_long_filter(tmp_path: Path) -> None:
    peaks = []
    for manifests in (2, 6):
        fleet = Fleet(tmp_path / str(manifests))
        server = await fleet.serve_table(made_table(fleet.table_folder, *[60] * manifests))
        tracemalloc.start()
        try:
            result = await request_plan(server, filter=LONG)
            assert isinstance(result, Completed)
            found = await answers(server, list(result.result.plan_tasks))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert sum(len(files) for _, files in found) == 60 * manifests

    assert peaks[1] < peaks[0] * 1.2, peaks


async def test_delete_files_are_correct_in_any_order_of_references(tmp_path: Path) -> None:
    spec = Spec(0, (("i", "identity", 1000),))
    fleet = Fleet(tmp_path)
    table = MadeTable(fleet.table_folder, [spec])
    data = [
        MadeFile(f"file:///t/{part}.parquet", (part,), [{"id": 1, "i": part}], sequence_number=1)
        for part in (0, 2, 4, 1, 3, 5)
    ]
    deletes = [
        MadeFile(
            f"file:///t/delete-{part}.parquet",
            (part,),
            record_count=part + 1,
            content=1 + part % 2,
            sequence_number=2,
            equality_ids=(1, 2)[: part % 3] or None if part % 2 else None,
            has_stats=False,
        )
        for part in range(6)
    ]
    table.add_snapshot([MadeManifest(spec, data), MadeManifest(spec, deletes, sequence_number=2, content=1)])
    server = await fleet.serve_table(table)

    result = await request_plan(server)

    assert isinstance(result, Completed)
    answer = msgspec.json.decode(b"{" + result.result.fields + b"}")
    for task in answer["file-scan-tasks"]:
        (part,) = task["data-file"]["partition"]
        (place,) = task["delete-file-references"]
        file = answer["delete-files"][place]
        made = deletes[part]
        assert (file["file-path"], file["partition"], file["record-count"]) == (made.path, [part], part + 1)
        assert file["content"] == ("position-deletes", "equality-deletes")[part % 2]
        assert file.get("equality-ids") == (None if made.equality_ids is None else list(made.equality_ids))
    assert len(answer["delete-files"]) == len(answer["file-scan-tasks"]) == 6


def all_of(tests: list[dict[str, Any]]) -> dict[str, Any]:
    middle = len(tests) // 2
    return tests[0] if not middle else {"type": "and", "left": all_of(tests[:middle]), "right": all_of(tests[middle:])}


async def test_memory_is_bounded_if_every_file_has_another_residual(tmp_path: Path) -> None:
    """Every partition answers another one of 200 predicates, so that every residual of 400 kB differs."""
    spec = Spec(0, (("i", "identity", 1000),))
    rows = [{"id": number, "i": number, "name": f"{number:06d}"} for number in range(120)]
    fleet = Fleet(tmp_path)
    table = MadeTable(fleet.table_folder, [spec])
    table.add_snapshot([MadeManifest(spec, [MadeFile(f"file:///t/{row['id']}", (row["i"],), [row]) for row in rows])])
    server = await fleet.serve_table(table)
    others = [{"type": "not-eq", "term": "name", "value": f"{number % 7:06d}" + 2_000 * "x"} for number in range(200)]
    partitions = [{"type": "eq", "term": "i", "value": number} for number in range(200)]
    long = all_of(
        [{"type": "or", "left": left, "right": right} for left, right in zip(partitions, others, strict=True)]
    )

    result = await request_plan(server, filter=long)

    assert isinstance(result, Completed)
    found = [await fetched(server, token) for token in result.result.plan_tasks]
    assert found
    for task in (task for tasks in found for task in tasks):
        assert holds(task.residual, rows[task.file["partition"][0]])
    (remembered,) = server.feature(PlanningCache).selected._entries.values()
    assert remembered._residuals is not None
    assert sum(len(text) for text in remembered._residuals.texts) <= RESIDUAL_BYTES_MAX
