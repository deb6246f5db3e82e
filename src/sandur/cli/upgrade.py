"""`sandur upgrade`: brings the records of a store to the newest version, directly on the store."""

import asyncio
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from sandur.catalog.record_versions import NEWEST
from sandur.cli.output import print_json, print_rows, say
from sandur.cli.store_admin import StoreFlags
from sandur.clock import SystemClock
from sandur.errors import Unavailable
from sandur.operations.lake import Lakes
from sandur.operations.upgrade import UpgradeReport, upgrade
from sandur.settings import Settings
from sandur.storage.locations import connect
from sandur.storage.probe import reach_store


def upgrade_store(*, store: str | None, config: Path | None, is_dry: bool, as_json: bool) -> None:
    """Print what was upgraded, or would be. Raises Unavailable if a record could not be upgraded."""
    settings = StoreFlags(store, config).settings()
    report = asyncio.run(_run(settings, is_dry=is_dry))
    if as_json:
        print_json(_as_json(report, is_dry=is_dry))
    else:
        _print(report, is_dry=is_dry)
    if report.failed:
        raise Unavailable(
            f"{report.failed} records cannot be upgraded, for example {report.failures[0]}; repair or remove them, "
            "then run `sandur upgrade` again"
        )


async def _run(settings: Settings, *, is_dry: bool) -> UpgradeReport:
    clock = SystemClock()
    held = connect(settings, clock, creates=False)
    lakes = Lakes(settings, clock, held)
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        await reach_store(held, f"store {settings.store}")
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("listing workspaces", total=None)

            def show(kind: str, visited: int, old: int) -> None:
                progress.update(task, description=f"{kind}: {visited:,} records, {old:,} of them old")

            return await upgrade(lakes, settings, is_dry=is_dry, on_progress=show)
    finally:
        await lakes.close()


def _as_json(report: UpgradeReport, *, is_dry: bool) -> dict[str, object]:
    return {
        **report._asdict(),
        "before": str(report.before),
        "after": str(report.before if is_dry else report.after),
        "newest": str(NEWEST),
        "dry_run": is_dry,
    }


def _print(report: UpgradeReport, *, is_dry: bool) -> None:
    rows = [[kind, f"{count:,}", f"{report.old[kind]:,}"] for kind, count in report.records.items() if count]
    print_rows(["records", "found", "to upgrade" if is_dry else "upgraded"], rows, empty="The store has no records.")
    if not is_dry:
        say(f"The store has version {report.after} ({report.state}).")
    elif report.before == report.after and report.state == "steady":
        say(f"The store has version {report.before}, which is the newest.")
    else:
        say(f"The store has version {report.before}. The upgrade to {report.after} cannot be undone.")
        say("Stop every older server, janitor and pipeline, then run: sandur upgrade --no-dry-run")
