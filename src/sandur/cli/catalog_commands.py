"""The commands that browse and change a catalog, on a server or a store. Each one imports its module when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from sandur.cli.completion import (
    NameArgument,
    NamespaceArgument,
    NewNameArgument,
    PlaceArgument,
    complete_container,
    complete_name,
)
from sandur.cli.flags import TargetFlags, target_command

app = typer.Typer()

creation = typer.Typer(
    no_args_is_help=True, help="Create a catalog, namespace, table, view, volume, function or model."
)
app.add_typer(creation, name="create")

view_group = typer.Typer(no_args_is_help=True, help="List, print, create, change and delete views.")
app.add_typer(view_group, name="view")

KindOption = Annotated[
    str | None, typer.Option("--kind", help="Only catalog, namespace, table, view, volume, function or model")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
CommentOption = Annotated[str | None, typer.Option("--comment")]
PropertyOption = Annotated[list[str] | None, typer.Option("--property", metavar="KEY=VALUE", help="Repeatable")]
SnapshotOption = Annotated[int | None, typer.Option("--snapshot", metavar="ID", help="A snapshot instead of a version")]
SqlOption = Annotated[str, typer.Option("--sql", metavar="QUERY", help="The query; @FILE reads it from a file")]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", metavar="DDL", help="Columns in SQL: id BIGINT NOT NULL, …")
]
DialectOption = Annotated[str | None, typer.Option("--dialect", help="The dialect of the query; default: spark")]


@target_command(app, "ls")
def list_contents(
    flags: TargetFlags,
    name: PlaceArgument = None,
    *,
    long: Annotated[bool, typer.Option("--long", "-l", help="Also owner, last change, comment and location")] = False,
    kind: KindOption = None,
) -> None:
    """List the catalogs, the namespaces of a catalog, or what is in a namespace."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.list_contents(name, flags, is_long=long, kind=kind)


@target_command(app, "find")
def find_objects(
    flags: TargetFlags,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="A part of a name, in any case")],
    *,
    within: Annotated[str | None, typer.Option("--in", metavar="NAME", help="Only below this name")] = None,
    columns: Annotated[bool, typer.Option("--columns", help="Search the columns of tables and views")] = False,
    properties: Annotated[bool, typer.Option("--properties", help="Search the properties, as published last")] = False,
    tags: Annotated[bool, typer.Option("--tags", help="Search the tags, as published last")] = False,
    kind: KindOption = None,
) -> None:
    """Find objects by a part of their name, of a column, of a property or of a tag."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    if properties or tags:
        browse.find_published(text, flags, within=within, found_in="tag" if tags else "property")
        return
    browse.find_objects(text, flags, within=within, by_columns=columns, kind=kind)


@target_command(app, "show")
def show_object(
    flags: TargetFlags,
    name: NameArgument,
    *,
    schema: Annotated[bool, typer.Option("--schema", help="Only the columns")] = False,
    ddl: Annotated[bool, typer.Option("--ddl", help="The statement that creates such a table")] = False,
) -> None:
    """Print an object: its owner, location, properties, columns, branches, tags and totals."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.show_object(name, flags, only_schema=schema, as_ddl=ddl)


@target_command(app, "history")
def show_history(
    flags: TargetFlags,
    name: NameArgument,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=1_000, help="The newest versions")
    ] = 50,
) -> None:
    """Print the versions of a table or view, newest first: who made them, with what, and what they changed."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.show_history(name, flags, limit=limit)


@target_command(app, "diff")
def show_changes(
    flags: TargetFlags,
    name: NameArgument,
    before: Annotated[int | None, typer.Argument(metavar="[A]", help="A version; default: the one before B")] = None,
    after: Annotated[int | None, typer.Argument(metavar="[B]", help="A version; default: the newest")] = None,
) -> None:
    """Compare two versions of a table: columns by field id, partitions, properties, branches, snapshots, totals."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.show_changes(name, before, after, flags)


RowsOption = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=1_000, help="The number of rows")]


