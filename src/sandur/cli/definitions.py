"""`sandur export` and `sandur apply`: the definitions of a catalog as one JSON document, without data and grants."""

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import path_text
from sandur.cli.change import apply_properties
from sandur.cli.flags import TargetFlags
from sandur.cli.output import confirm, print_records, say
from sandur.cli.targets import name_of, run_on_target
from sandur.cli.views import view_updates, view_version
from sandur.client.catalog import CatalogClient, Json, Name
from sandur.errors import BadRequest, Conflict, NotFound

_FORM: Final = 1
KINDS: Final = ("catalog", "namespace", "table", "view", "volume", "function", "model")
_IDS: Final = frozenset(
    {
        "id",
        "element-id",
        "key-id",
        "value-id",
        "schema-id",
        "spec-id",
        "order-id",
        "field-id",
        "source-id",
        "source-ids",
    }
)
_OF_PROTOCOL: Final = ("delta.feature.", "delta.min", "delta.last", "io.unitycatalog.")
_FUNCTION_FIELDS: Final = (
    *("input_params", "data_type", "full_data_type", "return_params", "routine_body", "routine_definition"),
    *("routine_dependencies", "parameter_style", "is_deterministic", "sql_data_access", "is_null_call"),
    *("security_type", "specific_name", "external_language", "properties"),
)


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One object. `content` is what its kind has besides properties and a comment."""

    name: tuple[str, ...]
    kind: str
    format: str = ""
    comment: str = ""
    properties: dict[str, str] = {}
    content: dict[str, Any] = {}


class Definitions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of definitions, parents before what is in them. `sandur` is the version of its form."""

    sandur: int
    objects: tuple[Definition, ...]


class Step(NamedTuple):
    """One step of a plan. `run` is None for a difference that apply leaves alone."""

    action: str
    definition: Definition
    detail: str = ""
    run: Callable[[], Awaitable[object]] | None = None

    def row(self) -> Json:
        name = path_text(self.definition.name)
        return {"action": self.action, "kind": self.definition.kind, "name": name, "detail": self.detail}


def export_definitions(name: str | None, file: Path | None, flags: TargetFlags, *, kinds: Sequence[str]) -> None:
    within = name_of(name) if name else None
    if unknown := sorted({*kinds} - {*KINDS}):
        raise BadRequest(f"{unknown[0]!r} is no kind of objects; choose from {', '.join(KINDS)}")

    async def collect(client: CatalogClient) -> list[Definition]:
        above = [Name(within.parts[:count]) for count in range(1, len(within.parts) + 1)] if within else []
        found = [one for one in [await definition_of(client, one) for one in above] if one.kind in kinds]
        async for one, entry in client.walk(within):
            if entry["kind"] in kinds and not (entry["kind"] == "table" and entry.get("format") == ""):
                found.append(await definition_of(client, one))
        return sorted(found, key=lambda one: (KINDS.index(one.kind), one.name))

    objects = tuple(run_on_target(collect, flags))
    document = msgspec.json.format(msgspec.json.encode(Definitions(sandur=_FORM, objects=objects)), indent=2)
    if file is None:
        print(document.decode())  # noqa: T201 - the result
        return
    try:
        file.write_bytes(document + b"\n")
    except OSError as error:
        raise BadRequest(f"file {file}: cannot be written: {error}") from error
    say(f"Wrote {len(objects)} definitions to {file}")


async def definition_of(client: CatalogClient, name: Name) -> Definition:
    """The definition of an object as it is now."""
    found = await client.describe(name)
    kind, content = found["kind"], await _content_of(client, name, found)
    properties = {key: value for key, value in found.get("properties", {}).items() if not key.startswith(_OF_PROTOCOL)}
    # A comment among the properties is the same comment.
    comment = "" if "comment" in properties else found.get("comment", "")
    return Definition(
        name=name.parts,
        kind=kind,
        format=found.get("format", "") if kind in {"table", "view"} else "",
        comment=comment,
        properties=properties,
        content=content,
    )


async def _content_of(client: CatalogClient, name: Name, found: Json) -> Json:
    info = found.get("info", {})
    match found["kind"], found.get("format", ""):
        case "table", "iceberg":
            return _iceberg_content(await client.load_table(name))
        case "table", _:
            return _delta_content(await client.load_unity_table(name), found)
        case "view", "iceberg":
            return _view_content(await client.load_view(name))
        case "volume", _:
            is_external = info.get("volume_type") == "EXTERNAL"
            location = {"storage_location": found["location"]} if is_external else {}
            return {"volume_type": info["volume_type"], **location}
        case "function", _:
            return {field: info[field] for field in _FUNCTION_FIELDS if info.get(field) is not None}
        case _:
            return {}


