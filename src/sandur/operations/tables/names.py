"""Resolve names for readers and settle them for writers, with the namespaces that contain them."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple, TypeVar, get_args

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind, Namespace
from sandur.catalog.records import BoundRecord, Catalog, NameRecord, NamespaceRecord, Pointer
from sandur.errors import Busy, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.lake import Lake
from sandur.operations.transactions import resolution
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT, Expected

H = TypeVar("H", Catalog, NamespaceRecord)
B = TypeVar("B", bound=BoundRecord)

TRIES_MAX: Final = 8


async def resolve_namespace(lake: Lake, namespace: Namespace) -> Versioned[NamespaceRecord] | None:
    """The namespace as a reader sees it; None when there is none. One that is being dropped still exists."""
    found = await lake.namespace(namespace).read()
    if found is None or not await is_namespace_visible(lake, namespace, found.value):
        return None
    return found


async def confirm_namespace(lake: Lake, namespace: Namespace, namespace_id: str) -> bool:
    """N4: after a child was written, whether its namespace is there; `dropping` is called off by the child (N6)."""

    async def is_there(record: NamespaceRecord) -> bool:
        return await is_namespace_visible(lake, namespace, record)

    return await _confirm(lake.namespace(namespace), namespace_id, is_there)


async def is_namespace_visible(lake: Lake, namespace: Namespace, record: NamespaceRecord) -> bool:
    """A `new` namespace is a child like any other: it exists if its parent, read after it, is that it was made for."""
    if record.state == "dropped":
        return False
    if record.state != "new":
        return True
    return await confirm_parent(lake, namespace, record.parent_id)


async def confirm_parent(lake: Lake, namespace: Namespace, parent_id: str) -> bool:
    """As `confirm_namespace`, for a namespace that was written: its parent is another one, or the catalog."""
    if namespace.parent is not None:
        return await confirm_namespace(lake, namespace.parent, parent_id)

    async def is_there(record: Catalog) -> bool:
        return catalog_exists(record)

    return await _confirm(lake.catalog(namespace.catalog), parent_id, is_there)


async def _confirm(cell: Cell[H], home_id: str, is_there: Callable[[H], Awaitable[bool]]) -> bool:
    for _ in range(TRIES_MAX):
        found = await cell.read()
        if found is None or found.value.id != home_id or not await is_there(found.value):
            return False
        if found.value.state != "dropping":
            return True
        try:
            await cell.swap(replace(found.value, state="active"), expected=found.version)
        except SwapLost:
            continue
        return True
    raise Busy(f"{cell.key}: it keeps changing")


def catalog_exists(catalog: Catalog) -> bool:
    """Whether readers see the catalog; one that is being dropped still exists."""
    return catalog.state != "dropped"


RENAME: Final = "rename"
"""The operation under which renames claim their keys; `by` of a `moved` name is the hash of that key."""

ICEBERG: Final[tuple[Format, ...]] = ("iceberg",)
EVERY_FORMAT: Final[tuple[Format, ...]] = get_args(Format)

_UNCERTAIN: Final = ("moving", "pending")


class ResolvedName(NamedTuple):
    """A name that exists, as one look saw it."""

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

    def is_a(self, kind: Kind, formats: Collection[Format] = ICEBERG) -> bool:
        """Whether it is of that kind, and of a format that the one who asks can handle."""
        return self.name.value.kind == kind and self.name.value.format in formats


class NameSlot(NamedTuple):
    """A place for a name, as a writer settled it: what a swap of it has to expect, and what lives there."""

    expected: Expected
    live: ResolvedName | None


async def resolve_name(
    lake: Lake, identifier: Identifier, *, beside: Callable[[NameRecord], Awaitable[None]] | None = None
) -> ResolvedName | None:
    """What a reader sees under a name; None when nothing exists there.

    Readers see exactly one of the two names of a rename at every moment (R7). `beside` is done in the same round in
    which the pointer is read for the first time: by what the name hints at.
    """
    cell = lake.name(identifier)
    for _ in range(TRIES_MAX):
        name, pointer = await _name_and_pointer(lake, cell)
        if name is None:
            return None
        if await _is_shown(lake, identifier, name):
            pointer = pointer or await _pointer_of(lake, name.value, beside)
            return ResolvedName(identifier, name, pointer) if pointer and is_alive(pointer) else None
        if name.value.state not in _UNCERTAIN:
            return None
        # R7, T6: what was to be looked up may be gone because it is over; only the same entry twice says no.
        again = await cell.read()
        if again is None or again.version == name.version:
            return None
    raise Busy(f"{identifier}: the name keeps changing")


async def _is_shown(lake: Lake, identifier: Identifier, name: Versioned[NameRecord]) -> bool:
    """Whether the name counts, by what stands beside it."""
    match name.value.state:
        case "active":
            return True
        case "new":
            return await confirm_namespace(lake, identifier.namespace, name.value.namespace_id)
        case "moving":
            return await _has_moved(lake, name.value)
        case "pending":
            return await resolution.pending_name_outcome(lake, name) == "committed"
        case "free" | "dropped" | "moved":
            return False


async def _name_and_pointer(
    lake: Lake, cell: Cell[NameRecord]
) -> tuple[Versioned[NameRecord] | None, Versioned[BoundRecord] | None]:
    """The name, and in the same round the pointer it had when it was last seen, if the name is still the same (C2).

    A name that has changed may have been away meanwhile: the pointer could then be from a time when it was not here.
    """
    before = cell.last_seen
    if before is None:
        return await cell.read(), None
    name, pointer = await gather_all((cell.read(), pointer_cell(lake, before.value).read()))
    return name, pointer if name and name.version == before.version else None


async def _pointer_of(
    lake: Lake, name: NameRecord, beside: Callable[[NameRecord], Awaitable[None]] | None
) -> Versioned[BoundRecord] | None:
    cell = pointer_cell(lake, name)
    if beside is None:
        return await cell.read()
    pointer, _ = await gather_all((cell.read(), beside(name)))
    return pointer


async def _has_moved(lake: Lake, moving: NameRecord) -> bool:
    if moving.other is None:
        return False
    other = await lake.name(moving.other).read()
    return other is not None and _is_moved_by(other.value, moving.rename_id)


def _is_moved_by(record: NameRecord, rename_id: str) -> bool:
    return record.state == "moved" and record.rename_id == rename_id


def is_alive(pointer: Versioned[BoundRecord] | None) -> bool:
    return pointer is not None and pointer.value.state not in {"dropped", "killed"}


async def settle_name(lake: Lake, identifier: Identifier, *, dropping: str | None = None) -> NameSlot:
    """What a writer does before it relies on a name or reuses it: it brings to an end what others left half done.

    `dropping` is the id of the namespace that the caller drops: a `new` name made for it counts as its child, without
    asking the namespace, and one made for an earlier namespace of that name does not (N6 id).
    Raises Busy when somebody else keeps changing the name.
    """
    for _ in range(TRIES_MAX):
        name, pointer = await _name_and_pointer(lake, lake.name(identifier))
        if name is None:
            return NameSlot(ABSENT, None)
        try:
            settled = await _settled(lake, identifier, name, pointer, dropping=dropping)
        except SwapLost:
            continue
        if settled is not None:
            return settled
    raise Busy(f"{identifier}: the name keeps changing")


async def _settled(
    lake: Lake,
    identifier: Identifier,
    name: Versioned[NameRecord],
    pointer: Versioned[BoundRecord] | None,
    *,
    dropping: str | None,
) -> NameSlot | None:
    """One try of `settle`; None to start over."""
    record = name.value
    match record.state:
        case "free" | "dropped" | "moved":
            await _finish(lake, identifier, record)
            return NameSlot(name.version, None)
        case "new" if dropping is not None:
            if record.namespace_id != dropping:
                return NameSlot(name.version, None)
        case "new" | "active":
            if not await _is_shown(lake, identifier, name):
                return NameSlot(name.version, None)
        case "moving" | "pending":
            await _decide(lake, name)
            if not await _is_shown(lake, identifier, name):
                again = await lake.name(identifier).read()
                return NameSlot(name.version, None) if again and again.version == name.version else None
            if record.state == "moving":
                name = await lake.name(identifier).swap(active_record(record), expected=name.version)
    bound = await bind_pointer(pointer_cell(lake, record), pointer, binds=dropping is None)  # N7, N7 pending
    return NameSlot(name.version, ResolvedName(identifier, name, bound) if bound else None)


async def _finish(lake: Lake, identifier: Identifier, over: NameRecord) -> None:
    """G6: what stands beside a name that is over is brought to its end before the name is reused."""
    if over.state == "dropped":
        await finish_drop(lake, identifier, over)
    elif over.state == "moved":
        await _finish_rename(lake, over)


async def _decide(lake: Lake, name: Versioned[NameRecord]) -> None:
    """What may or may not come to be shown is made to be the one or the other."""
    if name.value.state == "pending":
        await resolution.resolve_pending_name(lake, name)
    elif not await _has_moved(lake, name.value):
        await _fence_rename(lake, name.value)


def active_record(record: NameRecord) -> NameRecord:
    """The same name with nothing left to confirm."""
    return NameRecord(
        state="active",
        uuid=record.uuid,
        kind=record.kind,
        format=record.format,
        metadata_location=record.metadata_location,
        updated_ms=record.updated_ms,
    )


async def _finish_rename(lake: Lake, moved: NameRecord) -> None:
    """R6 (settle), R9: before a `moved` name is reused, the new one is active and the rename's claim says so."""
    if moved.other is None:
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
    """R6 (fence): bump the old name, so that the rename which has not happened can no longer happen."""
    if moving.other is None:
        return
    cell = lake.name(moving.other)
    other = await cell.read()
    if other and other.version == moving.other_version:
        await cell.swap(other.value, expected=other.version)


