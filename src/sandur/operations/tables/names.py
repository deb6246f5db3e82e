"""Resolve names for readers and settle them for writers, with the namespaces that contain them.

A reader asks what exists under a name (`resolve_name`). A writer first finishes what others left half done
(`settle_name`), so that it can rely on the name or reuse it. See the state table in docs/protocol.md.
"""

import functools
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple, TypeVar, get_args

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace
from sandur.catalog.records import BoundRecord, Catalog, Head, NameRecord, NamespaceRecord, Pointer
from sandur.errors import Busy, NotFound, SwapLost
from sandur.operations.events import adoption_of, name_subject
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.transactions.resolution import (
    TRIES_MAX,
    abort_pending,
    effective_pointer,
    pending_name_outcome,
    resolve_pending_name,
)
from sandur.storage.cell import Attempts, Cell, Versioned, gather_all
from sandur.storage.contract import ABSENT, Expected, Version

P = TypeVar("P", Catalog, NamespaceRecord)
B = TypeVar("B", bound=BoundRecord)

RENAME: Final = "rename"
"""The operation under which renames claim their keys; `by` of a `moved` name is the hash of that key."""

RENAMES_MAX: Final = 16
"""How many renames of one object are followed."""

ICEBERG: Final[tuple[Format, ...]] = ("iceberg",)
EVERY_FORMAT: Final[tuple[Format, ...]] = get_args(Format)


class ResolvedName(NamedTuple):
    """A name that exists, as one read saw it."""

    identifier: Identifier
    name: Versioned[NameRecord]
    pointer: Versioned[BoundRecord]

    @property
    def uuid(self) -> str:
        return self.name.value.uuid

    @property
    def iceberg_pointer(self) -> Versioned[Pointer] | None:
        """The pointer of an Iceberg table or view; None for a record of another format."""
        record = self.pointer.value
        return Versioned(record, self.pointer.version) if isinstance(record, Pointer) else None

    @property
    def published_uuid(self) -> str:
        """The uuid in the pipeline's datasets: that of an Iceberg table's metadata, or that of the record."""
        pointer = self.iceberg_pointer
        return pointer.value.table_uuid if pointer else self.uuid

    def is_a(self, kind: Kind, formats: Collection[Format] = ICEBERG) -> bool:
        """Whether it is of that kind, and of a format that the caller supports."""
        return self.name.value.kind == kind and self.name.value.format in formats


class NameSlot(NamedTuple):
    """A settled name: the version that a swap of it must expect, and what lives there, if anything."""

    expected: Expected
    live: ResolvedName | None


async def resolve_namespace(lake: Lake, namespace: Namespace) -> Versioned[NamespaceRecord] | None:
    """The namespace as a reader sees it; None if it does not exist. One that is being dropped still exists."""
    found = await lake.namespace(namespace).read()
    return found if found and await is_namespace_visible(lake, namespace, found.value) else None


async def confirm_namespace(lake: Lake, namespace: Namespace, namespace_id: str) -> bool:
    """N4: after a child was written, whether its namespace exists. A drop in progress is cancelled (N6)."""
    is_visible = functools.partial(is_namespace_visible, lake, namespace)
    return await _confirm(lake.namespace(namespace), namespace_id, is_visible)


async def is_namespace_visible(lake: Lake, namespace: Namespace, record: NamespaceRecord) -> bool:
    """Whether readers see the namespace. A `new` one exists if its parent, read after it, has the recorded id."""
    if record.state == "new":
        return await confirm_parent(lake, namespace, record.parent_id)
    return record.state != "dropped"


async def confirm_parent(lake: Lake, namespace: Namespace, parent_id: str) -> bool:
    """N4 for a namespace: its parent is another namespace, or the catalog."""
    if namespace.parent is not None:
        return await confirm_namespace(lake, namespace.parent, parent_id)
    return await _confirm(lake.catalog(namespace.catalog), parent_id, None)


