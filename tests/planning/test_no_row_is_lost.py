"""Random tables and filters: every matching row is in a file that the scan reads once, with its deletes."""

import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planning.filters import SPECS, filters, holds, rows
from tests.planning.planners import Task, plan, plan_as_if_large
from tests.planning.random_tables import Made
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Row, Spec


def files_of(made: list[dict[str, Any]], spec: Spec, name: str) -> dict[str, MadeFile]:
    """The rows split by partition, as a writer would split them."""
    by_partition: dict[Any, list[Row]] = defaultdict(list)
    for row in made:
        by_partition[repr(spec.partition(row))].append(row)
    found = [
        MadeFile(f"file:///t/{name}-{place}.parquet", spec.partition(group[0]), group)
        for place, group in enumerate(by_partition.values())
    ]
    return {file.path: file for file in found}


@settings(max_examples=100, deadline=None)
@given(
    groups=st.lists(st.tuples(st.sampled_from(SPECS), rows()), min_size=1, max_size=3),
    wanted=st.lists(filters(), min_size=1, max_size=4),
    version=st.sampled_from([1, 2, 3]),
)
def test_every_matching_row_is_planned_and_its_residual_agrees(
    groups: list[tuple[Spec, list[dict[str, Any]]]], wanted: list[Any], version: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = MadeTable(Path(folder), SPECS, format_version=version)
        files: dict[str, MadeFile] = {}
        manifests = []
        for place, (spec, made) in enumerate(groups):
            found = files_of(made, spec, str(place))
            files |= found
            manifests.append(MadeManifest(spec, list(found.values())))
        table.add_snapshot(manifests)

        path = table.write()
        answers = [plan(Path(folder), path, filter=filter_json) for filter_json in wanted]
        assert plan_as_if_large(Path(folder), path, filter=wanted[0]) == answers[0]

    for filter_json, tasks in zip(wanted, answers, strict=True):
        assert_nothing_is_lost(files, filter_json, tasks)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("seed", range(20))
def test_every_delete_is_listed_for_the_files_it_applies_to_and_for_no_other(
    tmp_path: Path, seed: int, version: int
) -> None:
    made = Made(tmp_path, 2_000 + seed, version=version, with_equality=True)

    for wanted in (True, made.filter()):
        for task in plan(tmp_path, made.path, filter=wanted):
            assert set(task.deletes) == made.deletes_of(task.path), (wanted, task.path)


def assert_nothing_is_lost(files: dict[str, MadeFile], filter_json: Any, tasks: list[Task]) -> None:
    planned = {task.path: task.residual for task in tasks}
    assert len(planned) == len(tasks)
    for path, file in files.items():
        for row in file.rows:
            if holds(filter_json, row):
                assert path in planned, (filter_json, row)
            if path in planned:
                assert holds(planned[path], row) == holds(filter_json, row), (filter_json, planned[path], row)
