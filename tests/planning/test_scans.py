"""Selected files: deletes by sequence number and partition, changed specs, ranges of snapshots, format versions."""

import json
from pathlib import Path

import fastavro
import pytest

from sandur.errors import BadRequest, Invalid
from sandur.operations.planning.scan import Limits
from tests.planning.planners import INLINE, Task, plan, plan_through_tasks
from tests.planning.tables import MadeFile, MadeManifest, MadeTable, Spec, statistics_of

PLAIN = Spec(0)
BY_NAME = Spec(1, (("name", "identity", 1000),))
BY_BUCKET = Spec(2, (("id", "bucket[4]", 1001),))


def data(name: str, partition: tuple[object, ...] = (), *, sequence: int | None = None, first: int = 0) -> MadeFile:
    rows = [{"id": first, "name": partition[0] if partition else "x"}]
    return MadeFile(f"file:///t/{name}.parquet", partition, rows, sequence_number=sequence)


def position(name: str, partition: tuple[object, ...] = (), *, about: str | None = None, sequence: int = 2) -> MadeFile:
    referenced = None if about is None else f"file:///t/{about}.parquet"
    return MadeFile(
        f"file:///t/{name}.parquet",
        partition,
        record_count=1,
        content=1,
        sequence_number=sequence,
        referenced_data_file=referenced,
        has_stats=False,
    )


def vector(name: str, about: str, *, sequence: int = 2) -> MadeFile:
    return MadeFile(
        f"file:///t/{name}.puffin",
        record_count=1,
        content=1,
        sequence_number=sequence,
        file_format="PUFFIN",
        referenced_data_file=f"file:///t/{about}.parquet",
        content_offset=4,
        content_size=40,
        has_stats=False,
    )


def equality(name: str, partition: tuple[object, ...] = (), *, sequence: int = 2) -> MadeFile:
    return MadeFile(
        f"file:///t/{name}.parquet",
        partition,
        record_count=1,
        content=2,
        sequence_number=sequence,
        equality_ids=(1,),
        has_stats=False,
    )


def planned(folder: Path, *manifests: MadeManifest, version: int = 2, **said: object) -> dict[str, Task]:
    table = MadeTable(folder, [PLAIN, BY_NAME, BY_BUCKET], format_version=version)
    table.add_snapshot(manifests)
    return {task.path.removeprefix("file:///t/"): task for task in plan(folder, table.write(), **said)}


def names(task: Task) -> set[str]:
    return {path.removeprefix("file:///t/").partition(".")[0] for path in task.deletes}


def test_a_position_delete_applies_to_files_up_to_its_own_commit(tmp_path: Path) -> None:
    files = [data("older", sequence=1), data("same", sequence=2), data("newer", sequence=3)]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files), MadeManifest(PLAIN, [position("d")], content=1))

    assert {name: names(task) for name, task in tasks.items()} == {
        "older.parquet": {"d"},
        "same.parquet": {"d"},
        "newer.parquet": set(),
    }


def test_an_equality_delete_applies_only_to_files_before_its_own_commit(tmp_path: Path) -> None:
    files = [data("older", sequence=1), data("same", sequence=2)]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files), MadeManifest(PLAIN, [equality("d")], content=1))

    assert names(tasks["older.parquet"]) == {"d"}
    assert names(tasks["same.parquet"]) == set()


def test_a_delete_without_a_sequence_number_has_that_of_its_manifest(tmp_path: Path) -> None:
    delete = MadeFile("file:///t/d.parquet", (), record_count=1, content=1, has_stats=False)

    tasks = planned(
        tmp_path,
        MadeManifest(PLAIN, [data("a")], sequence_number=5),
        MadeManifest(PLAIN, [data("b")], sequence_number=7),
        MadeManifest(PLAIN, [delete], sequence_number=6, content=1),
    )

    assert names(tasks["a.parquet"]) == {"d"}
    assert names(tasks["b.parquet"]) == set()


