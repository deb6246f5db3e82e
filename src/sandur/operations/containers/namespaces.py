"""Create, load, list and update namespaces (rules N3, N4, N6)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent
from sandur.catalog.identifiers import Namespace, checked_namespace
from sandur.catalog.index import namespaces_scope, place_of
from sandur.catalog.locations import check_property_keys, folder_name, hadoop_form, named_address
from sandur.catalog.paging import Page
from sandur.catalog.property_keys import check_new_keys
from sandur.catalog.records import Catalog, Claim, NamespaceRecord, Request
from sandur.errors import AlreadyExists, Busy, Hidden, NotFound, OutcomeUnknown, SwapLost, Unavailable, Unprocessable
from sandur.operations.access import READS_MAX, authorize_catalog, authorize_namespace, may_see, read_authority, require
from sandur.operations.containers.catalogs import add_root, ensure_catalog, find_catalog, load_catalog
from sandur.operations.containers.records import (
    RecordChange,
    catalog_not_found,
    dropped_namespace,
    help_predecessor,
    parent_not_found,
    signature_of,
    visible_properties,
)
from sandur.operations.events import event_of, namespace_subject
from sandur.operations.idempotency import claim_for, hold_claim, run_exactly_once
from sandur.operations.index import update as indexing
from sandur.operations.index.lists import find_namespace, list_entries
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import catalog_id_of, realm_of
from sandur.operations.name_access import authorize_places
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.securable_chains import namespace_chain
from sandur.operations.security import look_again
from sandur.operations.tables.names import confirm_parent, is_namespace_visible, namespace_not_found, resolve_namespace
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import ABSENT, Version

CREATE_NAMESPACE: Final = "create-namespace"


class NamespaceView(NamedTuple):
    """A namespace as clients see it. The properties always contain `location`: some engines require it."""

    namespace: Namespace
    properties: Mapping[str, str]


class PropertiesUpdate(NamedTuple):
    """The keys that were set, the keys that were removed, and the keys to remove that were not set."""

    updated: Sequence[str]
    removed: Sequence[str]
    missing: Sequence[str]


async def create_namespace(
    lake: Lake, namespace: Namespace, properties: Mapping[str, str], request: Request
) -> NamespaceView:
    """Create a namespace, and first the parents that are missing; AlreadyExists if the name is taken.

    Iceberg's specification knows no answer for a missing parent, and its catalogs see a namespace as soon as there is
    one below it. The parents stay, also if the child is not created after all.
    """
    checked_namespace(namespace)
    check_new_keys(properties)
    catalog = await NamespaceCreation(lake, namespace, properties, request).run()
    return _view(lake, catalog, namespace, properties)


async def load_namespace(lake: Lake, namespace: Namespace) -> NamespaceView:
    """Load a namespace; NotFound if it does not exist."""
    # In a hidden catalog, an existing and a missing namespace get the same answer: that of the catalog.
    catalog, found = await gather_all((load_catalog(lake, namespace.catalog), load_record(lake, namespace)))
    return _view(lake, catalog, namespace, visible_properties(found))


async def load_record(lake: Lake, namespace: Namespace) -> NamespaceRecord:
    """The record of a namespace that the caller may see; NotFound otherwise (A2)."""
    missing = namespace_not_found(namespace)
    for _ in range(READS_MAX):
        before = _versions_seen(lake, namespace)
        found, authority = await gather_all((resolve_namespace(lake, namespace), read_authority(lake)))
        if found is None:
            raise missing
        if authority is None:
            return found.value
        chain = await namespace_chain(lake, authority, namespace, found.value.id, missing=missing)
        require(lake, authority, chain, missing=missing)
        read = ((lake.layout.security_manifest(), authority.version), (lake.layout.namespace(namespace), found.version))
        # As in `versions_read`: what was decided and what was read were valid at one moment.
        if read == before or await lake.store.are_current([(key, Version(version)) for key, version in read]):
            return found.value
    raise Busy(f"namespace {namespace} keeps changing")


def _versions_seen(lake: Lake, namespace: Namespace) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """The grants and the namespace as this process saw them last; None if it has not seen both."""
    manifest, record = lake.security().last_seen, lake.namespace(namespace).last_seen
    if lake.access is None or manifest is None or record is None:
        return None
    return (lake.layout.security_manifest(), manifest.version), (lake.layout.namespace(namespace), record.version)


async def check_namespace_visible(lake: Lake, namespace: Namespace) -> None:
    """Raise NotFound unless the namespace exists and the caller may see it, whatever else its route needs."""
    missing = namespace_not_found(namespace)
    found, authority = await gather_all((resolve_namespace(lake, namespace), read_authority(lake)))
    if found is None:
        raise missing
    if authority:
        chain = await namespace_chain(lake, authority, namespace, found.value.id, missing=missing)
        if not may_see(lake, authority, chain):
            raise Hidden(str(missing), subject=missing.subject)


async def namespace_exists(lake: Lake, namespace: Namespace) -> bool:
    try:
        await load_record(lake, namespace)
    except NotFound:
        return False
    return True


async def list_namespaces(
    lake: Lake,
    catalog: str,
    *,
    parent: Namespace | None,
    page_token: str | None,
    page_size: int | None,
) -> Page[Namespace]:
    """List the children of a parent, or the first level of the catalog; NotFound if the parent does not exist."""
    container = partial(find_namespace, lake, parent) if parent else partial(find_catalog, lake, catalog)
    scope = namespaces_scope(catalog, parent)
    page = await list_entries(lake, scope, "namespace", page_token, page_size, container)
    return Page([Namespace(catalog, (*scope.levels, entry.name)) for entry in page.entries], page.next_token)


async def update_namespace_properties(
    lake: Lake,
    namespace: Namespace,
    *,
    removals: Sequence[str],
    updates: Mapping[str, str],
    request: Request,
) -> PropertiesUpdate:
    """Set and remove properties; NotFound without the namespace, Unprocessable if a key is in both lists."""
    if both := sorted(set(removals) & set(updates)):
        raise Unprocessable(f"Cannot set and remove properties at the same time: {', '.join(both)}")
    check_property_keys(removals)
    check_new_keys(updates)
    catalog: Catalog | None = None
    made = PropertiesUpdate((), (), ())

    async def read() -> Versioned[NamespaceRecord] | None:
        nonlocal catalog
        catalog, found = await asyncio.gather(load_catalog(lake, namespace.catalog), resolve_namespace(lake, namespace))
        return found

    def update(found: NamespaceRecord) -> NamespaceRecord:
        nonlocal made
        if catalog:
            check_namespace_location(lake, catalog, updates)
        visible = visible_properties(found)
        after, keys = {**visible, **updates}, dict.fromkeys(removals)
        removed = [key for key in keys if key in after]
        made = PropertiesUpdate(list(updates), removed, [key for key in keys if key not in after])
        properties = {key: value for key, value in after.items() if key not in keys}
        # The comment is one of the properties from now on.
        return found if properties == visible else replace(found, comment=None, properties=properties)

    location = updates.get("location", "")
    change = namespace_change(lake, namespace, "update-namespace", update, request, read=read, location=location)
    change.answer = lambda _: msgspec.json.encode(made)
    return msgspec.json.decode(await change.run_for_answer(), type=PropertiesUpdate)


def namespace_change(
    lake: Lake,
    namespace: Namespace,
    operation: str,
    update: Callable[[NamespaceRecord], NamespaceRecord],
    request: Request,
    *,
    read: Callable[[], Awaitable[Versioned[NamespaceRecord] | None]],
    location: str = "",
) -> RecordChange[NamespaceRecord]:
    """A change of a namespace by `update`; NotFound if the namespace does not exist. `read` resolves it.

    `location` is the new location of the namespace, empty if it stays.
    """

    def decide(found: NamespaceRecord | None) -> NamespaceRecord:
        if found is None:
            raise namespace_not_found(namespace)
        changed = update(found)
        if changed == found:
            return found
        # `read` has confirmed a new namespace. This swap makes a concurrent drop look for children again.
        state = "active" if found.state == "new" else found.state
        return replace(changed, state=state, updated_ms=lake.clock.now_ms(), updated_by=request.source.principal)

    async def authorize(found: NamespaceRecord | None) -> None:
        if found is not None:
            missing = namespace_not_found(namespace)
            await authorize_namespace(lake, namespace, missing=missing, namespace_id=found.id)
            if location and location != found.properties.get("location"):
                await authorize_places(lake, namespace.catalog, (location,))

    async def secure(record: NamespaceRecord) -> None:
        if location := record.properties.get("location"):
            await add_root(lake, namespace.catalog, location, request)

    return RecordChange(
        lake,
        lake.namespace(namespace),
        request,
        operation,
        decide,
        place=place_of(namespace),
        read=read,
        write_aside=secure,
        authorize=authorize,
        subject=lambda record: namespace_subject(namespace, record.id),
    )


def _view(lake: Lake, catalog: Catalog, namespace: Namespace, properties: Mapping[str, str]) -> NamespaceView:
    folders = "/".join(folder_name(level) for level in lake.layout.aliases.keys_of(namespace).levels)
    location = hadoop_form(f"{catalog.root.rstrip('/')}/{folders}")
    return NamespaceView(namespace, {**properties, "location": properties.get("location") or location})


@dataclass
class NamespaceCreation:
    """One request to create a namespace.

    The claim pins the id of the namespace, so a retry recognises its own record. Every later change of the record marks
    the claim as done first (G6). A retry that holds the claim and finds another record was therefore never carried out.
    Without a key, the outcome of a swap whose answer was lost stays unknown if the record has changed since.
    """

    lake: Lake
    namespace: Namespace
    properties: Mapping[str, str]
    request: Request
    comment: str | None = None

    def __post_init__(self) -> None:
        self._cell = self.lake.namespace(self.namespace)
        self._claim = claim_for(self.lake, self.request, CREATE_NAMESPACE)
        self._change = signature_of(self.lake, self.request, CREATE_NAMESPACE)
        self._id = self.lake.clock.new_uuid()
        self._catalog_id = ""
        self._is_marked = False
        self._is_written = False
        self._is_uncertain = False
        self._made: NamespaceRecord | None = None

    @property
    def made(self) -> NamespaceRecord:
        """The record of the namespace, after `run`; a replay returns the record that the first request created."""
        return self._made or self._record("", None)

    async def run(self) -> Catalog:
        """Create the namespace and return its catalog; AlreadyExists, or NotFound if the parent is dropped now."""
        async with indexing.finishing(self.lake, "index a namespace", self._finish_index):
            try:
                return await run_exactly_once(self._claim, self._attempt, self._replay)
            except Unavailable as error:
                if self._is_written:  # G2
                    raise OutcomeUnknown(f"namespace {self.namespace}: it may have been created: {error}") from error
                raise

    async def _finish_index(self) -> None:
        if self._is_marked:
            await indexing.finish(self.lake, self.namespace, self._id)

    async def _replay(self, claim: Claim) -> Catalog:
        """The first attempt has created it. The right to do so was checked before the claim was read (A9)."""
        self._id = claim.namespace_id
        found = await self._cell.read()
        self._made = found.value if found and found.value.id == self._id else None
        return await ensure_catalog(self.lake, self.namespace.catalog)

    async def _attempt(self, taken: Claim | None) -> Catalog:
        if taken:
            self._id = taken.namespace_id
        async for _attempt in Attempts(self.lake.clock):
            catalog, found, parent = await asyncio.gather(
                ensure_catalog(self.lake, self.namespace.catalog), self._cell.read(), self._parent_id()
            )
            await gather_all((self._authorize(catalog, parent), self._look_at_names(found)))
            check_namespace_location(self.lake, catalog, self.properties)
            if found and found.value.id == self._id:
                self._is_marked = True  # By the attempt that wrote it, if not by this one.
                if await self._is_confirmed(found):
                    return catalog
                continue
            parent = catalog.id if self.namespace.parent is None else parent
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(
                    f"namespace {self.namespace}: this request may have created it; it has changed since"
                )
            if found and await is_namespace_visible(self.lake, self.namespace, found.value):
                raise AlreadyExists(f"Namespace already exists: {self.namespace}", subject="namespace")
            if parent is None:
                await hold_claim(self._claim, namespace_id=self._id)  # C7: an earlier attempt has not succeeded.
                await self._create_parent()
                continue
            if location := self.properties.get("location"):
                await add_root(self.lake, self.namespace.catalog, location, self.request)
            written = await self._write(found, parent)
            self._is_written = written is not None
            if written and await self._is_confirmed(written):
                return catalog
        raise Busy(f"namespace {self.namespace} keeps changing")

    async def _look_at_names(self, found: Versioned[NamespaceRecord] | None) -> None:
        """X4: after the record was read that this request replaces, the name still leads to it."""
        await look_again(self.lake, is_fenced=found is not None and found.value.is_fenced)

    async def _authorize(self, catalog: Catalog, parent_id: str | None) -> None:
        """The right to create a schema, on the parent namespace or, if that does not exist, on the catalog.

        A location that the client names needs a right, too.
        """
        if self.namespace.parent and parent_id:
            missing = namespace_not_found(self.namespace.parent)
            try:
                await authorize_namespace(self.lake, self.namespace.parent, missing=missing, namespace_id=parent_id)
            except Hidden:  # The answer is that for a parent which does not exist, and which the request would create.
                await authorize_catalog(self.lake, catalog, missing=catalog_not_found(catalog.name))
                raise
        else:
            await authorize_catalog(self.lake, catalog, missing=catalog_not_found(catalog.name))
        if location := self.properties.get("location"):
            await authorize_places(self.lake, catalog.name, (location,))

    async def _parent_id(self) -> str | None:
        """The id of the parent namespace; None if it does not exist, and on the first level."""
        if self.namespace.parent is None:
            return None
        parent = self.namespace.parent
        found = await resolve_namespace(self.lake, parent)
        self._catalog_id = catalog_id_of(parent, found.value) if found else ""
        return found.value.id if found else None

    async def _create_parent(self) -> None:
        if self.namespace.parent:
            with contextlib.suppress(AlreadyExists):  # Another request has created it.
                await NamespaceCreation(self.lake, self.namespace.parent, {}, self.request._replace(key=None)).run()

    async def _write(self, found: Versioned[NamespaceRecord] | None, parent: str) -> Versioned[NamespaceRecord] | None:
        """N2, N3: the creation happens here if the parent exists. None if another writer was faster."""
        before = found.value if found else None
        failed_by = parent_not_found(self.namespace) if before and before.state == "new" else None
        # E3: a `new` record whose parent is gone never happened; a dropped one did.
        last = before.last_event if before and before.state == "dropped" else None
        subject = namespace_subject(self.namespace, self._id)
        event = await event_of(self.lake, "created", subject, self.request.source)
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim, namespace_id=self._id),  # C7
                indexing.mark(self.lake, self.namespace, self._id),  # I1
                help_predecessor(self.lake, before, failed_by=failed_by),  # G6: its record is replaced.
                self.lake.feature(CatalogReceipts).ensure(last),  # E2
            ]
        )
        try:
            return await self._cell.swap(self._record(parent, event), expected=found.version if found else ABSENT)
        except SwapLost as lost:
            self._is_uncertain |= not lost.is_definite
            return None

    def _record(self, parent: str, event: CatalogEvent | None) -> NamespaceRecord:
        now_ms, principal = self.lake.clock.now_ms(), self.request.source.principal
        return NamespaceRecord(
            state="new",
            id=self._id,
            parent_id=parent,
            catalog_id=self._catalog_id if self.namespace.parent else "",
            comment=self.comment,
            properties=dict(self.properties),
            owner=principal,
            owner_id=self.request.source.principal_id,
            change=self._change,
            last_event=event,
            created_ms=now_ms,
            created_by=principal,
            updated_ms=now_ms,
            updated_by=principal,
        )

    async def _is_confirmed(self, held: Versioned[NamespaceRecord]) -> bool:
        """N4: the namespace exists if its parent is read after it and exists; otherwise its record is removed again.

        False if the record cannot be removed: another request has changed or dropped it before its parent was dropped.
        """
        if held.value.state == "new":
            if not await confirm_parent(self.lake, self.namespace, held.value.parent_id):
                try:
                    await self._cell.swap(
                        dropped_namespace(held.value, self.lake.clock.now_ms()), expected=held.version
                    )
                except SwapLost:
                    self._is_uncertain = True
                    return False
                self._is_written = False
                raise parent_not_found(self.namespace)
            await self.lake.background.run("activate a namespace", self._activate(held))
        self._made = held.value
        # If the claim was taken over, the new owner finds the namespace by its id. The parent was seen (E3).
        receipt = self.lake.feature(CatalogReceipts).ensure(held.value.last_event)
        await self.lake.background.run("finish create namespace", gather_all((self._claim.finish(), receipt)))
        return True

    async def _activate(self, held: Versioned[NamespaceRecord]) -> None:
        """The parent is confirmed. A lost swap is fine: another request has confirmed the namespace and changed it."""
        with contextlib.suppress(SwapLost):
            await self._cell.swap(replace(held.value, state="active"), expected=held.version)


def check_namespace_location(lake: Lake, catalog: Catalog, properties: Mapping[str, str]) -> None:
    """Invalid if the namespace places its tables outside of the storage of its catalog."""
    if location := properties.get("location"):
        named_address(location, realm_of(lake, catalog))
