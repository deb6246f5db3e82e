"""Drop a namespace or a catalog: mark it as `dropping`, look for children, drop it (rules G5, N6).

The creator of a child reads the container after it has written the child. It finds the mark and calls the drop off, or
the drop finds the child. A cascade drops the children first, each by an operation of its own: after a crash in between,
a retry continues with the rest.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent, EventSubject, Source
from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Place, place_of
from sandur.catalog.records import Catalog, Claim, LastChange, NamespaceRecord, Request
from sandur.catalog.security.manifest import Authority
from sandur.catalog.security.privileges import Chain, Link
from sandur.errors import Busy, Invalid, NotEmpty, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.access import authorize_catalog, authorize_namespace, read_authority, require
from sandur.operations.containers.records import (
    catalog_not_found,
    dropped_namespace,
    help_predecessor,
    is_signed_by,
    signature_of,
)
from sandur.operations.delta.tables import drop_table
from sandur.operations.events import (
    adoption_of,
    catalog_subject,
    event_of,
    is_adoptable,
    namespace_subject,
    with_event,
)
from sandur.operations.idempotency import claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.index import update
from sandur.operations.index.truth import list_child_namespaces, list_keys
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import release_places
from sandur.operations.locations.owners import catalog_places
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.securable_chains import catalog_chain, namespace_chain
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import (
    catalog_exists,
    is_namespace_visible,
    namespace_not_found,
    settle_name,
)
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all, gather_in_batches

T = TypeVar("T")
C = TypeVar("C", Catalog, NamespaceRecord)

CHILDREN_AT_ONCE: Final = 32
DROPS_AT_ONCE: Final = 16
CASCADES_MAX: Final = 3


async def drop_namespace(
    lake: Lake, namespace: Namespace, request: Request, *, cascade: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Drop a namespace; NotFound if it does not exist, NotEmpty if it has children and `cascade` does not drop them."""

    async def first_child(container_id: str) -> str | None:
        namespaces = _first_child_namespace(lake, namespace.catalog, namespace, container_id)
        child, name = await gather_all((namespaces, _first_name(lake, namespace, container_id)))
        return child or name

    await _Drop(
        lake,
        request,
        "drop-namespace",
        f"Namespace {namespace}",
        lake.namespace(namespace),
        place_of(namespace),
        namespace_not_found(namespace),
        is_visible=partial(is_namespace_visible, lake, namespace),
        first_child=first_child,
        dropped=dropped_namespace,
        subject=lambda found: namespace_subject(namespace, found.id),
        authorize=lambda found: authorize_namespace(
            lake, namespace, missing=namespace_not_found(namespace), namespace_id=found.id
        ),
        above=partial(_chain_above, lake, namespace),
        cascade=cascade,
    ).run()


async def drop_namespace_cascade(lake: Lake, namespace: Namespace, request: Request) -> None:
    """Drop a namespace with everything in it; NotFound if it does not exist.

    Nothing is dropped before the key is held: the name may belong to another namespace by now (D2).
    """
    layout, folder = lake.layout, lake.layout.namespaces_folder(namespace.catalog)

    async def cascade() -> None:
        await _drop_namespaces(lake, folder, layout.namespaces_below(namespace), request.source)
        await _drop_names(lake, namespace, request.source)

    await drop_namespace(lake, namespace, request, cascade=cascade)


