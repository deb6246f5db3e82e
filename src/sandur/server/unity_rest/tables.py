"""Handlers for tables, staging tables, and the older commit API of Delta."""

import datetime as dt
from typing import Final, Literal

import msgspec

from sandur.catalog.functions import DependencyList
from sandur.catalog.identifiers import (
    Kind,
    checked_new_name,
    checked_uuid,
    identifier_from_parts,
    namespace_from_parts,
    parse_full_name,
)
from sandur.catalog.infos import COMMENT_CHARS_MAX, Comment, without_fields
from sandur.catalog.property_keys import check_new_keys, without_spark_options
from sandur.delta.columns import ColumnInfo, complete_columns, encode_columns, partition_names, struct_for_api
from sandur.delta.requests import Comment as CommentChange
from sandur.delta.requests import CommitFile, DeltaChange, Uniform, UniformIceberg
from sandur.errors import BadRequest, Invalid
from sandur.operations.delta.commit import post_commit
from sandur.operations.delta.load import list_commits
from sandur.operations.delta.tables import NewTable, stage_table
from sandur.operations.unity import tables as operations
from sandur.operations.unity.lists import list_in_schema
from sandur.server.context import Call
from sandur.server.http import Answer, json_answer
from sandur.server.unity_rest.bodies import DONE, answer_list, answer_with, list_request
from sandur.server.unity_rest.clients import table_fit

_TABLES: Final[tuple[Kind, ...]] = ("table", "view")


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    table_type: Literal["MANAGED", "EXTERNAL", "STREAMING_TABLE", "MATERIALIZED_VIEW", "METRIC_VIEW", "VIEW"]
    data_source_format: str | None = None
    columns: tuple[ColumnInfo, ...] | None = None
    storage_location: str | None = None
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    view_definition: str | None = None
    view_dependencies: DependencyList | None = None


class CreateStagingTable(msgspec.Struct, frozen=True):
    name: str
    catalog_name: str
    schema_name: str


async def create(call: Call) -> Answer:
    body = call.body(CreateTable, "create table request")
    columns = complete_columns(body.columns or (), is_delta=body.data_source_format == "DELTA")
    if any(len(column.comment or "") > COMMENT_CHARS_MAX for column in columns):
        raise Invalid(f"columns: a comment has more than {COMMENT_CHARS_MAX} characters")
    properties = without_spark_options(body.properties or {})
    check_new_keys(properties)
    wanted = NewTable(
        identifier=identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("table", body.name)),
        table_type=body.table_type,
        data_source_format=body.data_source_format or "",
        location=body.storage_location or "",
        columns=encode_columns(columns),
        properties=properties,
        comment=body.comment,
        view_definition=body.view_definition,
        view_dependencies=body.view_dependencies,
    )
    return answer_with(await operations.create_table(call.lake, wanted, call.request()))


async def list_all(call: Call) -> Answer:
    namespace = namespace_from_parts(call.required("catalog_name"), call.required("schema_name"))
    listed = await list_in_schema(call.lake, namespace, _TABLES, "tables", list_request(call))
    if omitted := [field for field in ("columns", "properties") if call.is_set(f"omit_{field}")]:
        listed = listed._replace(infos=[without_fields(info, omitted) for info in listed.infos])
    if fit := table_fit(call):
        fitted = [fit(info) for info in listed.infos]
        listed = listed._replace(infos=[info for info in fitted if info is not None])
    return answer_list(call, "tables", listed)


async def load(call: Call) -> Answer:
    info = msgspec.json.encode(await operations.load_table(call.lake, parse_full_name(call.value("full_name"))))
    fit = table_fit(call)
    return json_answer((fit and fit(info)) or info)


async def delete(call: Call) -> Answer:
    await operations.drop_table(call.lake, parse_full_name(call.value("full_name")), call.request())
    return DONE


async def stage(call: Call) -> Answer:
    body = call.body(CreateStagingTable, "create staging table request")
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("table", body.name))
    staged = await stage_table(call.lake, identifier, request=call.request())
    return answer_with({**msgspec.structs.asdict(body), "id": staged.uuid, "staging_location": staged.location})