def pointer_cell(lake: Lake, name: NameRecord) -> Cell[BoundRecord]:
    """The cell of what a name leads to."""
    return lake.bound_record(name.uuid, name.format)


async def bind_pointer(cell: Cell[B], found: Versioned[B] | None = None, *, binds: bool = True) -> Versioned[B] | None:
    """The pointer of what lives; None when it does not. `found`: as it was read a moment ago, if it was.

    Whoever meets `condemned` under a name takes it off. With `binds`, an unbound pointer becomes live, which proves
    that its create happened (N7); that is what everyone does who is going to change a `new` name.
    """
    for _ in range(TRIES_MAX):
        found = found or await cell.read()
        if found is None or not is_alive(found):
            return None
        state = found.value.state
        if state == "live" or (state == "unbound" and not binds):
            return found
        try:
            return await cell.swap(replace(found.value, state="live" if binds else "unbound"), expected=found.version)
        except SwapLost:
            found = None
    raise Busy(f"{cell.key.rpartition('/')[2]}: its pointer keeps changing")


async def finish_drop(lake: Lake, identifier: Identifier, dropped: NameRecord) -> None:
    """D4: the pointer of a dropped name never lives again. Returns when that is certain."""
    cell = pointer_cell(lake, dropped)
    for _ in range(TRIES_MAX):
        found = await cell.read()
        if found is None or not is_alive(found):
            return
        pointer = await resolution.abort_pending(lake, found)
        try:
            gone = dropped_record(pointer.value, identifier, by=dropped.by, now_ms=lake.clock.now_ms())
            await cell.swap(gone, expected=pointer.version)
        except SwapLost:
            continue
        return
    raise Busy(f"table {dropped.uuid}: its pointer keeps changing")


def dropped_record(record: BoundRecord, identifier: Identifier, *, by: str, now_ms: int) -> BoundRecord:
    """What is left of a table: its head, who dropped it, and under which name."""
    return replace(record, state="dropped", dropped_as=identifier, by=by, updated_ms=now_ms)
