"""Storage credentials and external locations, in one record."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.credentials.registry import (
    AwsIamRole,
    Credential,
    CredentialUpdate,
    ExternalLocation,
    LocationUpdate,
    StorageRegistry,
    checked_role,
    checked_url,
    credential_named,
    credential_not_found,
    location_named,
    location_not_found,
    with_credential,
    with_location,
    without_credential,
    without_location,
    without_secrets,
)
from sandur.catalog.credentials.storage_access import StorageRequest, check_own_keys, checked_storage, secrets_of
from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Entry, names_scope, namespaces_scope
from sandur.catalog.location_claims import Holder, Owner
from sandur.catalog.locations import (
    Address,
    canonical_address,
    external_address,
    is_within,
    normalize_location,
)
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.catalog.records import RegistryEntry, Request
from sandur.catalog.security.manifest import Viewer
from sandur.catalog.security.privileges import Link, SecurableType
from sandur.errors import Busy, Invalid, NotFound, SandurError, Unfit
from sandur.operations.access import (
    READS_MAX,
    authorize_metastore,
    read_authority,
    require,
    viewer_of,
)
from sandur.operations.containers.records import RecordChange, with_creation
from sandur.operations.credentials.sealed_secrets import Sealing
from sandur.operations.events import storage_subject
from sandur.operations.index.lists import read_page
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, release_places
from sandur.operations.tables.documents import request_id
from sandur.operations.unity.lists import ListRequest
from sandur.storage.credentials.s3 import own_profile


class _Located(msgspec.Struct, frozen=True):
    """The part of an info that says where the files are."""

    storage_location: str | None = None


_LOCATED: Final = msgspec.json.Decoder(_Located)

E = TypeVar("E", Credential, ExternalLocation)

Authorize = Callable[[StorageRegistry], Awaitable[None]]
"""Raises unless the caller may do what the route declares to an entry of the registry as it was read."""


async def load_registry(lake: Lake) -> StorageRegistry:
    found = await lake.storage_registry().read()
    return found.value if found else StorageRegistry()


async def create_credential(
    lake: Lake,
    name: str,
    *,
    role: AwsIamRole | None,
    comment: str | None,
    request: Request,
    storage: StorageRequest | None = None,
) -> Credential:
    """Create a credential; Invalid if it has a secret and the server has no key to seal it."""
    made = replace(checked_role(role), external_id=lake.clock.new_uuid()) if role else None
    plain = Credential(name=name, id=lake.clock.new_uuid(), aws_iam_role=made, comment=comment)
    if storage:
        plain = _with_storage(lake, plain, storage)
    credential = with_creation(lake, plain, request)

    def decide(found: StorageRegistry) -> StorageRegistry:
        return with_credential(found, credential)

    async def authorize(_: StorageRegistry) -> None:
        await authorize_metastore(lake)

    return credential_named(await _change(lake, "create-credential", decide, authorize, request), name)


def _with_storage(lake: Lake, credential: Credential, request: StorageRequest) -> Credential:
    """The credential with what a request says about its storage, and nothing of what it said before."""
    fields = checked_storage(request, has_role=credential.aws_iam_role is not None)
    secrets = secrets_of(request, credential.id)
    if fields is None:
        return replace(credential, storage=None)
    check_own_keys(fields, own_profile(lake.settings.s3))
    if secrets is None:
        return replace(credential, storage=fields)
    sealing = lake.feature(Sealing)
    with contextlib.suppress(Unfit):  # Secrets that cannot be opened are replaced.
        if credential.storage and sealing.open(credential) == secrets:
            # The same secrets stay as they are, so that the update can be repeated.
            return replace(credential, storage=replace(fields, sealed=credential.storage.sealed))
    return replace(credential, storage=replace(fields, sealed=sealing.seal(secrets)))


async def update_credential(lake: Lake, name: str, update: CredentialUpdate, request: Request) -> Credential:
    role = (
        replace(checked_role(update.aws_iam_role), external_id=lake.clock.new_uuid()) if update.aws_iam_role else None
    )
    fields = {"name": update.new_name, "comment": update.comment}

    def decide(found: StorageRegistry) -> StorageRegistry:
        before = credential_named(found, name)
        # Another role has another external id; the same role keeps its own, so that the update can be repeated.
        is_same = role and before.aws_iam_role and role.role_arn == before.aws_iam_role.role_arn
        wanted = before if is_same or role is None else replace(before, aws_iam_role=role)
        if update.storage:
            wanted = _with_storage(lake, wanted, update.storage)
        return with_credential(found, _updated(lake, before, fields, request, wanted=wanted), replaces=name)

    authorize = partial(_authorize_credential, lake, name)
    changed = await _change(lake, "update-credential", decide, authorize, request)
    return credential_named(changed, update.new_name or name)


async def drop_credential(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    def decide(found: StorageRegistry) -> StorageRegistry:
        return without_credential(found, name, force=force)

    await _change(lake, "drop-credential", decide, partial(_authorize_credential, lake, name), request)


async def create_location(
    lake: Lake, name: str, *, url: str, credential_name: str, comment: str | None, request: Request
) -> tuple[StorageRegistry, ExternalLocation]:
    checked = checked_url(url)
    _external_address(lake, checked)
    plain = ExternalLocation(name=name, id=lake.clock.new_uuid(), url=checked, credential_id="", comment=comment)
    location = with_creation(lake, plain, request)

    def decide(found: StorageRegistry) -> StorageRegistry:
        located = replace(location, credential_id=credential_named(found, credential_name).id)
        return with_location(found, located)

    async def authorize(found: StorageRegistry) -> None:
        await authorize_metastore(lake)
        await _authorize_credential(lake, credential_name, found, situation="credential")

    made = await _change(lake, "create-external-location", decide, authorize, request, located=name)
    return made, location_named(made, name)


async def update_location(
    lake: Lake, name: str, update: LocationUpdate, request: Request
) -> tuple[StorageRegistry, ExternalLocation]:
    url = checked_url(update.url) if update.url else None
    if url:
        _external_address(lake, url)
    before = (await load_registry(lake)).locations.get(name)
    fields = {"name": update.new_name, "comment": update.comment, "url": url}

    def decide(found: StorageRegistry) -> StorageRegistry:
        before = location_named(found, name)
        used = credential_named(found, update.credential_name).id if update.credential_name else None
        return with_location(found, _updated(lake, before, fields | {"credential_id": used}, request), replaces=name)

    async def authorize(found: StorageRegistry) -> None:
        await _authorize_location(lake, name, found)
        if update.credential_name and name in found.locations:
            await _authorize_credential(lake, update.credential_name, found, situation="credential")

    located = (update.new_name or name) if url else ""
    changed = await _change(lake, "update-external-location", decide, authorize, request, located=located)
    if url and before:
        await _release(lake, before)
    return changed, location_named(changed, update.new_name or name)


async def drop_location(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    """Drop a location; raises Invalid if something has its files there, unless `force` is set."""
    registry = await load_registry(lake)
    await _authorize_location(lake, name, registry)
    found = registry.locations.get(name)  # None for a retry of a drop that happened.
    user = await _find_user(lake, found.url) if found and not force else None
    if user:
        raise Invalid(
            f"External location {name} is still used by {user}; force=true deletes it nevertheless",
            public_text=f"External location {name} is still used; force=true deletes it nevertheless",
        )

    def decide(found: StorageRegistry) -> StorageRegistry:
        return without_location(found, name)

    await _change(lake, "drop-external-location", decide, partial(_authorize_location, lake, name), request)
    if found:
        await _release(lake, found)


async def load_credential(lake: Lake, name: str) -> Credential:
    """A credential that the caller may see; NotFound otherwise (A2)."""
    registry = await _read_allowed(lake, partial(_authorize_credential, lake, name))
    return credential_named(registry, name)


async def load_location(lake: Lake, name: str) -> tuple[StorageRegistry, ExternalLocation]:
    """An external location that the caller may see; NotFound otherwise (A2)."""
    registry = await _read_allowed(lake, partial(_authorize_location, lake, name))
    return registry, location_named(registry, name)


async def list_credentials(lake: Lake, page: ListRequest) -> tuple[Sequence[Credential], str | None]:
    """The credentials that the caller may see, sorted by name; and the token of the next page."""
    registry, viewer = await _read_visible(lake)
    seen = {
        name: entry
        for name, entry in registry.credentials.items()
        if viewer is None or viewer.sees(_link(entry, "credential"))
    }
    return _page_of(lake, "credentials", seen, page)


async def list_locations(
    lake: Lake, page: ListRequest
) -> tuple[StorageRegistry, Sequence[ExternalLocation], str | None]:
    """The external locations that the caller may see, sorted by name; and the token of the next page."""
    registry, viewer = await _read_visible(lake)
    seen = {
        name: entry
        for name, entry in registry.locations.items()
        if viewer is None or viewer.sees(_link(entry, "external_location"))
    }
    return registry, *_page_of(lake, "external_locations", seen, page)


async def _read_visible(lake: Lake) -> tuple[StorageRegistry, Viewer | None]:
    """The registry, and what the caller may see of it."""
    viewer: Viewer | None = None

    async def authorize(_: StorageRegistry) -> None:
        nonlocal viewer
        if authority := await read_authority(lake):
            require(lake, authority, (authority.metastore,), missing=_METASTORE)
            viewer = viewer_of(lake, authority, (authority.metastore,))

    registry = await _read_allowed(lake, authorize)
    return registry, viewer


async def _read_allowed(lake: Lake, authorize: Authorize) -> StorageRegistry:
    """The registry, if `authorize` allows it; the right and the registry were valid at one moment (A2)."""
    for _ in range(READS_MAX):
        found = await lake.storage_registry().read()
        registry = found.value if found else StorageRegistry()
        await authorize(registry)
        if lake.access is None or found is None:
            return registry
        if await lake.store.are_current(((lake.layout.storage_registry(), found.version),)):
            return registry
    raise Busy("the storage credentials and external locations keep changing")


async def _authorize_credential(lake: Lake, name: str, registry: StorageRegistry, *, situation: str = "") -> None:
    if entry := registry.credentials.get(name):
        await _authorize_entry(lake, entry, "credential", credential_not_found(name), situation)


async def _authorize_location(lake: Lake, name: str, registry: StorageRegistry) -> None:
    if entry := registry.locations.get(name):
        await _authorize_entry(lake, entry, "external_location", location_not_found(name), "")


async def _authorize_entry(
    lake: Lake, entry: RegistryEntry, type_: SecurableType, missing: NotFound, situation: str
) -> None:
    """Check what the route declares on a credential or location, by a read of the grants that begins now (A6)."""
    if authority := await read_authority(lake):
        require(lake, authority, (authority.metastore, _link(entry, type_)), missing=missing, situation=situation)


def _link(entry: RegistryEntry, type_: SecurableType) -> Link:
    return Link(entry.id, type_, entry.name, entry.owner_id)


_METASTORE: Final = NotFound("Metastore does not exist", subject="metastore")  # Never raised: every caller sees it.


async def _find_user(lake: Lake, url: str) -> str | None:
    """Something whose files are at or below the url, as a text; None if there is nothing."""
    async for namespace, named, location in located_entries(lake.acting_for(None)):
        if is_within(location, url):
            return f"{named.kind} {namespace.catalog}.{namespace}.{named.name} at {location}"
    return None


async def named_entries(lake: Lake) -> AsyncIterator[tuple[Namespace, Entry]]:
    """Everything that has a name in a namespace, with the namespace, from the lists of all catalogs."""
    catalogs = await read_page(lake, CATALOGS, last=None, wanted=None)
    scopes = [(catalog.name, namespaces_scope(catalog.name, None)) for catalog in catalogs.entries]
    while scopes:
        catalog_name, scope = scopes.pop()
        for entry in (await read_page(lake, scope, last=None, wanted=None)).entries:
            namespace = Namespace(catalog_name, (*scope.levels, entry.name))
            scopes.append((catalog_name, namespaces_scope(catalog_name, namespace)))
            for named in (await read_page(lake, names_scope(namespace), last=None, wanted=None)).entries:
                yield namespace, named


async def located_entries(lake: Lake) -> AsyncIterator[tuple[Namespace, Entry, str]]:
    """Everything that has files, with its namespace and its normalized location."""
    async for namespace, named in named_entries(lake):
        if location := _LOCATED.decode(named.info).storage_location:
            yield namespace, named, normalize_location(location)


def _page_of(
    lake: Lake, collection: str, entries: Mapping[str, E], page: ListRequest
) -> tuple[Sequence[E], str | None]:
    """The entries after the token, sorted by name, at most `size`; and the token of the next page."""
    subject = (lake.layout.root, collection)
    last = decode_page_token(page.token, subject) if page.token else ""
    names = sorted(name for name in entries if name > last)
    chosen = names if page.size is None else names[: page.size]
    token = encode_page_token(subject, chosen[-1]) if len(chosen) < len(names) else None
    return [entries[name] for name in chosen], token


def _updated(lake: Lake, entry: E, fields: Mapping[str, object], request: Request, *, wanted: E | None = None) -> E:
    """The entry with the fields that are not None, and an empty name as None; the entry itself if nothing changes.

    `wanted` is the entry with its other changes.
    """
    given: dict[str, Any] = {field: value for field, value in fields.items() if value is not None}
    after = replace(wanted or entry, **given | {"name": fields["name"] or entry.name})
    if after == entry:
        return entry
    return replace(after, changed_ms=lake.clock.now_ms(), changed_by=request.source.principal)


async def _change(
    lake: Lake,
    operation: str,
    decide: Callable[[StorageRegistry], StorageRegistry],
    authorize: Authorize,
    request: Request,
    *,
    located: str = "",
) -> StorageRegistry:
    """Each operation has its own claims; all of them change the same record.

    `located` is the external location whose url is claimed before the record is swapped (P9).
    """
    places = LocationClaims(lake)

    async def secure(registry: StorageRegistry) -> None:
        if location := registry.locations.get(located):
            me = external_holder(lake, location, request, began_ms=lake.clock.now_ms())
            if unfree := await places.write(me, {_external_address(lake, location.url): location.url}):
                raise unfree.error
            if unfree := await places.look():
                raise unfree.error

    def changed(found: StorageRegistry | None) -> StorageRegistry:
        return decide(found or StorageRegistry())

    change = RecordChange(
        lake,
        lake.storage_registry(),
        request,
        operation,
        changed,
        answer=lambda registry: msgspec.json.encode(without_secrets(registry)),
        write_aside=secure,
        authorize=lambda found: authorize(found or StorageRegistry()),
        subject=storage_subject,
    )
    try:
        return await change.run()
    except SandurError:
        await lake.background.run("withdraw location claims", places.withdraw())
        raise


def _external_address(lake: Lake, url: str) -> Address:
    return external_address(url, canonical_address(lake.locations.own), canonical_address(lake.area))


def external_holder(lake: Lake, location: ExternalLocation, request: Request, *, began_ms: int) -> Holder:
    """The holder of the url of an external location."""
    layout = lake.layout
    owner = Owner(
        tenant=layout.tenant, workspace=layout.workspace, record="external", uuid=location.id, name=location.name
    )
    made_by = request_id(request)
    return Holder(kind="external", owner=owner, began_ms=began_ms, made_by=made_by, what="external location")


async def _release(lake: Lake, location: ExternalLocation) -> None:
    with contextlib.suppress(Invalid):  # An older one, whose url has no address, has no claim.
        places = [str(canonical_address(location.url))]
        await lake.background.run("release location claims", release_places(lake, location.id, places))
