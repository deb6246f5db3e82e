"""Findings of a verification: what is wrong with an object, how serious it is, and what repairs it."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

Severity = Literal["damage", "repairable", "in_flight"]
"""`damage`: the protocols never leave this. `repairable`: a janitor or a command removes it. `in_flight`: a request
that runs, or whose server died, leaves it, and the next request or a janitor finishes it."""

SEVERITIES: Final[tuple[Severity, ...]] = ("damage", "repairable", "in_flight")

_RESTORE: Final = "restore the object from a backup"
_RECONCILE: Final = "run: sandur run reconcile"
_REBUILD: Final = "run: sandur index rebuild"
_JANITORS: Final = "the janitors of a server remove it; start a server with janitors"
_DROP: Final = "drop the table, or restore the object from a backup"


class Problem(NamedTuple):
    """A kind of finding: how serious it is, and what to do about it."""

    severity: Severity
    remedy: str


PROBLEMS: Final[Mapping[str, Problem]] = {
    # Records
    "unreadable-record": Problem("damage", f"{_RESTORE}, or remove it if nothing needs it"),
    "newer-record": Problem("damage", "verify with the Sandur that wrote it: upgrade this one"),
    "old-record": Problem("repairable", "run: sandur upgrade --no-dry-run"),
    "misplaced-record": Problem("damage", f"{_RESTORE}; it is a copy of another one"),
    # Names, namespaces and what they lead to
    "name-without-record": Problem("damage", _DROP),
    "name-of-dead-record": Problem("damage", _DROP),
    "name-of-another-kind": Problem("damage", _RESTORE),
    "name-without-namespace": Problem("damage", "restore the namespace from a backup"),
    "two-names": Problem("damage", "drop nothing; restore one of the names from a backup"),
    "record-without-name": Problem("damage", "restore the name from a backup, or register the table again"),
    "namespace-without-parent": Problem("damage", "restore the parent from a backup"),
    "version-without-model": Problem("damage", "restore the model from a backup, or remove the version"),
    # Metadata files
    "record-without-head": Problem("damage", _RESTORE),
    "metadata-missing": Problem("damage", "restore the file from a backup of the table's bucket"),
    "metadata-unreadable": Problem("damage", "restore the file from a backup of the table's bucket"),
    "metadata-not-allowed": Problem("repairable", "verify again with --allow-location and the place of the table"),
    "metadata-of-another-table": Problem("damage", _RESTORE),
    "metadata-differs": Problem("damage", _RESTORE),
    # Receipts
    "receipt-missing": Problem("repairable", _RECONCILE),
    "receipt-differs": Problem("damage", f"remove the object, then {_RECONCILE}"),
    "chain-hole": Problem("damage", f"{_RECONCILE}; it restores what the metadata logs still prove"),
    "chain-fork": Problem("damage", "restore the receipts from a backup"),
    # Delta
    "delta-gap": Problem("damage", _RESTORE),
    "delta-file-missing": Problem("damage", "restore the file from a backup of the table's bucket"),
    "delta-file-differs": Problem("damage", "restore the published file from a backup of the table's bucket"),
    "delta-log-ahead": Problem("damage", "stop the writers of the table, then restore the newest backup"),
    # Derived objects
    "index-unreadable": Problem("repairable", _REBUILD),
    "index-misses-entry": Problem("repairable", _REBUILD),
    "index-has-another-entry": Problem("repairable", _REBUILD),
    "stale-mark": Problem("repairable", _JANITORS),
    # Grants
    "segment-missing": Problem("damage", _RESTORE),
    "segment-unreadable": Problem("damage", _RESTORE),
    # Locations
    "place-without-claim": Problem("damage", "restore the claim from a backup"),
    "places-overlap": Problem("damage", "move one of the tables; until then neither is purged"),
    "stale-claim": Problem("repairable", _JANITORS),
    # Requests and orders
    "stale-request": Problem("repairable", _JANITORS),
    "order-of-living-table": Problem("repairable", _JANITORS),
    # Events for readers
    "feed-gap": Problem("damage", "restore the entries from a backup; readers that were behind missed events"),
    "feed-unreadable": Problem("repairable", "run: sandur run compact; the receipts get new positions"),
    "cursor-without-subscription": Problem("repairable", _JANITORS),
    "cursor-beyond-feed": Problem("damage", "delete the subscription and create it again"),
    # What the pipeline published
    "dataset-missing": Problem("damage", "run: sandur run all; remove core/manifest.json first if that fails"),
    "dataset-file-differs": Problem("damage", "run: sandur run all; remove core/manifest.json first if that fails"),
    # What running requests leave
    "in-flight": Problem("in_flight", "nothing: the next request or a janitor finishes it"),
}
"""Every kind of finding."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One object that is not as the protocols say."""

    severity: Severity
    kind: str
    key: str
    expected: str
    found: str
    remedy: str


def finding(kind: str, key: str, *, expected: str, found: str) -> Finding:
    problem = PROBLEMS[kind]
    return Finding(severity=problem.severity, kind=kind, key=key, expected=expected, found=found, remedy=problem.remedy)


def in_flight(key: str, found: str, *, is_stale: bool, kind: str = "stale-request") -> Finding:
    """Work that is not finished; once it is stale, nothing but a janitor finishes it."""
    expected = "finished, because no request takes this long" if is_stale else "finished or in progress"
    return finding(kind if is_stale else "in-flight", key, expected=expected, found=found)


def exit_code(counts: Mapping[str, int]) -> int:
    """Of a command that verifies, by the findings of each severity: 1 for damage, 8 if everything can be repaired."""
    return 1 if counts.get("damage") else 8 if counts.get("repairable") else 0


def is_sound(findings: Iterable[Finding]) -> bool:
    """Whether nothing has to be done."""
    return all(one.severity == "in_flight" for one in findings)
