"""`sandur backup` and `sandur restore`: copy a catalog into a repository of backups, and back into an empty store."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from sandur.cli.output import print_fields, print_json, print_records, say, time_text
from sandur.cli.store_admin import StoreFlags
from sandur.clock import SystemClock
from sandur.errors import NotFound
from sandur.operations.backups.backup import back_up
from sandur.operations.backups.repository import BackupManifest, list_backups, read_manifest
from sandur.operations.backups.restore import restore
from sandur.operations.dry_run import DryRunStore
from sandur.operations.lake import Lakes
from sandur.settings import Settings
from sandur.storage.locations import connect
from sandur.storage.probe import reach_store, verify_store

_COLUMNS = ("id", "source", "began_ms", "ended_ms", "objects", "bytes", "copied_bytes", "files_unread", "previous")


class Restored(NamedTuple):
    """A restore that is complete."""

    backup: BackupManifest
    counts: dict[str, int]


def run_backup(flags: StoreFlags, target: str, *, is_full: bool, as_json: bool) -> None:
    manifest = asyncio.run(_back_up(flags.settings(), target, is_full=is_full))
    record = _record(manifest)
    if as_json:
        print_json(record)
        return
    print_fields(record, {**record, "began": time_text(manifest.began_ms)}, "table")
    if manifest.files_unread:
        say(f"{manifest.files_unread} files of tables could not be read: allow their place with --allow-location.")
    say("The files of tables are not in the backup, except current Iceberg metadata and unpublished Delta commits.")


def show_backups(flags: StoreFlags, target: str, *, as_json: bool) -> None:
    found = [_record(one) for one in asyncio.run(_list(flags.settings(), target))]
    print_records(found, _COLUMNS, "json" if as_json else "table", empty="There is no complete backup.")


def run_restore(flags: StoreFlags, source: str, backup: str | None, *, as_json: bool) -> None:
    done = asyncio.run(_restore(flags.settings(), source, backup))
    if as_json:
        print_json({"backup": done.backup.id, "cut_ms": done.backup.began_ms, **done.counts})
        return
    print_fields({}, {"backup": done.backup.id, **done.counts}, "table")
    say(f"Everything that was answered before {time_text(done.backup.began_ms)} is here.")
    say("Revocations after that time are undone: revoke again, and rotate keys that were withdrawn since.")
    if done.counts.get("files_elsewhere"):
        say("Some metadata files lie outside of this store. Pass their place with --allow-location to write them, too.")
    if found := done.counts.get("commits_found_in_logs"):
        say(f"{found} commits to managed Delta tables were published after that time. They are here, too.")
    if unread := done.counts.get("logs_unread"):
        say(f"The logs of {unread} Delta tables cannot be read. Run sandur verify before others write to them.")
    say("Now run: sandur verify")


def _record(manifest: BackupManifest) -> dict[str, object]:
    fields: dict[str, object] = msgspec.to_builtins(manifest)
    return {name: value for name, value in fields.items() if name in _COLUMNS}


async def _back_up(settings: Settings, target: str, *, is_full: bool) -> BackupManifest:
    clock = SystemClock()
    held, place = connect(settings, clock, creates=False), connect(settings, clock, target)
    lakes = Lakes(settings, clock, DryRunStore(held))
    try:
        await reach_store(held, f"store {settings.store}")
        await verify_store(place, clock, f"store {target}")
        with _progress() as show:
            return await back_up(
                lakes, settings, place, is_full=is_full, on_progress=lambda what, count: show(f"{what}: {count:,}")
            )
    finally:
        await place.close()
        await lakes.close()


async def _list(settings: Settings, target: str) -> list[BackupManifest]:
    place = connect(settings, SystemClock(), target, creates=False)
    try:
        return list(await list_backups(place))
    finally:
        await place.close()


async def _restore(settings: Settings, source: str, backup: str | None) -> Restored:
    clock = SystemClock()
    place, held = connect(settings, clock, source, creates=False), connect(settings, clock)
    lakes = Lakes(settings, clock, held)
    try:
        await verify_store(held, clock, f"store {settings.store}")
        backups = [] if backup else await list_backups(place)
        if not backup and not backups:
            raise NotFound(f"{source} has no complete backup; look with: sandur backup list {source}", subject="file")
        manifest = await read_manifest(place, backup) if backup else backups[-1]
        with _progress() as show:
            counts = await restore(
                lakes.lake("default", "default"),
                place,
                manifest,
                on_progress=lambda done, total: show(f"{done:,} of {total:,} objects"),
            )
        return Restored(manifest, dict(counts))
    finally:
        await place.close()
        await lakes.close()


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr while a copy runs."""
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("listing", total=None)
        yield lambda text: bars.update(task, description=text)
