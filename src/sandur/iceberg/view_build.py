"""The end of a commit on a view: the checks on the whole view, its history and its version log."""

from collections.abc import Mapping
from dataclasses import replace

from sandur.errors import Invalid
from sandur.iceberg.properties import integer_property
from sandur.iceberg.raw_json import JsonArray, shortened
from sandur.iceberg.updates import ViewVersion
from sandur.iceberg.view_metadata import VersionLogEntry, ViewMetadata
from sandur.iceberg.view_updates import ViewDraft
from sandur.iceberg.view_versions import dialects_of

DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"
VERSION_HISTORY_SIZE = "version.history.num-entries"
VERSION_HISTORY_SIZE_DEFAULT = 10


def finished(draft: ViewDraft, base: ViewMetadata | None) -> ViewMetadata:
    """The metadata that a changed draft becomes; raises `Invalid` if the view as a whole breaks a rule."""
    metadata = draft.metadata
    _check_complete(metadata)
    if base is not None and not _is_drop_allowed(metadata.properties):
        _check_dialects(base.current_version, metadata.current_version)
    size_max = version_history_size(metadata.properties)
    versions, log = metadata.version_list, metadata.version_log_list
    if draft.log_entry is not None:
        log = log.with_appended(draft.log_entry)
    # A commit that touches no version leaves the history alone, whatever it does to the limit.
    if draft.log_entry is not None or draft.added_version_ids:
        kept = _kept_version_ids(draft, size_max)
        versions, log = _shortened_history(versions, log, kept)
    return replace(metadata, version_list=versions, version_log_list=log, metadata_location=None)


def _check_complete(metadata: ViewMetadata) -> None:
    if not metadata.view_uuid:
        raise Invalid("Invalid view: no uuid was assigned")
    if not metadata.location:
        raise Invalid("Invalid location: null")
    if metadata.version_list.is_empty:
        raise Invalid("Invalid view: no versions were added")
    metadata.current_version  # noqa: B018 # Raises if it was never set.


def _is_drop_allowed(properties: Mapping[str, str]) -> bool:
    return properties.get(DROP_DIALECT_ALLOWED, "").lower() == "true"


def _check_dialects(previous: ViewVersion, current: ViewVersion) -> None:
    before, after = dialects_of(previous), dialects_of(current)
    if not before <= after:
        raise Invalid(
            f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: {_listed(before)}\nNew dialects: {_listed(after)}"
        )


def _listed(dialects: frozenset[str]) -> str:
    return f"[{shortened(', '.join(sorted(dialects)))}]"


def version_history_size(properties: Mapping[str, str]) -> int:
    """How many versions the view keeps; raises `Invalid` if the property is no positive number."""
    size = integer_property(properties, VERSION_HISTORY_SIZE, owner="View")
    if size is None:
        return VERSION_HISTORY_SIZE_DEFAULT
    if size <= 0:
        raise Invalid(f"{VERSION_HISTORY_SIZE} must be positive but was {size}")
    return size


def _kept_version_ids(draft: ViewDraft, size_max: int) -> frozenset[int]:
    """The newest versions up to the limit; the current one and those added now are always among them."""
    current_id = draft.metadata.current_version_id
    protected = draft.added_version_ids | {current_id}
    newest_first = sorted(draft.metadata.versions_by_id.keys() - protected, reverse=True)
    return protected | frozenset(newest_first[: max(0, size_max - len(protected))])


def _shortened_history(
    versions: JsonArray[ViewVersion], log: JsonArray[VersionLogEntry], kept: frozenset[int]
) -> tuple[JsonArray[ViewVersion], JsonArray[VersionLogEntry]]:
    is_kept = [version.version_id in kept for version in versions.items]
    if all(is_kept):
        return versions, log
    # What lies before an entry that is gone cannot stay: the time between would be read as belonging to another.
    gap = max((at for at, entry in enumerate(log.items) if entry.version_id not in kept), default=-1)
    return versions.without(is_kept), log.without([at > gap for at in range(len(log.items))])