def test_a_delete_applies_to_its_partition_and_an_unpartitioned_equality_delete_to_all(
    tmp_path: Path,
) -> None:
    tasks = planned(
        tmp_path,
        MadeManifest(BY_NAME, [data("is", ("IS",), sequence=1), data("dk", ("DK",), sequence=1)]),
        MadeManifest(PLAIN, [data("plain", sequence=1)]),
        MadeManifest(BY_NAME, [position("p", ("IS",)), equality("e", ("DK",))], content=1),
        MadeManifest(PLAIN, [position("pp"), equality("ee")], content=1),
    )

    assert names(tasks["is.parquet"]) == {"p", "ee"}
    assert names(tasks["dk.parquet"]) == {"e", "ee"}
    assert names(tasks["plain.parquet"]) == {"pp", "ee"}


def test_an_equality_delete_with_only_void_partition_fields_applies_to_all_files(tmp_path: Path) -> None:
    void = Spec(3, (("name", "void", 1000),))
    table = MadeTable(tmp_path, [BY_NAME, void])
    table.add_snapshot(
        [
            MadeManifest(BY_NAME, [data("is", ("IS",), sequence=1)]),
            MadeManifest(void, [data("void", (None,), sequence=1)]),
            MadeManifest(void, [equality("e", (None,)), position("p", (None,))], content=1),
        ]
    )

    tasks = plan(tmp_path, table.write())

    assert [names(task) for task in tasks] == [{"e"}, {"e", "p"}]


def test_nans_are_one_partition_and_zeros_of_both_signs_are_two(tmp_path: Path) -> None:
    spec = Spec(3, (("x", "identity", 1002),))
    table = MadeTable(tmp_path, [spec])
    values = {"nan": float("nan"), "plus": 0.0, "minus": -0.0, "null": None}
    files = [
        MadeFile(f"file:///t/{name}.parquet", (x,), [{"id": 1, "x": x}], sequence_number=1)
        for name, x in values.items()
    ]
    deletes = [equality(f"of-{name}", (x,)) for name, x in values.items()]
    table.add_snapshot([MadeManifest(spec, files), MadeManifest(spec, deletes, content=1)])

    tasks = plan(tmp_path, table.write())

    assert [names(task) for task in tasks] == [{f"of-{name}"} for name in values]


def test_a_delete_applies_to_its_partition_after_the_decimal_was_widened(tmp_path: Path) -> None:
    spec = Spec(3, (("amount", "identity", 1002),))
    table = MadeTable(tmp_path, [spec])
    file = MadeFile("file:///t/a.parquet", (-5,), [{"id": 1, "amount": -5}], sequence_number=1)
    table.add_snapshot([MadeManifest(spec, [file]), MadeManifest(spec, [equality("d", (-5,))], content=1)])
    widen(tmp_path / "metadata" / "m1-1.avro")
    path = Path(table.write())
    path.write_text(path.read_text().replace("decimal(9, 2)", "decimal(20, 2)"))

    (task,) = plan(tmp_path, str(path))

    assert names(task) == {"d"}
    assert task.file["partition"] == ["-0.05"]


def widen(manifest: Path) -> None:
    """Write a manifest whose decimals have 20 digits instead of 9, and so more bytes."""
    with manifest.open("rb") as file:
        reader = fastavro.reader(file)
        records = list(reader)
    header = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    schema = (
        json.dumps(reader.writer_schema).replace('"size": 4', '"size": 9').replace('"precision": 9', '"precision": 20')
    )
    with manifest.open("wb") as file:
        fastavro.writer(file, json.loads(schema), records, metadata=header)


def test_a_delete_that_names_a_file_applies_to_no_other_file(tmp_path: Path) -> None:
    files = [data("a", sequence=1), data("b", sequence=1)]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files), MadeManifest(PLAIN, [position("d", about="a")], content=1))

    assert names(tasks["a.parquet"]) == {"d"}
    assert names(tasks["b.parquet"]) == set()


