"""Actions on views: create one, and change its SQL."""

from functools import partial
from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier, checked_new_name, full_name_of
from sandur.catalog.records import Request
from sandur.delta.create_plan import parse_column_list
from sandur.errors import BadRequest
from sandur.iceberg import updates as u
from sandur.iceberg.requests import AssertViewUuid
from sandur.iceberg.schema import Schema
from sandur.iceberg.view_commit import CreateView, ViewCommit
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.browse import describe_namespace
from sandur.operations.tables.definitions import iceberg_fields
from sandur.operations.tables.documents import VIEWS, load_document
from sandur.operations.tables.views import commit_view, create_view, load_view
from sandur.server.context import Call
from sandur.server.ui.actions.containers import namespace_place
from sandur.server.ui.actions.objects import object_place
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent, Unchanged
from sandur.server.ui.actions.texts import check_base
from sandur.server.ui.links import object_link
from sandur.server.ui.pages.data import namespace_of
from sandur.server.ui.pages.objects import identifier_of

_DIALECTS: Final = ("spark", "trino", "duckdb", "clickhouse", "flink", "snowflake")
_COLUMNS_HINT: Final = "As in CREATE TABLE: id BIGINT, name STRING COMMENT 'of the customer'"
_SUMMARY: Final = {"engine-name": "sandur-ui"}


async def _create_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    await describe_namespace(call.lake, namespace_of(call))
    return (
        Field(name="name", label="Name", value=sent.get("name", ""), required=True),
        Field(
            name="dialect",
            label="Dialect of the SQL",
            kind="choice",
            value=sent.get("dialect", "spark"),
            options=tuple((one, one) for one in _DIALECTS),
            required=True,
        ),
        Field(name="sql", label="SQL", kind="area", value=sent.get("sql", ""), required=True),
        Field(
            name="columns", label="Columns", kind="area", value=sent.get("columns", ""), hint=_COLUMNS_HINT,
            required=True,
        ),
        Field(name="comment", label="Comment", value=sent.get("comment", "")),
    )  # fmt: skip


def _wanted(call: Call, sent: Sent) -> CreateView:
    sql, dialect = sent.get("sql", "").strip(), sent.get("dialect", "")
    if not sql or dialect not in _DIALECTS:
        raise BadRequest("The SQL or its dialect is missing.")
    representation = u.ViewRepresentation(type="sql", sql=sql, dialect=dialect)
    version = u.ViewVersion(
        version_id=1,
        timestamp_ms=call.lake.clock.now_ms(),
        schema_id=0,
        summary=_SUMMARY,
        representations=(representation,),
        default_namespace=namespace_of(call).levels,
    )
    comment = sent.get("comment", "").strip()
    return CreateView(
        name=checked_new_name("view", sent.get("name", "").strip()),
        schema=Schema(fields=iceberg_fields(parse_column_list(sent.get("columns", "")))),
        view_version=version,
        properties={"comment": comment} if comment else {},
    )


async def _preview_create(call: Call, sent: Sent) -> Preview:
    await describe_namespace(call.lake, namespace_of(call))
    wanted = _wanted(call, sent)
    names = ", ".join(field.name for field in wanted.schema.fields)
    full_name = full_name_of(Identifier(*namespace_of(call), wanted.name))
    changes = (Change("SQL", "", sent.get("sql", "").strip()), Change("columns", "", names))
    return Preview(sentence=f"The view {full_name} is created. You own it.", changes=changes)


async def _create(call: Call, sent: Sent, request: Request) -> str:
    wanted = _wanted(call, sent)
    await create_view(call.lake, namespace_of(call), wanted, request)
    return object_link(Identifier(*namespace_of(call), wanted.name), "view")


CREATE_VIEW: Final = Action(
    title=lambda call: f"Create a view in {full_name_of(namespace_of(call))}",
    verb="Create the view",
    done="created",
    place=namespace_place,
    fields=_create_fields,
    preview=_preview_create,
    apply=_create,
)


async def _metadata(call: Call) -> ViewMetadata:
    loaded = await load_view(call.lake, identifier_of(call))
    return (await load_document(call.lake, VIEWS, loaded.metadata_location)).metadata


def _field_name(place: int) -> str:
    return f"sql-{place}"


async def _edit_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    metadata = await _metadata(call)
    version = metadata.current_version
    areas = tuple(
        Field(
            name=_field_name(place),
            label=f"SQL for {one.dialect}",
            kind="area",
            value=sent.get(_field_name(place), one.sql or ""),
            required=True,
        )
        for place, one in enumerate(version.representations)
        if one.sql is not None
    )
    columns = Field(
        name="columns",
        label="New columns",
        kind="area",
        value=sent.get("columns", ""),
        hint=f"Empty: the columns stay. {_COLUMNS_HINT}",
    )
    return (*areas, columns, Field(name="base", label="", kind="hidden", value=str(version.version_id)))


def _next_version(call: Call, metadata: ViewMetadata, sent: Sent) -> tuple[tuple[Change, ...], ViewCommit]:
    now = metadata.current_version
    changes, representations = [], []
    for place, one in enumerate(now.representations):
        sql = sent.get(_field_name(place), one.sql or "").strip().replace("\r\n", "\n")
        if one.sql is not None and sql != one.sql:
            if not sql:
                raise BadRequest(f"The SQL for {one.dialect} is empty.")
            changes.append(Change(f"SQL for {one.dialect}", one.sql, sql))
            one = msgspec.structs.replace(one, sql=sql)  # noqa: PLW2901 - the changed one
        representations.append(one)
    updates: list[u.SetCurrentViewVersion | u.AddViewVersion | u.AddSchema] = []
    schema_id = now.schema_id
    if columns := sent.get("columns", "").strip():
        schema, current = Schema(fields=iceberg_fields(parse_column_list(columns))), metadata.current_schema.fields
        if schema.fields != current:
            before, after = (", ".join(field.name for field in fields) for fields in (current, schema.fields))
            changes.append(Change("columns", before, after))
            updates.append(u.AddSchema(schema=schema))
            schema_id = u.LAST_ADDED
    if not changes:
        raise Unchanged("Nothing changes: the view is already like this.")
    check_base(sent, str(now.version_id), "The view")
    version = msgspec.structs.replace(
        now,
        version_id=now.version_id + 1,
        timestamp_ms=call.lake.clock.now_ms(),
        schema_id=schema_id,
        summary=_SUMMARY,
        representations=tuple(representations),
    )
    updates += [u.AddViewVersion(view_version=version), u.SetCurrentViewVersion(view_version_id=u.LAST_ADDED)]
    return tuple(changes), ViewCommit((AssertViewUuid(uuid=metadata.view_uuid),), tuple(updates))


async def _preview_edit(call: Call, sent: Sent) -> Preview:
    changes, _ = _next_version(call, await _metadata(call), sent)
    sentence = f"The view {full_name_of(identifier_of(call))} gets a new version. The old ones are kept."
    return Preview(sentence=sentence, changes=changes)


async def _edit(call: Call, sent: Sent, request: Request) -> str:
    _, commit = _next_version(call, await _metadata(call), sent)
    await commit_view(call.lake, identifier_of(call), commit, request)
    return object_link(identifier_of(call), "view")


EDIT_VIEW: Final = Action(
    title=lambda call: f"Edit {full_name_of(identifier_of(call))}",
    verb="Change the view",
    done="viewed",
    place=partial(object_place, "view"),
    fields=_edit_fields,
    preview=_preview_edit,
    apply=_edit,
)