def _iceberg_content(metadata: Json) -> Json:
    schema = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    spec = next(one for one in metadata["partition-specs"] if one["spec-id"] == metadata["default-spec-id"])
    orders = metadata["sort-orders"]
    order = next(one for one in orders if one["order-id"] == metadata["default-sort-order-id"])
    content = {"format-version": metadata["format-version"], "schema": schema}
    if spec["fields"]:
        content["partition-spec"] = spec
    if order["fields"]:
        content["write-order"] = order
    return content


def _delta_content(info: Json, found: Json) -> Json:
    columns = [
        f"`{column['name'].replace('`', '``')}` {column['type_text']}"
        + ("" if column.get("nullable", True) else " NOT NULL")
        + (f" COMMENT {_literal(column['comment'])}" if column.get("comment") else "")
        for column in info.get("columns", ())
    ]
    content: Json = {"columns": ", ".join(columns), "partition-by": found["table"].get("partitions", [])}
    if info.get("table_type") == "EXTERNAL":
        content["location"] = info["storage_location"]
    return content


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _view_content(metadata: Json) -> Json:
    version = next(one for one in metadata["versions"] if one["version-id"] == metadata["current-version-id"])
    schema = next(one for one in metadata["schemas"] if one["schema-id"] == version["schema-id"])
    kept = ("representations", "default-namespace", "default-catalog")
    return {"schema": schema, **{field: version[field] for field in kept if field in version}}


def apply_definitions(file: Path, flags: TargetFlags, *, is_dry: bool, is_confirmed: bool) -> None:
    """Print the plan, then carry it out. Raises Conflict at the end if something differs that apply leaves alone."""
    definitions = read_definitions(file)

    async def run(client: CatalogClient) -> list[Step]:
        steps = [step for one in definitions.objects for step in await plan(client, one)]
        to_do = [step for step in steps if step.run]
        if is_dry or not to_do:
            return steps
        if not is_confirmed:
            for step in to_do:
                say("  ".join(str(value) for value in step.row().values() if value))
        confirm(f"Make {len(to_do)} changes?", is_confirmed=is_confirmed)
        for step in to_do:
            if step.run:
                await step.run()
        return steps

    steps = run_on_target(run, flags, access="read" if is_dry else "change")
    print_records(
        [step.row() for step in steps], ("action", "kind", "name", "detail"), flags.output, empty="Up to date."
    )
    if differing := [step for step in steps if step.run is None]:
        raise Conflict(
            f"{len(differing)} objects differ in a way that apply leaves alone, such as "
            f"{path_text(differing[0].definition.name)}: {differing[0].detail}"
        )