def test_a_deletion_vector_replaces_position_deletes_and_has_its_offset(tmp_path: Path) -> None:
    files = [data("a", sequence=1), data("b", sequence=1)]
    deletes = [vector("v", "a", sequence=3), position("p"), equality("e")]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files), MadeManifest(PLAIN, deletes, content=1), version=3)

    assert names(tasks["a.parquet"]) == {"v", "e"}
    assert names(tasks["b.parquet"]) == {"p", "e"}


def test_two_deletion_vectors_of_one_file_are_refused(tmp_path: Path) -> None:
    deletes = [vector("v", "a", sequence=3), vector("w", "a", sequence=2)]

    with pytest.raises(Invalid, match="more than one deletion vector"):
        planned(tmp_path, MadeManifest(PLAIN, [data("a")]), MadeManifest(PLAIN, deletes, content=1), version=3)


def test_deletes_of_pruned_partitions_are_not_in_the_plan(tmp_path: Path) -> None:
    tasks = planned(
        tmp_path,
        MadeManifest(BY_NAME, [data("is", ("IS",), sequence=1), data("dk", ("DK",), sequence=1)]),
        MadeManifest(BY_NAME, [position("p", ("IS",)), position("q", ("DK",))], content=1),
        filter={"type": "eq", "term": "name", "value": "DK"},
    )

    assert list(tasks) == ["dk.parquet"]
    assert names(tasks["dk.parquet"]) == {"q"}


def test_files_of_every_spec_have_their_own_partition_and_residual(tmp_path: Path) -> None:
    tasks = planned(
        tmp_path,
        MadeManifest(PLAIN, [data("plain")]),
        MadeManifest(BY_NAME, [data("is", ("IS",)), data("none", (None,))]),
        filter={
            "type": "or",
            "left": {"type": "eq", "term": "name", "value": "IS"},
            "right": {"type": "in", "term": "name", "values": ["x", "y"]},
        },
    )

    assert {name: (task.file["spec-id"], task.file["partition"]) for name, task in tasks.items()} == {
        "plain.parquet": (0, []),
        "is.parquet": (1, ["IS"]),
    }
    assert tasks["is.parquet"].residual is True
    assert tasks["plain.parquet"].residual["type"] == "or"


@pytest.mark.parametrize("spec", [PLAIN, Spec(3, (("bin", "identity", 1002),))])
@pytest.mark.parametrize("operator", ["eq", "lt-eq", "gt-eq"])
def test_bytes_that_end_in_zeros_are_found_by_bounds_and_by_partition(
    tmp_path: Path, spec: Spec, operator: str
) -> None:
    value = b"\xab\x00"
    file = MadeFile("file:///t/a.parquet", (value,) if spec.fields else (), [{"id": 1, "bin": value}])
    table = MadeTable(tmp_path, [spec])
    table.add_snapshot([MadeManifest(spec, [file])])

    tasks = plan(tmp_path, table.write(), filter={"type": operator, "term": "bin", "value": "AB00"})

    assert len(tasks) == 1


def test_a_file_with_only_nulls_and_nans_has_rows_that_are_not_nan(tmp_path: Path) -> None:
    rows: list[dict[str, float | None]] = [{"id": 1, "x": None}, {"id": 2, "x": float("nan")}]
    files = [
        MadeFile("file:///t/a.parquet", (), rows),
        MadeFile("file:///t/b.parquet", (), rows[1:]),
    ]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files), filter={"type": "not-nan", "term": "x"})

    assert list(tasks) == ["a.parquet"]


@pytest.mark.parametrize(
    ("test", "files"),
    [({"type": "is-null"}, 1), ({"type": "not-null"}, 0), ({"type": "eq", "value": 1}, 0)],
)
def test_the_void_transform_of_any_value_is_null(tmp_path: Path, test: dict[str, object], files: int) -> None:
    wanted = {**test, "term": {"type": "transform", "transform": "void", "term": "id"}}

    assert len(planned(tmp_path, MadeManifest(PLAIN, [data("a", first=1)]), filter=wanted)) == files


