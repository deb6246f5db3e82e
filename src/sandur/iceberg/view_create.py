"""The first metadata of a new view."""

import msgspec

from sandur.errors import Invalid
from sandur.iceberg import updates as u
from sandur.iceberg.view_commit import next_view_metadata
from sandur.iceberg.view_metadata import VIEW_FORMAT_VERSION, ViewMetadata
from sandur.iceberg.view_requests import CreateView
from sandur.iceberg.view_updates import VERSION_ID_START


def create_view_metadata(request: CreateView, *, location: str, view_uuid: str, now_ms: int) -> ViewMetadata:
    """The metadata of a new view; raises `Invalid` if the request breaks a rule.

    The ids that the request gives to its schema and its version are replaced by the first ones, 0 and 1; its columns
    keep theirs.
    """
    if not request.view_version.representations:
        raise Invalid("Cannot create view without specifying a query")
    version = msgspec.structs.replace(request.view_version, version_id=VERSION_ID_START, schema_id=u.LAST_ADDED)
    updates: list[u.Update] = [
        u.AssignUuid(uuid=view_uuid),
        u.UpgradeFormatVersion(format_version=VIEW_FORMAT_VERSION),
        u.SetLocation(location=location),
        u.SetProperties(updates=request.properties or {}),
        u.AddSchema(schema=request.schema),
        u.AddViewVersion(view_version=version),
        u.SetCurrentViewVersion(view_version_id=u.LAST_ADDED),
    ]
    return next_view_metadata(None, [], updates, now_ms=now_ms)
