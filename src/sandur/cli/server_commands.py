"""The commands that act on a server: log in, and decide who may do what. Each one imports its module when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from sandur.cli.flags import ServerFlags, server_command

app = typer.Typer()

profiles = typer.Typer(no_args_is_help=True, help="Servers that this user knows, each with its own login.")
app.add_typer(profiles, name="profile")

grants = typer.Typer(no_args_is_help=True, help="Show who may do what.")
app.add_typer(grants, name="grants")

principals = typer.Typer(no_args_is_help=True, help="Programs and people that may log in to a server.")
app.add_typer(principals, name="principal")

owners = typer.Typer(no_args_is_help=True, help="Who owns what.")
app.add_typer(owners, name="owner")
groups = typer.Typer(no_args_is_help=True, help="Groups of principals, which grants may name.")
app.add_typer(groups, name="group")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the principal")]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP")]
MembersArgument = Annotated[list[str], typer.Argument(metavar="PRINCIPAL…")]


@server_command(app, "login")
def login(  # noqa: PLR0913 - one parameter per flag
    flags: ServerFlags,
    *,
    device: Annotated[bool, typer.Option("--device", help="Enter a code in a browser on any machine")] = False,
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="NAME", help="The principal of a program, with its secret")
    ] = None,
    client_secret_file: Annotated[
        Path | None, typer.Option("--client-secret-file", metavar="FILE", help="Read the secret from a file")
    ] = None,
    client_secret_stdin: Annotated[
        bool, typer.Option("--client-secret-stdin", help="Read the secret from standard input")
    ] = False,
    issuer: Annotated[
        str | None, typer.Option("--issuer", metavar="URL", help="The identity provider, if the server has several")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser")] = True,
    port: Annotated[int, typer.Option("--port", metavar="P", help="The port of the redirect; 0: a free one")] = 0,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant, if the server has several")] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help="The workspace")] = None,
) -> None:
    """Log in to a server: in the browser, by a code (--device), or as a program with its secret.

    The profile remembers the server and the token. A person's login is renewed as long as the identity provider
    allows it; a program's by every command within the hour.
    """
    from sandur.cli.login import LoginFlags, log_in  # noqa: PLC0415 - starts fast

    log_in(
        LoginFlags(
            flags,
            client_id,
            client_secret_file,
            client_secret_stdin,
            device,
            issuer,
            browser,
            port,
            tenant,
            workspace,
        )
    )


@server_command(app, "whoami")
def whoami(flags: ServerFlags) -> None:
    """Print who the server takes you for: name, groups, workspace, and how long the token is valid."""
    from sandur.cli.login import show_caller  # noqa: PLC0415 - starts fast

    show_caller(flags)


@server_command(app, "logout")
def logout(
    flags: ServerFlags,
    *,
    forget: Annotated[bool, typer.Option("--forget", help="Remove the whole profile, not only its tokens")] = False,
) -> None:
    """Remove the tokens of a profile from this machine, and end the refresh token at the identity provider."""
    from sandur.cli.login import log_out  # noqa: PLC0415 - starts fast

    log_out(flags, forgets_profile=forget)


@server_command(profiles, "list")
def list_profiles(flags: ServerFlags) -> None:
    """List the profiles, and which of them are logged in."""
    from sandur.cli.login import show_profiles  # noqa: PLC0415 - starts fast

    show_profiles(flags)


@server_command(profiles, "token")
def print_token(flags: ServerFlags) -> None:
    """Print the token of a profile, renewed if needed, for another program: SANDUR_TOKEN=$(sandur profile token)."""
    from sandur.cli.login import print_token as print_  # noqa: PLC0415 - starts fast

    print_(flags)


@profiles.command("use")
def use_profile(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Choose the profile of commands that name none."""
    from sandur.cli.login import use_profile as use  # noqa: PLC0415 - starts fast

    use(name)


@server_command(app, "grant")
def grant(
    flags: ServerFlags, statement: Annotated[list[str], typer.Argument(metavar="PRIVILEGE on NAME to WHO")]
) -> None:
    """Grant privileges: sandur grant SELECT on main.sales to analysts.

    Several privileges are separated by commas. A type may stand before the name: on schema main.a.b, on metastore.
    """
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.grant(statement, flags)


@server_command(app, "revoke")
def revoke(
    flags: ServerFlags,
    statement: Annotated[list[str], typer.Argument(metavar="PRIVILEGE on NAME from WHO")],
    *,
    fenced: Annotated[
        bool, typer.Option("--fenced", help="On a table: also stop what was allowed before and still runs")
    ] = False,
) -> None:
    """Revoke privileges: sandur revoke SELECT on main.sales from analysts."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.revoke(statement, flags, is_fenced=fenced)


@server_command(grants, "show")
def show_grants(
    flags: ServerFlags,
    name: Annotated[list[str], typer.Argument(metavar="[TYPE] NAME", help="Such as main.sales, or schema main.a.b")],
    *,
    principal: Annotated[
        str | None, typer.Option("--for", metavar="WHO", help="What this principal or group may do there, and why")
    ] = None,
) -> None:
    """Print the grants on a catalog, schema, table or another object."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.show_grants(" ".join(name), flags, principal=principal)


