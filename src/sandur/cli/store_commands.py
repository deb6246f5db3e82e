"""Commands for the operator of a store: verification, backups, restores, and the examination of an installation."""

from typing import Annotated

import typer

from sandur.cli.flags import AllowOption, ConfigOption, JsonOption, StoreOption

app = typer.Typer()


@app.command()
def verify(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Print what requests in progress leave, too, which is normal")
    ] = False,
    allow_location: AllowOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every invariant of a store: names, pointers, metadata files, receipts, indexes, grants, locations.

    Nothing is written, and servers can keep running. Exit code 1 for damage, 8 if all findings can be repaired.
    """
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast
    from sandur.cli.verification import verify_store  # noqa: PLC0415 - starts fast

    flags = StoreFlags(store, config, allow_location or ())
    if code := verify_store(flags, with_in_flight=everything, as_json=as_json):
        raise typer.Exit(code)


backups = typer.Typer(no_args_is_help=True, help="Copy the catalog of a store, and list the copies.")
app.add_typer(backups, name="backup")

TargetArgument = Annotated[str, typer.Argument(metavar="URL", help="The store of the backups: a folder or a bucket")]


@backups.command("create")
def create_backup(
    target: TargetArgument,
    *,
    full: Annotated[bool, typer.Option("--full", help="Refer to no earlier backup")] = False,
    allow_location: AllowOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a consistent cut of the catalog while servers run. Only what changed since the last backup is read.

    Data files, manifests and published Delta logs are not copied; current Iceberg metadata files are.
    """
    from sandur.cli.backups import run_backup  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    run_backup(StoreFlags(store, config, allow_location or ()), target, is_full=full, as_json=as_json)


@backups.command("list")
def list_backups(target: TargetArgument, *, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the complete backups, oldest first."""
    from sandur.cli.backups import show_backups  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    show_backups(StoreFlags(None, config), target, as_json=as_json)


@app.command()
def restore(
    source: TargetArgument,
    *,
    backup: Annotated[str | None, typer.Option("--backup", metavar="ID", help="Default: the newest one")] = None,
    allow_location: AllowOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a backup into an empty store. Run it again if it was interrupted. Stop all servers of the store before."""
    from sandur.cli.backups import run_restore  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    run_restore(StoreFlags(store, config, allow_location or ()), source, backup, as_json=as_json)


@app.command()
def doctor(*, store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Examine the store, this machine and the settings; each line says what to do. Exit code 1 if something fails."""
    from sandur.cli.doctor import run_doctor  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    if code := run_doctor(StoreFlags(store, config), as_json=as_json):
        raise typer.Exit(code)