async def _confirm(cell: Cell[P], parent_id: str, is_visible: Callable[[P], Awaitable[bool]] | None) -> bool:
    is_confirmed = False

    async def cancel_drop(record: P | None) -> P | None:
        nonlocal is_confirmed
        is_confirmed = record is not None and record.id == parent_id and record.state != "dropped"
        is_confirmed = is_confirmed and (is_visible is None or record is None or await is_visible(record))
        if record is None or not is_confirmed or record.state != "dropping":
            return None
        return replace(record, state="active")

    await cell.update(cancel_drop, is_idempotent=True)
    return is_confirmed


def catalog_exists(catalog: Catalog) -> bool:
    """Whether readers see the catalog; one that is being dropped still exists."""
    return catalog.state != "dropped"


def namespace_not_found(namespace: Namespace) -> NotFound:
    return NotFound(f"Namespace does not exist: {namespace}", subject="namespace")


def name_not_found(identifier: Identifier, kind: Kind) -> NotFound:
    return NotFound(f"{kind.capitalize()} does not exist: {identifier}", subject=kind)


Prefetch = Callable[[Lake, NameRecord], Awaitable[None]]


async def resolve_name(lake: Lake, identifier: Identifier, *, prefetch: Prefetch | None = None) -> ResolvedName | None:
    """What a reader sees under a name; None if nothing exists there.

    Readers see exactly one of the two names of a rename at every moment (R7). `prefetch` runs together with the read of
    the pointer.
    """
    cell = lake.name(identifier)
    for _ in range(TRIES_MAX):
        name, pointer = await cell.read_with(functools.partial(pointer_cell, lake))  # C2
        if name is None:
            return None
        if name.value.state == "active" or await _is_visible(lake, identifier, name):
            if pointer is None and lake.names:  # X2: the name is new to this server.
                pointer, _ = await gather_all((_read_pointer(lake, name.value, prefetch), _look_at_names(lake)))
            pointer = pointer or await _read_pointer(lake, name.value, prefetch)
            return ResolvedName(identifier, name, pointer) if pointer and is_alive_as(name.value, pointer) else None
        if name.value.state not in {"moving", "pending"}:
            return None
        # R7, T6: the other side may be missing because it is finished. Only the same entry read twice means no.
        again = await cell.read()
        if again is None or again.version == name.version:
            return None
    raise Busy(f"{identifier}: other requests keep changing the name")


async def _look_at_names(lake: Lake) -> None:
    """X2: after a name was read that this server did not know, its containers still have the names of the request."""
    if lake.names and lake.names.is_read:
        await lake.names.look(lake)


async def _is_visible(lake: Lake, identifier: Identifier, name: Versioned[NameRecord]) -> bool:
    """Whether the name counts, according to the record that it refers to."""
    match name.value.state:
        case "active":
            return True
        case "new":
            return await confirm_namespace(lake, identifier.namespace, name.value.namespace_id)
        case "moving":
            return await _has_moved(lake, name.value)
        case "pending":
            return await pending_name_outcome(lake, name) == "committed"
        case "free" | "dropped" | "moved":
            return False


async def _read_pointer(lake: Lake, name: NameRecord, prefetch: Prefetch | None) -> Versioned[BoundRecord] | None:
    cell = pointer_cell(lake, name)
    if prefetch is None:
        return await cell.read()
    pointer, _ = await gather_all((cell.read(), prefetch(lake, name)))
    return pointer


async def _has_moved(lake: Lake, moving: NameRecord) -> bool:
    if moving.other is None:
        return False
    other = await lake.name(moving.other).read()
    return other is not None and (other.value.state, other.value.rename_id) == ("moved", moving.rename_id)


async def effective_head(lake: Lake, found: ResolvedName) -> Head:
    """The current head, with a pending transaction taken into account (T6). Raises NotFound if there is no head."""
    pointer = found.iceberg_pointer
    if pointer and pointer.value.pending:
        pointer = await effective_pointer(lake, pointer)
    if pointer is None or pointer.value.head is None:
        raise NotFound(f"{found.identifier} has no metadata", subject="table")
    return pointer.value.head