@server_command(owners, "set")
def set_owner(flags: ServerFlags, words: Annotated[list[str], typer.Argument(metavar="[TYPE] NAME WHO")]) -> None:
    """Give a catalog, schema, table or another object to a new owner: sandur owner set main.sales.orders analysts."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.set_owner(words, flags)


@server_command(app, "stages")
def list_stages(flags: ServerFlags) -> None:
    """List the tables that are staged and not committed: who staged them, where, and when they expire."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.show_stages(flags)


@server_command(app, "lineage")
def show_lineage(  # noqa: PLR0913 - one parameter per flag
    flags: ServerFlags,
    name: Annotated[str, typer.Argument(metavar="NAME", help="catalog.schema.table, or external:NAME, job:NAME")],
    *,
    direction: Annotated[str, typer.Option("--direction", metavar="WAY", help="up, down or both")] = "both",
    depth: Annotated[int, typer.Option("--depth", metavar="N", min=1, max=10, help="How many steps")] = 3,
    columns: Annotated[bool, typer.Option("--columns", help="Also the columns")] = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", metavar="TIME", help="Only what was known then: 2026-01-31, or 7d (ago)")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="Read this store, not a server")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Read the store of this file of settings")
    ] = None,
) -> None:
    """Print where a table comes from and what is made from it, as a tree."""
    from sandur.cli import lineage  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    asked = lineage.LineageFlags(name, direction, depth, columns, as_of, flags, StoreFlags(store, config))
    lineage.show_lineage(asked)


@server_command(principals, "create")
def create_principal(
    flags: ServerFlags,
    name: NameArgument,
    *,
    user: Annotated[bool, typer.Option("--user", help="A person, who logs in at an identity provider")] = False,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Trust the sources that it declares: its changes count as verified")
    ] = False,
    group: Annotated[list[str] | None, typer.Option("--group", metavar="GROUP", help="Repeatable")] = None,
) -> None:
    """Create a principal. The secret of a program is printed once."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.create_principal(name, flags, is_user=user, is_pipeline=pipeline, groups=group or ())


@server_command(principals, "list")
def list_principals(flags: ServerFlags) -> None:
    """List the principals."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.show_principals(flags)


@server_command(principals, "show")
def show_principal(flags: ServerFlags, name: NameArgument) -> None:
    """Print a principal: its kind, its groups, and how many secrets it has."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.show_principal(name, flags)


@server_command(principals, "delete")
def delete_principal(flags: ServerFlags, name: NameArgument) -> None:
    """Delete a principal with its grants. A new one of the same name inherits nothing."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.drop_principal(name, flags)


@server_command(principals, "disable")
def disable_principal(flags: ServerFlags, name: NameArgument) -> None:
    """Disable a principal: its tokens end at once, and it cannot log in."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.set_disabled(name, flags, is_disabled=True)


@server_command(principals, "enable")
def enable_principal(flags: ServerFlags, name: NameArgument) -> None:
    """Enable a principal again; it has to log in again."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.set_disabled(name, flags, is_disabled=False)


@server_command(principals, "trust")
def trust_principal(
    flags: ServerFlags,
    name: NameArgument,
    *,
    pipeline: Annotated[bool, typer.Option("--pipeline/--no-pipeline", help="Whether it is a pipeline")] = True,
) -> None:
    """Trust a program as a pipeline: its later changes count as verified. It has to log in again."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.set_pipeline(name, flags, is_pipeline=pipeline)


@server_command(principals, "rotate-secret")
def rotate_secret(
    flags: ServerFlags,
    name: NameArgument,
    *,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="When the new secret ends, such as P90D")
    ] = None,
) -> None:
    """Print a new secret of a program. The previous one stays valid until the next rotation."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast
    from sandur.settings import seconds_of  # noqa: PLC0415 - starts fast

    access.rotate_secret(name, flags, lifetime_seconds=seconds_of(expires) if expires else None)


@server_command(groups, "create")
def create_group(
    flags: ServerFlags,
    group: GroupArgument,
    members: Annotated[list[str] | None, typer.Argument(metavar="PRINCIPAL…")] = None,
    *,
    role: Annotated[bool, typer.Option("--role", help="A role, which identity providers cannot claim")] = False,
) -> None:
    """Create a group, with its first members."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.create_group(group, members or (), flags, is_role=role)


@server_command(groups, "list")
def list_groups(flags: ServerFlags) -> None:
    """List the groups and roles with their members."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.show_groups(flags)


@server_command(groups, "add")
def add_to_group(flags: ServerFlags, group: GroupArgument, members: MembersArgument) -> None:
    """Add principals or groups to a group."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.change_members(group, flags, add=members)


@server_command(groups, "remove")
def remove_from_group(flags: ServerFlags, group: GroupArgument, members: MembersArgument) -> None:
    """Remove principals or groups from a group."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.change_members(group, flags, remove=members)


@server_command(groups, "delete")
def delete_group(flags: ServerFlags, group: GroupArgument) -> None:
    """Delete a group with its grants; its members stay."""
    from sandur.cli import access  # noqa: PLC0415 - starts fast

    access.drop_group(group, flags)