@pytest.mark.parametrize("wanted", [{"type": "lt", "value": 0}, {"type": "in", "values": [-(2**63), 5]}])
def test_the_lowest_number_is_found_although_its_partition_is_among_the_highest(
    tmp_path: Path, wanted: dict[str, object]
) -> None:
    spec = Spec(3, (("id", "truncate[10]", 1002),))
    table = MadeTable(tmp_path, [spec])
    rows = [{"id": -(2**63)}]
    table.add_snapshot([MadeManifest(spec, [MadeFile("file:///t/a.parquet", (2**63 - 2,), rows)])])
    by_term = {"type": "transform", "transform": "truncate[10]", "term": "id"}

    assert spec.partition(rows[0]) == (2**63 - 2,)
    assert len(plan(tmp_path, table.write(), filter={**wanted, "term": "id"})) == 1
    assert len(plan(tmp_path, table.write(), filter={"type": "gt", "term": by_term, "value": 0})) == 1
    assert plan(tmp_path, table.write(), filter={"type": "gt", "term": "id", "value": 0}) == []


@pytest.mark.parametrize(
    ("operator", "value", "files", "is_left"),
    [("eq", -1, 1, True), ("lt", 0, 1, True), ("gt-eq", -1, 1, True), ("not-eq", -1, 0, False)],
)
def test_times_before_1970_are_found_in_the_partitions_of_old_writers(
    tmp_path: Path, operator: str, value: int, files: int, *, is_left: bool
) -> None:
    spec = Spec(3, (("ts", "day", 1002),))
    table = MadeTable(tmp_path, [spec])
    # Old writers rounded towards 1970, and so into the next day.
    table.add_snapshot([MadeManifest(spec, [MadeFile("file:///t/a.parquet", (0,), [{"id": 1, "ts": -1}])])])

    tasks = plan(tmp_path, table.write(), filter={"type": operator, "term": "ts", "value": value})

    assert len(tasks) == files
    assert all((task.residual is not True) == is_left for task in tasks)


def test_deleted_entries_and_files_without_rows_are_not_read(tmp_path: Path) -> None:
    gone = MadeFile("file:///t/gone.parquet", (), [{"id": 1}], status=2)
    empty = MadeFile("file:///t/empty.parquet", (), record_count=0, has_stats=False)

    tasks = planned(tmp_path, MadeManifest(PLAIN, [data("a"), gone, empty]))

    assert list(tasks) == ["a.parquet"]


def test_first_row_ids_of_version_3_are_assigned_within_a_manifest(tmp_path: Path) -> None:
    files = [
        MadeFile(f"file:///t/{name}.parquet", (), record_count=count, has_stats=False)
        for name, count in (("a", 10), ("b", 5), ("c", 1))
    ]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files, first_row_id=100), version=3)

    assert [task.file["first-row-id"] for task in tasks.values()] == [100, 110, 115]


def test_statistics_are_returned_for_the_requested_columns(tmp_path: Path) -> None:
    (task,) = planned(tmp_path, MadeManifest(PLAIN, [data("a", first=7)]), stats_fields=["id", "s"]).values()

    assert task.file["lower-bounds"] == {"keys": [1], "values": ["0700000000000000"]}
    assert task.file["value-counts"] == {"keys": [1, 12], "values": [1, 1]}


@pytest.mark.parametrize("with_gaps", [False, True])
def test_each_file_has_its_own_statistics_even_if_others_have_none(tmp_path: Path, *, with_gaps: bool) -> None:
    rows = [[{"id": number, "name": "n" * number, "x": number / 2}] for number in range(1, 90)]
    files = [
        MadeFile(f"file:///t/{place}.parquet", (), made, has_stats=not (with_gaps and place % 3 == 0))
        for place, made in enumerate(rows)
    ]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files), stats_fields=["id", "name", "x"])

    for task, file in zip(tasks.values(), files, strict=True):
        written = statistics_of(file.rows) if file.has_stats else {}
        for which in ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
            pairs = [(pair["key"], pair["value"]) for pair in written.get(which, ()) if pair["key"] in {1, 2, 5}]
            values = [value.hex().upper() if isinstance(value, bytes) else value for _, value in pairs]
            expected = {"keys": [key for key, _ in pairs], "values": values} if pairs else None
            assert task.file.get(which.replace("_", "-")) == expected


