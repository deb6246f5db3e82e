"""`verify`: check every invariant of a large workspace; executors check ranges of keys with the checks of
`sandur verify`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import replace
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.index import Scope
from sandur.catalog.verification.chains import Loose
from sandur.catalog.verification.findings import SEVERITIES, Finding, exit_code
from sandur.operations.dry_run import open_dry_run
from sandur.operations.lake import Lake
from sandur.operations.verification.collections import check_locations, list_scopes
from sandur.operations.verification.joins import settle_loose, settle_suspects
from sandur.operations.verification.objects import CHECKS_AT_ONCE, FOLDERS, Checked, check_listed
from sandur.operations.verification.run import COLLECTIONS, verify_collection, verify_index
from sandur.pipeline.blocking_lake import BlockingLake, open_lake
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.sources.range_reader import KeyRange, folder_ranges, hashed_ranges, list_range
from sandur.pipeline.tasks import record_batch, run_per_item
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import portions
from sandur.storage.layout import Layout

NAME: Final = "verify"
WARNINGS_MAX: Final = 1_000
SUSPECTS_MAX: Final = 100_000
SCOPES_PER_TASK: Final = 500
CHECKED: Final = (
    "what string, severity string, kind string, key string, expected string, found string, remedy string, "
    "value string, other string"
)
_HASHED: Final = frozenset({Layout.pointers_folder, Layout.delta_tables_folder, Layout.securables_folder})


class FolderRange(NamedTuple):
    """A range of keys, and the number of its folder in FOLDERS."""

    folder: int
    keys: KeyRange


def run(context: JobContext) -> JobReport:
    """Check every object in executors; the driver decides about what several objects say together."""
    context.progress("check objects")
    checked = context.persist(_check_objects(context))
    counts = {"objects": checked.select("key").distinct().count()}
    context.progress("join names and chains")
    lake = _read_only(context.blocking)
    findings = [*_collected(checked.where("what = 'finding'")), *context.wait(_joined(lake, checked))]
    context.progress("check indexes")
    findings += _collected(_check_indexes(context, lake))
    for check_all in (*COLLECTIONS, check_locations):
        findings += context.wait(verify_collection(lake, check_all))
    by_severity: dict[str, int] = {
        severity: sum(one.severity == severity for one in findings) for severity in SEVERITIES
    }
    serious = sorted(one for one in findings if one.severity != "in_flight")
    warnings = [
        f"{one.severity}: {one.kind}: {one.key}: expected {one.expected}, found {one.found}; {one.remedy}"
        for one in serious[:WARNINGS_MAX]
    ]
    report = context.report(NAME, counts={**counts, **by_severity}, warnings=warnings)
    return replace(report, exit_code=exit_code(by_severity))


def _check_objects(context: JobContext) -> DataFrame:
    store, layout = context.lake.store, context.layout
    ranges = [
        FolderRange(number, keys)
        for number, folder in enumerate(FOLDERS)
        for keys in context.wait((hashed_ranges if folder in _HASHED else folder_ranges)(store, folder(layout)))
    ]
    return run_per_item(context.spark, ranges, objects_task(context.source_options), CHECKED)


def objects_task(options: Mapping[str, str]) -> Callable[[FolderRange], Iterator[Any]]:
    """A task over a range of keys of one folder: a row per finding and per fact."""

    def run(item: FolderRange) -> Iterator[Any]:
        check = list(FOLDERS.values())[item.folder]
        with open_lake(options) as blocking:
            lake = _read_only(blocking)
            for page in blocking.iterate(list_range(lake.store, item.keys)):
                for some in portions(page, CHECKS_AT_ONCE):
                    found = blocking.wait(
                        gather_in_batches(some, partial(check_listed, lake, check), at_once=CHECKS_AT_ONCE)
                    )
                    yield record_batch(CHECKED, [_row(one) for checked in found for one in checked])

    return run


def _check_indexes(context: JobContext, lake: Lake) -> DataFrame:
    async def scopes() -> Sequence[Scope]:
        return [scope async for scope in list_scopes(lake)]

    parts = list(portions(context.wait(scopes()), SCOPES_PER_TASK))
    return run_per_item(context.spark, parts, indexes_task(context.source_options), CHECKED)


def indexes_task(options: Mapping[str, str]) -> Callable[[Sequence[Scope]], Iterator[Any]]:
    """A task over some indexes: a row per finding."""

    def run(scopes: Sequence[Scope]) -> Iterator[Any]:
        with open_lake(options) as blocking:
            lake = _read_only(blocking)
            for scope in scopes:
                yield record_batch(CHECKED, [_row(one) for one in blocking.wait(verify_index(lake, scope))])

    return run


def _read_only(blocking: BlockingLake) -> Lake:
    """The lake by keys, over a store that ignores writes: readers settle what they find, and a check must not."""
    lake = open_dry_run(blocking.lake.by_keys)
    lake.form = blocking.lake.form
    blocking.wait(lake.form.read())
    return lake


def _row(one: Checked) -> Sequence[str]:
    if isinstance(one, Finding):
        return ["finding", one.severity, one.kind, one.key, one.expected, one.found, one.remedy, "", ""]
    return [one.what, "", "", one.key, "", "", "", one.value, one.other]


def _collected(rows: DataFrame) -> Sequence[Finding]:
    fields = ("severity", "kind", "key", "expected", "found", "remedy")
    return [Finding(**row.asDict()) for row in rows.select(*fields).limit(SUSPECTS_MAX).collect()]


async def _joined(lake: Lake, checked: DataFrame) -> Sequence[Finding]:
    suspects = [row.value for row in suspected_uuids(checked).limit(SUSPECTS_MAX).collect()]
    loose = [Loose(row.key, row.other) for row in loose_receipts(checked).limit(SUSPECTS_MAX).collect()]
    names = [found async for found in settle_suspects(lake, suspects)]
    return [*names, *[found async for found in settle_loose(lake, loose)]]


def suspected_uuids(checked: DataFrame) -> DataFrame:
    """The uuids with several active names, and those of records that live without any name."""
    named = checked.where("what = 'named'")
    several = named.groupBy("value").count().where("count > 1").select("value")
    known = checked.where("what in ('named', 'perhaps')").select("value")
    living = checked.where("what = 'living'").select("value")
    return several.unionByName(living.join(known, on="value", how="left_anti")).distinct()


def loose_receipts(checked: DataFrame) -> DataFrame:
    """The receipts whose predecessor has no receipt, and all but one of those that name the same predecessor."""
    receipts = checked.where("what = 'receipt'").select("key", "value", "other")
    followers = receipts.where("other != ''")
    known = receipts.select(F.col("value").alias("other"))
    first = followers.groupBy("other").agg(F.min("key").alias("key"))
    again = followers.join(first, on=["other", "key"], how="left_anti")
    return followers.join(known, on="other", how="left_anti").unionByName(again).select("key", "other").distinct()


VERIFY: Final = Job(NAME, "Check every invariant of the workspace, and report what is damaged.", run)