@target_command(app, "preview")
def preview(flags: TargetFlags, name: NameArgument, *, limit: RowsOption = 100) -> None:
    """Print the first rows of a table. The server needs sandur[preview]."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.show_rows((name,), None, flags, limit=limit)


@target_command(app, "sql")
def query(
    flags: TargetFlags,
    sql: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT; @FILE reads it from a file")],
    *,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="NAME", help="A table that the query names as namespace.name; repeatable"),
    ] = None,
    limit: RowsOption = 100,
) -> None:
    """Run one SELECT over tables that it names in full, such as main.sales.orders. The server must allow queries."""
    from sandur.cli import browse, change  # noqa: PLC0415 - starts fast

    browse.show_rows(table or (), change.text_of(sql), flags, limit=limit)


@target_command(app, "open")
def open_page(
    flags: TargetFlags,
    name: Annotated[str | None, typer.Argument(metavar="NAME", autocompletion=complete_name)] = None,
    *,
    prints: Annotated[bool, typer.Option("--print", help="Only print the address")] = False,
) -> None:
    """Open the page of an object in the browser."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.open_page(name, flags, prints=prints)


@target_command(app, "jobs")
def show_jobs(flags: TargetFlags) -> None:
    """Print what works in the background or waits: leases of janitors and jobs, purges, quarantine and stages."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.show_jobs(flags)


@target_command(creation, "catalog")
def create_catalog(
    flags: TargetFlags,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    *,
    root: Annotated[str | None, typer.Option("--root", metavar="URL", help="The root of its tables")] = None,
    comment: CommentOption = None,
    table_property: PropertyOption = None,
) -> None:
    """Create a catalog. Without --root, its tables are stored in the store itself."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.create_catalog(name, flags, root=root, comment=comment, properties=table_property or ())


@target_command(creation, "namespace")
def create_namespace(
    flags: TargetFlags, name: NewNameArgument, *, comment: CommentOption = None, table_property: PropertyOption = None
) -> None:
    """Create a namespace."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.create_namespace(name, flags, comment=comment, properties=table_property or ())


@target_command(creation, "table")
def create_table(  # noqa: PLR0913 - one parameter per flag
    flags: TargetFlags,
    name: NewNameArgument,
    *,
    columns: Annotated[str, typer.Option("--columns", metavar="DDL", help="Columns in SQL: id BIGINT NOT NULL, …")],
    table_format: Annotated[str, typer.Option("--format", help="iceberg or delta")] = "iceberg",
    partition_by: Annotated[
        list[str] | None,
        typer.Option("--partition-by", metavar="FIELD", help="A column, or day(ts), bucket(16, id), …; repeatable"),
    ] = None,
    cluster_by: Annotated[
        list[str] | None, typer.Option("--cluster-by", metavar="COLUMN", help="Delta only; repeatable")
    ] = None,
    location: Annotated[str | None, typer.Option("--location", metavar="URL", help="Where its files lie")] = None,
    comment: CommentOption = None,
    table_property: PropertyOption = None,
) -> None:
    """Create an empty Iceberg or Delta table."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    options = change.TableOptions(
        columns, table_format, partition_by or (), cluster_by or (), table_property or (), comment, location
    )
    change.create_table(name, options, flags)


@target_command(creation, "volume")
def create_volume(
    flags: TargetFlags,
    name: NewNameArgument,
    *,
    location: Annotated[str | None, typer.Option("--location", metavar="URL", help="Make it external")] = None,
    comment: CommentOption = None,
) -> None:
    """Create a volume: a folder for files, managed by the catalog unless it has a location."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    fields = {"volume_type": "EXTERNAL" if location else "MANAGED", "storage_location": location, "comment": comment}
    change.create_unity("volume", name, flags, fields)


@target_command(creation, "function")
def create_function(
    flags: TargetFlags,
    name: NewNameArgument,
    *,
    definition: Annotated[str, typer.Option("--definition", metavar="SQL", help="Its body, an expression")],
    returns: Annotated[str, typer.Option("--returns", metavar="TYPE", help="Such as INT or DECIMAL(10,2)")],
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", metavar="'NAME TYPE'", help="In order; repeatable")
    ] = None,
    comment: CommentOption = None,
) -> None:
    """Create a function in SQL."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    fields = change.function_fields(definition, returns, parameter or (), comment)
    change.create_unity("function", name, flags, {**fields, "specific_name": name.rpartition(".")[2]})