def is_alive(pointer: Versioned[BoundRecord] | None) -> bool:
    return pointer is not None and pointer.value.state not in {"dropped", "purging", "killed"}


def is_alive_as(name: NameRecord, pointer: Versioned[BoundRecord]) -> bool:
    """U1: a name shows a table only in the life that it was written for."""
    return is_alive(pointer) and pointer.value.life == name.life


def pointer_cell(lake: Lake, name: NameRecord) -> Cell[BoundRecord]:
    """The cell that a name refers to."""
    return lake.bound_record(name.uuid, name.format)


async def settle_name(lake: Lake, identifier: Identifier, *, dropping: str | None = None) -> NameSlot:
    """Finish what others left half done under a name, before the caller relies on it or reuses it.

    When this returns, the receipt of the event in the name exists, so that the caller may move the name past it
    (E2). A name that lives and is older than events is adopted (V5).

    `dropping` is the id of the namespace that the caller drops. A `new` name made for that id counts as its child
    without asking the namespace; one made for an earlier namespace of that name does not (N6 id). Then the name is only
    looked at, and no receipt is written.
    Raises Busy if others keep changing the name.
    """
    cell = lake.name(identifier)
    async for _ in Attempts(lake.clock):
        reading = cell.read_with(functools.partial(pointer_cell, lake))  # C2
        receipt = _receipt_before(lake, cell) if dropping is None else None
        name, pointer = await reading if receipt is None else (await gather_all((reading, receipt)))[0]
        if name is None:
            return NameSlot(ABSENT, None)
        try:
            slot = await _settle_once(lake, identifier, name, pointer, dropping=dropping)
        except SwapLost:
            continue
        if slot is not None:
            return slot
    raise Busy(f"{identifier}: other requests keep changing the name")


async def _settle_once(
    lake: Lake,
    identifier: Identifier,
    name: Versioned[NameRecord],
    pointer: Versioned[BoundRecord] | None,
    *,
    dropping: str | None,
) -> NameSlot | None:
    """One try of `settle_name`; None to start over."""
    record = name.value
    match record.state:
        case "free" | "dropped" | "moved":
            if record.state == "dropped":  # G6: finish the operation that ended a name, before the name is reused.
                receipt = _write_receipt(lake, record, dropping)  # E2, E8
                await gather_all((finish_drop(lake, identifier, record), receipt))
            await _finish_rename(lake, record)
            return NameSlot(name.version, None)
        case "new" if dropping is not None:
            if record.namespace_id != dropping:
                return NameSlot(name.version, None)
        case "new" | "active":
            if not await _is_visible(lake, identifier, name):
                return NameSlot(name.version, None)
        case "moving" | "pending":
            await _force_decision(lake, name)
            if not await _is_visible(lake, identifier, name):
                again = await lake.name(identifier).read()
                return NameSlot(name.version, None) if again and again.version == name.version else None
            if record.state == "moving":
                name = await lake.name(identifier).swap(active_record(record), expected=name.version)
    # N7, N7 pending
    binding = bind_pointer(pointer_cell(lake, record), pointer, binds=dropping is None, life=record.life)
    return await _settle_live(lake, identifier, name, binding, dropping)


async def _settle_live(
    lake: Lake,
    identifier: Identifier,
    name: Versioned[NameRecord],
    binding: Awaitable[Versioned[BoundRecord] | None],
    dropping: str | None,
) -> NameSlot:
    """A name that counts: its pointer is bound, and the receipt of its event exists."""
    record = name.value
    if record.state == "active":
        bound, _ = await gather_all((binding, _write_receipt(lake, record, dropping)))
    else:  # E3: only now it is certain that it happened.
        bound = await binding
        await _write_receipt(lake, record if bound else None, dropping)
    if bound and dropping is None and record.last_event is None:
        name = await _adopt_name(lake, identifier, name)
    return NameSlot(name.version, ResolvedName(identifier, name, bound) if bound else None)


