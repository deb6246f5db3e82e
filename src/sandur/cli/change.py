"""`sandur create`, `drop`, `rename`, `set`, `unset`, `tag`, `branch`, `rollback`, `register` and `view`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import path_text
from sandur.cli.flags import TargetFlags
from sandur.cli.output import confirm, print_json, print_records, say
from sandur.cli.targets import name_of, run_on_target
from sandur.client.catalog import CatalogClient, Json, Name
from sandur.errors import BadRequest, NotFound
from sandur.settings import seconds_of

COMMENT: Final = "comment"
_MAIN: Final = "main"
_VERSIONS_MAX: Final = 1_000
_METADATA_FILES: Final = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


def pairs_of(texts: Sequence[str]) -> dict[str, str]:
    """The properties of texts such as KEY=VALUE; raises BadRequest."""
    found: dict[str, str] = {}
    for text in texts:
        key, is_set, value = text.partition("=")
        if not key or not is_set:
            raise BadRequest(f"property {text!r}: expected KEY=VALUE")
        found[key] = value
    return found


def text_of(argument: str) -> str:
    """The argument itself or, for @FILE, the text of a file; raises BadRequest."""
    if not argument.startswith("@"):
        return argument
    try:
        return Path(argument[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"file {argument[1:]}: cannot be read: {error}") from error


def report(flags: TargetFlags, result: Mapping[str, object], text: str) -> None:
    """The result of a change: JSON for machines, or a line for people, which is not a result."""
    if flags.output in {"json", "jsonl"}:
        print_json(result)
    else:
        say(text)


def create_catalog(
    name: str, flags: TargetFlags, *, root: str | None, comment: str | None, properties: Sequence[str]
) -> None:
    wanted = named(name, 1, "a catalog has one part")
    made = run_on_target(
        lambda client: client.create_catalog(wanted, root=root, comment=comment, properties=pairs_of(properties)),
        flags,
        access="change",
    )
    row = {"name": made["name"], "root": made["storage_location"], "id": made["id"]}
    report(flags, row, f"Created catalog {made['name']}; its tables are stored below {made['storage_location']}")


def named(text: str, parts_min: int, form: str) -> Name:
    name = name_of(text)
    if len(name.parts) < parts_min or (parts_min == 1 and len(name.parts) > 1):
        raise BadRequest(f"name {text!r}: {form}")
    return name


def create_namespace(name: str, flags: TargetFlags, *, comment: str | None, properties: Sequence[str]) -> None:
    wanted = named(name, 2, "expected CATALOG.NAMESPACE")
    given = {**pairs_of(properties), **({COMMENT: comment} if comment else {})}
    run_on_target(lambda client: client.create_namespace(wanted, given), flags, access="change")
    shown = path_text(wanted.parts)
    report(flags, {"name": shown, "kind": "namespace"}, f"Created namespace {shown}.")


class TableOptions(NamedTuple):
    """The flags of `sandur create table`."""

    columns: str
    format: str = "iceberg"
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    properties: Sequence[str] = ()
    comment: str | None = None
    location: str | None = None


def definition_of(options: TableOptions) -> dict[str, object]:
    """The body of a request that creates the table."""
    return {
        "columns": options.columns,
        "format": options.format,
        "partition-by": list(options.partition_by),
        "cluster-by": list(options.cluster_by),
        "properties": pairs_of(options.properties),
        "comment": options.comment,
        "location": options.location,
    }


def create_table(name: str, options: TableOptions, flags: TargetFlags) -> None:
    wanted = named(name, 3, "expected CATALOG.NAMESPACE.TABLE")
    if options.format not in {"iceberg", "delta"}:
        raise BadRequest(f"--format {options.format!r}: expected iceberg or delta")
    definition = definition_of(options)
    made = run_on_target(lambda client: client.define_table(wanted, definition), flags, access="change")
    report(flags, made, f"Created {options.format} table {path_text(wanted.parts)} at {made['location']}")


def create_unity(kind: str, name: str, flags: TargetFlags, fields: Mapping[str, object]) -> None:
    """Create a volume, a function or a model."""
    wanted = named(name, 3, f"expected CATALOG.NAMESPACE.{kind.upper()}")
    given = {key: value for key, value in fields.items() if value is not None}
    made = run_on_target(lambda client: client.create_unity(kind, wanted, given), flags, access="change")
    report(flags, made, f"Created {kind} {path_text(wanted.parts)}.")


def function_fields(definition: str, returns: str, parameters: Sequence[str], comment: str | None) -> dict[str, object]:
    """The fields of a function in SQL, from its body, its type and parameters such as `x INT`."""
    listed = []
    for position, text in enumerate(parameters):
        name, _, kind = text.strip().partition(" ")
        if not kind.strip():
            raise BadRequest(f"parameter {text!r}: expected NAME TYPE, such as: x INT")
        type_text = kind.strip()
        listed.append(
            {
                "name": name,
                "type_text": type_text,
                "type_name": type_text.partition("(")[0].strip().upper(),
                "type_json": msgspec.json.encode(type_text.lower()).decode(),
                "position": position,
            }
        )
    return {
        "input_params": {"parameters": listed},
        "data_type": returns.partition("(")[0].strip().upper(),
        "full_data_type": returns,
        "routine_body": "SQL",
        "routine_definition": definition,
        "parameter_style": "S",
        "is_deterministic": True,
        "sql_data_access": "CONTAINS_SQL",
        "is_null_call": False,
        "security_type": "DEFINER",
        "specific_name": "",
        "properties": "{}",
        COMMENT: comment,
    }


def drop(name: str, flags: TargetFlags, *, purge: bool, cascade: bool, is_confirmed: bool) -> None:
    wanted = name_of(name)
    shown = path_text(wanted.parts)

    async def run(client: CatalogClient) -> Json:
        found = await client.describe(wanted)
        kind = found["kind"]
        is_container = kind in {"catalog", "namespace"}
        if cascade and not is_container:
            raise BadRequest(f"--cascade is for catalogs and namespaces, and {shown} is a {kind}")
        if purge and (kind != "table" or found.get("format") != "iceberg"):
            raise BadRequest(f"--purge is for Iceberg tables, and {shown} is a {found.get('format', '')} {kind}")
        confirm(_question(shown, found, purge=purge, cascade=cascade), is_confirmed=is_confirmed)
        if is_container:
            await client.drop_container(wanted, cascade=cascade)
        else:
            await client.drop(wanted, found, purge=purge)
        return found

    found = run_on_target(run, flags, access="change")
    report(flags, {"name": shown, "kind": found["kind"], "dropped": True}, f"Dropped {found['kind']} {shown}.")


def _question(shown: str, found: Json, *, purge: bool, cascade: bool) -> str:
    if cascade:
        return f"Drop {found['kind']} {shown} and everything in it?"
    is_managed_delta = found["kind"] == "table" and found.get("format") == "delta"
    files = " Its files are deleted after the retention." if purge or is_managed_delta else ""
    return f"Drop {found['kind']} {shown}?{files}"


def undrop(name: str, flags: TargetFlags, *, kind: str, uuid: str | None, new_name: str | None) -> None:
    wanted, given = named(name, 3, "expected CATALOG.NAMESPACE.NAME"), name_of(new_name) if new_name else None
    # One part is a new name in the same namespace.
    new = Name((*wanted.parent.parts, given.leaf)) if given and len(given.parts) == 1 else given
    made = run_on_target(lambda client: client.undrop(kind, wanted, uuid=uuid, new=new), flags, access="change")
    report(flags, made, f"Brought back {made['kind']} {made['full_name']}.")


def list_dropped(within: str, flags: TargetFlags) -> None:
    wanted = name_of(within)

    async def collect(client: CatalogClient) -> list[Json]:
        return [entry async for entry in client.dropped(wanted)]

    rows = run_on_target(collect, flags)
    columns = tuple(rows[0]) if rows else ("full_name", "kind", "uuid")
    print_records(rows, columns, flags.output, empty="Nothing that was dropped can be brought back.")


def rename(name: str, new_name: str, flags: TargetFlags) -> None:
    wanted = name_of(name)
    given = name_of(new_name)
    # One part is a new name in the same namespace.
    new = Name((*wanted.parent.parts, given.leaf)) if len(given.parts) == 1 else given

    async def run(client: CatalogClient) -> Json:
        found = await client.describe(wanted)
        await client.rename(wanted, found, new)
        return found

    found = run_on_target(run, flags, access="change")
    shown = path_text(new.parts)
    report(
        flags, {"name": shown, "kind": found["kind"]}, f"Renamed {found['kind']} {path_text(wanted.parts)} to {shown}."
    )


def change_properties(name: str, flags: TargetFlags, *, updates: Mapping[str, str], removals: Sequence[str]) -> None:
    wanted = name_of(name)

    async def run(client: CatalogClient) -> Json:
        found = await client.describe(wanted)
        if missing := [key for key in removals if key not in found.get("properties", {}) and key != COMMENT]:
            raise NotFound(f"{path_text(wanted.parts)} has no property {missing[0]}", subject="object")
        await apply_properties(client, wanted, found, updates, removals)
        return found

    found = run_on_target(run, flags, access="change")
    shown, changed = path_text(wanted.parts), ", ".join([*updates, *removals])
    result = {"name": shown, "kind": found["kind"], "updated": list(updates), "removed": list(removals)}
    report(flags, result, f"Changed {found['kind']} {shown}: {changed}.")


async def apply_properties(
    client: CatalogClient, name: Name, found: Json, updates: Mapping[str, str], removals: Sequence[str]
) -> None:
    """Set and remove properties of an object that was found, whatever its kind; BadRequest if it has none."""
    match found["kind"], found.get("format", ""):
        case "namespace", _:
            await client.update_namespace(name, updates, removals)
        case "catalog", _:
            await client.update_catalog(name, **_catalog_fields(found, updates, removals))
        case "table", "iceberg":
            requirement = {"type": "assert-table-uuid", "uuid": found["table"]["table_id"]}
            await client.commit(name, _property_actions(updates, removals), [requirement])
        case "table", _:
            await client.update_delta(name, found["id"], _delta_actions(updates, removals))
        case "view", "iceberg":
            await client.replace_view(name, found["view"]["view_id"], _property_actions(updates, removals))
        case ("volume" | "model") as kind, _ if set(updates) == {COMMENT} and not removals:
            await client.set_comment(kind, name, updates[COMMENT])
        case kind, _:
            raise BadRequest(f"{path_text(name.parts)}: a {kind} has no properties besides its comment")


def _property_actions(updates: Mapping[str, str], removals: Sequence[str]) -> list[dict[str, object]]:
    actions: list[dict[str, object]] = []
    if updates:
        actions.append({"action": "set-properties", "updates": dict(updates)})
    if removals:
        actions.append({"action": "remove-properties", "removals": list(removals)})
    return actions


def _catalog_fields(found: Json, updates: Mapping[str, str], removals: Sequence[str]) -> dict[str, object]:
    """The change of a catalog, which replaces all its properties at once."""
    kept = {key: value for key, value in found.get("properties", {}).items() if key not in removals}
    properties = {**kept, **{key: value for key, value in updates.items() if key != COMMENT}}
    fields: dict[str, object] = {"properties": properties} if properties else {}
    if removals and not properties:
        raise BadRequest(
            "the last property of a catalog cannot be removed: an empty list of properties changes nothing"
        )
    return {**fields, COMMENT: updates[COMMENT]} if COMMENT in updates else fields


def _delta_actions(updates: Mapping[str, str], removals: Sequence[str]) -> list[dict[str, object]]:
    actions = _property_actions({key: value for key, value in updates.items() if key != COMMENT}, removals)
    if COMMENT in updates:
        actions.append({"action": "set-table-comment", "comment": updates[COMMENT]})
    return actions


class RefOptions(NamedTuple):
    """The flags of `sandur tag` and `sandur branch`. `at` is a version, or the name of another reference."""

    kind: str
    ref: str
    at: str | None = None
    snapshot: int | None = None
    deletes: bool = False
    replaces: bool = False
    keep: str | None = None


def change_ref(name: str, options: RefOptions, flags: TargetFlags) -> None:
    wanted = name_of(name)

    async def run(client: CatalogClient) -> int | None:
        found = await client.describe(wanted)
        if found["kind"] == "table" and found.get("format") == "delta":
            hint = f"Delta has no {options.kind}; engines read an earlier version by its number, VERSION AS OF"
            raise BadRequest(f"{path_text(wanted.parts)} is a Delta table: {hint}")
        refs = _iceberg_refs(wanted, found)
        current = refs.get(options.ref)
        requirements = _ref_requirements(found, options.ref, current)
        if options.deletes:
            if current is None:
                raise NotFound(f"{path_text(wanted.parts)} has no {options.kind} {options.ref}", subject="object")
            await client.commit(wanted, [{"action": "remove-snapshot-ref", "ref-name": options.ref}], requirements)
            return None
        if current is not None and not options.replaces:
            raise BadRequest(f"{options.kind} {options.ref} exists; pass --replace to move it")
        snapshot_id = await _snapshot_at(client, wanted, found, refs, options.at, options.snapshot)
        update = {
            "action": "set-snapshot-ref",
            "ref-name": options.ref,
            "type": options.kind,
            "snapshot-id": snapshot_id,
        }
        if options.keep:
            update["max-ref-age-ms"] = seconds_of(options.keep) * 1_000
        await client.commit(wanted, [update], requirements)
        return snapshot_id

    snapshot_id = run_on_target(run, flags, access="change")
    result = {"name": path_text(wanted.parts), options.kind: options.ref, "snapshot_id": snapshot_id}
    done = f"{options.kind.capitalize()} {options.ref} of {path_text(wanted.parts)}"
    report(flags, result, f"{done} is removed." if snapshot_id is None else f"{done} is at snapshot {snapshot_id}.")


def roll_back(name: str, flags: TargetFlags, *, to: str | None, snapshot: int | None, is_confirmed: bool) -> None:
    """Give a table the data of an earlier version again."""
    if to is None and snapshot is None:
        raise BadRequest("rollback needs --to VERSION or --snapshot ID; see: sandur history NAME")
    wanted = name_of(name)
    shown = path_text(wanted.parts)

    async def run(client: CatalogClient) -> tuple[Json, str]:
        found = await client.describe(wanted)
        if found["kind"] == "table" and found.get("format") == "delta":
            return await _restore_delta(client, wanted, to, snapshot, is_confirmed=is_confirmed)
        return await _move_main(client, wanted, found, to, snapshot, is_confirmed=is_confirmed)

    result, done = run_on_target(run, flags, access="change")
    report(flags, {"name": shown, **result}, f"Rolled {shown} back {done}.")


async def _move_main(
    client: CatalogClient, name: Name, found: Json, to: str | None, snapshot: int | None, *, is_confirmed: bool
) -> tuple[Json, str]:
    """Iceberg: move the branch `main` back to the snapshot of an earlier version."""
    refs = _iceberg_refs(name, found)
    snapshot_id = await _snapshot_at(client, name, found, refs, to, snapshot)
    current = refs.get(_MAIN)
    done = f"from snapshot {current} to {snapshot_id}"
    confirm(f"Roll {path_text(name.parts)} back {done}?", is_confirmed=is_confirmed)
    update = {"action": "set-snapshot-ref", "ref-name": _MAIN, "type": "branch", "snapshot-id": snapshot_id}
    await client.commit(name, [update], _ref_requirements(found, _MAIN, current))
    return {"before": current, "snapshot_id": snapshot_id}, done


async def _restore_delta(
    client: CatalogClient, name: Name, to: str | None, snapshot: int | None, *, is_confirmed: bool
) -> tuple[Json, str]:
    """Delta: a new version with the files, columns and properties of an earlier one."""
    if snapshot is not None or to is None or not (to.isascii() and to.isdecimal()):
        raise BadRequest(f"{path_text(name.parts)} is a Delta table: pass the number of a version, --to VERSION")
    planned = await client.preview_restore(name, int(to))
    say(
        f"{planned['files_added']} files ({planned['bytes_added']} bytes) come back, "
        f"{planned['files_removed']} files ({planned['bytes_removed']} bytes) go."
    )
    for change in planned["changes"]:
        say(f"{change['area']} {change['name']}: {change.get('before', '')} -> {change.get('after', '')}")
    done = f"from version {planned['base_version']} to the state of version {to}"
    confirm(f"Roll {path_text(name.parts)} back {done}?", is_confirmed=is_confirmed)
    made = await client.restore(name, int(to), planned["base_version"])
    result = {"before": made["base_version"], "version": made["version"], "new_version": made["new_version"]}
    return result, f"{done}; it is version {made['new_version']} now"


def _iceberg_refs(name: Name, found: Json) -> dict[str, int]:
    """The branches and tags of an Iceberg table; BadRequest for anything else."""
    if found["kind"] != "table" or found.get("format") != "iceberg":
        shown = f"{found.get('format', '')} {found['kind']}".strip()
        raise BadRequest(f"{path_text(name.parts)} is a {shown}: only Iceberg tables have branches, tags and snapshots")
    return {ref["name"]: ref["snapshot_id"] for ref in found["table"].get("refs", ())}


def _ref_requirements(found: Json, ref: str, current: int | None) -> list[dict[str, object]]:
    return [
        {"type": "assert-table-uuid", "uuid": found["table"]["table_id"]},
        {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": current},
    ]


async def _snapshot_at(
    client: CatalogClient, name: Name, found: Json, refs: Mapping[str, int], at: str | None, snapshot: int | None
) -> int:
    """The snapshot of a version or a reference; by default the current one."""
    if at is not None and snapshot is not None:
        raise BadRequest("a version and --snapshot exclude each other: choose one")
    if snapshot is not None:
        return snapshot
    if at is None:
        current = found["table"].get("current_snapshot_id")
        if current is None:
            raise BadRequest(f"{path_text(name.parts)} has no snapshot yet")
        return int(current)
    if at in refs:
        return refs[at]
    if not at.isdigit():
        raise NotFound(f"{path_text(name.parts)} has no version, branch or tag {at}", subject="object")
    for version in await client.history(name, _VERSIONS_MAX):
        if version["version"] == int(at):
            if version.get("snapshot_id") is None:
                raise BadRequest(f"version {at} of {path_text(name.parts)} has no snapshot, or it is not known which")
            return int(version["snapshot_id"])
    raise NotFound(f"{path_text(name.parts)} has no version {at} in its log; see: sandur history", subject="object")


def register(name: str, location: str, flags: TargetFlags, *, table_format: str | None, overwrite: bool) -> None:
    """Register an Iceberg table by its metadata file, or a Delta table by its folder."""
    wanted = named(name, 3, "expected CATALOG.NAMESPACE.TABLE")
    is_metadata = location.endswith(_METADATA_FILES)
    format_ = table_format or ("iceberg" if is_metadata else "delta")
    if format_ not in {"iceberg", "delta"}:
        raise BadRequest(f"--format {format_!r}: expected iceberg or delta")
    if format_ == "delta" and overwrite:
        raise BadRequest("--overwrite is for Iceberg tables; drop the table first: the files of an external one stay")
    shown = path_text(wanted.parts)
    if format_ == "delta":
        definition = {"format": "delta", "location": location}
        made = run_on_target(lambda client: client.define_table(wanted, definition), flags, access="change")
        report(flags, made, f"Registered Delta table {shown} at {made['location']}")
        return
    run_on_target(lambda client: client.register(wanted, location, overwrite=overwrite), flags, access="change")
    report(flags, {"name": shown, "metadata_location": location}, f"Registered table {shown} at {location}")
