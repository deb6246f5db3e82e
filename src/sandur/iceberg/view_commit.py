"""What a commit on a view means: its next metadata, from its base, the requirements and the updates."""

from collections.abc import Sequence
from typing import assert_never

from sandur.errors import Conflict, Invalid
from sandur.iceberg import updates as u
from sandur.iceberg import view_updates
from sandur.iceberg.raw_json import shortened
from sandur.iceberg.requirements import AssertViewUuid, Requirement, type_of
from sandur.iceberg.view_build import finished
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.iceberg.view_updates import ViewDraft, empty_view_metadata

# The updates that mean something for a view; every other one is for tables.
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


def next_view_metadata(
    base: ViewMetadata | None, requirements: Sequence[Requirement], updates: Sequence[u.Update], *, now_ms: int
) -> ViewMetadata:
    """The metadata after a commit, or `base` itself if the commit changes nothing.

    No base means that the commit creates the view. Raises `Conflict` if a requirement fails (load again, decide again),
    and `Invalid` if the request breaks a rule. The new metadata has no location yet.
    """
    wanted = checked_view_updates(updates)
    check_view_requirements(base, requirements)
    draft = ViewDraft(metadata=empty_view_metadata() if base is None else base)
    for update in wanted:
        draft = _applied(draft, update, now_ms=now_ms)
    if base is not None and not draft.is_changed:
        return base
    return finished(draft, base)


def checked_view_updates(updates: Sequence[u.Update]) -> tuple[ViewUpdate, ...]:
    """The updates; refuses with `Invalid`, in one message, all that are for tables."""
    accepted = tuple(update for update in updates if isinstance(update, ViewUpdate))
    if len(accepted) < len(updates):
        refused = [u.action_of(update) for update in updates if not isinstance(update, ViewUpdate)]
        raise Invalid(f"Cannot apply update {', '.join(dict.fromkeys(refused))} to a view")
    return accepted


def checked_view_requirements(requirements: Sequence[Requirement]) -> tuple[AssertViewUuid, ...]:
    """The requirements; refuses with `Invalid`, in one message, all that are for tables."""
    accepted = tuple(requirement for requirement in requirements if isinstance(requirement, AssertViewUuid))
    if len(accepted) < len(requirements):
        refused = [type_of(requirement) for requirement in requirements if not isinstance(requirement, AssertViewUuid)]
        raise Invalid(f"Cannot validate {', '.join(dict.fromkeys(refused))} against a view")
    return accepted


def check_view_requirements(base: ViewMetadata | None, requirements: Sequence[Requirement]) -> None:
    """Raise `Conflict` for the first requirement that `base` does not meet; no base means the view does not exist."""
    for requirement in checked_view_requirements(requirements):
        if base is None:
            raise Conflict(f"Requirement failed: view does not exist, expected UUID {shortened(requirement.uuid)}")
        if base.view_uuid.lower() != requirement.uuid.lower():
            raise Conflict(
                "Requirement failed: view UUID does not match: "
                f"expected {base.view_uuid} != {shortened(requirement.uuid)}"
            )


def _applied(draft: ViewDraft, update: ViewUpdate, *, now_ms: int) -> ViewDraft:  # noqa: PLR0911 # One line per update.
    match update:
        case u.AssignUuid():
            return view_updates.assign_uuid(draft, update.uuid)
        case u.UpgradeFormatVersion():
            return view_updates.upgrade_format_version(draft, update.format_version)
        case u.AddSchema():
            return view_updates.add_schema(draft, update.schema)
        case u.SetLocation():
            return view_updates.set_location(draft, update.location)
        case u.SetProperties():
            return view_updates.set_properties(draft, update.updates)
        case u.RemoveProperties():
            return view_updates.remove_properties(draft, update.removals)
        case u.AddViewVersion():
            return view_updates.add_view_version(draft, update.view_version)
        case u.SetCurrentViewVersion():
            return view_updates.set_current_view_version(draft, update.view_version_id, now_ms=now_ms)
        case _:
            assert_never(update)
