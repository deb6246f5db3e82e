"""Row filters and column masks: the policy of a table, whom it restricts, and how clients learn it.

A catalog does not read data. It gives the restrictions to a client that declares that it applies them, in the form of
the Iceberg REST specification, and refuses every other way to the data.
"""

from collections.abc import Collection
from typing import Final, Literal

import msgspec

from sandur.catalog.security.privileges import READ_DATA, READ_TABLE, SCAN_TABLE, WRITE_DATA, Rule
from sandur.errors import Invalid

MaskAction = Literal[
    "mask-alphanum",
    "mask-to-fixed-value",
    "replace-with-null",
    "show-first-4",
    "show-last-4",
    "truncate-to-year",
    "truncate-to-month",
    "sha-256-global",
    "sha-256-query-local",
]

CAPABILITY: Final = "read-restrictions"
"""What a client declares if it applies row filters and column masks."""

COLUMNS_MAX: Final = 1_000
FILTER_BYTES_MAX: Final = 64 << 10

_TO_READ: Final[frozenset[Rule]] = frozenset((READ_TABLE, SCAN_TABLE, READ_DATA, WRITE_DATA))


class ColumnMask(msgspec.Struct, frozen=True, rename="kebab"):
    field_id: int
    action: MaskAction


class ReadRestrictions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="kebab"):
    """What a reader must do, as clients get it. The filter is an expression of Iceberg, as JSON."""

    required_row_filter: object = None
    required_column_projections: tuple[ColumnMask, ...] = ()


class TableRestrictions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy of one table. The owner of the table and the `exempt` subjects, by id, read it unrestricted.

    `record` is the key of the table's record, which the janitor looks for.
    """

    restrictions: ReadRestrictions
    exempt: tuple[str, ...] = ()
    record: str = ""


def checked_restrictions(given: ReadRestrictions) -> ReadRestrictions:
    """The restrictions themselves; raises Invalid if they restrict nothing, or name a column twice."""
    columns = [mask.field_id for mask in given.required_column_projections]
    if given.required_row_filter is None and not columns:
        raise Invalid("Invalid restrictions: neither required-row-filter nor required-column-projections is given")
    if len(set(columns)) != len(columns):
        raise Invalid("Invalid restrictions: a column has two masks")
    if len(columns) > COLUMNS_MAX or len(msgspec.json.encode(given.required_row_filter)) > FILTER_BYTES_MAX:
        raise Invalid(f"Invalid restrictions: more than {COLUMNS_MAX} columns, or a filter of more than 64 KiB")
    return given


def restricts(policy: TableRestrictions, owner: str, subjects: Collection[str]) -> bool:
    """Whether the policy applies to a caller with these subject ids."""
    return owner not in subjects and not any(subject in subjects for subject in policy.exempt)


def refusal(rule: Rule, table: str, capabilities: Collection[str]) -> str | None:
    """Why a restricted caller is refused what the rule guards; None if it is not.

    A client that applies restrictions may load the table. Plans contain bounds of columns, and credentials give the
    files themselves: no restricted caller gets them.
    """
    if rule not in _TO_READ or (rule == READ_TABLE and CAPABILITY in capabilities):
        return None
    if rule == READ_TABLE:
        return (
            f"table {table} has row filters or column masks for this caller, and the client does not declare that it "
            f"applies them: use a client that does, and send the header X-Sandur-Capabilities: {CAPABILITY}"
        )
    return (
        f"table {table} has row filters or column masks for this caller: it gets no plans and no credentials, which "
        "would reveal restricted data"
    )
