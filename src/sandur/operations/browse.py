"""What people browse: the content of the metastore, a catalog or a namespace, and the description of one object."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Literal

import msgspec

from sandur.catalog.identifiers import Identifier, Kind, Namespace, full_name_of
from sandur.catalog.index import CATALOGS, Entry, Scope, names_scope, namespaces_scope
from sandur.catalog.infos import catalog_info, schema_info
from sandur.catalog.paging import Page, checked_page_size, decode_page_token, encode_page_token
from sandur.catalog.records import DeltaTable, Securable
from sandur.delta.columns import decode_columns, field_from_column
from sandur.delta.types import type_text
from sandur.iceberg.table_summary import (
    TableSummary,
    ViewSummary,
    ddl_text,
    quoted,
    summarize_table,
    summarize_view,
    table_ddl,
    text_literal,
)
from sandur.operations.access import read_authority, require, resolve_authorized
from sandur.operations.containers.catalogs import find_catalog, load_stored_catalog
from sandur.operations.containers.namespaces import load_record
from sandur.operations.containers.records import catalog_not_found, visible_properties
from sandur.operations.delta.versions import summarize_delta
from sandur.operations.index.lists import FindContainer, find_namespace, read_visible_page
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import catalog_chain
from sandur.operations.tables.documents import TABLES, VIEWS, load_document
from sandur.operations.tables.names import ResolvedName, effective_head, name_not_found
from sandur.operations.unity.infos import info_of
from sandur.operations.unity.lists import find_metastore
from sandur.storage.cell import gather_all

_CONTENTS: Final = "contents"

Collection = Literal["namespaces", "names"] | Kind
"""What is listed of a namespace: the namespaces in it, all names, or the names of one kind."""


class _Shown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What people see of an object of any kind."""

    name: str
    kind: str
    format: str = ""
    id: str = ""
    owner: str = ""
    comment: str = ""
    location: str = ""
    updated_ms: int = 0
    updated_by: str = ""


class ContentEntry(_Shown, frozen=True, kw_only=True):
    """An object in a list. `columns` are the names of its columns, if the caller wants them."""

    columns: tuple[str, ...] = ()


class Description(_Shown, frozen=True, kw_only=True):
    """One object: what every kind has, and the part of its own kind. `info` is its form in Unity Catalog's API."""

    created_ms: int = 0
    created_by: str = ""
    properties: dict[str, str] = {}
    table: TableSummary | None = None
    view: ViewSummary | None = None
    info: dict[str, Any] = {}
    ddl: str = ""
    tags: dict[str, str] = {}
    column_tags: dict[str, dict[str, str]] = {}


class _Info(msgspec.Struct, frozen=True):
    """The fields of an info that lists show; the names differ between kinds."""

    owner: str | None = None
    comment: str | None = None
    storage_location: str | None = None
    created_at: int = 0
    created_by: str | None = None
    updated_at: int = 0
    updated_by: str | None = None
    columns: tuple[dict[str, Any], ...] | None = None


async def list_contents(
    lake: Lake,
    within: Namespace | None,
    *,
    collection: Collection = "names",
    page_token: str | None = None,
    page_size: int | None = None,
    with_columns: bool = False,
    begins: str = "",
) -> Page[ContentEntry]:
    """A page of the catalogs (`within` is None), of the namespaces of a catalog (no levels), or of a namespace: the
    namespaces in it, or the names. Only what the caller may see; NotFound if the container does not exist.

    The first page begins at the first name from `begins` on.
    """
    scope, find_container = _scope(lake, within, collection)
    kind = None if collection in {"namespaces", "names"} else collection
    subject = (lake.layout.root, _CONTENTS, scope.text, *([kind] if kind else []))
    last = decode_page_token(page_token, subject) if page_token else _last_before(begins)
    page = await read_visible_page(
        lake,
        scope,
        find_container,
        last=last,
        wanted=checked_page_size(page_size),
        accepts=lambda entry: kind is None or entry.kind == kind,
    )
    entries = [content_entry(entry, with_columns=with_columns) for entry in page.entries]
    return Page(entries, None if page.next_last is None else encode_page_token(subject, page.next_last))


def _last_before(text: str) -> str | None:
    """A text behind which the names from `text` on begin; None for the empty text."""
    return f"{text[:-1]}{chr(ord(text[-1]) - 1)}{chr(sys.maxunicode)}" if text.strip("\x00") else None


def _scope(lake: Lake, within: Namespace | None, collection: Collection) -> tuple[Scope, FindContainer]:
    if within is None:
        return CATALOGS, find_metastore
    if not within.levels:
        return namespaces_scope(within.catalog, None), partial(find_catalog, lake, within.catalog)
    scope = namespaces_scope(within.catalog, within) if collection == "namespaces" else names_scope(within)
    return scope, partial(find_namespace, lake, within)


def content_entry(entry: Entry, *, with_columns: bool) -> ContentEntry:
    info = _decoded(entry.info)
    columns = (info.columns or ()) if with_columns else ()
    return ContentEntry(
        name=entry.name,
        kind=entry.kind,
        format=entry.format if entry.format != "unity" else "",
        id=entry.uuid,
        owner=info.owner or "",
        comment=info.comment or "",
        location=info.storage_location or "",
        updated_ms=entry.updated_ms or info.updated_at,
        updated_by=info.updated_by or "",
        columns=tuple(str(column.get("name", "")) for column in columns),
    )


