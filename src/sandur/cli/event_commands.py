"""The commands `sandur tail` and `sandur subscription …`."""

from pathlib import Path
from typing import Annotated

import typer

from sandur.cli.flags import JsonOption, ServerFlags, server_command

app = typer.Typer(no_args_is_help=True)
subscriptions = typer.Typer(no_args_is_help=True, help="Have events delivered to a URL, signed and in order.")
app.add_typer(subscriptions, name="subscription")

CatalogOption = Annotated[list[str] | None, typer.Option("--catalog", metavar="NAME", help="Only of it; repeatable")]
NamespaceOption = Annotated[
    list[str] | None, typer.Option("--namespace", metavar="CATALOG.NAMESPACE", help="Only inside it; repeatable")
]
TableOption = Annotated[
    list[str] | None, typer.Option("--table", metavar="NAME|UUID", help="Only of it, by full name or id; repeatable")
]
KindOption = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="KIND", help="committed, created, changed, renamed, dropped, …; repeatable"),
]
IdArgument = Annotated[str, typer.Argument(metavar="ID")]


@app.command("tail")
def tail(  # noqa: PLR0913 - one parameter per flag
    *,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="2026-01-31T12:00:00Z, or 2h (ago); default: now")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for what happens next")] = True,
    catalog: CatalogOption = None,
    namespace: NamespaceOption = None,
    table: TableOption = None,
    kind: KindOption = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="The profile; default: the current one")
    ] = None,
    server: Annotated[str | None, typer.Option("--server", metavar="URL", help="Another server")] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Read this store directly, without a server")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="With --store: settings")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print commits and changes of the catalog as they happen, one per line. Ctrl-C ends it.

    Through a server, you see what you may see. After a break, the command connects again and misses nothing.
    """
    from sandur.cli import events  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    wanted = events.TailFlags(catalog or (), namespace or (), table or (), kind or (), since, follow)
    direct = StoreFlags(store, config) if store or config else None
    events.tail(wanted, ServerFlags(profile, server, as_json), direct)


@server_command(subscriptions, "create")
def create_subscription(  # noqa: PLR0913 - one parameter per flag
    flags: ServerFlags,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where events are sent: https://…")],
    *,
    begin: Annotated[
        str, typer.Option("--from", metavar="TIME", help="now, oldest, 2026-01-31T12:00:00Z, or 2h (ago)")
    ] = "now",
    description: Annotated[str, typer.Option("--description", metavar="TEXT")] = "",
    catalog: CatalogOption = None,
    namespace: NamespaceOption = None,
    table: TableOption = None,
    kind: KindOption = None,
) -> None:
    """Have events sent to a URL. The secret that verifies them is printed once."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    wanted = events.TailFlags(catalog or (), namespace or (), table or (), kind or ())
    events.create_subscription(url, flags, wanted=wanted, description=description, begin=begin)


@server_command(subscriptions, "list")
def list_subscriptions(flags: ServerFlags) -> None:
    """List your subscriptions; an administrator sees all."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.show_subscriptions(flags)


@server_command(subscriptions, "show")
def show_subscription(flags: ServerFlags, subscription: IdArgument) -> None:
    """Print a subscription, and how far it was served."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.show_subscription(subscription, flags)


@server_command(subscriptions, "pause")
def pause_subscription(flags: ServerFlags, subscription: IdArgument) -> None:
    """Stop the deliveries; nothing is lost until you resume."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.set_state(subscription, flags, "paused")


@server_command(subscriptions, "resume")
def resume_subscription(flags: ServerFlags, subscription: IdArgument) -> None:
    """Continue the deliveries where they stopped, also of a subscription that the server disabled."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.set_state(subscription, flags, "active")


@server_command(subscriptions, "rotate")
def rotate_secret(flags: ServerFlags, subscription: IdArgument) -> None:
    """Print a new secret. For a day, deliveries carry signatures of the new and the old one."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.rotate(subscription, flags)


@server_command(subscriptions, "delete")
def delete_subscription(flags: ServerFlags, subscription: IdArgument) -> None:
    """Delete a subscription with its dead letters."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.delete_subscription(subscription, flags)


@server_command(subscriptions, "replay")
def replay(
    flags: ServerFlags,
    subscription: IdArgument,
    *,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="oldest, 2026-01-31T12:00:00Z, or 2h (ago)")
    ] = None,
    dead_letters: Annotated[bool, typer.Option("--dead-letters", help="Only what could not be delivered")] = False,
) -> None:
    """Deliver again what happened from a time on, or the dead letters; the ids are the same."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.replay(subscription, flags, begin=begin, is_dead_letters=dead_letters)


@server_command(subscriptions, "dead-letters")
def show_dead_letters(flags: ServerFlags, subscription: IdArgument) -> None:
    """List the events that could not be delivered, and why."""
    from sandur.cli import events  # noqa: PLC0415 - starts fast

    events.show_dead_letters(subscription, flags)
