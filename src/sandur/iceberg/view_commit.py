"""The next metadata of a view, from its base, the requirements and the updates of a commit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

import msgspec

from sandur.errors import Conflict, Invalid
from sandur.iceberg import updates as u
from sandur.iceberg import view_metadata
from sandur.iceberg.requests import AssertViewUuid, Requirement, TableIdentifier, decode_table_commit
from sandur.iceberg.schema import Schema
from sandur.iceberg.table_updates import checked_path, integer_property, without_keys
from sandur.iceberg.updates import ViewVersion
from sandur.iceberg.view_metadata import VERSION_ID_START, VIEW_FORMAT_VERSION, VersionLogEntry, ViewDraft, ViewMetadata
from sandur.splicing import JsonArray, decode_body, shorten

# The updates of views; all others are for tables.
ViewUpdate = (
    u.AssignUuid
    | u.UpgradeFormatVersion
    | u.AddSchema
    | u.SetLocation
    | u.SetProperties
    | u.RemoveProperties
    | u.AddViewVersion
    | u.SetCurrentViewVersion
)

DROP_DIALECT_ALLOWED = "replace.drop-dialect.allowed"
VERSION_HISTORY_SIZE = "version.history.num-entries"
VERSION_HISTORY_SIZE_DEFAULT = 10


def next_view_metadata(
    base: ViewMetadata | None, requirements: Sequence[Requirement], updates: Sequence[u.Update], *, now_ms: int
) -> ViewMetadata:
    """The metadata after a commit, or `base` itself if the commit changes nothing.

    No base means that the commit creates the view. Raises `Conflict` if a requirement fails (the caller loads again and
    retries), and `Invalid` if the request breaks a rule. The new metadata has no location yet.
    """
    wanted = checked_view_updates(updates)
    check_view_requirements(base, requirements)
    draft = ViewDraft(metadata=ViewMetadata() if base is None else base)
    for update in wanted:
        draft = _applied(draft, update, now_ms=now_ms)
    if base is not None and not draft.is_changed:
        return base
    return finish_view_commit(draft, base)


def checked_view_updates(updates: Sequence[u.Update]) -> tuple[ViewUpdate, ...]:
    """The updates; raises one `Invalid` for all that are for tables."""
    if refused := [u.tag_of(update) for update in updates if not isinstance(update, ViewUpdate)]:
        raise Invalid(f"Cannot apply update {', '.join(dict.fromkeys(refused))} to a view")
    return tuple(update for update in updates if isinstance(update, ViewUpdate))


def checked_view_requirements(requirements: Sequence[Requirement]) -> tuple[AssertViewUuid, ...]:
    """The requirements; raises one `Invalid` for all that are for tables."""
    if refused := [u.tag_of(given) for given in requirements if not isinstance(given, AssertViewUuid)]:
        raise Invalid(f"Cannot validate {', '.join(dict.fromkeys(refused))} against a view")
    return tuple(given for given in requirements if isinstance(given, AssertViewUuid))


def check_view_requirements(base: ViewMetadata | None, requirements: Sequence[Requirement]) -> None:
    """Raise `Conflict` for the first requirement that fails; no `base` means that the view does not exist."""
    for requirement in checked_view_requirements(requirements):
        if base is None:
            raise Conflict(f"Requirement failed: view does not exist, expected UUID {shorten(requirement.uuid)}")
        if base.view_uuid.lower() != requirement.uuid.lower():
            raise Conflict(
                "Requirement failed: view UUID does not match: "
                f"expected {base.view_uuid} != {shorten(requirement.uuid)}"
            )


def _applied(draft: ViewDraft, update: ViewUpdate, *, now_ms: int) -> ViewDraft:  # noqa: C901, PLR0911 # One case per update.
    match update:
        case u.AssignUuid():
            return view_metadata.assign_uuid(draft, update.uuid)
        case u.UpgradeFormatVersion(format_version=version):
            if version > VIEW_FORMAT_VERSION:
                raise Invalid(f"Unsupported format version: {version}")
            if version < VIEW_FORMAT_VERSION:
                raise Invalid(f"Cannot downgrade v{VIEW_FORMAT_VERSION} view to v{version}")
            return draft
        case u.AddSchema():
            return view_metadata.add_schema(draft, update.schema)
        case u.SetLocation():
            location = checked_path(update.location)
            return draft if location == draft.metadata.location else draft.changed(location=location)
        case u.SetProperties(updates=updates):
            return draft.changed(properties={**draft.metadata.properties, **updates}) if updates else draft
        case u.RemoveProperties(removals=removals):
            remaining = without_keys(draft.metadata.properties, removals)
            return draft.changed(properties=remaining) if removals else draft
        case u.AddViewVersion():
            return view_metadata.add_view_version(draft, update.view_version)
        case u.SetCurrentViewVersion():
            return view_metadata.set_current_view_version(draft, update.view_version_id, now_ms=now_ms)
        case _:
            assert_never(update)


def finish_view_commit(draft: ViewDraft, base: ViewMetadata | None) -> ViewMetadata:
    """The metadata of a changed draft; raises `Invalid` if the view as a whole breaks a rule."""
    metadata = draft.metadata
    _check_complete(metadata)
    if base is not None and metadata.properties.get(DROP_DIALECT_ALLOWED, "").lower() != "true":
        _check_dialects(base.current_version, metadata.current_version)
    size_max = version_history_size(metadata.properties)
    versions, log = metadata.versions, metadata.version_log
    if draft.log_entry is not None:
        log = log.with_appended(draft.log_entry)
    # A commit that changes no version keeps the history, even if it changes the limit.
    if draft.log_entry is not None or draft.added_version_ids:
        kept = _kept_version_ids(draft, size_max)
        versions, log = _shortened_history(versions, log, kept)
    return replace(metadata, versions=versions, version_log=log, metadata_location=None)


def _check_complete(metadata: ViewMetadata) -> None:
    if not metadata.view_uuid:
        raise Invalid("Invalid view: no uuid was assigned")
    if not metadata.location:
        raise Invalid("Invalid location: null")
    if metadata.versions.is_empty:
        raise Invalid("Invalid view: no versions were added")
    metadata.current_version  # noqa: B018 # Raises if it was never set.


def _check_dialects(previous: ViewVersion, current: ViewVersion) -> None:
    before, after = view_metadata.dialects_of(previous), view_metadata.dialects_of(current)
    if not before <= after:
        raise Invalid(
            f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: {_listed(before)}\nNew dialects: {_listed(after)}"
        )


def _listed(dialects: frozenset[str]) -> str:
    return f"[{shorten(', '.join(sorted(dialects)))}]"


def version_history_size(properties: Mapping[str, str]) -> int:
    """The number of versions to keep; raises `Invalid` if the property is not a positive number."""
    size = integer_property(properties, VERSION_HISTORY_SIZE, owner="View")
    if size is None:
        return VERSION_HISTORY_SIZE_DEFAULT
    if size <= 0:
        raise Invalid(f"{VERSION_HISTORY_SIZE} must be positive but was {size}")
    return size


def _kept_version_ids(draft: ViewDraft, size_max: int) -> frozenset[int]:
    """The newest versions up to the limit; the current one and those added by this request are always kept."""
    current_id = draft.metadata.current_version_id
    protected = draft.added_version_ids | {current_id}
    newest_first = sorted(draft.metadata.versions_by_id.keys() - protected, reverse=True)
    return protected | frozenset(newest_first[: max(0, size_max - len(protected))])


def _shortened_history(
    versions: JsonArray[ViewVersion], log: JsonArray[VersionLogEntry], kept: frozenset[int]
) -> tuple[JsonArray[ViewVersion], JsonArray[VersionLogEntry]]:
    is_kept = [version.version_id in kept for version in versions]
    if all(is_kept):
        return versions, log
    # Entries before a removed one cannot stay: a reader would attribute the time between to another version.
    gap = max((at for at, entry in enumerate(log) if entry.version_id not in kept), default=-1)
    return versions.keep(is_kept), log.keep([at > gap for at in range(len(log))])


class ViewCommit(msgspec.Struct, frozen=True):
    """A commit request for a view; `identifier` may be absent, because the path of the request names the view."""

    requirements: tuple[AssertViewUuid, ...]
    updates: tuple[ViewUpdate, ...]
    identifier: TableIdentifier | None = None


class CreateView(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    schema: Schema
    view_version: ViewVersion
    location: str | None = None
    properties: dict[str, str] | None = None


class RegisterView(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    metadata_location: str


def decode_view_commit(body: bytes) -> ViewCommit:
    """Decode a commit on a view; raises `BadRequest` that lists what is unknown, or what is for tables only."""
    commit = decode_table_commit(body)
    return ViewCommit(
        requirements=checked_view_requirements(commit.requirements),
        updates=checked_view_updates(commit.updates),
        identifier=commit.identifier,
    )


decode_create_view = partial(decode_body, wanted=CreateView, what="create view request")
decode_register_view = partial(decode_body, wanted=RegisterView, what="register view request")


def create_view_metadata(request: CreateView, *, location: str, view_uuid: str, now_ms: int) -> ViewMetadata:
    """The metadata of a new view; raises `Invalid` if the request breaks a rule.

    The schema gets the id 0 and the version the id 1, whatever the request says; columns keep their ids.
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