class CommitInfo(msgspec.Struct, frozen=True):
    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class _Properties(msgspec.Struct, frozen=True):
    properties: dict[str, str] | None = None


class _Schema(msgspec.Struct, frozen=True):
    columns: tuple[ColumnInfo, ...] | None = None


class _Metadata(msgspec.Struct, frozen=True, kw_only=True):
    description: str | None = None
    properties: _Properties | None = None
    schema: _Schema | None = None


class _Iceberg(msgspec.Struct, frozen=True, kw_only=True):
    metadata_location: str
    converted_delta_version: int
    converted_delta_timestamp: str
    base_converted_delta_version: int | None = None


class _Uniform(msgspec.Struct, frozen=True):
    iceberg: _Iceberg


class PostCommit(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    table_uri: str
    commit_info: CommitInfo | None = None
    latest_backfilled_version: int | None = None
    metadata: _Metadata | None = None
    uniform: _Uniform | None = None


class GetCommits(msgspec.Struct, frozen=True, kw_only=True):
    table_id: str
    start_version: int
    table_uri: str | None = None
    end_version: int | None = None


async def add_commit(call: Call) -> Answer:
    body = call.body(PostCommit, "commit request")
    await post_commit(call.lake, parse_change(body), body.table_uri, call.request())
    return DONE


async def get_commits(call: Call) -> Answer:
    if not call.http.body:
        raise BadRequest("Invalid commits request: the body with table_id and start_version is missing")
    body = call.body(GetCommits, "commits request")
    commits, last_version = await list_commits(
        call.lake, body.table_id, body.start_version, body.end_version, body.table_uri
    )
    infos = [
        CommitInfo(row.version, row.timestamp_ms, row.file_name, row.file_size, row.file_modified_ms) for row in commits
    ]
    return answer_with({"commits": infos, "latest_table_version": last_version})


def parse_change(body: PostCommit) -> DeltaChange:
    """The request as a change of the table; Invalid when required parts are missing."""
    if body.commit_info is None and body.latest_backfilled_version is None:
        raise Invalid("at least one of commit_info and latest_backfilled_version is required")
    if body.commit_info is None and (body.metadata or body.uniform):
        raise Invalid("metadata and uniform need a commit_info")
    change = DeltaChange(
        asserted_uuid=checked_uuid("table_id", body.table_id), published=body.latest_backfilled_version
    )
    if body.commit_info:
        change = change._replace(commit=CommitFile(**msgspec.structs.asdict(body.commit_info)))
    if body.uniform:
        change = change._replace(uniform=_uniform(body.uniform.iceberg))
    return _with_metadata(change, body.metadata) if body.metadata else change


def _with_metadata(change: DeltaChange, metadata: _Metadata) -> DeltaChange:
    properties = metadata.properties.properties if metadata.properties else None
    columns = metadata.schema.columns if metadata.schema else None
    if metadata.description is None and properties is None and columns is None:
        raise Invalid("metadata: at least one of description, properties and schema is required")
    if metadata.description is not None:
        change = change._replace(comment=CommentChange(metadata.description))
    if properties is not None:
        change = change._replace(all_properties=properties)
    if columns is not None:
        kept = complete_columns(columns, is_delta=True)
        change = change._replace(columns=struct_for_api(kept), partition_columns=partition_names(kept))
    return change


def _uniform(iceberg: _Iceberg) -> Uniform:
    try:
        converted = dt.datetime.fromisoformat(iceberg.converted_delta_timestamp)
    except ValueError:
        raise Invalid(
            f"uniform: converted_delta_timestamp {iceberg.converted_delta_timestamp!r} is not a time in ISO 8601"
        ) from None
    if converted.tzinfo is None:
        converted = converted.replace(tzinfo=dt.UTC)
    return Uniform(
        iceberg=UniformIceberg(
            metadata_location=iceberg.metadata_location,
            converted_delta_version=iceberg.converted_delta_version,
            converted_delta_timestamp=int(converted.timestamp() * 1_000),
            base_converted_delta_version=iceberg.base_converted_delta_version,
        )
    )
