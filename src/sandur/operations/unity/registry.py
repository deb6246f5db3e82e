"""Storage credentials and external locations: one record, changed by one swap."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.catalog.sources import Request
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
from sandur.operations.containers.records import RecordChange
from sandur.operations.lake import Lake
from sandur.operations.unity.lists import ListRequest
from sandur.storage.cell import Cell

E = TypeVar("E", Credential, ExternalLocation)


class CredentialChange(NamedTuple):
    """What is to be changed; None leaves it alone."""

    comment: str | None = None
    owner: str | None = None
    role: AwsIamRole | None = None
    new_name: str | None = None


class LocationChange(NamedTuple):
    """What is to be changed; None leaves it alone."""

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
    now_ms, principal = lake.clock.now_ms(), request.source.principal
    credential = Credential(
        name=name,
        id=lake.clock.new_uuid(),
        aws_iam_role=checked_role(role) if role else None,
        comment=comment,
        owner=principal,
        created_ms=now_ms,
        created_by=principal,
        changed_ms=now_ms,
        changed_by=principal,
    )
    made = await _changed(lake, "create-credential", lambda found: with_credential(found, credential), request)
    return credential_named(made, name)


async def update_credential(lake: Lake, name: str, change: CredentialChange, request: Request) -> Credential:
    role = checked_role(change.role) if change.role else None

    def decide(found: StorageRegistry) -> StorageRegistry:
        before = credential_named(found, name)
        after = replace(
            before,
            name=change.new_name or before.name,
            comment=_chosen(change.comment, before.comment),
            owner=_chosen(change.owner, before.owner),
            aws_iam_role=_chosen(role, before.aws_iam_role),
        )
        return found if after == before else with_changed_credential(found, name, _stamped(lake, after, request))

    return credential_named(await _changed(lake, "update-credential", decide, request), change.new_name or name)


async def drop_credential(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    def decide(found: StorageRegistry) -> StorageRegistry:
        return without_credential(found, name, force=force)

    await _changed(lake, "drop-credential", decide, request)


async def create_location(
    lake: Lake, name: str, *, url: str, credential_name: str, comment: str | None, request: Request
) -> tuple[StorageRegistry, ExternalLocation]:
    now_ms, principal, location_id = lake.clock.now_ms(), request.source.principal, lake.clock.new_uuid()
    place = checked_url(url)

    def decide(found: StorageRegistry) -> StorageRegistry:
        location = ExternalLocation(
            name=name,
            id=location_id,
            url=place,
            credential_id=credential_named(found, credential_name).id,
            comment=comment,
            owner=principal,
            created_ms=now_ms,
            created_by=principal,
            changed_ms=now_ms,
            changed_by=principal,
        )
        return with_location(found, location)

    made = await _changed(lake, "create-external-location", decide, request)
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
            url=_chosen(place, before.url),
            credential_id=_chosen(credential_id, before.credential_id),
            comment=_chosen(change.comment, before.comment),
            owner=_chosen(change.owner, before.owner),
        )
        return found if after == before else with_changed_location(found, name, _stamped(lake, after, request))

    changed = await _changed(lake, "update-external-location", decide, request)
    return changed, location_named(changed, change.new_name or name)


async def drop_location(lake: Lake, name: str, request: Request) -> None:
    await _changed(lake, "drop-external-location", lambda found: without_location(found, name), request)


def page_of(
    lake: Lake, collection: str, entries: Mapping[str, E], asked: ListRequest
) -> tuple[Sequence[E], str | None]:
    """Entries in the order of their names, behind the token and at most so many; and the token of what is left."""
    what = (lake.layout.root, collection)
    last = decode_page_token(asked.token, what) if asked.token else ""
    names = sorted(name for name in entries if name > last)
    chosen = names if asked.size is None else names[: asked.size]
    token = encode_page_token(what, chosen[-1]) if len(chosen) < len(names) else None
    return [entries[name] for name in chosen], token


def _stamped(lake: Lake, entry: E, request: Request) -> E:
    return replace(entry, changed_ms=lake.clock.now_ms(), changed_by=request.source.principal)


T = TypeVar("T")


def _chosen(wanted: T | None, current: T) -> T:
    return current if wanted is None else wanted


async def _changed(
    lake: Lake, operation: str, decide: Callable[[StorageRegistry], StorageRegistry], request: Request
) -> StorageRegistry:
    """Every operation claims its keys for itself, and they share the record."""
    change = RecordChange(lake, _cell(lake), request, operation, lambda found: decide(found or StorageRegistry()))
    return await change.run()


def _cell(lake: Lake) -> Cell[StorageRegistry]:
    return Cell(lake.store, lake.layout.storage_registry(), StorageRegistry, lake.clock)
