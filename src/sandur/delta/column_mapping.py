"""Column mapping: the columns of data files have other names (physical ones) than the columns of the table.

A writer that ignores the mapping writes logical names. Its files are valid, but every reader looks for the physical
names and returns NULL. A commit shows the names that its writer used: statistics and partition values carry them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sandur.delta.columns import ColumnInfo, field_from_column
from sandur.errors import Invalid
from sandur.splicing import NOT_JSON

MAPPING_MODE: Final = "delta.columnMapping.mode"

_PHYSICAL: Final = "delta.columnMapping.physicalName"
_NAMES_MAX: Final = 5


class _Statistics(msgspec.Struct, rename="camel"):
    null_count: dict[str, msgspec.Raw] = {}
    min_values: dict[str, msgspec.Raw] = {}
    max_values: dict[str, msgspec.Raw] = {}


class _Add(msgspec.Struct, rename="camel"):
    path: str
    stats: str | None = None
    partition_values: dict[str, str | None] = {}


class _Action(msgspec.Struct):
    add: _Add | None = None


_ACTION: Final = msgspec.json.Decoder(_Action)
_STATISTICS: Final = msgspec.json.Decoder(_Statistics)


def is_mapped(properties: Mapping[str, str]) -> bool:
    """Whether the table maps its columns, by name or by id."""
    return properties.get(MAPPING_MODE, "none").lower() != "none"


def check_physical_names(columns: Sequence[ColumnInfo], commit: bytes) -> None:
    """Raise Invalid if a data file of the commit uses the logical name of a mapped column.

    A file without statistics and partition values shows no names and passes. So does a line that is not a Delta action:
    the catalog does not read the log for its clients.
    """
    physical = {column.name: _physical_name(column) for column in columns}
    wrong = {logical for logical, name in physical.items() if name != logical} - set(physical.values())
    for add in _added_files(commit) if wrong else ():
        if used := sorted(_names_in(add) & wrong):
            raise Invalid(
                f"the table has column mapping ({MAPPING_MODE}), and file {add.path} uses the names of the table for "
                f"its columns ({', '.join(used[:_NAMES_MAX])}): every reader would see NULL; write with a client "
                "that supports column mapping, such as Spark, or copy the table into one without it"
            )


def _physical_name(column: ColumnInfo) -> str:
    metadata = field_from_column(column)["metadata"]
    name = metadata.get(_PHYSICAL) if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else column.name


def _added_files(commit: bytes) -> Iterator[_Add]:
    for line in commit.splitlines():
        try:
            action = _ACTION.decode(line)
        except NOT_JSON:
            continue
        if action.add:
            yield action.add


def _names_in(add: _Add) -> set[str]:
    try:
        found = _STATISTICS.decode(add.stats) if add.stats else _Statistics()
    except NOT_JSON:
        found = _Statistics()
    return {*add.partition_values, *found.null_count, *found.min_values, *found.max_values}
