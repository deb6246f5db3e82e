"""`sandur view`: list, create, change and delete views."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import path_text
from sandur.cli.change import COMMENT, named, pairs_of, report
from sandur.cli.flags import TargetFlags
from sandur.cli.output import confirm, print_records
from sandur.cli.targets import run_on_target
from sandur.client.catalog import CatalogClient, Json, Name
from sandur.clock import SystemClock
from sandur.errors import BadRequest, NotFound

_DIALECT: Final = "spark"


class ViewOptions(NamedTuple):
    """The flags of `sandur view create` and `update`; None leaves a part as it is."""

    sql: str | None = None
    dialect: str | None = None
    columns: str | None = None
    comment: str | None = None
    properties: Sequence[str] = ()


def list_views(namespace: str, flags: TargetFlags) -> None:
    wanted = named(namespace, 2, "expected CATALOG.NAMESPACE")

    async def collect(client: CatalogClient) -> list[Json]:
        return [
            {**entry, "name": path_text((*wanted.parts, entry["name"]))}
            async for entry in client.entries(wanted)
            if entry["kind"] == "view"
        ]

    print_records(run_on_target(collect, flags), ("name", "owner", "updated_ms", "comment"), flags.output)


def create_view(name: str, options: ViewOptions, flags: TargetFlags) -> None:
    wanted = named(name, 3, "expected CATALOG.NAMESPACE.VIEW")
    properties = {**pairs_of(options.properties), **({COMMENT: options.comment} if options.comment else {})}
    fields = parse_fields(options.columns or "")

    async def run(client: CatalogClient) -> None:
        await client.create_view(
            wanted,
            {
                "schema": {"type": "struct", "schema-id": 0, "fields": fields},
                "view-version": view_version(options.sql or "", options.dialect, wanted),
                "properties": properties,
            },
        )

    run_on_target(run, flags, access="change")
    shown = path_text(wanted.parts)
    report(flags, {"name": shown, "kind": "view"}, f"Created view {shown}.")


def view_version(sql: str, dialect: str | None, name: Name) -> Json:
    """The version of a view; the server sets its id."""
    return {
        "version-id": 1,
        "schema-id": -1,
        "timestamp-ms": SystemClock().now_ms(),
        "summary": {"engine-name": "sandur"},
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect or _DIALECT}],
        "default-catalog": name.catalog,
        "default-namespace": list(name.levels),
    }


def update_view(name: str, options: ViewOptions, flags: TargetFlags) -> None:
    """Change the SQL, the columns, the comment or the properties of a view; other dialects keep their SQL."""
    wanted = named(name, 3, "expected CATALOG.NAMESPACE.VIEW")
    run_on_target(lambda client: _updated_view(client, wanted, options), flags, access="change")
    shown = path_text(wanted.parts)
    report(flags, {"name": shown, "kind": "view"}, f"Changed view {shown}.")


async def _updated_view(client: CatalogClient, name: Name, options: ViewOptions) -> None:
    metadata = await client.load_view(name)
    updates: list[Json] = []
    if options.columns is not None:
        schema = {"type": "struct", "schema-id": _next_id(metadata), "fields": parse_fields(options.columns)}
        updates.append({"action": "add-schema", "schema": schema})
    if options.sql is not None or options.columns is not None:
        updates += view_updates(metadata, options.sql, options.dialect, name, has_schema=options.columns is not None)
    properties = {**pairs_of(options.properties), **({COMMENT: options.comment} if options.comment else {})}
    if properties:
        updates.append({"action": "set-properties", "updates": properties})
    if not updates:
        raise BadRequest("nothing to change: pass --sql, --columns, --comment or --property")
    await client.replace_view(name, metadata["view-uuid"], updates)


def _next_id(metadata: Json) -> int:
    return max((schema.get("schema-id", 0) for schema in metadata["schemas"]), default=-1) + 1


def view_updates(metadata: Json, sql: str | None, dialect: str | None, name: Name, *, has_schema: bool) -> list[Json]:
    """The updates that give a view a new version."""
    current = next(one for one in metadata["versions"] if one["version-id"] == metadata["current-version-id"])
    kept = {one["dialect"]: one for one in current["representations"] if one.get("type") == "sql"}
    if sql is not None:
        chosen = dialect or (next(iter(kept)) if len(kept) == 1 else _DIALECT)
        kept[chosen] = {"type": "sql", "sql": sql, "dialect": chosen}
    version = {
        **view_version("", None, name),
        "version-id": max(one["version-id"] for one in metadata["versions"]) + 1,
        "schema-id": -1 if has_schema else current["schema-id"],
        "representations": list(kept.values()),
    }
    return [
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def delete_view(name: str, flags: TargetFlags, *, is_confirmed: bool) -> None:
    wanted = named(name, 3, "expected CATALOG.NAMESPACE.VIEW")

    async def run(client: CatalogClient) -> None:
        found = await client.describe(wanted)
        if found["kind"] != "view":
            raise NotFound(f"{path_text(wanted.parts)} is a {found['kind']}, not a view", subject="view")
        confirm(f"Drop view {path_text(wanted.parts)}?", is_confirmed=is_confirmed)
        await client.drop(wanted, found, purge=False)

    run_on_target(run, flags, access="change")
    shown = path_text(wanted.parts)
    report(flags, {"name": shown, "kind": "view", "dropped": True}, f"Dropped view {shown}.")


def parse_fields(columns: str) -> list[Any]:
    """The fields of a schema, from columns in SQL; none without columns."""
    from sandur.delta.create_plan import parse_column_list  # noqa: PLC0415 - starts fast
    from sandur.operations.tables.definitions import iceberg_fields  # noqa: PLC0415 - starts fast

    if not columns.strip():
        return []
    found: list[Any] = msgspec.to_builtins(iceberg_fields(parse_column_list(columns)))
    return found
