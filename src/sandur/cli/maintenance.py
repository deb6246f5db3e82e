"""`sandur health`, `sandur policy` and `sandur maintain`: what tables need, what may be done, and what was done."""

import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sandur.cli.access import Securable, parse_securable
from sandur.cli.flags import TargetFlags
from sandur.cli.output import print_json, print_records, say, time_text
from sandur.cli.targets import is_store, run_on_target
from sandur.client.catalog import CatalogClient, Json, path_of
from sandur.client.profiles import user_profiles
from sandur.client.sessions import API
from sandur.errors import BadRequest, NotFound

_NEEDS: Final = ("name", "operation", "reason", "score", "cost_bytes", "data_files", "mode", "skipped")
_FIELDS: Final = ("field", "value", "decided_by")
_SCOPES: Final = frozenset({"metastore", "catalog", "schema", "table"})


def show_health(flags: TargetFlags, *, worst: int) -> None:
    found = run_on_target(lambda client: client.get(f"{API}/table-health", worst=str(worst)), flags)
    if flags.output == "json":
        print_json(found)
        return
    empty = "Every table is in good health." if found["published_ms"] else "Nothing is published: sandur run all"
    print_records(found["rows"], _NEEDS, flags.output, empty=empty)
    if found["is_cut"] and flags.output == "table":
        say(f"More tables need something: --worst prints more than {worst} lines.")


_PLAN: Final = ("name", "operation", "reason", "score", "cost_bytes", "task_seconds", "skipped")
_DONE: Final = ("started", "name", "operation", "state", "files", "bytes", "took_s", "reason")


def show_plan(name: str | None, flags: TargetFlags, *, limit: int) -> None:
    """Print what a run would do now, with estimates, and why it would leave the rest alone. Nothing changes."""
    found = run_on_target(
        lambda client: client.get(f"{API}/maintenance/plan", limit=str(limit), **({"name": name} if name else {})),
        flags,
    )
    if flags.output == "json":
        print_json(found)
        return
    empty = "There is nothing to do." if found["published_ms"] else "Nothing is published: sandur run all"
    rows = [{**row, "name": _full_name(row)} for row in found["rows"]]
    print_records(rows, _PLAN, flags.output, empty=empty)
    _say_cut(found, flags, limit)


def show_operations(name: str | None, flags: TargetFlags, *, limit: int) -> None:
    """Print what the latest runs did, newest first."""
    query = {"limit": str(limit), **({"name": name} if name else {})}
    found = run_on_target(lambda client: client.get(f"{API}/maintenance/operations", **query), flags)
    if flags.output == "json":
        print_json(found)
        return
    rows = [
        {
            **row,
            "name": _full_name(row),
            "started": time_text(row.get("started_ms", 0)),
            "files": _change(row, "files"),
            "bytes": _change(row, "bytes"),
            "took_s": round(max(0, row.get("ended_ms", 0) - row.get("started_ms", 0)) / 1_000, 1),
            "reason": row.get("reason") or row.get("why", ""),
        }
        for row in found["rows"]
    ]
    print_records(rows, _DONE, flags.output, empty="No maintenance was done yet.")
    _say_cut(found, flags, limit)


def request_maintenance(name: str | None, flags: TargetFlags) -> None:
    """Let the next run maintain one table, before what the policies schedule."""
    if not name:
        raise BadRequest("--request needs the name of a table: sandur maintain main.sales.orders --request")
    path = f"{API}/maintenance/requests/{path_of(name)}"
    found = run_on_target(lambda client: client.change("POST", path), flags, access="change")
    if flags.output in {"json", "jsonl"}:
        print_json(found)
    elif found["state"] == "running":
        say(f"Maintenance of {name} runs already.")
    else:
        say(f"Maintenance of {name} is requested: the next run of the pipeline does it first.")