def _receipt_before(lake: Lake, cell: Cell[NameRecord]) -> Awaitable[None] | None:
    """E2: the receipt of the event in the name as it was read last; None if it is known to exist.

    It is written beside the read, which mostly finds the same event. That event happened, whatever is in the name now.
    """
    seen = cell.last_seen
    event = seen.value.last_event if seen and seen.value.state in {"active", "dropped"} else None
    receipts = lake.feature(CatalogReceipts)
    return None if event is None or receipts.is_known(event) else receipts.ensure(event)


async def _write_receipt(lake: Lake, record: NameRecord | None, dropping: str | None) -> None:
    """E2: write the receipt of what happened under the name, unless the caller only looks at it."""
    if record and dropping is None:
        await lake.feature(CatalogReceipts).ensure(record.last_event)


async def _adopt_name(lake: Lake, identifier: Identifier, name: Versioned[NameRecord]) -> Versioned[NameRecord]:
    """V5: the first event of a name that is older than events, in a swap of its own: slower swaps of it lose."""
    event = await adoption_of(lake, name_subject(identifier, name.value))
    if event is None:
        return name
    adopted = replace(active_record(name.value), last_event=event)
    swapped = await lake.name(identifier).swap(adopted, expected=name.version)
    await lake.feature(CatalogReceipts).ensure(event)
    return swapped


async def _force_decision(lake: Lake, name: Versioned[NameRecord]) -> None:
    """Make sure that a rename or transaction in progress either has happened or never can."""
    if name.value.state == "pending":
        await resolve_pending_name(lake, name)
    elif not await _has_moved(lake, name.value):
        await _fence_rename(lake, name.value)


def active_record(record: NameRecord) -> NameRecord:
    """The same name with nothing left to confirm. It keeps its event (E4)."""
    return replace(
        record,
        state="active",
        other=None,
        other_version="",
        rename_id="",
        transaction="",
        attempt="",
        by="",
    )


def freed_record(record: NameRecord) -> NameRecord:
    """The name of a creation or rename that did not happen: it has no event (E3)."""
    return replace(record, state="free", last_event=None)


async def activate_name(lake: Lake, found: ResolvedName) -> None:
    """Make a `new` name active once its pointer is bound. A concurrent change of the name wins."""
    if found.name.value.state == "new":
        await lake.name(found.identifier).try_swap(active_record(found.name.value), expected=found.name.version)


async def follow_renames(lake: Lake, first: Identifier, uuid: str) -> Identifier | None:
    """The current name of an object by its renames; None if a name on the way is gone, or belongs to another object."""
    place: Identifier | None = first
    for _ in range(RENAMES_MAX):
        name = await lake.name(place).read() if place else None
        if name is None or name.value.uuid != uuid:
            return None
        if name.value.state != "moved":
            return place
        place = name.value.other
    return None


async def _finish_rename(lake: Lake, moved: NameRecord) -> None:
    """R6 (settle), R9: before a `moved` name is reused, the new name is active and the rename's claim is done."""
    if moved.state != "moved" or moved.other is None:
        return
    cell = lake.name(moved.other)
    other = await cell.read()
    if other and other.value.state == "moving" and other.value.rename_id == moved.rename_id:
        await cell.swap(active_record(other.value), expected=other.version)
    if moved.by:
        claim_cell = lake.claim(RENAME, moved.by)
        claim = await claim_cell.read()
        if claim and claim.value.state == "open":
            await claim_cell.swap(replace(claim.value, state="done"), expected=claim.version)


