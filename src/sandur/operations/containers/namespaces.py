"""Create, load, list and update namespaces (rules N3, N4, N6)."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace, checked_namespace
from sandur.catalog.index import namespaces_scope
from sandur.catalog.locations import check_property_keys, checked_location, folder_name, normalize_location
from sandur.catalog.records import Catalog, Claim, NamespaceRecord
from sandur.catalog.sources import Request
from sandur.errors import AlreadyExists, Busy, OutcomeUnknown, SwapLost, Unprocessable
from sandur.operations.concurrency import gather_all
from sandur.operations.containers.catalogs import load_catalog
from sandur.operations.containers.drop import drop_namespace
from sandur.operations.containers.records import (
    dropped_namespace,
    help_predecessor,
    is_signed_by,
    namespace_not_found,
    parent_not_found,
    signature_of,
    visible_properties,
)
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.index import update as indexing
from sandur.operations.index.lists import Listing, PageRequest, require_namespace
from sandur.operations.lake import Lake
from sandur.operations.tables.load import Page
from sandur.operations.tables.names import confirm_parent, is_namespace_visible, resolve_namespace
from sandur.storage.cell import Versioned
from sandur.storage.contract import ABSENT

CREATE_NAMESPACE: Final = "create-namespace"
TRIES_MAX: Final = 8


class NamespaceCreation:
    """One request to create a namespace.

    The claim pins the id of the namespace, so that a retry recognises its own record. Nobody changes the record further
    without making the claim done (G6), so a retry that does not find its record, and holds the claim, was never carried
    out. A lost answer shows in the same way; without a key it stays unknown.
    """

    def __init__(
        self,
        lake: Lake,
        namespace: Namespace,
        properties: Mapping[str, str],
        request: Request,
        *,
        comment: str | None = None,
    ) -> None:
        self._lake = lake
        self._namespace = namespace
        self._properties = dict(properties)
        self._comment = comment
        self._principal = request.source.principal
        self._cell = lake.namespace(namespace)
        self._claim = claim_for(lake, request, CREATE_NAMESPACE)
        self._change = signature_of(lake, request, CREATE_NAMESPACE)
        self._id = lake.clock.new_uuid()
        self._is_marked = False
        self._is_uncertain = False
        self._made: NamespaceRecord | None = None

    @property
    def made(self) -> NamespaceRecord:
        """What was made, once `run` has returned; for a replay, what the same request made before."""
        return self._made or self._record("")

    async def run(self) -> Catalog:
        """The catalog in which the namespace is now; AlreadyExists, or NotFound when there is no parent."""
        try:
            return await run_exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                await self._lake.background.run("index a namespace", self._finish_index())

    async def _replay(self, claim: Claim) -> Catalog:
        self._id = claim.namespace_id
        found = await self._cell.read()
        self._made = found.value if found and found.value.id == self._id else None
        return await load_catalog(self._lake, self._namespace.catalog)

    async def _attempt(self, taken: Claim | None) -> Catalog:
        if taken:
            self._id = taken.namespace_id
        for _ in range(TRIES_MAX):
            catalog, found, parent = await asyncio.gather(
                load_catalog(self._lake, self._namespace.catalog), self._cell.read(), self._parent_id()
            )
            self._check_location(catalog)
            if found and found.value.id == self._id:
                if await self._is_confirmed(found):
                    return catalog
                continue
            parent = catalog.id if self._namespace.parent is None else parent
            await self._expect_free(found, parent)
            await self._write_aside(found)
            written = await self._write(found, parent or "")
            if written and await self._is_confirmed(written):
                return catalog
        raise Busy(f"namespace {self._namespace}: it keeps changing")

    async def _parent_id(self) -> str | None:
        """The id of the namespace above; None when it does not exist, and for a first level."""
        if self._namespace.parent is None:
            return None
        found = await resolve_namespace(self._lake, self._namespace.parent)
        return found.value.id if found else None

    def _check_location(self, catalog: Catalog) -> None:
        check_namespace_location(self._lake, catalog, self._properties)

    async def _expect_free(self, found: Versioned[NamespaceRecord] | None, parent: str | None) -> None:
        if self._is_uncertain and not self._claim.is_keyed:
            raise OutcomeUnknown(f"namespace {self._namespace}: it may have been created, and was changed since")
        if parent is None:
            raise parent_not_found(self._namespace)
        if found and await is_namespace_visible(self._lake, self._namespace, found.value):
            raise AlreadyExists(f"Namespace already exists: {self._namespace}", subject="namespace")

    async def _write_aside(self, found: Versioned[NamespaceRecord] | None) -> None:
        """N2, in one round: the claim (C7), the mark (I1), and what the record we replace is evidence of (G6)."""
        before = found.value if found else None
        failed_by = parent_not_found(self._namespace) if before and before.state == "new" else None
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim, namespace_id=self._id),
                indexing.mark(self._lake, self._namespace, self._id),
                help_predecessor(self._lake, before, failed_by=failed_by),
            ]
        )

    async def _write(self, found: Versioned[NamespaceRecord] | None, parent: str) -> Versioned[NamespaceRecord] | None:
        """N3: it happens here, subject to its parent. None when somebody was faster."""
        try:
            return await self._cell.swap(self._record(parent), expected=found.version if found else ABSENT)
        except SwapLost as lost:
            self._is_uncertain |= not lost.is_definite
            return None

    def _record(self, parent: str) -> NamespaceRecord:
        now_ms = self._lake.clock.now_ms()
        return NamespaceRecord(
            state="new",
            id=self._id,
            parent_id=parent,
            comment=self._comment,
            properties=self._properties,
            owner=self._principal,
            change=self._change,
            created_ms=now_ms,
            created_by=self._principal,
            updated_ms=now_ms,
            updated_by=self._principal,
        )

    async def _is_confirmed(self, held: Versioned[NamespaceRecord]) -> bool:
        """N4: it counts once its parent is seen to be there; if that is gone, it is taken away again.

        False when it cannot be taken away: somebody saw it, and may have changed or dropped it before its parent went.
        """
        if held.value.state == "new":
            if not await confirm_parent(self._lake, self._namespace, held.value.parent_id):
                try:
                    await self._cell.swap(dropped_namespace(self._lake.clock.now_ms()), expected=held.version)
                except SwapLost:
                    self._is_uncertain = True
                    return False
                raise parent_not_found(self._namespace)
            await self._lake.background.run("activate a namespace", self._activate(held))
        self._made = held.value
        await self._lake.background.run("finish create namespace", self._finish_claim())
        return True

    async def _activate(self, held: Versioned[NamespaceRecord]) -> None:
        """There is nothing left to confirm. Whoever changed it meanwhile is right."""
        with contextlib.suppress(SwapLost):
            await self._cell.swap(replace(held.value, state="active"), expected=held.version)

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds the namespace by its id.
            await self._claim.done()

    async def _finish_index(self) -> None:
        await indexing.finish(self._lake, self._namespace, self._id)


def check_namespace_location(lake: Lake, catalog: Catalog, properties: Mapping[str, str]) -> None:
    """A namespace may say where its tables lie only within the storage of its catalog."""
    if location := properties.get("location"):
        checked_location(location, (normalize_location(catalog.root), *lake.locations.others))


UPDATE_NAMESPACE: Final = "update-namespace"


class PropertiesUpdate(NamedTuple):
    """Which properties were set, which were taken away, and which were to be taken away but were not there."""

    updated: Sequence[str]
    removed: Sequence[str]
    missing: Sequence[str]


class NamespaceUpdate:
    """One request to change properties.

    What it did depends on what was there, so the record carries the answer until the claim does. Whoever changes the
    record next makes the claim done first (G6): a retry that holds the claim and does not find itself in the record was
    never carried out. A lost answer shows in the same way; without a key it stays unknown.
    """

    def __init__(
        self,
        lake: Lake,
        namespace: Namespace,
        *,
        removals: Sequence[str],
        updates: Mapping[str, str],
        request: Request,
    ) -> None:
        self._lake = lake
        self._namespace = namespace
        self._removals = tuple(dict.fromkeys(removals))
        self._updates = dict(updates)
        self._principal = request.source.principal
        self._claim = claim_for(lake, request, UPDATE_NAMESPACE)
        self._change = signature_of(lake, request, UPDATE_NAMESPACE)
        self._mark = lake.clock.new_id()
        self._is_marked = False
        self._is_uncertain = False

    async def run(self) -> PropertiesUpdate:
        try:
            return await run_exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                finishing = indexing.finish(self._lake, self._namespace, self._mark)
                await self._lake.background.run("index a namespace", finishing)

    async def _replay(self, claim: Claim) -> PropertiesUpdate:
        return msgspec.json.decode(claim.answer, type=PropertiesUpdate)

    async def _attempt(self, _: Claim | None) -> PropertiesUpdate:
        for _tries in range(TRIES_MAX):
            catalog, found = await asyncio.gather(
                load_catalog(self._lake, self._namespace.catalog),
                resolve_namespace(self._lake, self._namespace),
            )
            if found and found.value.change and is_signed_by(found.value, self._change):
                require_claim(self._claim)
                return await self._done(found.value.change.answer)
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"namespace {self._namespace}: it may have been updated, and was changed since")
            if found is None:
                raise namespace_not_found(self._namespace)
            check_namespace_location(self._lake, catalog, self._updates)
            if answer := await self._swap(found):
                return await self._done(answer)
        raise Busy(f"namespace {self._namespace}: it keeps changing")

    async def _swap(self, found: Versioned[NamespaceRecord]) -> str | None:
        """The answer, in the form in which it is kept; None when somebody was faster."""
        shown = visible_properties(found.value)
        update, properties = self._decided(shown)
        answer = msgspec.json.encode(update).decode()
        if properties == shown:
            await self._claim.done(answer=answer)
            return answer
        wanted = replace(
            found.value,
            # What was looked up is confirmed; and who drops it meanwhile has to look again.
            state="active" if found.value.state == "new" else found.value.state,
            comment=None,  # Among the properties from now on.
            properties=properties,
            change=replace(self._change, answer=answer if self._claim.is_keyed else ""),
            updated_ms=self._lake.clock.now_ms(),
            updated_by=self._principal,
        )
        self._is_marked = True
        await gather_all(
            [
                hold_claim(self._claim, namespace_id=found.value.id),  # C7
                indexing.mark(self._lake, self._namespace, self._mark),  # I1
                help_predecessor(self._lake, found.value),  # G6
            ]
        )
        try:
            await self._lake.namespace(self._namespace).swap(wanted, expected=found.version)
        except SwapLost as lost:
            self._is_uncertain |= not lost.is_definite
            return None
        return answer

    def _decided(self, current: Mapping[str, str]) -> tuple[PropertiesUpdate, dict[str, str]]:
        properties = {**current, **self._updates}
        absent = [key for key in self._removals if key not in properties]
        removed = [key for key in self._removals if key in properties]
        for key in removed:
            del properties[key]
        return PropertiesUpdate(list(self._updates), removed, absent), properties

    async def _done(self, answer: str) -> PropertiesUpdate:
        await self._lake.background.run("finish update namespace", self._finish_claim(answer))
        return msgspec.json.decode(answer, type=PropertiesUpdate)

    async def _finish_claim(self, answer: str) -> None:
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):  # Whoever has it finds the answer in the record.
                await self._claim.done(answer=answer)


__all__ = [
    "NamespaceView",
    "PropertiesUpdate",
    "create_namespace",
    "drop_namespace",
    "list_namespaces",
    "load_namespace",
    "namespace_exists",
    "update_namespace_properties",
]


class NamespaceView(NamedTuple):
    """A namespace as a client gets it; `location` is always among the properties, for some engines ask for it."""

    namespace: Namespace
    properties: Mapping[str, str]


async def create_namespace(
    lake: Lake, namespace: Namespace, properties: Mapping[str, str], request: Request
) -> NamespaceView:
    """A new namespace; AlreadyExists when there is one of that name, NotFound when its parent does not exist."""
    checked_namespace(namespace)
    check_property_keys(properties)
    catalog = await NamespaceCreation(lake, namespace, properties, request).run()
    return _view(catalog, namespace, properties)


async def load_namespace(lake: Lake, namespace: Namespace) -> NamespaceView:
    catalog, found = await asyncio.gather(load_catalog(lake, namespace.catalog), resolve_namespace(lake, namespace))
    if found is None:
        raise namespace_not_found(namespace)
    return _view(catalog, namespace, visible_properties(found.value))


async def namespace_exists(lake: Lake, namespace: Namespace) -> bool:
    return await resolve_namespace(lake, namespace) is not None


async def list_namespaces(
    lake: Lake,
    catalog: str,
    *,
    parent: Namespace | None,
    page_token: str | None,
    page_size: int | None,
) -> Page[Namespace]:
    """The namespaces right below a parent, or those of the first level; NotFound when the parent does not exist."""
    listing = Listing(lake, namespaces_scope(catalog, parent), "namespace", PageRequest(page_token, page_size))
    exists = require_namespace(lake, parent) if parent else load_catalog(lake, catalog)
    page = await listing.read(beside=exists)
    levels = parent.levels if parent else ()
    return Page([Namespace(catalog, (*levels, entry.name)) for entry in page.entries], listing.next_token(page))


async def update_namespace_properties(
    lake: Lake,
    namespace: Namespace,
    *,
    removals: Sequence[str],
    updates: Mapping[str, str],
    request: Request,
) -> PropertiesUpdate:
    """Set some properties and take others away; a key to be both set and taken away is Unprocessable."""
    if both := sorted(set(removals) & set(updates)):
        raise Unprocessable(f"Cannot set and remove properties at the same time: {', '.join(both)}")
    check_property_keys([*removals, *updates])
    update = NamespaceUpdate(lake, namespace, removals=removals, updates=updates, request=request)
    return await update.run()


def _view(catalog: Catalog, namespace: Namespace, properties: Mapping[str, str]) -> NamespaceView:
    folders = "/".join(folder_name(level) for level in namespace.levels)
    location = f"{catalog.root.rstrip('/')}/{folders}"
    return NamespaceView(namespace, {**properties, "location": properties.get("location") or location})