@target_command(creation, "model")
def create_model(flags: TargetFlags, name: NewNameArgument, *, comment: CommentOption = None) -> None:
    """Create a registered model."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.create_unity("model", name, flags, {"comment": comment})


@target_command(creation, "view")
@target_command(view_group, "create")
def create_view(
    flags: TargetFlags,
    name: NewNameArgument,
    *,
    sql: SqlOption,
    columns: ColumnsOption = None,
    dialect: DialectOption = None,
    comment: CommentOption = None,
    table_property: PropertyOption = None,
) -> None:
    """Create a view."""
    from sandur.cli import change, views  # noqa: PLC0415 - starts fast

    query = change.text_of(sql)
    views.create_view(name, views.ViewOptions(query, dialect, columns, comment, table_property or ()), flags)


@target_command(view_group, "list")
def list_views(flags: TargetFlags, namespace: NamespaceArgument) -> None:
    """List the views of a namespace."""
    from sandur.cli import views  # noqa: PLC0415 - starts fast

    views.list_views(namespace, flags)


@target_command(view_group, "get")
def show_view(flags: TargetFlags, name: NameArgument) -> None:
    """Print a view: its query in each dialect, its columns and its properties."""
    from sandur.cli import browse  # noqa: PLC0415 - starts fast

    browse.show_object(name, flags, only_schema=False, as_ddl=False, kind="view")


@target_command(view_group, "update")
def update_view(
    flags: TargetFlags,
    name: NameArgument,
    *,
    sql: Annotated[
        str | None, typer.Option("--sql", metavar="QUERY", help="The query; @FILE reads it from a file")
    ] = None,
    columns: ColumnsOption = None,
    dialect: DialectOption = None,
    comment: CommentOption = None,
    table_property: PropertyOption = None,
) -> None:
    """Change the query, the columns, the comment or the properties of a view."""
    from sandur.cli import change, views  # noqa: PLC0415 - starts fast

    query = None if sql is None else change.text_of(sql)
    views.update_view(name, views.ViewOptions(query, dialect, columns, comment, table_property or ()), flags)


@target_command(view_group, "delete")
def delete_view(flags: TargetFlags, name: NameArgument, *, yes: YesOption = False) -> None:
    """Delete a view."""
    from sandur.cli import views  # noqa: PLC0415 - starts fast

    views.delete_view(name, flags, is_confirmed=yes)


@target_command(app, "drop")
def drop(
    flags: TargetFlags,
    name: NameArgument,
    *,
    purge: Annotated[bool, typer.Option("--purge", help="An Iceberg table: also delete its files")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="A catalog or namespace: with everything in it")] = False,
    yes: YesOption = False,
) -> None:
    """Drop an object of any kind. The files of a managed Delta table are deleted, all others stay without --purge."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.drop(name, flags, purge=purge, cascade=cascade, is_confirmed=yes)


@target_command(app, "undrop")
def undrop(
    flags: TargetFlags,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that it had")],
    *,
    kind: Annotated[str, typer.Option("--kind", help="table, view, volume, function or model")] = "table",
    uuid: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Which one, if the name was dropped more than once")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NEW", help="Another name, if the old one is taken")
    ] = None,
) -> None:
    """Bring back what was dropped, until its files are deleted and the retention of its name has ended."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.undrop(name, flags, kind=kind, uuid=uuid, new_name=new_name)


@target_command(app, "dropped")
def list_dropped(
    flags: TargetFlags,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A catalog or namespace", autocompletion=complete_container)
    ],
) -> None:
    """List what was dropped in a catalog or namespace and can be brought back."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.list_dropped(name, flags)