def read_definitions(file: Path) -> Definitions:
    """The definitions in a file, or on standard input for `-`; raises BadRequest."""
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        found = msgspec.json.decode(data, type=Definitions)
    except OSError as error:
        raise BadRequest(f"file {file}: cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"file {file}: not a file of definitions: {error}") from error
    if found.sandur != _FORM:
        raise BadRequest(f"file {file}: its form is {found.sandur}, and this program reads form {_FORM}")
    for one in found.objects:
        parts_min = {"catalog": 1, "namespace": 2}.get(one.kind, 3)
        if one.kind not in KINDS or len(one.name) < parts_min or (one.kind == "catalog" and len(one.name) > 1):
            raise BadRequest(f"file {file}: {path_text(one.name) or 'an object'} is not a {one.kind}")
    return found


async def plan(client: CatalogClient, wanted: Definition) -> list[Step]:
    """What has to be done for one object; nothing if it is as defined. What it has besides is left alone."""
    name = Name(wanted.name)
    try:
        current = await definition_of(client, name)
    except NotFound:
        return [Step("create", wanted, run=lambda: create(client, name, wanted))]
    if (current.kind, current.format) != (wanted.kind, wanted.format):
        return [Step("differs", wanted, f"it is a {current.format} {current.kind}".replace("  ", " "))]
    return [*_property_steps(client, name, wanted, current), *_content_steps(client, name, wanted, current)]


def _property_steps(client: CatalogClient, name: Name, wanted: Definition, current: Definition) -> Iterator[Step]:
    updates = {key: value for key, value in wanted.properties.items() if current.properties.get(key) != value}
    if wanted.comment and wanted.comment not in {current.comment, current.properties.get("comment")}:
        updates["comment"] = wanted.comment
    if not updates:
        return
    if wanted.kind == "function":
        yield Step("differs", wanted, "its comment")
        return

    async def change() -> None:
        await apply_properties(client, name, await client.describe(name), updates, ())

    yield Step("set", wanted, ", ".join(sorted(updates)), run=change)


def _content_steps(client: CatalogClient, name: Name, wanted: Definition, current: Definition) -> Iterator[Step]:
    if without_ids(wanted.content) == without_ids(current.content):
        return
    if wanted.kind == "view":
        yield Step("replace", wanted, "its query or its columns", run=lambda: _replace_view(client, name, wanted))
        return
    if wanted.kind == "table" and wanted.format == "iceberg":
        added = added_columns(wanted.content["schema"]["fields"], current.content["schema"]["fields"])
        rest = {**wanted.content, "schema": current.content["schema"]}
        if added and without_ids(rest) == without_ids(current.content):
            names = ", ".join(field["name"] for field in added)
            yield Step("add columns", wanted, names, run=lambda: _add_columns(client, name, added))
            return
    parts = [key for key in wanted.content if without_ids(wanted.content[key]) != without_ids(current.content.get(key))]
    yield Step("differs", wanted, ", ".join(parts) or "its content")


def without_ids(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value without the ids that each catalog assigns; sources of partitions keep theirs only by their order."""
    if isinstance(value, dict):
        return {key: without_ids(inner) for key, inner in value.items() if key not in _IDS}
    return [without_ids(inner) for inner in value] if isinstance(value, list | tuple) else value


def added_columns(wanted: list[Json], current: list[Json]) -> list[Json]:
    """The optional columns at the end of a schema that another one lacks; none if anything else differs."""
    kept, added = wanted[: len(current)], wanted[len(current) :]
    if without_ids(kept) != without_ids(current) or any(field.get("required") for field in added):
        return []
    return added


async def _add_columns(client: CatalogClient, name: Name, added: list[Json]) -> None:
    metadata = await client.load_table(name)
    schema = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    last_id = metadata["last-column-id"]
    fields, new_last = with_fresh_ids(added, last_id)
    new = {**schema, "schema-id": -1, "fields": [*schema["fields"], *fields]}
    updates = [
        {
            "action": "add-schema",
            "schema": {**new, "schema-id": metadata["current-schema-id"] + 1},
            "last-column-id": new_last,
        },
        {"action": "set-current-schema", "schema-id": -1},
    ]
    requirements = [
        {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
        {"type": "assert-current-schema-id", "current-schema-id": metadata["current-schema-id"]},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": last_id},
    ]
    await client.commit(name, updates, requirements)


def with_fresh_ids(fields: list[Json], last_id: int) -> tuple[list[Json], int]:
    """The fields with new ids after `last_id`, and the highest of them."""
    ids = iter(range(last_id + 1, last_id + 1_000_000))
    highest = last_id

    def fresh(value: Any) -> Any:  # noqa: ANN401 - any JSON
        nonlocal highest
        if isinstance(value, list):
            return [fresh(inner) for inner in value]
        if not isinstance(value, dict):
            return value
        made = {}
        for key, inner in value.items():
            if key in {"id", "element-id", "key-id", "value-id"}:
                made[key] = highest = next(ids)
            else:
                made[key] = fresh(inner)
        return made

    return fresh(fields), highest


async def _replace_view(client: CatalogClient, name: Name, wanted: Definition) -> None:
    metadata = await client.load_view(name)
    schema = {**wanted.content["schema"], "schema-id": len(metadata["schemas"])}
    version, current = view_updates(metadata, None, None, name, has_schema=True)
    version["view-version"] |= {key: value for key, value in wanted.content.items() if key != "schema"}
    updates = [{"action": "add-schema", "schema": schema}, version, current]
    await client.replace_view(name, metadata["view-uuid"], updates)


async def create(client: CatalogClient, name: Name, wanted: Definition) -> None:
    """Create an object as defined."""
    properties = wanted.properties
    with_comment = {**properties, **({"comment": wanted.comment} if wanted.comment else {})}
    match wanted.kind, wanted.format:
        case "catalog", _:
            await client.create_catalog(name, root=None, comment=wanted.comment or None, properties=properties)
        case "namespace", _:
            await client.create_namespace(name, with_comment)
        case "table", "iceberg":
            content = dict(wanted.content)
            version = str(content.pop("format-version", 2))
            given = {**with_comment, "format-version": version}
            await client.create_iceberg_table(name, {**content, "properties": given})
        case "table", "delta":
            fields = {**wanted.content, "format": "delta", "properties": properties, "comment": wanted.comment or None}
            await client.define_table(name, fields)
        case "view", "iceberg":
            await client.create_view(name, _new_view(wanted, name, with_comment))
        case ("volume" | "function" | "model") as kind, _:
            comment = {"comment": wanted.comment} if wanted.comment else {}
            await client.create_unity(kind, name, {**wanted.content, **comment})
        case _:
            raise BadRequest(
                f"{path_text(name.parts)}: a {wanted.format} {wanted.kind} cannot be created from a definition"
            )


def _new_view(wanted: Definition, name: Name, properties: Mapping[str, str]) -> Json:
    content = dict(wanted.content)
    schema = content.pop("schema")
    version = {**view_version("", None, name), **content, "schema-id": -1}
    return {"schema": {**schema, "schema-id": 0}, "view-version": version, "properties": dict(properties)}
