"""The command `sandur`: each command calls one function, whose module is imported only when it runs."""

import os
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from sandur import __version__
from sandur.cli import (
    catalog_commands,
    event_commands,
    import_commands,
    maintenance_commands,
    server_commands,
    store_commands,
)
from sandur.cli.flags import (
    AllowOption,
    ConfigOption,
    JsonOption,
    StoreOption,
    StoreOrServerFlags,
    UserOption,
    store_command,
)
from sandur.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    Forbidden,
    KeyReused,
    NotEmpty,
    NotFound,
    OutcomeUnknown,
    SandurError,
    Unauthenticated,
    Unavailable,
)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # Rich takes longer to load than everything else that help needs.
    pretty_exceptions_enable=False,
    help="One catalog for Iceberg and Delta tables that needs nothing but object storage.",
)

catalogs = typer.Typer(no_args_is_help=True, help="Create and list catalogs, on the store itself or with --server.")
app.add_typer(catalogs, name="catalog")

indexes = typer.Typer(no_args_is_help=True, help="Maintain the indexes behind list requests.")
app.add_typer(indexes, name="index")

delta_tables = typer.Typer(
    no_args_is_help=True, help="Create and rename Delta tables without an engine, on the store itself or with --server."
)
app.add_typer(delta_tables, name="delta")

administration = typer.Typer(
    no_args_is_help=True, help="Regain access to a workspace, and rotate keys, directly on the store."
)
app.add_typer(administration, name="admin")
app.add_typer(catalog_commands.app)
app.add_typer(import_commands.app)
app.add_typer(server_commands.app)
app.add_typer(event_commands.app)
app.add_typer(maintenance_commands.app)
app.add_typer(store_commands.app)

ProfileOption = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", envvar="SANDUR_PROFILE", help="Server and token of `sandur login`"),
]


_EXIT_CODES: Final[Mapping[tuple[type[SandurError], ...], int]] = {
    (NotFound,): 3,
    (Unauthenticated, Forbidden): 4,
    (AlreadyExists, Conflict, KeyReused, NotEmpty): 5,
    (OutcomeUnknown,): 6,
    (Busy, Unavailable): 7,
}
"""The exit codes of errors that a script may want to handle. Every other error is 1, and wrong usage 2."""


def run() -> None:
    """Run the command line; a SandurError becomes one line and an exit code."""
    try:
        app()
    except SandurError as error:
        color = None if os.environ.get("NO_COLOR") else typer.colors.RED
        typer.secho(f"sandur: {error}", fg=color, err=True)
        raise SystemExit(exit_code(error)) from None


def exit_code(error: SandurError) -> int:
    return next((code for classes, code in _EXIT_CODES.items() if isinstance(error, classes)), 1)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@app.command()
