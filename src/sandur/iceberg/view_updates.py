"""The effect of each update on a view: identity, location, properties, schemas and versions."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.schema import Schema, checked_schema, same_schema
from sandur.iceberg.table_metadata import without_trailing_slash
from sandur.iceberg.updates import LAST_ADDED, ViewRepresentation, ViewVersion
from sandur.iceberg.view_metadata import VIEW_FORMAT_VERSION, VersionLogEntry, ViewMetadata
from sandur.splicing import empty_array, next_id, shorten

VERSION_ID_START = 1
SCHEMA_ID_START = 0
NO_VERSION_ID = 0

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, kw_only=True)
class ViewDraft:
    """The metadata so far, and what the rules need to know about this request.

    The `last_added` ids are what -1 stands for. `log_entry` is absent until the request sets a current version; only
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


def empty_view_metadata() -> ViewMetadata:
    """What a view is before the first update of the request that creates it."""
    return ViewMetadata(
        view_uuid="",
        location="",
        properties={},
        schema_list=empty_array(Schema),
        current_version_id=NO_VERSION_ID,
        version_list=empty_array(ViewVersion),
        version_log_list=empty_array(VersionLogEntry),
        unknown={},
    )


def assign_uuid(draft: ViewDraft, uuid: str) -> ViewDraft:
    if not _UUID.fullmatch(uuid):
        raise Invalid(f"Cannot assign uuid, not a UUID: {shorten(uuid)}")
    current = draft.metadata.view_uuid
    if current.lower() == uuid.lower():
        return draft
    if current:
        raise Invalid("Cannot reassign uuid")
    return draft.changed(view_uuid=uuid)


def upgrade_format_version(draft: ViewDraft, version: int) -> ViewDraft:
    if version > VIEW_FORMAT_VERSION:
        raise Invalid(f"Unsupported format version: {version}")
    if version < VIEW_FORMAT_VERSION:
        raise Invalid(f"Cannot downgrade v{VIEW_FORMAT_VERSION} view to v{version}")
    return draft


def set_location(draft: ViewDraft, location: str) -> ViewDraft:
    if not location:
        raise Invalid("Cannot set location: path must not be null or empty")
    stripped = without_trailing_slash(location)
    return draft if stripped == draft.metadata.location else draft.changed(location=stripped)


def set_properties(draft: ViewDraft, updates: Mapping[str, str]) -> ViewDraft:
    return draft.changed(properties={**draft.metadata.properties, **updates}) if updates else draft


def remove_properties(draft: ViewDraft, removals: Iterable[str]) -> ViewDraft:
    removed = frozenset(removals)
    if not removed:
        return draft
    return draft.changed(
        properties={key: value for key, value in draft.metadata.properties.items() if key not in removed}
    )


def add_schema(draft: ViewDraft, requested: Schema) -> ViewDraft:
    """Columns keep the ids they come with: the query of a view refers to its columns by position."""
    metadata = draft.metadata
    schema = checked_schema(requested)
    known = next((found for found in metadata.schemas if same_schema(found, schema)), None)
    if known is not None:
        return replace(draft, last_added_schema_id=known.schema_id or 0)
    schema_id = next_id(metadata.schemas_by_id, start=SCHEMA_ID_START)
    added = msgspec.structs.replace(schema, schema_id=schema_id)
    return replace(draft, last_added_schema_id=schema_id).changed(schema_list=metadata.schema_list.with_appended(added))


def add_view_version(draft: ViewDraft, requested: ViewVersion) -> ViewDraft:
    metadata = draft.metadata
    version = msgspec.structs.replace(
        with_canonical_representations(requested), schema_id=_resolved_schema_id(draft, requested.schema_id)
    )
    known = next((found for found in metadata.versions if same_version(found, version)), None)
    if known is not None:
        return replace(draft, last_added_version_id=known.version_id)
    version_id = next_id(metadata.versions_by_id, start=max(VERSION_ID_START, requested.version_id))
    added = msgspec.structs.replace(checked_version(version), version_id=version_id)
    return replace(
        draft, last_added_version_id=version_id, added_version_ids=draft.added_version_ids | {version_id}
    ).changed(version_list=metadata.version_list.with_appended(added))