@pytest.mark.parametrize("formats", [("ORC",), ('O"R\n',), ('O"R\n', "ORC", "\\")])
def test_file_formats_are_written_in_lower_case(tmp_path: Path, formats: tuple[str, ...]) -> None:
    files = [MadeFile(f"file:///t/{number}", (), [{"id": 1}], file_format=one) for number, one in enumerate(formats)]

    tasks = planned(tmp_path, MadeManifest(PLAIN, files))

    assert [tasks[f"{number}"].file["file-format"] for number in range(len(formats))] == [
        one.lower() for one in formats
    ]


def test_paths_with_quotes_and_control_characters_are_escaped(tmp_path: Path) -> None:
    paths = [
        'file:///t/"a".parquet',
        "file:///t/b\\.parquet",
        "file:///t/\t\n.parquet",
        "file:///t/é\U0001f600.parquet",
    ]

    tasks = planned(tmp_path, MadeManifest(PLAIN, [MadeFile(path, (), [{"id": 1}]) for path in paths]))

    assert [task.path for task in tasks.values()] == paths


def test_statistics_are_absent_unless_requested(tmp_path: Path) -> None:
    (task,) = planned(tmp_path, MadeManifest(PLAIN, [data("a", first=7)])).values()

    assert not [name for name in task.file if "bounds" in name or "counts" in name]


@pytest.mark.parametrize("limits", [INLINE, INLINE._replace(inline_files_max=1, entries_per_task=2)])
def test_a_range_contains_its_appended_files_even_if_manifests_were_merged(tmp_path: Path, limits: Limits) -> None:
    table = MadeTable(tmp_path, [PLAIN])
    table.add_snapshot([MadeManifest(PLAIN, [data("one")], snapshot_id=1)])
    second = MadeManifest(PLAIN, [data("two")], snapshot_id=2, sequence_number=2)
    table.add_snapshot([MadeManifest(PLAIN, [data("one")], snapshot_id=1), second])
    merged = [
        MadeFile("file:///t/one.parquet", (), [{"id": 1}], status=0, snapshot_id=1, sequence_number=1),
        MadeFile("file:///t/two.parquet", (), [{"id": 2}], status=0, snapshot_id=2, sequence_number=2),
        MadeFile("file:///t/three.parquet", (), [{"id": 3}]),
    ]
    table.add_snapshot([MadeManifest(PLAIN, merged, snapshot_id=3, sequence_number=3)])
    overwrite = MadeManifest(PLAIN, [data("four")], snapshot_id=4, sequence_number=4)
    table.add_snapshot([overwrite], summary={"operation": "overwrite"})
    path = table.write()

    groups = plan_through_tasks(tmp_path, path, limits, start_snapshot_id=1, end_snapshot_id=4)

    found = [task.path.rpartition("/")[2] for group in groups for task in group]
    assert sorted(found) == ["three.parquet", "two.parquet"]


def test_a_range_whose_start_is_not_an_ancestor_is_refused(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [PLAIN])
    for number in range(3):
        table.add_snapshot([MadeManifest(PLAIN, [data(str(number))])])
    path = table.write()

    with pytest.raises(BadRequest, match="not an ancestor"):
        plan(tmp_path, path, start_snapshot_id=3, end_snapshot_id=1)