@target_command(app, "rename")
def rename(
    flags: TargetFlags,
    name: NameArgument,
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="A name, or a full name in another namespace")],
) -> None:
    """Rename a catalog, namespace, table, view, volume or model; grants and contents stay with it."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.rename(name, new_name, flags)


@target_command(app, "set")
def set_properties(
    flags: TargetFlags,
    name: NameArgument,
    properties: Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="comment=TEXT sets the comment")],
) -> None:
    """Set properties of a catalog, namespace, table or view, or the comment of a volume or model."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.change_properties(name, flags, updates=change.pairs_of(properties), removals=())


@target_command(app, "unset")
def unset_properties(
    flags: TargetFlags, name: NameArgument, keys: Annotated[list[str], typer.Argument(metavar="KEY…")]
) -> None:
    """Remove properties of a catalog, namespace, table or view."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.change_properties(name, flags, updates={}, removals=keys)


AtOption = Annotated[
    str | None, typer.Option("--at", metavar="V", help="A version, branch or tag; default: the current state")
]
DeleteOption = Annotated[bool, typer.Option("--delete", help="Remove it")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Move it if it exists")]
KeepOption = Annotated[str | None, typer.Option("--keep", metavar="TIME", help="How long it is kept, such as P90D")]


def _reference_command(kind: str, text: str) -> None:
    """Register `sandur tag` or `sandur branch`, which differ only in the kind of reference."""

    def change_reference(  # noqa: PLR0913 - one parameter per flag
        flags: TargetFlags,
        name: NameArgument,
        reference: Annotated[str, typer.Argument(metavar=kind.upper())],
        *,
        at: AtOption = None,
        snapshot: SnapshotOption = None,
        delete: DeleteOption = False,
        replace: ReplaceOption = False,
        keep: KeepOption = None,
    ) -> None:
        from sandur.cli import change  # noqa: PLC0415 - starts fast

        change.change_ref(name, change.RefOptions(kind, reference, at, snapshot, delete, replace, keep), flags)

    change_reference.__doc__ = text
    target_command(app, kind)(change_reference)


_reference_command("tag", "Create, move or remove a tag of an Iceberg table.")
_reference_command("branch", "Create, move or remove a branch of an Iceberg table.")


@target_command(app, "rollback")
def roll_back(
    flags: TargetFlags,
    name: NameArgument,
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="V", help="A version of its history; Iceberg: a branch or a tag")
    ] = None,
    snapshot: SnapshotOption = None,
    yes: YesOption = False,
) -> None:
    """Give a table the data of an earlier version again. A Delta table gets its columns and properties, too."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.roll_back(name, flags, to=to, snapshot=snapshot, is_confirmed=yes)


@target_command(app, "register")
def register(
    flags: TargetFlags,
    name: NewNameArgument,
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="An Iceberg metadata file, or a Delta folder")],
    *,
    table_format: Annotated[str | None, typer.Option("--format", help="iceberg or delta; default: by LOCATION")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Iceberg: replace the table of that name")] = False,
) -> None:
    """Add an existing Iceberg or Delta table. Its files stay where they are."""
    from sandur.cli import change  # noqa: PLC0415 - starts fast

    change.register(name, location, flags, table_format=table_format, overwrite=overwrite)


@target_command(app, "export")
def export_definitions(
    flags: TargetFlags,
    name: PlaceArgument = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", "-f", metavar="FILE", help="Default: print it")] = None,
    kind: Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help="Only this kind; repeatable")] = None,
) -> None:
    """Write the definitions of a catalog or namespace, or of everything, as JSON: no data, no grants, no secrets."""
    from sandur.cli import definitions  # noqa: PLC0415 - starts fast

    definitions.export_definitions(name, file, flags, kinds=kind or definitions.KINDS)


@target_command(app, "apply")
def apply_definitions(
    flags: TargetFlags,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What sandur export wrote; - reads standard input")],
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan")] = False,
    yes: YesOption = False,
) -> None:
    """Create and change what a file of definitions says. It plans first, asks, and never drops anything."""
    from sandur.cli import definitions  # noqa: PLC0415 - starts fast

    definitions.apply_definitions(file, flags, is_dry=dry_run, is_confirmed=yes)
