"""Commands for the operator of a store: verification, backups, restores, and the examination of an installation."""

from typing import Annotated

import typer

from sandur.cli.flags import ConfigOption, JsonOption, StoreOption

app = typer.Typer()


@app.command()
def verify(
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Print what requests in progress leave, too, which is normal")
    ] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every invariant of a store: names, pointers, metadata files, receipts, indexes, grants, locations.

    Nothing is written, and servers can keep running. Exit code 1 for damage, 8 if all findings can be repaired.
    """
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast
    from sandur.cli.verification import verify_store  # noqa: PLC0415 - starts fast

    if code := verify_store(StoreFlags(store, config), with_in_flight=everything, as_json=as_json):
        raise typer.Exit(code)