def maintain(name: str | None, flags: TargetFlags, *, master: str | None) -> bool:
    """Measure the tables, then carry out what their policies allow; on a store only. Returns whether all went well."""
    if not is_store(flags, user_profiles(os.environ)):
        raise BadRequest(
            "maintenance works on a store: pass --store; on a server, use --request, --dry-run or --history"
        )
    from sandur.cli.run_jobs import RunOptions, run_jobs  # noqa: PLC0415 - needs Spark

    arguments = {"name": name} if name else {}
    options = RunOptions(
        flags.store, flags.config, master, dry_run=False, arguments=arguments, as_json=flags.output == "json"
    )
    return run_jobs("project,health,maintain", options) == 0


def _full_name(row: Json) -> str:
    return f"{row['catalog']}.{row['namespace']}.{row['name']}"


def _change(row: Json, what: str) -> str:
    """A number before and after, such as `200 → 1`."""
    before, after = (row.get(side, {}).get(what) for side in ("before", "after"))
    if before is None and after is None:
        return ""
    return f"{'?' if before is None else before:,} → {'?' if after is None else after:,}"


def _say_cut(found: Json, flags: TargetFlags, limit: int) -> None:
    if found["is_cut"] and flags.output == "table":
        say(f"There is more: --limit prints more than {limit} lines.")


def show_policy(name: str, flags: TargetFlags) -> None:
    """Print every field with its value and the scope or property that decides it."""

    async def load(client: CatalogClient) -> Json:
        _, found = await _find(client, parse_securable(name))
        return found

    found = run_on_target(load, flags)
    if flags.output == "json":
        print_json(found)
        return
    rows = [
        {
            "field": one["field"],
            "value": one["value"] if isinstance(one["value"], str) else msgspec.json.encode(one["value"]).decode(),
            "decided_by": one["origin"] + (" (locked)" if one["locked_by"] else ""),
        }
        for one in found["effective"]
    ]
    print_records(rows, _FIELDS, flags.output)


def change_policy(
    name: str,
    flags: TargetFlags,
    *,
    fields: Sequence[str] = (),
    unset: Sequence[str] = (),
    lock: Sequence[str] = (),
    unlock: Sequence[str] = (),
) -> None:
    """Set fields, given as FIELD=VALUE, and unset, lock and unlock others."""
    body = {"set": _nested(fields), "unset": unset, "lock": lock, "unlock": unlock}

    async def change(client: CatalogClient) -> tuple[Securable, Json]:
        securable, _ = await _find(client, parse_securable(name))
        changed: Json = await client.change("PATCH", _path(securable), body)
        return securable, changed

    securable, changed = run_on_target(change, flags, access="change")
    if flags.output in {"json", "jsonl"}:
        print_json(changed)
    else:
        say(f"Changed the maintenance policy of {securable.text}.")


async def _find(client: CatalogClient, wanted: Securable) -> tuple[Securable, Json]:
    """The first of the types that the name may have and that has a policy, with that policy."""
    missing: NotFound | None = None
    for type_ in (one for one in wanted.types if one in _SCOPES):
        securable = Securable((type_,), wanted.name)
        try:
            return securable, await client.get(_path(securable))
        except NotFound as error:
            missing = missing or error
    raise missing or BadRequest(f"{wanted.text}: only the metastore, catalogs, namespaces and tables have policies")


def _nested(fields: Sequence[str]) -> dict[str, Any]:
    """The fields of `section.field=value` by section; a value that is not JSON is a text."""
    values: dict[str, Any] = {}
    for field in fields:
        name, equals, text = field.partition("=")
        if not equals:
            raise BadRequest(f"{field!r}: expected FIELD=VALUE, such as compaction.target_file_bytes=134217728")
        section, _, key = name.strip().rpartition(".")
        (values.setdefault(section, {}) if section else values)[key] = _value(text.strip())
    return values


def _value(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _path(securable: Securable) -> str:
    return f"{API}/policies/{path_of(securable.types[0], securable.name)}"
