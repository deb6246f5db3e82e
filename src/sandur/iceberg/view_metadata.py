"""View metadata: decoded from the file of any engine, encoded as the format demands, and changed by each update."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec

from sandur.errors import BadRequest, Invalid
from sandur.iceberg.schema import Schema, checked_schema, same_schema
from sandur.iceberg.table_metadata import decode_document, decode_head, without_trailing_slash
from sandur.iceberg.types import UUID_PATTERN
from sandur.iceberg.updates import LAST_ADDED, ViewRepresentation, ViewVersion
from sandur.splicing import Int32, Int64, JsonArray, empty_array, encode, join_object, json_array, next_id, shorten

VIEW_FORMAT_VERSION = 1

_WHAT = "view metadata"
_LISTS = ("schemas", "versions", "version-log")

VERSION_ID_START = 1
NO_VERSION_ID = 0
SQL = "sql"


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


_KNOWN_NAMES = frozenset({*_Head.__struct_encode_fields__, "format-version", *_LISTS})


@dataclass(frozen=True, eq=False, kw_only=True)
class ViewMetadata:
    """The metadata of one view. The defaults are those of a new view before its first update.

    `metadata_location` is the file that it was read from; it is not part of the file. `unknown` holds the top-level
    fields that are unknown here. Lists are decoded only when they are read, and keep the bytes of what does not change.
    """

    view_uuid: str = ""
    location: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    schemas: JsonArray[Schema] = empty_array(Schema)
    current_version_id: int = NO_VERSION_ID
    versions: JsonArray[ViewVersion] = empty_array(ViewVersion)
    version_log: JsonArray[VersionLogEntry] = empty_array(VersionLogEntry)
    unknown: Mapping[str, msgspec.Raw] = field(default_factory=dict)
    format_version: int = VIEW_FORMAT_VERSION
    metadata_location: str | None = None

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
    """Decode a metadata file, plain or compressed with gzip; raises `BadRequest` or `Invalid` if it is malformed.

    Only the small fields and the shape of the document are checked; the content of its lists is trusted. Decode a file
    that another program wrote with `decode_foreign_view_metadata`, which checks everything.
    """
    _, fields, version = decode_document(data, _WHAT)
    if version != VIEW_FORMAT_VERSION:
        raise Invalid(f"Unsupported format version: {version}")
    head = decode_head(fields, _Head, _WHAT)
    if missing := [name for name in _LISTS if name not in fields]:
        raise BadRequest(f"{_WHAT} is malformed: missing {', '.join(missing)}")
    return ViewMetadata(
        view_uuid=head.view_uuid,
        location=without_trailing_slash(head.location),
        properties=head.properties or {},
        schemas=json_array(fields["schemas"], Schema, "schemas"),
        current_version_id=head.current_version_id,
        versions=json_array(fields["versions"], ViewVersion, "versions"),
        version_log=json_array(fields["version-log"], VersionLogEntry, "version-log"),
        unknown={name: value for name, value in fields.items() if name not in _KNOWN_NAMES},
        metadata_location=metadata_location,
    )


def encode_view_metadata(metadata: ViewMetadata) -> bytes:
    """Encode a metadata file: every list is present, no nulls, unknown fields last."""
    return join_object((name, b"".join(parts)) for name, parts in _encoded_fields(metadata))


def _encoded_fields(metadata: ViewMetadata) -> Iterator[tuple[str, list[bytes | memoryview]]]:
    yield "view-uuid", [encode(metadata.view_uuid)]
    yield "format-version", [encode(metadata.format_version)]
    yield "location", [encode(metadata.location)]
    if metadata.properties:
        yield "properties", [encode(metadata.properties)]
    yield "schemas", metadata.schemas.chunks()
    yield "current-version-id", [encode(metadata.current_version_id)]
    yield "versions", metadata.versions.chunks()
    yield "version-log", metadata.version_log.chunks()
    for name, value in metadata.unknown.items():
        yield name, [memoryview(value)]


@dataclass(frozen=True, kw_only=True)
class ViewDraft:
    """The metadata so far, and the state of the request that the rules need.

    -1 in an update stands for a `last_added` id. `log_entry` is absent until the request sets a current version; only
    the last one that it sets is logged.
    """

    metadata: ViewMetadata
    is_changed: bool = False
    last_added_schema_id: int | None = None
    last_added_version_id: int | None = None
    added_version_ids: frozenset[int] = frozenset()
    log_entry: VersionLogEntry | None = None

    def changed(self, **fields: object) -> "ViewDraft":
        """The draft with other metadata fields, which counts as a change."""
        return replace(self, metadata=replace(self.metadata, **fields), is_changed=True)  # type: ignore[arg-type] # The caller names fields of ViewMetadata.


def assign_uuid(draft: ViewDraft, uuid: str) -> ViewDraft:
    if not UUID_PATTERN.fullmatch(uuid):
        raise Invalid(f"Cannot assign uuid, not a UUID: {shorten(uuid)}")
    current = draft.metadata.view_uuid
    if current.lower() == uuid.lower():
        return draft
    if current:
        raise Invalid("Cannot reassign uuid")
    return draft.changed(view_uuid=uuid)


def add_schema(draft: ViewDraft, requested: Schema) -> ViewDraft:
    """Add a schema. Columns keep their ids: the query of a view refers to its columns by position."""
    metadata = draft.metadata
    schema = checked_schema(requested)
    known = next((found for found in metadata.schemas if same_schema(found, schema)), None)
    if known is not None:
        return replace(draft, last_added_schema_id=known.schema_id or 0)
    schema_id = next_id(metadata.schemas_by_id, start=0)
    added = msgspec.structs.replace(schema, schema_id=schema_id)
    return replace(draft, last_added_schema_id=schema_id).changed(schemas=metadata.schemas.with_appended(added))


def add_view_version(draft: ViewDraft, requested: ViewVersion) -> ViewDraft:
    metadata = draft.metadata
    schema_id = _resolved_schema_id(draft, requested.schema_id)
    version = msgspec.structs.replace(with_canonical_representations(requested), schema_id=schema_id)
    known = next((found for found in metadata.versions if same_version(found, version)), None)
    if known is not None:
        return replace(draft, last_added_version_id=known.version_id)
    version_id = next_id(metadata.versions_by_id, start=max(VERSION_ID_START, requested.version_id))
    check_representations(version)
    added = msgspec.structs.replace(version, version_id=version_id)
    return replace(
        draft, last_added_version_id=version_id, added_version_ids=draft.added_version_ids | {version_id}
    ).changed(versions=metadata.versions.with_appended(added))


def _resolved_schema_id(draft: ViewDraft, schema_id: int) -> int:
    chosen = draft.last_added_schema_id if schema_id == LAST_ADDED else schema_id
    if chosen is None:
        raise Invalid("Cannot set last added schema: no schema has been added")
    if chosen not in draft.metadata.schemas_by_id:
        raise Invalid(f"Cannot add version with unknown schema: {schema_id}")
    return chosen


def set_current_view_version(draft: ViewDraft, version_id: int, *, now_ms: int) -> ViewDraft:
    chosen = draft.last_added_version_id if version_id == LAST_ADDED else version_id
    if chosen is None:
        raise Invalid("Cannot set last version id: no current version id has been set")
    version = draft.metadata.versions_by_id.get(chosen)
    if version is None:
        raise Invalid(f"Cannot set current version to unknown version: {chosen}")
    if chosen == draft.metadata.current_version_id:
        return draft
    # An earlier version becomes current now, not at its own timestamp.
    timestamp_ms = version.timestamp_ms if chosen in draft.added_version_ids else now_ms
    entry = VersionLogEntry(timestamp_ms=timestamp_ms, version_id=chosen)
    return replace(draft, log_entry=entry).changed(current_version_id=chosen)


def is_sql(representation: ViewRepresentation) -> bool:
    return representation.type.lower() == SQL


def dialects_of(version: ViewVersion) -> frozenset[str]:
    """The SQL dialects of a version in lower case, because dialects are compared without case."""
    return frozenset(
        representation.dialect.lower()
        for representation in version.representations
        if is_sql(representation) and representation.dialect is not None
    )


def same_version(left: ViewVersion, right: ViewVersion) -> bool:
    """Whether two versions have the same definition; ids and timestamps do not count."""
    return left == msgspec.structs.replace(right, version_id=left.version_id, timestamp_ms=left.timestamp_ms)


def check_representations(version: ViewVersion) -> None:
    """Raise `Invalid` if the representations of a version break a rule."""
    seen: set[str] = set()
    for representation in version.representations:
        # Other kinds have fields that are unknown here; storing them without these fields would corrupt them.
        if not is_sql(representation):
            kind = shorten(representation.type)
            raise Invalid(f"Invalid view version: Cannot serialize unsupported view representation: {kind}")
        if representation.sql is None:
            raise Invalid("Invalid view version: Cannot parse missing string: sql")
        if representation.dialect is None:
            raise Invalid("Invalid view version: Cannot parse missing string: dialect")
        dialect = representation.dialect.lower()
        if dialect in seen:
            raise Invalid(f"Invalid view version: Cannot add multiple queries for dialect {shorten(dialect)}")
        seen.add(dialect)


def with_canonical_representations(version: ViewVersion) -> ViewVersion:
    canonical = tuple(
        msgspec.structs.replace(representation, type=SQL) if is_sql(representation) else representation
        for representation in version.representations
    )
    return msgspec.structs.replace(version, representations=canonical)
