"""`sandur ls`, `find`, `show`, `history`, `diff`, `open` and `jobs`: look at what a catalog holds."""

import os
import re
import webbrowser
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sandur.catalog.identifiers import parse_path, path_text
from sandur.cli.flags import TargetFlags
from sandur.cli.output import print_fields, print_json, print_records, say, time_text
from sandur.cli.targets import is_store, name_of, run_on_target
from sandur.client.catalog import CatalogClient, Json, Name, levels_path, path_of
from sandur.client.profiles import user_profiles
from sandur.client.sessions import API, find_target
from sandur.errors import BadRequest, NotFound

_SHORT: Final = ("name", "kind", "format")
_LONG: Final = (*_SHORT, "owner", "updated_ms", "updated_by", "comment", "location")
_COLUMNS: Final = ("id", "name", "type", "required", "doc")
_HISTORY: Final = ("version", "at_ms", "source", "principal", "engine", "operation", "rows", "files", "bytes", "refs")
_CHANGES: Final = ("area", "kind", "name", "before", "after")
_FOUND: Final = ("name", "kind", "format", "column")
_FOUND_MAX: Final = 10_000
_PROGRESS_EVERY: Final = 1_000


def list_contents(name: str | None, flags: TargetFlags, *, is_long: bool, kind: str | None) -> None:
    within = name_of(name) if name else None

    async def collect(client: CatalogClient) -> list[Json]:
        try:
            return [entry async for entry in _entries(client, within)]
        except NotFound:
            if within is None or len(within.parts) <= 2:  # noqa: PLR2004 - a catalog or a namespace of one level
                raise
            found = await client.describe(within)
            return [{**found, "name": path_text(within.parts)}]

    entries = [one for one in run_on_target(collect, flags) if kind in {None, one["kind"]}]
    print_records(entries, _LONG if is_long else _SHORT, flags.output, empty="It is empty.")


async def _entries(client: CatalogClient, within: Name | None) -> Any:  # noqa: ANN401 - an iterator of JSON
    collections = ("namespaces", "names") if within and len(within.parts) > 1 else ("names",)
    for collection in collections:
        async for entry in client.entries(within, collection=collection):
            parts = (*within.parts, entry["name"]) if within else (entry["name"],)
            yield {**entry, "name": path_text(parts)}


def find_objects(text: str, flags: TargetFlags, *, within: str | None, by_columns: bool, kind: str | None) -> None:
    """Print the objects whose name contains the text, or the columns whose name does."""
    wanted, start = text.casefold(), name_of(within) if within else None

    async def collect(client: CatalogClient) -> list[Json]:
        found: list[Json] = []
        looked_at = 0
        async for name, entry in client.walk(start, with_columns=by_columns):
            looked_at += 1
            if looked_at % _PROGRESS_EVERY == 0:
                say(f"{looked_at} names searched, {len(found)} found")
            if kind not in {None, entry["kind"]}:
                continue
            row = {"name": path_text(name.parts), "kind": entry["kind"], "format": entry.get("format", "")}
            if by_columns:
                columns = [one for one in entry.get("columns", ()) if wanted in one.casefold()]
                found += [{**row, "column": column} for column in columns]
            elif wanted in name.leaf.casefold():
                found.append(row)
            if len(found) >= _FOUND_MAX:
                say(f"The search ended after {_FOUND_MAX} results; search with --in NAME, or for a longer text.")
                break
        return found[:_FOUND_MAX]

    found = run_on_target(collect, flags)
    print_records(found, _FOUND if by_columns else _FOUND[:-1], flags.output, empty="Nothing is found.")


def find_published(text: str, flags: TargetFlags, *, within: str | None, found_in: str) -> None:
    """Print the tables and views with a property or a tag that contains the text, as they were published last."""
    query = {"q": text, **({"in": within} if within else {})}
    found = run_on_target(lambda client: client.get(f"{API}/search", **query), flags)
    rows = []
    for hit in found["hits"]:
        catalog, levels, name = hit["identifier"]
        if hit["found"] == found_in:
            rows.append({**hit, "name": path_text((catalog, *levels, name)), found_in: hit["detail"]})
    empty = "Nothing is found." if found["published_ms"] else "Nothing is published: sandur run all"
    print_records(rows, (*_FOUND[:-1], found_in), flags.output, empty=empty)


