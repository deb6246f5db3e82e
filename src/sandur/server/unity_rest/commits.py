"""Handlers of the older commit API, which Delta before 4.3 uses; its GET has a body."""

import datetime as dt
from collections.abc import Sequence

import msgspec

from sandur.delta.columns import ColumnInfo, complete_columns, partition_names, struct_for_api
from sandur.delta.requests import Comment, CommitFile, DeltaChange, Uniform, UniformIceberg
from sandur.errors import BadRequest, Invalid
from sandur.operations.delta.commit import post_commit
from sandur.operations.delta.load import CommitsQuery, list_commits
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.unity_rest.bodies import DONE, answer_with


class CommitInfo(msgspec.Struct, frozen=True):
    version: int
    timestamp: int
    file_name: str
    file_size: int
    file_modification_timestamp: int


class _Properties(msgspec.Struct, frozen=True):
    properties: dict[str, str] | None = None


class _Schema(msgspec.Struct, frozen=True):
    columns: tuple[dict[str, object], ...] | None = None


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


class CommitsBody(msgspec.Struct, frozen=True):
    commits: Sequence[CommitInfo]
    latest_table_version: int


async def post(call: Call) -> Answer:
    body = call.body(PostCommit, "commit request")
    await post_commit(call.lake, parse_change(body), body.table_uri, call.request())
    return DONE


async def get(call: Call) -> Answer:
    if not call.http.body:
        raise BadRequest("Invalid commits request: the body with table_id and start_version is missing")
    body = call.body(GetCommits, "commits request")
    asked = CommitsQuery(body.table_id, body.start_version, body.end_version, body.table_uri)
    found = await list_commits(call.lake, asked)
    infos = [
        CommitInfo(row.version, row.timestamp_ms, row.file_name, row.file_size, row.file_modified_ms)
        for row in found.commits
    ]
    return answer_with(CommitsBody(infos, found.latest_table_version))


def parse_change(body: PostCommit) -> DeltaChange:
    """The request as a change of the table; Invalid when required parts are missing."""
    if body.commit_info is None and body.latest_backfilled_version is None:
        raise Invalid("at least one of commit_info and latest_backfilled_version is required")
    if body.commit_info is None and (body.metadata or body.uniform):
        raise Invalid("metadata and uniform need a commit_info")
    change = DeltaChange(asserted_uuid=body.table_id.lower(), published=body.latest_backfilled_version)
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
        change = change._replace(comment=Comment(metadata.description))
    if properties is not None:
        change = change._replace(all_properties=properties)
    if columns is not None:
        kept = complete_columns(_columns(columns), is_delta=True)
        change = change._replace(columns=struct_for_api(kept), partition_columns=partition_names(kept))
    return change


def _columns(columns: Sequence[dict[str, object]]) -> Sequence[ColumnInfo]:
    """The columns; fields that a client does not know are absent or null."""
    given = [{name: value for name, value in column.items() if value is not None} for column in columns]
    try:
        return msgspec.convert(given, list[ColumnInfo])
    except msgspec.ValidationError as error:
        raise BadRequest(f"Invalid metadata: schema.columns: {error}") from None


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