def test_an_older_snapshot_is_read_with_its_own_schema_on_request(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [PLAIN])
    table.add_snapshot([MadeManifest(PLAIN, [data("a")])])
    table.write()
    metadata = table.metadata
    renamed = {**metadata["schemas"][0], "schema-id": 1}
    renamed["fields"] = [
        {**field, "name": "title"} if field["name"] == "name" else field for field in renamed["fields"]
    ]
    metadata |= {"schemas": [metadata["schemas"][0], renamed], "current-schema-id": 1}
    path = tmp_path / "metadata" / "v2.metadata.json"
    path.write_text(json.dumps(metadata))
    by_name = {"type": "not-null", "term": "name"}

    assert len(plan(tmp_path, str(path), filter={"type": "not-null", "term": "title"})) == 1
    assert len(plan(tmp_path, str(path), filter=by_name, snapshot_id=1, use_snapshot_schema=True)) == 1
    with pytest.raises(BadRequest, match="Cannot find field 'name'"):
        plan(tmp_path, str(path), filter=by_name, snapshot_id=1)


def test_a_column_of_the_current_schema_may_be_named_beside_the_snapshots_schema(tmp_path: Path) -> None:
    """Spark asks for the snapshot's schema of a branch, but names the columns that the table has now."""
    table = MadeTable(tmp_path, [PLAIN])
    table.add_snapshot([MadeManifest(PLAIN, [data("a")])])
    table.write()
    metadata = table.metadata
    grown = {**metadata["schemas"][0], "schema-id": 1}
    grown["fields"] = [*grown["fields"], {"id": 900, "name": "note", "type": "string", "required": False}]
    metadata |= {"schemas": [metadata["schemas"][0], grown], "current-schema-id": 1, "last-column-id": 900}
    path = tmp_path / "metadata" / "v2.metadata.json"
    path.write_text(json.dumps(metadata))
    old = {"snapshot_id": 1, "use_snapshot_schema": True}

    assert len(plan(tmp_path, str(path), select=["id", "note"], **old)) == 1
    assert len(plan(tmp_path, str(path), select=["note"], filter={"type": "is-null", "term": "note"}, **old)) == 1
    assert len(plan(tmp_path, str(path), stats_fields=["note"], **old)) == 1
    with pytest.raises(BadRequest, match=r"Cannot find field 'nothing' in .*name"):
        plan(tmp_path, str(path), select=["nothing"], **old)


def test_a_manifest_whose_spec_is_not_a_number_is_refused(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [PLAIN], format_version=1, codec="null")
    table.add_snapshot([MadeManifest(PLAIN, [data("a")])])
    path = tmp_path / "metadata" / "m1-0.avro"
    path.write_bytes(path.read_bytes().replace(b"partition-spec-id\x020", b"partition-spec-id\x02x"))
    del table.snapshots[0]["manifest-list"]
    table.snapshots[0]["manifests"] = [f"file://{path}"]

    with pytest.raises(Invalid, match=r"m1-0\.avro: cannot be read"):
        plan(tmp_path, table.write())


def test_an_old_snapshot_with_a_list_of_manifests_is_read(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [PLAIN, BY_NAME], format_version=1)
    table.add_snapshot([MadeManifest(BY_NAME, [data("is", ("IS",)), data("dk", ("DK",))])])
    del table.snapshots[0]["manifest-list"]
    table.snapshots[0]["manifests"] = [f"file://{tmp_path}/metadata/m1-0.avro"]

    tasks = plan(tmp_path, table.write(), filter={"type": "eq", "term": "name", "value": "IS"})

    assert [task.path for task in tasks] == ["file:///t/is.parquet"]
    assert tasks[0].residual is True


def test_the_rows_that_old_snapshots_with_a_list_of_manifests_appended_are_read(tmp_path: Path) -> None:
    table = MadeTable(tmp_path, [PLAIN], format_version=1)
    for name in ("a", "b", "c"):
        number = table.add_snapshot([MadeManifest(PLAIN, [data(name)], 0, len(table.snapshots) + 1)])
        del table.snapshots[-1]["manifest-list"]
        manifests = [f"file://{tmp_path}/metadata/m{earlier}-0.avro" for earlier in range(1, number + 1)]
        table.snapshots[-1]["manifests"] = manifests

    tasks = plan(tmp_path, table.write(), start_snapshot_id=1, end_snapshot_id=3)

    assert [task.path for task in tasks] == ["file:///t/b.parquet", "file:///t/c.parquet"]
