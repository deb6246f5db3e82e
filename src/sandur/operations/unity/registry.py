"""Storage credentials and external locations: all of them in one record, changed by one swap."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.catalog.records import Request
from sandur.catalog.storage_registry import (
    AwsIamRole,
    Credential,
    ExternalLocation,
    StorageRegistry,
    checked_role,
    checked_url,
    credential_named,
    location_named,
    with_changed_credential,
    with_changed_location,
    with_credential,
    with_location,
    without_credential,
    without_location,
)
from sandur.operations.containers.records import RecordChange, with_creation
from sandur.operations.lake import Lake
from sandur.operations.unity.lists import ListRequest
from sandur.storage.cell import Cell

E = TypeVar("E", Credential, ExternalLocation)


class CredentialChange(NamedTuple):
    """The fields to change; None keeps the current value."""

    comment: str | None = None
    owner: str | None = None
    role: AwsIamRole | None = None
    new_name: str | None = None


class LocationChange(NamedTuple):
    """The fields to change; None keeps the current value."""

    url: str | None = None
    credential_name: str | None = None
    comment: str | None = None
    owner: str | None = None
    new_name: str | None = None


async def load_registry(lake: Lake) -> StorageRegistry:
    found = await _cell(lake).read()
    return found.value if found else StorageRegistry()


async def create_credential(
    lake: Lake, name: str, *, role: AwsIamRole | None, comment: str | None, request: Request
) -> Credential:
    plain = Credential(
        name=name, id=lake.clock.new_uuid(), aws_iam_role=checked_role(role) if role else None, comment=comment
    )
    credential = with_creation(lake, plain, request)
    made = await _change(lake, "create-credential", lambda found: with_credential(found, credential), request)
    return credential_named(made, name)


async def update_credential(lake: Lake, name: str, change: CredentialChange, request: Request) -> Credential:
    role = checked_role(change.role) if change.role else None

    def decide(found: StorageRegistry) -> StorageRegistry:
        before = credential_named(found, name)
        after = replace(
            before,
            name=change.new_name or before.name,
            comment=_or_current(change.comment, before.comment),
            owner=_or_current(change.owner, before.owner),
            aws_iam_role=_or_current(role, before.aws_iam_role),
        )
        return (
            found if after == before else with_changed_credential(found, name, _with_change_time(lake, after, request))
        )

    return credential_named(await _change(lake, "update-credential", decide, request), change.new_name or name)


async def drop_credential(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    def decide(found: StorageRegistry) -> StorageRegistry:
        return without_credential(found, name, force=force)

    await _change(lake, "drop-credential", decide, request)


async def create_location(
    lake: Lake, name: str, *, url: str, credential_name: str, comment: str | None, request: Request
) -> tuple[StorageRegistry, ExternalLocation]:
    plain = ExternalLocation(
        name=name, id=lake.clock.new_uuid(), url=checked_url(url), credential_id="", comment=comment
    )
    location = with_creation(lake, plain, request)

    def decide(found: StorageRegistry) -> StorageRegistry:
        return with_location(found, replace(location, credential_id=credential_named(found, credential_name).id))

    made = await _change(lake, "create-external-location", decide, request)
    return made, location_named(made, name)


async def update_location(
    lake: Lake, name: str, change: LocationChange, request: Request
) -> tuple[StorageRegistry, ExternalLocation]:
    place = checked_url(change.url) if change.url else None

    def decide(found: StorageRegistry) -> StorageRegistry:
        before = location_named(found, name)
        credential_id = credential_named(found, change.credential_name).id if change.credential_name else None
        after = replace(
            before,
            name=change.new_name or before.name,
            url=_or_current(place, before.url),
            credential_id=_or_current(credential_id, before.credential_id),
            comment=_or_current(change.comment, before.comment),
            owner=_or_current(change.owner, before.owner),
        )
        return found if after == before else with_changed_location(found, name, _with_change_time(lake, after, request))

    changed = await _change(lake, "update-external-location", decide, request)
    return changed, location_named(changed, change.new_name or name)


async def drop_location(lake: Lake, name: str, request: Request) -> None:
    await _change(lake, "drop-external-location", lambda found: without_location(found, name), request)


def page_of(lake: Lake, collection: str, entries: Mapping[str, E], page: ListRequest) -> tuple[Sequence[E], str | None]:
    """The entries after the token, sorted by name, at most `size`; and the token of the next page."""
    subject = (lake.layout.root, collection)
    last = decode_page_token(page.token, subject) if page.token else ""
    names = sorted(name for name in entries if name > last)
    chosen = names if page.size is None else names[: page.size]
    token = encode_page_token(subject, chosen[-1]) if len(chosen) < len(names) else None
    return [entries[name] for name in chosen], token


def _with_change_time(lake: Lake, entry: E, request: Request) -> E:
    return replace(entry, changed_ms=lake.clock.now_ms(), changed_by=request.source.principal)


T = TypeVar("T")


def _or_current(wanted: T | None, current: T) -> T:
    return current if wanted is None else wanted


async def _change(
    lake: Lake, operation: str, decide: Callable[[StorageRegistry], StorageRegistry], request: Request
) -> StorageRegistry:
    """Each operation has its own claims; all of them change the same record."""
    change = RecordChange(lake, _cell(lake), request, operation, lambda found: decide(found or StorageRegistry()))
    return await change.run()


def _cell(lake: Lake) -> Cell[StorageRegistry]:
    return Cell(lake.store, lake.layout.storage_registry(), StorageRegistry, lake.clock)
