"""A commit to a table with column mapping is refused if its files use logical column names."""

import json

import pytest

from sandur.delta.column_mapping import check_physical_names, is_mapped
from sandur.delta.columns import ColumnInfo, column_from_field
from sandur.errors import Invalid


def column(name: str, physical: str | None = None) -> ColumnInfo:
    metadata = {} if physical is None else {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1}
    return column_from_field({"name": name, "type": "long", "nullable": True, "metadata": metadata}, 0)


def commit(*names: str, partitions: tuple[str, ...] = ()) -> bytes:
    """A commit of one file whose statistics have the names."""
    stats = json.dumps({"numRecords": 1, "nullCount": dict.fromkeys(names, 0), "minValues": dict.fromkeys(names, 1)})
    add = {"path": "a.parquet", "partitionValues": dict.fromkeys(partitions, "1"), "stats": stats}
    return b"\n".join(json.dumps(one).encode() for one in ({"commitInfo": {"engineInfo": "any"}}, {"add": add}))


@pytest.mark.parametrize("written", [commit("id"), commit("col-1", "id"), commit(partitions=("id",))])
def test_logical_names_in_a_mapped_table_are_refused_with_the_reason(written: bytes) -> None:
    with pytest.raises(Invalid, match=r"column mapping .*a\.parquet .*\(id\): every reader would see NULL"):
        check_physical_names([column("id", "col-1")], written)


@pytest.mark.parametrize(
    ("columns", "written"),
    [
        ([column("id", "col-1")], commit("col-1")),
        ([column("id", "id")], commit("id")),  # Mapping was enabled later: files and table have the same names.
        ([column("id")], commit("id")),
        ([column("a", "b"), column("b", "a")], commit("a", "b")),  # Renamed: every name is a physical one.
        ([column("id", "col-1")], b'{"add":{"path":"a.parquet","partitionValues":{}}}'),
        ([column("id", "col-1")], b'{"add":{"path":"a.parquet","partitionValues":{},"stats":"rubbish"}}'),
        ([column("id", "col-1")], b"rubbish\n\xff\n"),
        ([column("id", "col-1")], b'{"txn":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
        ([column("id", "col-1")], b""),
    ],
)
def test_what_shows_no_logical_name_passes(columns: list[ColumnInfo], written: bytes) -> None:
    check_physical_names(columns, written)


def test_a_table_is_mapped_by_name_or_by_id() -> None:
    modes = ["name", "id", "NAME", "none", "None"]

    found = [is_mapped({"delta.columnMapping.mode": mode}) for mode in modes]

    assert found == [True, True, True, False, False]
    assert not is_mapped({})
