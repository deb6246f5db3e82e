"""The commands `sandur health` and `sandur policy …`: what tables need, and what maintenance may do to them."""

from typing import Annotated

import typer

from sandur.cli.flags import TargetFlags, target_command

app = typer.Typer(no_args_is_help=True)
policies = typer.Typer(no_args_is_help=True, help="What maintenance may do to tables, and when.")
app.add_typer(policies, name="policy")

ScopeArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A catalog, namespace or table; metastore for everything")
]
Fields = list[str] | None


@target_command(app, "health")
def show_health(
    flags: TargetFlags,
    *,
    worst: Annotated[
        int, typer.Option("--worst", metavar="N", min=1, max=1_000, help="The number of lines, worst first")
    ] = 20,
) -> None:
    """Print what tables need, in the order in which it would help most, as `sandur run health` measured it."""
    from sandur.cli import maintenance  # noqa: PLC0415 - starts fast

    maintenance.show_health(flags, worst=worst)


@target_command(app, "maintain")
def maintain(
    flags: TargetFlags,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A catalog, namespace or table; default: all")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan, and change nothing")] = False,
    request: Annotated[
        bool, typer.Option("--request", help="Let the next run of the pipeline maintain this table first")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Print what the latest runs did")] = False,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1_000, help="With --dry-run and --history: lines")
    ] = 100,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="A Spark cluster: spark://…, yarn or k8s://…")
    ] = None,
) -> None:
    """Carry out the maintenance that policies allow: compact, expire, clean up. With Spark, on a store."""
    from sandur.cli import maintenance  # noqa: PLC0415 - starts fast

    if dry_run:
        maintenance.show_plan(name, flags, limit=limit)
    elif request:
        maintenance.request_maintenance(name, flags)
    elif history:
        maintenance.show_operations(name, flags, limit=limit)
    elif not maintenance.maintain(name, flags, master=master):
        raise typer.Exit(1)


@target_command(policies, "show")
def show_policy(flags: TargetFlags, name: ScopeArgument) -> None:
    """Show every field of a maintenance policy, its value, and the scope or table property that decides it."""
    from sandur.cli import maintenance  # noqa: PLC0415 - starts fast

    maintenance.show_policy(name, flags)


@target_command(policies, "set")
def set_policy(
    flags: TargetFlags,
    name: ScopeArgument,
    fields: Annotated[list[str], typer.Argument(metavar="FIELD=VALUE…")],
    *,
    lock: Annotated[
        Fields, typer.Option("--lock", metavar="FIELD", help="Let nothing below change it; repeatable")
    ] = None,
) -> None:
    """Set fields of a policy: sandur policy set main.sales mode=run snapshots.min_to_keep=5."""
    from sandur.cli import maintenance  # noqa: PLC0415 - starts fast

    maintenance.change_policy(name, flags, fields=fields, lock=lock or ())


@target_command(policies, "unset")
def unset_policy(
    flags: TargetFlags,
    name: ScopeArgument,
    fields: Annotated[Fields, typer.Argument(metavar="FIELD…")] = None,
    *,
    unlock: Annotated[Fields, typer.Option("--unlock", metavar="FIELD", help="Keep it, but unlock it")] = None,
) -> None:
    """Unset fields of a policy: scopes above, or the defaults, decide them again."""
    from sandur.cli import maintenance  # noqa: PLC0415 - starts fast

    maintenance.change_policy(name, flags, unset=fields or (), unlock=unlock or ())