def _decoded(info: msgspec.Raw | bytes) -> _Info:
    return msgspec.json.decode(info, type=_Info | None) or _Info()


async def describe_catalog(lake: Lake, name: str) -> Description:
    record, authority = await gather_all((load_stored_catalog(lake, name), read_authority(lake)))
    if authority:
        require(lake, authority, catalog_chain(authority, record), missing=catalog_not_found(name))
    info = catalog_info(record)
    return Description(
        kind="catalog", **_shared(name, info), id=record.id, location=record.root, properties=record.properties
    )


async def describe_namespace(lake: Lake, namespace: Namespace) -> Description:
    record = await load_record(lake, namespace)
    info = schema_info(namespace, record)
    return Description(
        kind="namespace",
        **_shared(full_name_of(namespace), info),
        id=record.id,
        location=info.storage_location or "",
        properties=dict(visible_properties(record)),
    )


async def describe_object(lake: Lake, identifier: Identifier, *, expected: Kind = "table") -> Description:
    """The object under a name, of any kind, if the caller may read it; its content needs the right of its kind.

    `expected` is the kind that an error names.
    """
    missing = name_not_found(identifier, expected)
    found = await resolve_authorized(
        lake, identifier, lambda _: True, missing=missing, situation=lambda one: one.name.value.kind
    )
    kind = found.name.value.kind
    info = await info_of(lake, identifier, found.name.value, found.pointer.value)
    full_name = full_name_of(identifier)
    tags = dict(found.pointer.value.tags)
    plain = Description(kind=kind, format=found.name.value.format, **_shared(full_name, info), id=found.uuid, tags=tags)
    described = await _described(lake, plain, found)
    return _with_column_tags(described, found.pointer.value.column_tags)


async def _described(lake: Lake, plain: Description, found: ResolvedName) -> Description:
    match found.pointer.value:
        case DeltaTable() as table:
            return _described_delta(plain, table)
        case Securable() as securable:
            details = msgspec.to_builtins(await info_of(lake, found.identifier, found.name.value, securable))
            return msgspec.structs.replace(plain, format="", location=securable.location, info=details)
        case _:
            return await _described_iceberg(lake, plain, found)


def _shared(name: str, info: msgspec.Struct) -> dict[str, Any]:
    known = _decoded(msgspec.json.encode(info))
    return {
        "name": name,
        "owner": known.owner or "",
        "comment": known.comment or "",
        "created_ms": known.created_at,
        "created_by": known.created_by or "",
        "updated_ms": known.updated_at,
        "updated_by": known.updated_by or "",
    }


def _with_column_tags(described: Description, column_tags: Mapping[str, Mapping[str, str]]) -> Description:
    """With the tags of columns by their paths; a record has them by the id of the field, or by the name."""
    if not column_tags:
        return described
    shown = described.table or described.view
    paths = {str(row.id) if row.id else row.path: row.path for row in (shown.columns if shown else ())}
    known = {paths[key]: dict(tags) for key, tags in column_tags.items() if key in paths}
    return msgspec.structs.replace(described, column_tags=known)


def _described_delta(plain: Description, table: DeltaTable) -> Description:
    summary = summarize_delta(table)
    if table.kind == "view":
        sql = {"": table.view_definition} if table.view_definition else {}
        view = ViewSummary(
            view_id=table.uuid, location="", version=0, versions=1, columns=summary.columns, properties={}, sql=sql
        )
        return msgspec.structs.replace(plain, view=view, properties=table.properties)
    return msgspec.structs.replace(
        plain,
        format=summary.format,
        location=table.location,
        properties=table.properties,
        table=summary,
        info={"table_type": table.table_type},
        ddl=delta_ddl(plain.name, table),
    )


def delta_ddl(full_name: str, table: DeltaTable) -> str:
    """The statement of Spark SQL that creates an empty table like this one."""
    columns = [
        f"  {quoted(column.name)} {type_text(field_from_column(column)['type'])}"
        + (" NOT NULL" if column.nullable is False else "")
        + (f" COMMENT {text_literal(column.comment)}" if column.comment else "")
        for column in decode_columns(table.columns)
    ]
    summary = summarize_delta(table)
    return ddl_text(
        full_name,
        columns,
        provider=summary.format,
        partitions=[quoted(one) for one in summary.partitions],
        properties=_user_properties(table.properties),
        comment=table.comment or "",
    )


def _user_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Without what the protocol sets by itself."""
    own = ("delta.feature.", "delta.min", "delta.lastUpdateVersion", "delta.lastCommitTimestamp", "io.unitycatalog.")
    return {key: value for key, value in properties.items() if not key.startswith(own)}


async def _described_iceberg(lake: Lake, plain: Description, found: ResolvedName) -> Description:
    head = await effective_head(lake, found)
    if found.name.value.kind == "view":
        view = summarize_view((await load_document(lake, VIEWS, head.metadata_location)).metadata)
        return msgspec.structs.replace(plain, view=view, location=view.location, properties=view.properties)
    metadata = (await load_document(lake, TABLES, head.metadata_location)).metadata
    table = summarize_table(metadata, version=head.metadata_version)
    return msgspec.structs.replace(
        plain,
        location=table.location,
        properties=table.properties,
        table=table,
        ddl=table_ddl(plain.name, metadata),
    )
