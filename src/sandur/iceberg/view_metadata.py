"""View metadata: read from any engine's file, kept as bytes where nothing changes, written as the format demands."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.schema import Schema
from sandur.iceberg.table_metadata import without_trailing_slash
from sandur.iceberg.updates import ViewVersion
from sandur.splicing import (
    Int32,
    Int64,
    JsonArray,
    JsonBytes,
    check_utf8,
    decode,
    decode_object,
    decompress,
    encode,
    is_null,
    join_object,
    json_array,
    shorten,
)

VIEW_FORMAT_VERSION = 1

_WHAT = "view metadata"
_LISTS = ("schemas", "versions", "version-log")


class VersionLogEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """When a version became the current one."""

    timestamp_ms: Int64
    version_id: Int32


class _Head(msgspec.Struct, frozen=True, rename="kebab"):
    """The small fields of a metadata file."""

    view_uuid: str
    location: str
    current_version_id: Int32
    properties: dict[str, str] | None = None


_HEAD_NAMES = frozenset(field.encode_name for field in msgspec.structs.fields(_Head))
_KNOWN_NAMES = _HEAD_NAMES | {"format-version", *_LISTS}


@dataclass(frozen=True, eq=False, kw_only=True)
class ViewMetadata:
    """The metadata of one view.

    `metadata_location` says where it was read from and is never written. `unknown` holds the top-level fields that
    this program does not know. Lists are decoded only when they are asked for and keep the bytes of what is not
    changed.
    """

    view_uuid: str
    location: str
    properties: Mapping[str, str]
    schema_list: JsonArray[Schema]
    current_version_id: int
    version_list: JsonArray[ViewVersion]
    version_log_list: JsonArray[VersionLogEntry]
    unknown: Mapping[str, JsonBytes]
    format_version: int = VIEW_FORMAT_VERSION
    metadata_location: str | None = None

    @property
    def schemas(self) -> tuple[Schema, ...]:
        return self.schema_list.items

    @property
    def versions(self) -> tuple[ViewVersion, ...]:
        return self.version_list.items

    @property
    def version_log(self) -> tuple[VersionLogEntry, ...]:
        return self.version_log_list.items

    @cached_property
    def schemas_by_id(self) -> dict[int, Schema]:
        # An id that an old writer left out counts as 0.
        return {schema.schema_id or 0: schema for schema in self.schemas}

    @cached_property
    def versions_by_id(self) -> dict[int, ViewVersion]:
        return {version.version_id: version for version in self.versions}

    @property
    def current_version(self) -> ViewVersion:
        """The current version; raises `Invalid` if the view has no such version."""
        found = self.versions_by_id.get(self.current_version_id)
        if found is None:
            known = shorten(str(sorted(self.versions_by_id)))
            raise Invalid(f"Cannot find current version {self.current_version_id} in view versions: {known}")
        return found

    @property
    def current_schema(self) -> Schema:
        """The schema of the current version; raises `Invalid` if the view has no such schema."""
        schema_id = self.current_version.schema_id
        found = self.schemas_by_id.get(schema_id)
        if found is None:
            known = shorten(str(sorted(self.schemas_by_id)))
            raise Invalid(f"Cannot find current schema with id {schema_id} in schemas: {known}")
        return found


def decode_view_metadata(data: bytes, *, metadata_location: str | None = None) -> ViewMetadata:
    """The metadata in a file, plain or compressed with gzip; raises `BadRequest` or `Invalid` if it is none.

    The small fields and the shape of the document are checked, the content of its lists is trusted: a file that this
    program did not write comes in through `decode_foreign_view_metadata`, which trusts nothing.
    """
    text = decompress(bytes(data), _WHAT)
    check_utf8(text, _WHAT)
    fields = {name: value for name, value in decode_object(text, _WHAT).items() if not is_null(value)}
    _check_format_version(fields)
    head = decode(join_object((name, fields[name]) for name in _HEAD_NAMES & fields.keys()), _Head, _WHAT)
    _check_lists(fields)
    return ViewMetadata(
        view_uuid=head.view_uuid,
        location=without_trailing_slash(head.location),
        properties=head.properties or {},
        schema_list=json_array(fields["schemas"], Schema, "schemas"),
        current_version_id=head.current_version_id,
        version_list=json_array(fields["versions"], ViewVersion, "versions"),
        version_log_list=json_array(fields["version-log"], VersionLogEntry, "version-log"),
        unknown={name: value for name, value in fields.items() if name not in _KNOWN_NAMES},
        metadata_location=metadata_location,
    )


def _check_format_version(fields: Mapping[str, JsonBytes]) -> None:
    if "format-version" not in fields:
        raise BadRequest(f"{_WHAT} is malformed: missing format-version")
    version = decode(fields["format-version"], int, "format-version")
    if version != VIEW_FORMAT_VERSION:
        raise Invalid(f"Unsupported format version: {version}")


def _check_lists(fields: Mapping[str, JsonBytes]) -> None:
    missing = [name for name in _LISTS if name not in fields]
    if missing:
        raise BadRequest(f"{_WHAT} is malformed: missing {', '.join(missing)}")


def encode_view_metadata(metadata: ViewMetadata) -> bytes:
    """The metadata as a file: every list present, no nulls, unknown fields last."""
    return join_object((name, b"".join(parts)) for name, parts in _written(metadata))


def _written(metadata: ViewMetadata) -> Iterator[tuple[str, list[bytes | memoryview]]]:
    yield "view-uuid", [encode(metadata.view_uuid)]
    yield "format-version", [encode(metadata.format_version)]
    yield "location", [encode(metadata.location)]
    if metadata.properties:
        yield "properties", [encode(metadata.properties)]
    yield "schemas", metadata.schema_list.chunks()
    yield "current-version-id", [encode(metadata.current_version_id)]
    yield "versions", metadata.version_list.chunks()
    yield "version-log", metadata.version_log_list.chunks()
    for name, value in metadata.unknown.items():
        yield name, [memoryview(value)]