def _resolved_schema_id(draft: ViewDraft, schema_id: int) -> int:
    if schema_id == LAST_ADDED:
        if draft.last_added_schema_id is None:
            raise Invalid("Cannot set last added schema: no schema has been added")
        return draft.last_added_schema_id
    if schema_id not in draft.metadata.schemas_by_id:
        raise Invalid(f"Cannot add version with unknown schema: {schema_id}")
    return schema_id


def set_current_view_version(draft: ViewDraft, version_id: int, *, now_ms: int) -> ViewDraft:
    chosen = _resolved_version_id(draft, version_id)
    version = draft.metadata.versions_by_id.get(chosen)
    if version is None:
        raise Invalid(f"Cannot set current version to unknown version: {chosen}")
    if chosen == draft.metadata.current_version_id:
        return draft
    # A version that was made earlier becomes current now, not when it was made.
    timestamp_ms = version.timestamp_ms if chosen in draft.added_version_ids else now_ms
    entry = VersionLogEntry(timestamp_ms=timestamp_ms, version_id=chosen)
    return replace(draft, log_entry=entry).changed(current_version_id=chosen)


def _resolved_version_id(draft: ViewDraft, version_id: int) -> int:
    if version_id != LAST_ADDED:
        return version_id
    if draft.last_added_version_id is None:
        raise Invalid("Cannot set last version id: no current version id has been set")
    return draft.last_added_version_id


SQL = "sql"


def is_sql(representation: ViewRepresentation) -> bool:
    return representation.type.lower() == SQL


def dialects_of(version: ViewVersion) -> frozenset[str]:
    """The SQL dialects in which a version is written, in lower case: case does not tell dialects apart."""
    return frozenset(
        representation.dialect.lower()
        for representation in version.representations
        if is_sql(representation) and representation.dialect is not None
    )


def same_version(left: ViewVersion, right: ViewVersion) -> bool:
    """Whether two versions define the view alike, whatever their ids and the moments at which they were made."""
    return _definition(left) == _definition(right)


def _definition(
    version: ViewVersion,
) -> tuple[Mapping[str, str], tuple[ViewRepresentation, ...], str | None, tuple[str, ...], int]:
    return (
        version.summary,
        version.representations,
        version.default_catalog,
        version.default_namespace,
        version.schema_id,
    )


def checked_version(version: ViewVersion) -> ViewVersion:
    """The version in canonical spelling, refused with `Invalid` if its representations break a rule."""
    seen: set[str] = set()
    for representation in version.representations:
        dialect = _checked_dialect(representation)
        if dialect in seen:
            raise Invalid(f"Invalid view version: Cannot add multiple queries for dialect {shorten(dialect)}")
        seen.add(dialect)
    return with_canonical_representations(version)


def with_canonical_representations(version: ViewVersion) -> ViewVersion:
    spelled = tuple(
        msgspec.structs.replace(representation, type=SQL) if is_sql(representation) else representation
        for representation in version.representations
    )
    return msgspec.structs.replace(version, representations=spelled)


def _checked_dialect(representation: ViewRepresentation) -> str:
    # Other kinds have fields that nobody here knows; storing such a representation without them would corrupt it.
    if not is_sql(representation):
        raise Invalid(
            f"Invalid view version: Cannot serialize unsupported view representation: {shorten(representation.type)}"
        )
    if representation.sql is None:
        raise Invalid("Invalid view version: Cannot parse missing string: sql")
    if representation.dialect is None:
        raise Invalid("Invalid view version: Cannot parse missing string: dialect")
    return representation.dialect.lower()
