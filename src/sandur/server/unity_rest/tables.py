"""Handlers for tables and staging tables."""

from typing import Final, Literal

import msgspec

from sandur.catalog.identifiers import (
    Kind,
    checked_new_name,
    identifier_from_parts,
    namespace_from_parts,
    parse_full_name,
)
from sandur.catalog.infos import without_fields
from sandur.catalog.locations import check_property_keys
from sandur.delta.columns import ColumnInfo, complete_columns, encode_columns
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.delta.tables import NewTable, stage_table
from sandur.operations.unity import tables as operations
from sandur.operations.unity.lists import list_in_schema
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.unity_rest.bodies import DONE, Comment, answer_list, answer_with, list_request

_TABLES: Final[tuple[Kind, ...]] = ("table", "view")


class ColumnBody(msgspec.Struct, frozen=True):
    """A column as clients send it; unknown fields are absent or null."""

    name: str
    type_text: str | None = None
    type_json: str | None = None
    type_name: str | None = None
    type_precision: int | None = None
    type_scale: int | None = None
    type_interval_type: str | None = None
    position: int | None = None
    comment: Comment | None = None
    nullable: bool | None = None
    partition_index: int | None = None


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    table_type: Literal["MANAGED", "EXTERNAL", "STREAMING_TABLE", "MATERIALIZED_VIEW", "METRIC_VIEW", "VIEW"]
    data_source_format: str | None = None
    columns: tuple[ColumnBody, ...] | None = None
    storage_location: str | None = None
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    view_definition: str | None = None
    view_dependencies: dict[str, object] | None = None


class CreateStagingTable(msgspec.Struct, frozen=True):
    name: str
    catalog_name: str
    schema_name: str


class StagingTableInfo(msgspec.Struct, frozen=True):
    name: str
    catalog_name: str
    schema_name: str
    id: str
    staging_location: str


async def create(call: Call) -> Answer:
    body = call.body(CreateTable, "create table request")
    is_delta = body.data_source_format == "DELTA"
    properties = body.properties or {}
    check_property_keys(properties)
    wanted = NewTable(
        identifier=identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("table", body.name)),
        table_type=body.table_type,
        data_source_format=body.data_source_format or "",
        location=body.storage_location or "",
        columns=encode_columns(complete_columns([_column(column) for column in body.columns or ()], is_delta=is_delta)),
        properties=properties,
        comment=body.comment,
        view_definition=body.view_definition,
        view_dependencies=_raw(body.view_dependencies),
    )
    return answer_with(await operations.create_table(call.lake, wanted, call.request()))


async def list_all(call: Call) -> Answer:
    namespace = namespace_from_parts(call.required("catalog_name"), call.required("schema_name"))
    listed = await list_in_schema(call.lake, namespace, _TABLES, "tables", list_request(call))
    omit_columns, omit_properties = call.is_set("omit_columns"), call.is_set("omit_properties")
    if omit_columns or omit_properties:
        infos = [
            without_fields(info, omit_columns=omit_columns, omit_properties=omit_properties) for info in listed.infos
        ]
        listed = listed._replace(infos=infos)
    return answer_list(call, "tables", listed)


async def load(call: Call) -> Answer:
    return answer_with(await operations.load_table(call.lake, parse_full_name(call.value("full_name"))))


async def delete(call: Call) -> Answer:
    await operations.drop_table(call.lake, parse_full_name(call.value("full_name")), call.request())
    return DONE


async def stage(call: Call) -> Answer:
    body = call.body(CreateStagingTable, "create staging table request")
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("table", body.name))
    await load_catalog(call.lake, identifier.catalog)
    staged = await stage_table(call.lake, identifier, principal=call.identity.principal)
    return answer_with(
        StagingTableInfo(
            name=identifier.name,
            catalog_name=identifier.catalog,
            schema_name=body.schema_name,
            id=staged.uuid,
            staging_location=staged.location,
        )
    )


def _column(body: ColumnBody) -> ColumnInfo:
    given = {name: value for name, value in msgspec.structs.asdict(body).items() if value is not None}
    return msgspec.convert(given, ColumnInfo)


def _raw(value: object | None) -> msgspec.Raw | None:
    return None if value is None else msgspec.Raw(msgspec.json.encode(value))