async def drop_catalog(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    """Drop a catalog, with `force` also everything in it; NotFound, or NotEmpty if it has children without `force`."""
    if name == lake.settings.default_catalog:
        if found := await lake.catalog(name).read():
            await authorize_catalog(lake, found.value, missing=catalog_not_found(name))
        raise Invalid(f"Catalog {name} cannot be dropped: it is the default catalog of this server")

    async def is_visible(catalog: Catalog) -> bool:
        return catalog_exists(catalog)

    cascade = partial(_drop_namespaces, lake, lake.layout.namespaces_folder(name), "", request.source)
    await _Drop(
        lake,
        request,
        "drop-catalog",
        f"Catalog {name}",
        lake.catalog(name),
        Place(CATALOGS, name),
        catalog_not_found(name),
        is_visible=is_visible,
        first_child=partial(_first_child_namespace, lake, name, None),
        dropped=lambda found, now_ms, signature, event: replace(
            found, state="dropped", properties={}, change=signature, updated_ms=now_ms, last_event=event
        ),
        subject=catalog_subject,
        authorize=lambda found: authorize_catalog(lake, found, missing=catalog_not_found(name)),
        above=partial(_chain_above, lake, None),
        cascade=cascade if force else None,
    ).run()
    if dropped := lake.catalog(name).last_seen:  # P10; the janitor removes what must wait for a purge (P12).
        releasing = release_places(lake, dropped.value.id, catalog_places(dropped.value))
        await lake.background.run("release location claims", releasing)


@dataclass
class _Drop(Generic[C]):
    """One request to drop a container; `text` names it in errors, `operation` is the kind of its claims.

    The claim pins the id of the container (D2): a retry drops that one, and never a later one with the same name. The
    record that stays behind carries the signature of the request. The creator of a new container with that name marks
    the claim as done first (G6). So a retry that holds the claim and does not find its signature has dropped nothing.

    `is_visible` says whether readers see the container; one that is being dropped is visible. `first_child` returns the
    kind and name of a child of the container with that id, or None. It reads page by page, which is safe: the creator
    of a child behind the cursor reads the container afterwards (N4). `dropped` makes the record that replaces the
    container, at that time, signed by this request and with its event. `subject` is what the event is about.
    `authorize` raises unless the caller may drop it.
    `above` returns the chain of its parent. `cascade` drops the children, if the request wants that.
    """

    lake: Lake
    request: Request
    operation: str
    text: str
    cell: Cell[C]
    place: Place
    missing: NotFound
    is_visible: Callable[[C], Awaitable[bool]]
    first_child: Callable[[str], Awaitable[str | None]]
    dropped: Callable[[C, int, LastChange, CatalogEvent | None], C]
    subject: Callable[[C], EventSubject]
    authorize: Callable[[C], Awaitable[None]]
    above: Callable[[Authority], Awaitable[Chain]]
    cascade: Callable[[], Awaitable[None]] | None = None
    _is_marked: bool = False
    _is_uncertain: bool = False

    def __post_init__(self) -> None:
        self._claim = claim_for(self.lake, self.request, self.operation)
        self._signature = signature_of(self.lake, self.request, self.operation)
        self._mark = self.lake.clock.new_id()

    async def run(self) -> None:
        async with update.finishing(self.lake, "index a drop", self._finish_index):
            await run_exactly_once(self._claim, self._attempt, self._replay)

    async def _finish_index(self) -> None:
        if self._is_marked:
            await update.finish(self.lake, self.place, self._mark)

    async def _replay(self, done: Claim) -> None:
        """The first request has dropped it."""
        await self._authorize_replay(done.namespace_id)

    async def _authorize_replay(self, id_: str) -> None:
        """A9: judged on what is left: the id that the claim pins, and the owner in the record that was dropped."""
        authority = await read_authority(self.lake)
        if authority is None:
            return
        found = await self.cell.read()
        is_dropped = found is not None and found.value.state == "dropped"
        owner = found.value.owner_id if found and is_dropped and is_signed_by(found.value, self._signature) else ""
        link = Link(id_, "catalog" if self.place.scope == CATALOGS else "schema", self.text, owner)
        above: Chain = await self.above(authority)
        require(self.lake, authority, (*above, link), missing=self.missing)

    async def _attempt(self, taken: Claim | None) -> None:
        pinned = taken.namespace_id if taken else ""
        async for _attempt in Attempts(self.lake.clock):
            found = await self.cell.read()
            if found and found.value.state == "dropped" and is_signed_by(found.value, self._signature):
                require_claim(self._claim)
                await self._authorize_replay(pinned)
                return await self._finish(found.value.last_event)
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"{self.text}: this request may have dropped it; it has changed since")
            if found is None or not await self.is_visible(found.value) or pinned not in {"", found.value.id}:
                raise self.missing
            await self.authorize(found.value)
            if adopted := await self._adoption(found.value):  # V5: the record is older than events.
                await self.cell.try_swap(with_event(found.value, adopted), expected=found.version)
                continue
            self._is_marked = True
            await gather_all(
                [
                    hold_claim(self._claim, namespace_id=found.value.id),  # D2, C7
                    update.mark(self.lake, self.place, self._mark),  # I1
                ]
            )
            pinned = found.value.id if self._claim.is_keyed else ""
            if self.cascade:
                await self.cascade()
            if dropped := await self._mark_look_and_drop(found):
                return await self._finish(dropped.value.last_event)
        raise Busy(f"{self.text}: other requests keep creating children in it")

    async def _mark_look_and_drop(self, found: Versioned[C]) -> Versioned[C] | None:
        """G5; None to start over. NotEmpty if there is a child and the request does not cascade.

        The mark, and calling the drop off, are no events (E4).
        """
        last = found.value.last_event
        marked = await self.cell.try_swap(replace(found.value, state="dropping"), expected=found.version)
        if marked is None:
            return None
        try:
            child, _, _ = await gather_all(
                (
                    self.first_child(found.value.id),
                    help_predecessor(self.lake, found.value),
                    self.lake.feature(CatalogReceipts).ensure(last),  # E2; the container was seen to exist (E3).
                )
            )
        except SandurError:
            await self._call_off(marked)
            raise
        if child is not None:
            # If the record has changed since, the child may have been dropped.
            if not await self._call_off(marked) or self.cascade:
                return None
            raise NotEmpty(f"{self.text} is not empty. It holds {child}")
        subject = self.subject(found.value)
        event = await event_of(self.lake, "dropped", subject, self.request.source, before=last)
        dropped = self.dropped(found.value, self.lake.clock.now_ms(), self._signature, event)
        try:
            return await self.cell.swap(dropped, expected=marked.version)  # The drop happens here.
        except SwapLost as lost:  # The creator of a child has called the drop off (N6).
            self._is_uncertain |= not lost.is_definite
            return None

    async def _call_off(self, marked: Versioned[C]) -> bool:
        return await self.cell.try_swap(replace(marked.value, state="active"), expected=marked.version) is not None

    async def _adoption(self, record: C) -> CatalogEvent | None:
        return await adoption_of(self.lake, self.subject(record)) if is_adoptable(record) else None

    async def _finish(self, event: CatalogEvent | None) -> None:
        # If the claim was taken over, the new owner finds the signed record.
        receipt = self.lake.feature(CatalogReceipts).ensure(event)
        await self.lake.background.run("finish drop", gather_all((self._claim.finish(), receipt)))