def show_object(name: str, flags: TargetFlags, *, only_schema: bool, as_ddl: bool, kind: str | None = None) -> None:
    """Print an object; NotFound if it must be of a kind and is not."""
    if only_schema and as_ddl:
        raise BadRequest("--schema and --ddl exclude each other: choose one")
    wanted = name_of(name)
    found = run_on_target(lambda client: client.describe(wanted), flags)
    found["name"] = path_text(wanted.parts)
    if kind not in {None, found["kind"]}:
        raise NotFound(f"{found['name']} is a {found['kind']}, not a {kind}", subject="object")
    content = found.get("table") or found.get("view") or {}
    if as_ddl:
        if not found.get("ddl"):
            raise BadRequest(f"{found['name']} is a {found['kind']}: only tables have a DDL")
        print_json({"ddl": found["ddl"]}) if flags.output == "json" else print(found["ddl"])  # noqa: T201 - the result
        return
    columns = _column_rows(content)
    if only_schema:
        if not content:
            raise BadRequest(f"{found['name']} is a {found['kind']}: only tables and views have a schema")
        shown = content.get("columns", []) if flags.output in {"json", "jsonl"} else columns
        print_records(shown, _COLUMNS, flags.output, empty="It has no columns.")
        return
    print_fields(found, _summary(found, content), flags.output)
    if columns and flags.output == "table":
        print_records(columns, _COLUMNS, flags.output)


def _column_rows(content: Mapping[str, Any]) -> list[Json]:
    """Columns for people: nested ones are indented below their parent."""
    return [
        {
            **column,
            "id": column["id"] or "",
            "name": "  " * column.get("depth", 0) + column["name"],
            "required": "required" if column.get("required") else "",
        }
        for column in content.get("columns", ())
    ]


def _summary(found: Json, content: Mapping[str, Any]) -> dict[str, object]:
    """What people see of an object, without its columns; what is not set is left out."""
    totals = content.get("totals", {})
    fields: dict[str, object] = {
        "name": found["name"],
        "kind": found["kind"],
        "format": " ".join(str(part) for part in (found.get("format"), content.get("format_version")) if part),
        "id": found.get("id"),
        "owner": found.get("owner"),
        "comment": found.get("comment"),
        "created": time_text(found.get("created_ms", 0)),
        "created by": found.get("created_by"),
        "updated": time_text(found.get("updated_ms", 0)),
        "updated by": found.get("updated_by"),
        "location": found.get("location"),
        "version": content.get("version"),
        "snapshot": content.get("current_snapshot_id"),
        "snapshots": content.get("snapshots"),
        **{name.replace("_", " "): value for name, value in totals.items()},
        "partitioned by": ", ".join(content.get("partitions", ())),
        "ordered by": ", ".join(content.get("order", ())),
        **{f"{ref['kind']} {ref['name']}": ref["snapshot_id"] for ref in content.get("refs", ())},
        **{f"sql {dialect}".strip(): sql for dialect, sql in content.get("sql", {}).items()},
        **{f"property {key}": value for key, value in sorted(found.get("properties", {}).items())},
        **{key.replace("_", " "): value for key, value in found.get("info", {}).items() if key not in _SHARED},
    }
    return {name: value for name, value in fields.items() if value is not None and value != ""}


_SHARED: Final = frozenset(
    {"name", "full_name", "catalog_name", "schema_name", "owner", "comment", "storage_location", "id"}
    | {"created_at", "created_by", "updated_at", "updated_by", "volume_id", "function_id"}
)
"""Fields of an info that a description has by another name."""


def show_history(name: str, flags: TargetFlags, *, limit: int) -> None:
    versions = run_on_target(lambda client: client.history(name_of(name), limit), flags)
    if flags.output in {"json", "jsonl"}:
        print_records(versions, (), flags.output)
        return
    print_records([_history_row(one) for one in versions], _HISTORY, flags.output, empty="No version is known.")


def _history_row(version: Json) -> Json:
    row = {**version, "source": version.get("source", "unknown")}
    for name in ("rows", "files", "bytes"):
        changes = [
            f"{sign}{count}"
            for sign, part in (("+", "added"), ("-", "removed"))
            if (count := _count(version, name, part))
        ]
        row[name] = " ".join(changes)
    row["refs"] = ", ".join(
        f"{ref} {before or 'none'} → {after or 'none'}" for ref, (before, after) in version.get("refs", {}).items()
    )
    return row