async def _fence_rename(lake: Lake, moving: NameRecord) -> None:
    """R6 (fence): bump the old name, so that a rename that has not happened can no longer happen."""
    if moving.other is None:
        return
    cell = lake.name(moving.other)
    other = await cell.read()
    if other and other.version == moving.other_version:
        await cell.swap(other.value, expected=other.version)


async def bind_pointer(
    cell: Cell[B], found: Versioned[B] | None = None, *, binds: bool = True, life: str = ""
) -> Versioned[B] | None:
    """Return the pointer if it is alive in that life (U1), without the mark `condemned`; None if it is not.

    With `binds`, an unbound pointer becomes live, which proves that its creation happened (N7). Every writer that
    changes a `new` name does this first. `found` is the pointer as the caller has just read it, if it has.
    """

    def bind(record: B | None) -> B | None:
        if record is None or record.state not in {"unbound", "condemned"} or record.life != life:
            return None
        if record.state == "unbound" and not binds:
            return None
        if not binds:
            return replace(record, state="unbound")
        # The event of its last drop is over: the name has the event of its return, which follows that one.
        return replace(record, state="live", last_event=None)

    bound = await cell.update(bind, is_idempotent=True, found=found)
    return bound if bound and is_alive(bound) and bound.value.life == life else None


async def finish_drop(lake: Lake, identifier: Identifier, dropped: NameRecord) -> None:
    """D4: when this returns, the pointer of a dropped name is dropped too, in the life of that name only (U1)."""
    cell = pointer_cell(lake, dropped)
    async for _ in Attempts(lake.clock):
        found = await cell.read()
        if found is None or not is_alive_as(dropped, found):
            return
        pointer = await abort_pending(lake, found)
        gone = dropped_record(pointer.value, identifier, dropped, now_ms=lake.clock.now_ms())
        if await cell.try_swap(gone, expected=pointer.version):
            return
    raise Busy(f"table {dropped.uuid}: other requests keep changing its pointer")


def dropped_record(record: BoundRecord, identifier: Identifier, name: NameRecord, *, now_ms: int) -> BoundRecord:
    """The record of a dropped table: it keeps its head, its last name, and of that name the request and event (E6)."""
    return replace(
        record, state="dropped", dropped_as=identifier, by=name.by, updated_ms=now_ms, last_event=name.last_event
    )


async def take_back(lake: Lake, cell: Cell[B], found: Versioned[B]) -> bool | None:
    """GC2 for a half-done undrop (U4): mark the pointer, settle the name, then make it `dropped` again (U5).

    False if the name leads to the record, None if a swap was lost.
    """
    marked: Versioned[B] | None = found
    if found.value.state != "condemned":
        marked = await cell.try_swap(replace(found.value, state="condemned"), expected=found.version)
    if marked is None:
        return None
    if made_for := marked.value.made_for:
        live = (await settle_name(lake, made_for)).live
        if live and (live.uuid, live.name.value.life) == (marked.value.uuid, marked.value.life):
            return False
    return True if await cell.try_swap(dropped_again(marked.value), expected=marked.version) else None


def dropped_again(record: B) -> B:
    """U5: the record of an undrop that did not happen: dropped as before, by the same drop."""
    return replace(record, state="dropped")


def namespaces_behind(lake: Lake, found: ResolvedName) -> Sequence[tuple[str, Version]] | None:
    """The namespaces that the name depends on (N4), with their versions; None if that is not certain.

    A name or a namespace that is `new` exists only with the namespace it was made for; an `active` one by itself.
    """
    state: str = found.name.value.state
    if state == "active":
        return ()
    versions: list[tuple[str, Version]] = []
    namespace_id = found.name.value.namespace_id
    parent: Namespace | None = found.identifier.namespace
    while state == "new" and parent is not None:
        record = lake.namespace(parent).last_seen
        if record is None or record.value.id != namespace_id:
            return None
        versions.append((lake.layout.namespace(parent), record.version))
        state, namespace_id, parent = record.value.state, record.value.parent_id, parent.parent
    return versions if state in {"active", "new"} else None