async def _chain_above(lake: Lake, namespace: Namespace | None, authority: Authority) -> Chain:
    """The chain of the container that a namespace is in, or that a catalog is in (None)."""
    if namespace is None:
        return (authority.metastore,)
    if namespace.parent:
        return await namespace_chain(lake, authority, namespace.parent, missing=namespace_not_found(namespace))
    catalog = await lake.catalog(namespace.catalog).read()
    if catalog is None or not catalog_exists(catalog.value):
        raise namespace_not_found(namespace)
    return catalog_chain(authority, catalog.value)


async def _first_child_namespace(lake: Lake, catalog: str, parent: Namespace | None, container_id: str) -> str | None:
    async def describe(child: Namespace) -> str | None:
        """A `new` namespace is a child if it was made for this container. Its creator confirms that (N4)."""
        found = await lake.namespace(child).read()
        if found is None or found.value.state == "dropped":
            return None
        is_child = found.value.state != "new" or found.value.parent_id == container_id
        return f"the namespace {child}" if is_child else None

    return await _first_result(list_child_namespaces(lake, catalog, parent), describe)


async def _first_name(lake: Lake, namespace: Namespace, container_id: str) -> str | None:
    async def describe(key: str) -> str | None:
        identifier = lake.layout.parse_name(key)
        slot = await settle_name(lake, identifier, dropping=container_id)
        return f"the {slot.live.name.value.kind} {identifier}" if slot.live else None

    return await _first_result(list_keys(lake, lake.layout.names_folder(namespace)), describe)


async def _first_result(items: AsyncIterator[T], describe: Callable[[T], Awaitable[str | None]]) -> str | None:
    """The first description that is not None, in the order of the items; CHILDREN_AT_ONCE are read at a time."""
    while group := [item for _ in range(CHILDREN_AT_ONCE) if (item := await anext(items, None)) is not None]:
        if found := [text for text in await gather_all(map(describe, group)) if text]:
            return found[0]
    return None


async def _drop_namespaces(lake: Lake, folder: str, beginning: str, source: Source) -> None:
    """Drop the namespaces with such keys, and their content; other requests may create more meanwhile.

    The deepest namespaces go first: a namespace can be dropped only without children. The right to drop the container
    has been checked, and covers everything in it.
    """
    lake = lake.acting_for(None)
    namespaces = [lake.layout.parse_namespace(key) async for key in list_keys(lake, folder, beginning=beginning)]
    for namespace in sorted(namespaces, key=lambda namespace: -len(namespace.levels)):
        await _drop_names(lake, namespace, source)
        # Another request has dropped it, or created a child. The drop of the parent finds the child.
        with contextlib.suppress(NotFound, NotEmpty):
            await drop_namespace(lake, namespace, Request(hash="", source=source))


async def _drop_names(lake: Lake, namespace: Namespace, source: Source) -> None:
    lake = lake.acting_for(None)
    keys = [key async for key in list_keys(lake, lake.layout.names_folder(namespace))]
    await gather_in_batches(keys, lambda key: _drop_name(lake, key, source), at_once=DROPS_AT_ONCE)


async def _drop_name(lake: Lake, key: str, source: Source) -> None:
    identifier = lake.layout.parse_name(key)
    live = (await settle_name(lake, identifier)).live
    if live is None:
        return
    record, request = live.name.value, Request(hash="", source=source)
    with contextlib.suppress(NotFound):  # Another request has dropped it.
        if record.kind in {"table", "view"}:
            await drop_table(lake, identifier, request=request)
        else:
            await drop_name(lake, identifier, kind=record.kind, request=request, formats=(record.format,))