def _count(version: Json, name: str, part: str) -> int:
    count: int = version.get(f"{name}_{part}") or 0
    return count


def show_changes(name: str, before: int | None, after: int | None, flags: TargetFlags) -> None:
    found = run_on_target(lambda client: client.changes(name_of(name), before, after), flags)
    if flags.output == "json":
        print_json(found)
        return
    if flags.output == "table":
        say(f"From version {found['from']} to version {found['to']}:")
    print_records(found["changes"], _CHANGES, flags.output, empty="Nothing changed.")


def show_rows(tables: Sequence[str], sql: str | None, flags: TargetFlags, *, limit: int) -> None:
    """Print the first rows of a table, or the rows of a query; its tables are those that it names in full."""
    names = [name_of(one) for one in tables] or [Name(parse_path(one)) for one in tables_in(sql or "")]
    query = None if sql is None else _with_short_names(sql, names)
    found = run_on_target(lambda client: client.preview(names, query, limit), flags)
    columns = _unique([column["name"] for column in found["columns"]])
    records = [dict(zip(columns, row, strict=True)) for row in found["rows"]]
    print_records(records, columns, flags.output, empty="It has no rows.", heads=columns)
    if found["is_cut"]:
        say(f"There are more rows than these {len(found['rows'])}.")


_FULL_NAME: Final = re.compile(r"\b(?:from|join)\s+((?:[\w-]+|`[^`]+`)(?:\.(?:[\w-]+|`[^`]+`)){2,})", re.IGNORECASE)


def tables_in(sql: str) -> list[str]:
    """The full names of tables that follow FROM and JOIN; BadRequest without any."""
    found = list(dict.fromkeys(_FULL_NAME.findall(sql)))
    if not found:
        raise BadRequest("the query names no table in full, such as main.sales.orders; name it, or pass --table NAME")
    return found


def _with_short_names(sql: str, names: Sequence[Name]) -> str:
    """The query with tables as the reader knows them: the namespace, quoted, and the name."""

    def short(found: "re.Match[str]") -> str:
        name = Name(parse_path(found[1]))
        if name not in names:
            return found[0]
        parts = (".".join(name.levels), name.leaf)
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
        return found[0].replace(found[1], quoted)

    return _FULL_NAME.sub(short, sql)


def _unique(columns: Sequence[str]) -> list[str]:
    """The names, with a number after each one that occurred before."""
    counts: dict[str, int] = {}
    named = []
    for name in columns:
        counts[name] = counts.get(name, 0) + 1
        named.append(name if counts[name] == 1 else f"{name}_{counts[name]}")
    return named


def open_page(name: str | None, flags: TargetFlags, *, prints: bool) -> None:
    """Open the page of an object in the browser, or print its address."""
    profiles = user_profiles(os.environ)
    if is_store(flags, profiles):
        raise BadRequest("open shows a page of a server, not of a store; pass --server URL, or start one: sandur serve")
    server = find_target(profiles, profile=flags.profile, server=flags.server, environment=os.environ).server
    wanted = name_of(name) if name else None
    page = f"{server}/ui/"
    if wanted:
        found = run_on_target(lambda client: client.describe(wanted), flags)
        page = f"{server}/ui/{page_path(wanted, found['kind'])}"
    if prints or not webbrowser.open(page):
        print(page)  # noqa: T201 - the result


def page_path(name: Name, kind: str) -> str:
    """The path of the page of an object, below `/ui`."""
    if kind == "catalog":
        return f"data/{path_of(name.catalog)}"
    if kind == "namespace":
        return f"data/{path_of(name.catalog)}/{levels_path(name.parts[1:])}"
    return f"data/{path_of(name.catalog)}/{levels_path(name.levels)}/{kind}s/{path_of(name.leaf)}"


def show_jobs(flags: TargetFlags) -> None:
    found = run_on_target(lambda client: client.jobs(), flags)
    if flags.output == "json":
        print_json(found)
        return
    rows = [{"kind": kind, **row} for kind, listed in found.items() if isinstance(listed, list) for row in listed]
    print_records(
        rows, ("kind", "name", "state", "at_ms", "by", "detail"), flags.output, empty="Nothing runs or waits."
    )
    if found.get("is_cut") and flags.output == "table":
        say("There are more: the list ends here.")