def settings(*, store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print every setting with its value and its environment variable. Secrets are hidden."""
    from sandur.cli.configuration import show_settings  # noqa: PLC0415 - starts fast

    show_settings(store=store, config=config, as_json=as_json)


@app.command()
def probe(*, store: StoreOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check that a store has the guarantees that Sandur needs; exit code 1 if one fails."""
    from sandur.cli.store_admin import probe_store  # noqa: PLC0415 - starts fast

    probe_store(store=store, config=config, as_json=as_json)


@app.command()
def upgrade(
    *,
    store: StoreOption = None,
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Only report what would change; the default")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Bring the records of a store to the newest version, once no older server, janitor or pipeline uses the store."""
    from sandur.cli.upgrade import upgrade_store  # noqa: PLC0415 - starts fast

    upgrade_store(store=store, config=config, is_dry=dry_run, as_json=as_json)


@app.command()
def serve(  # noqa: PLR0913 - one parameter per flag
    *,
    store: StoreOption = None,
    host: Annotated[str | None, typer.Option("--host", metavar="H", help="The address to listen on")] = None,
    port: Annotated[int | None, typer.Option("--port", metavar="P", help="The port; 0 selects a free one")] = None,
    grpc_port: Annotated[
        int | None, typer.Option("--grpc-port", metavar="P", help="The port of the gRPC services; 0 selects a free one")
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", metavar="N", help="The number of processes")] = None,
    config: ConfigOption = None,
    allow_location: AllowOption = None,
    allow_unauthenticated: Annotated[
        bool, typer.Option("--allow-unauthenticated", help="Accept requests from other machines without authentication")
    ] = False,
) -> None:
    """Run the server until a signal ends it, and print how to connect each engine."""
    from sandur.cli.serve import run_server  # noqa: PLC0415 - starts fast

    flags: dict[str, object] = {
        "store": store,
        "host": host,
        "port": port,
        "grpc.port": grpc_port,
        "workers": workers,
        "allowed_locations": tuple(allow_location) if allow_location else None,
        "allow_unauthenticated": allow_unauthenticated or None,
    }
    run_server(config=config, flags=flags)


@store_command(catalogs, "create")
def create_catalog(
    flags: StoreOrServerFlags,
    name: str,
    *,
    root: Annotated[str | None, typer.Option("--root", metavar="URL", help="The root of its tables")] = None,
    allow_location: AllowOption = None,
) -> None:
    """Create a catalog. Without --root its tables are stored in the store itself.

    A root outside the store must be allowed, here and for the server: --allow-location, or the setting
    allowed_locations.
    """
    from sandur.cli import on_server, store_admin  # noqa: PLC0415 - starts fast

    if target := flags.target:
        on_server.create_catalog(name, target, root=root, allows=bool(allow_location), as_json=flags.as_json)
        return
    on_store = store_admin.StoreFlags(flags.store, flags.config, allow_location or (), user=flags.user)
    store_admin.make_catalog(name, root=root, flags=on_store, as_json=flags.as_json)


@store_command(catalogs, "list")
def list_catalogs(flags: StoreOrServerFlags) -> None:
    """List the catalogs."""
    from sandur.cli import on_server, store_admin  # noqa: PLC0415 - starts fast

    if target := flags.target:
        on_server.list_catalogs(target, as_json=flags.as_json)
        return
    store_admin.show_catalogs(store_admin.StoreFlags(flags.store, flags.config), as_json=flags.as_json)


@store_command(delta_tables, "create")
def create_delta_table(  # noqa: PLR0913 - one parameter per flag
    flags: StoreOrServerFlags,
    name: Annotated[str, typer.Argument(help="catalog.schema.table, or delta.`URL` for a table at a path")],
    *,
    columns: Annotated[str, typer.Option("--columns", metavar="DDL", help="Columns in SQL: id BIGINT NOT NULL, …")],
    location: Annotated[str | None, typer.Option("--location", metavar="URL", help="Make it external")] = None,
    partition_by: Annotated[list[str] | None, typer.Option("--partition-by", metavar="COLUMN")] = None,
    cluster_by: Annotated[list[str] | None, typer.Option("--cluster-by", metavar="COLUMN")] = None,
    table_property: Annotated[list[str] | None, typer.Option("--property", metavar="KEY=VALUE")] = None,
    comment: Annotated[str | None, typer.Option("--comment")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if the table exists")] = False,
) -> None:
    """Create a Delta table: managed by the catalog, external at a location, or at a path without a catalog."""
    from sandur.cli import delta, on_server  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    options = delta.DeltaTableOptions(
        name=name,
        columns=columns,
        location=location,
        partition_by=partition_by or (),
        cluster_by=cluster_by or (),
        properties=table_property or (),
        comment=comment,
        if_not_exists=if_not_exists,
    )
    if target := flags.target:
        on_server.create_delta_table(options, target, as_json=flags.as_json)
        return
    delta.create_delta_table(options, StoreFlags(flags.store, flags.config, user=flags.user), as_json=flags.as_json)


@store_command(delta_tables, "rename")
def rename_delta_table(
    flags: StoreOrServerFlags,
    name: Annotated[str, typer.Argument(help="catalog.schema.table")],
    new_name: Annotated[str, typer.Argument(help="The new name, in the same schema")],
) -> None:
    """Rename a table of either format; engines cannot rename managed Delta tables."""
    from sandur.cli import delta, on_server  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    if target := flags.target:
        on_server.rename_table(name, new_name, target, as_json=flags.as_json)
        return
    on_store = StoreFlags(flags.store, flags.config, user=flags.user)
    delta.rename_delta_table(name, new_name, on_store, as_json=flags.as_json)


@store_command(indexes, "rebuild")
def rebuild_index(
    flags: StoreOrServerFlags,
    catalog: Annotated[str | None, typer.Argument(help="Only the indexes of this catalog")] = None,
) -> None:
    """Rebuild the list indexes from the records that they list, on the store itself. Servers can keep running."""
    from sandur.cli import on_server, store_admin  # noqa: PLC0415 - starts fast

    if flags.target:
        raise on_server.refuse("sandur index rebuild")
    store_admin.rebuild_indexes(catalog, store_admin.StoreFlags(flags.store, flags.config), as_json=flags.as_json)


@administration.command("recover")
def recover_admin(
    *,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant; default: of the settings")] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help="The workspace; default: as above")] = None,
    user: UserOption = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the principal admin a new secret, on the store itself, and end its tokens. It owns the metastore again.

    For a workspace without principals, this creates them. Servers can keep running.
    """
    from sandur.cli.store_admin import StoreFlags, recover_administrator  # noqa: PLC0415 - starts fast

    recover_administrator(StoreFlags(store, config, tenant=tenant, workspace=workspace, user=user), as_json=as_json)


@administration.command("sealing-key")
def create_sealing_key() -> None:
    """Print a new key for the setting sealing_keys, which seals the secrets of storage credentials."""
    from sandur.operations.credentials.sealed_secrets import new_sealing_key  # noqa: PLC0415 - starts fast

    typer.echo(new_sealing_key())


@administration.command("reseal")
def reseal_secrets(
    *,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant; default: all")] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help="Only this workspace; default: all")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Seal the secrets of all storage credentials with the first key of the setting sealing_keys.

    Afterwards the other keys are no longer needed. Servers can keep running.
    """
    from sandur.cli.store_admin import StoreFlags, reseal_credentials  # noqa: PLC0415 - starts fast

    reseal_credentials(StoreFlags(store, config, tenant=tenant, workspace=workspace), as_json=as_json)


@app.command()
def audit(  # noqa: PLR0913 - one parameter per flag
    *,
    principal: Annotated[str, typer.Option("--principal", metavar="NAME", help="Only requests of this principal")] = "",
    operation: Annotated[str, typer.Option("--operation", help="Such as loadTable or updatePermissions")] = "",
    securable: Annotated[
        str, typer.Option("--on", metavar="NAME", help="A catalog, namespace, table, …, with what is inside, or an id")
    ] = "",
    kind: Annotated[str, typer.Option("--kind", help="read, change, credential, login, security, denial, …")] = "",
    denied: Annotated[bool, typer.Option("--denied", help="Only what was denied")] = False,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="2026-01-31T12:00:00Z, or 2h (ago)")] = "1d",
    until: Annotated[str | None, typer.Option("--until", metavar="TIME")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Records to print, oldest first")] = 1_000,
    uri: Annotated[str | None, typer.Option("--uri", metavar="URL", help="Ask this server; default: the store")] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="SANDUR_TOKEN", help="With --uri: the token of an administrator")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="NAME", help="Ask the server of this profile of sandur login")
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="The tenant, on a store")] = None,
    workspace: Annotated[str | None, typer.Option("--workspace", help="The workspace, on a store")] = None,
    store: StoreOption = None,
    config: ConfigOption = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="table or json")] = "table",
) -> None:
    """Search the audit trail: who did what, whether it was allowed and why."""
    from sandur.cli.audit import AuditFlags, show_audit  # noqa: PLC0415 - starts fast
    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415 - starts fast

    filters = {"principal": principal, "operation": operation, "securable": securable, "kind": kind}
    given = {name: text for name, text in {**filters, "decision": "denied" if denied else ""}.items() if text}
    flags = AuditFlags(given, since, until, limit, uri, token, profile)
    show_audit(flags, StoreFlags(store, config, (), tenant, workspace), as_json=output == "json")


