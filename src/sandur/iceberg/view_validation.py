"""A full check of view metadata that another program wrote."""

from collections.abc import Iterable

from sandur.errors import Invalid
from sandur.iceberg.schema import checked_schema
from sandur.iceberg.view_metadata import ViewMetadata, decode_view_metadata


def decode_foreign_view_metadata(data: bytes, *, metadata_location: str | None = None) -> ViewMetadata:
    """The metadata in a file that another program wrote, checked in full; raises `BadRequest` or `Invalid`."""
    metadata = decode_view_metadata(data, metadata_location=metadata_location)
    check_view_metadata(metadata)
    return metadata


def check_view_metadata(metadata: ViewMetadata) -> None:
    """Refuse with `Invalid` or `BadRequest` metadata in which anything is malformed or contradicts anything else.

    What passes may be committed to. Limits that only a commit enforces are not asked for: an engine may keep more
    versions than the limit, log versions that are gone, and know representations that this program does not.
    """
    if not metadata.view_uuid:
        raise Invalid("Invalid view metadata: view-uuid is empty")
    if not metadata.location:
        raise Invalid("Invalid view metadata: location is empty")
    for schema in metadata.schemas:
        checked_schema(schema)
    _check_unique((schema.schema_id or 0 for schema in metadata.schemas), "schema")
    _check_unique((version.version_id for version in metadata.versions), "version")
    for version in metadata.versions:
        if version.schema_id not in metadata.schemas_by_id:
            raise Invalid(f"Invalid view metadata: version {version.version_id} has unknown schema {version.schema_id}")
    metadata.current_version  # noqa: B018 # Raises if there is none.
    metadata.version_log  # noqa: B018 # Raises if an entry is malformed.


def _check_unique(ids: Iterable[int], what: str) -> None:
    seen: set[int] = set()
    for item_id in ids:
        if item_id in seen:
            raise Invalid(f"Invalid view metadata: multiple entries for {what} {item_id}")
        seen.add(item_id)
