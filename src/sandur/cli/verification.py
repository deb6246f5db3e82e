"""`sandur verify`: check every invariant of a store, directly on the store and beside running servers."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from sandur.catalog.verification.findings import SEVERITIES, Finding, exit_code
from sandur.cli.output import print_json, print_rows, say
from sandur.cli.store_admin import StoreFlags
from sandur.clock import SystemClock
from sandur.operations.dry_run import DryRunStore
from sandur.operations.lake import Lakes
from sandur.operations.verification.run import verify
from sandur.settings import Settings
from sandur.storage.locations import connect
from sandur.storage.probe import reach_store

FINDINGS_MAX: Final = 10_000
"""Printed at most; a store with more has one cause, and needs a backup."""


class Found:
    """The findings that are printed, and the number of all."""

    def __init__(self, *, with_in_flight: bool) -> None:
        self._with_in_flight = with_in_flight
        self.counts: Counter[str] = Counter()
        self.printed: list[Finding] = []
        self._seen: set[Finding] = set()

    def add(self, one: Finding) -> None:
        if one in self._seen:  # Two checks may need the same damaged object.
            return
        if len(self._seen) < FINDINGS_MAX:
            self._seen.add(one)
        self.counts[one.severity] += 1
        is_wanted = self._with_in_flight or one.severity != "in_flight"
        if is_wanted and len(self.printed) < FINDINGS_MAX:
            self.printed.append(one)


def verify_store(flags: StoreFlags, *, with_in_flight: bool, as_json: bool) -> int:
    """Print the findings and return the exit code."""
    settings = flags.settings()
    found = Found(with_in_flight=with_in_flight)
    objects = asyncio.run(_run(settings, found))
    print_findings(found.printed, found.counts, objects, as_json=as_json)
    return exit_code(found.counts)


def print_findings(findings: Sequence[Finding], counts: Counter[str], objects: int, *, as_json: bool) -> None:
    if as_json:
        totals: dict[str, int] = {severity: counts[severity] for severity in SEVERITIES}
        print_json({"objects": objects, **totals, "findings": findings})
        return
    columns = ["severity", "kind", "key", "expected", "found", "what to do"]
    rows = [[one.severity, one.kind, one.key, one.expected, one.found, one.remedy] for one in sorted(findings)]
    if rows:
        print_rows(columns, rows, empty="")
    total = ", ".join(f"{counts[severity]:,} {severity.replace('_', ' ')}" for severity in SEVERITIES)
    say(f"{objects:,} objects checked: {total}")


async def _run(settings: Settings, found: Found) -> int:
    clock = SystemClock()
    held = connect(settings, clock, creates=False)
    lakes = Lakes(settings, clock, DryRunStore(held))
    checked: dict[str, int] = {}
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        await reach_store(held, f"store {settings.store}")
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("listing workspaces", total=None)

            def show(what: str, count: int) -> None:
                checked[what] = count
                progress.update(task, description=f"{what}: {count:,} objects, {found.counts.total():,} findings")

            async for one in verify(lakes, settings, on_progress=show):
                found.add(one)
    finally:
        await lakes.close()
    return sum(checked.values())