@app.command("spark-config")
def spark_config(  # noqa: PLR0913 - one parameter per flag
    *,
    catalog: Annotated[
        list[str] | None,
        typer.Option("--catalog", metavar="NAME", help="A catalog, or SPARK_NAME=NAME; repeatable"),
    ] = None,
    uri: Annotated[
        str | None, typer.Option("--uri", metavar="URL", help="The server; default: from the settings")
    ] = None,
    token: Annotated[str | None, typer.Option("--token", help="The token for the server")] = None,
    profile: ProfileOption = None,
    with_keys: Annotated[bool, typer.Option("--with-keys", help="Include the S3 keys of the settings")] = False,
    spark: Annotated[str, typer.Option("--spark", metavar="VERSION", help="Default: the installed PySpark")] = "",
    iceberg: Annotated[str, typer.Option("--iceberg", metavar="VERSION", help="Iceberg's runtime")] = "1.11.0",
    as_json: JsonOption = False,
    as_submit: Annotated[bool, typer.Option("--submit", help="Print flags for spark-submit and spark-sql")] = False,
    as_properties: Annotated[bool, typer.Option("--properties", help="Print lines for spark-defaults.conf")] = False,
    store: StoreOption = None,
    config: ConfigOption = None,
) -> None:
    """Print the Spark options of a catalog: as a table, as flags, as a file or as JSON."""
    from sandur.cli.configuration import SparkConfigOptions, output_form, show_spark_config  # noqa: PLC0415 - starts fast
    from sandur.spark import Versions  # noqa: PLC0415 - starts fast

    form = output_form(as_json=as_json, as_submit=as_submit, as_properties=as_properties)
    flags = SparkConfigOptions(catalogs=catalog or (), uri=uri, token=token, with_keys=with_keys, profile=profile)
    show_spark_config(flags, form=form, versions=Versions(spark=spark, iceberg=iceberg), store=store, config=config)


MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="A Spark cluster: spark://…, yarn, k8s://…, or sc://… (Connect)"),
]
DryRunOption = Annotated[
    bool | None,
    typer.Option("--dry-run/--no-dry-run", help="Only report what would change; the default of jobs that delete"),
]


@app.command("run")
def run_job(  # noqa: PLR0913 - one parameter per flag
    job: Annotated[str, typer.Argument(help="The name of a job, or all")],
    *,
    store: StoreOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = None,
    objects_max: Annotated[
        int | None, typer.Option("--max", metavar="N", min=1, help="The maximum number of objects that a run deletes")
    ] = None,
    location: Annotated[str | None, typer.Option("--location", metavar="URL", help="import: where to search")] = None,
    catalog: Annotated[str | None, typer.Option("--catalog", help="import, rebuild-index: the catalog")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="import, rebuild-index: the namespace")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job of the pipeline with Spark, on this machine or on a cluster."""
    from sandur.cli.run_jobs import RunOptions, run_jobs  # noqa: PLC0415 - starts fast

    given = {"location": location, "catalog": catalog, "namespace": namespace}
    arguments = {name: value for name, value in given.items() if value is not None}
    options = RunOptions(store, config, master, dry_run, objects_max, arguments, as_json)
    if code := run_jobs(job, options):
        raise typer.Exit(code)


@app.command("pipeline")
def run_pipeline(
    *,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Such as 15m, 2h or PT15M")] = "15m",
    store: StoreOption = None,
    master: MasterOption = None,
    dry_run: DryRunOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run all jobs at an interval. Several processes may share a store: one works, the others wait."""
    from sandur.cli.run_jobs import RunOptions, run_pipeline  # noqa: PLC0415 - starts fast

    run_pipeline(every, RunOptions(store, config, master, dry_run, as_json=as_json))
