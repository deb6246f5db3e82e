"""Drop a namespace or a catalog (rules G5, N6): mark it, look for children, drop it.

Every step is an operation of its own: a crash in between leaves less than there was, and the next try goes on.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Place, place_of
from sandur.catalog.records import Catalog, Claim, LastChange, NamespaceRecord
from sandur.catalog.sources import Request, Source
from sandur.errors import Busy, Invalid, NotEmpty, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.containers.records import (
    catalog_not_found,
    dropped_namespace,
    help_predecessor,
    is_signed_by,
    namespace_not_found,
    signature_of,
)
from sandur.operations.delta.tables import drop_table
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.index import update
from sandur.operations.index.truth import list_child_namespaces, list_keys
from sandur.operations.lake import Lake
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import catalog_exists, is_namespace_visible, settle_name
from sandur.storage.cell import Cell, Versioned

T = TypeVar("T")
H = TypeVar("H", Catalog, NamespaceRecord)

TRIES_MAX: Final = 8
LOOKS_AT_ONCE: Final = 32


class Container(Protocol[H]):
    """What is dropped. `text` is what errors call it, `operation` what its claims are kept under."""

    @property
    def text(self) -> str: ...

    @property
    def operation(self) -> str: ...

    @property
    def cell(self) -> Cell[H]: ...

    @property
    def place(self) -> Place:
        """Its entry in a list."""
        ...

    def missing(self) -> NotFound:
        """What to say when there is none."""
        ...

    async def is_there(self, record: H) -> bool:
        """Whether readers see it; one that is being dropped is there."""
        ...

    async def is_emptied(self) -> bool:
        """Drop what it holds, if it is to be taken along; False when it is not."""
        ...

    async def first_child(self, home_id: str) -> str | None:
        """Something that it holds, as it is called; None when it is empty.

        Safe page by page: whatever is written behind the cursor is written by someone who then reads the home.
        """
        ...

    def gone(self, record: H, change: LastChange, now_ms: int) -> H:
        """What stands where it was."""
        ...


async def drop_container(lake: Lake, home: Container[H], request: Request) -> None:
    """When this returns it is gone; NotFound, or NotEmpty when it holds something that is not to be taken along."""
    await _ContainerDrop(lake, home, request).run()


async def first_child_namespace(lake: Lake, catalog: str, parent: Namespace | None, home_id: str) -> str | None:
    """A namespace one level below, as it is called; None when there is none."""

    async def looked(child: Namespace) -> str | None:
        """A `new` one counts if it was made for this home, without asking: its creator will."""
        found = await lake.namespace(child).read()
        if found is None or found.value.state == "dropped":
            return None
        is_child = found.value.state != "new" or found.value.parent_id == home_id
        return f"the namespace {child}" if is_child else None

    return await first_found(list_child_namespaces(lake, catalog, parent), looked)


async def first_found(items: AsyncIterator[T], look: Callable[[T], Awaitable[str | None]]) -> str | None:
    """What looking at the items finds first, in their order; so many are looked at together."""
    group: list[T] = []
    async for item in items:
        group.append(item)
        if len(group) == LOOKS_AT_ONCE:
            if found := await _first_of(group, look):
                return found
            group = []
    return await _first_of(group, look)


async def _first_of(group: list[T], look: Callable[[T], Awaitable[str | None]]) -> str | None:
    return next((found for found in await gather_all(look(item) for item in group) if found), None)


@dataclass
class _ContainerDrop(Generic[H]):
    """One request to drop a home.

    The claim pins the id of what is dropped (D2): a retry acts on that home only, not on one made since. What is left
    behind is signed by the request, and whoever makes the home again makes the claim done first (G6): a retry that
    holds the claim and does not find its own signature has not dropped anything.
    """

    lake: Lake
    home: Container[H]
    request: Request
    _is_marked: bool = False
    _is_uncertain: bool = False

    async def run(self) -> None:
        self._mark = self.lake.clock.new_id()
        self._claim = claim_for(self.lake, self.request, self.home.operation)
        self._change = signature_of(self.lake, self.request, self.home.operation)
        try:
            await run_exactly_once(self._claim, self._attempt, self._replay)
        finally:
            if self._is_marked:
                finishing = update.finish_place(self.lake, self.home.place, self._mark)
                await self.lake.background.run(f"index {self.home.text}", finishing)

    async def _replay(self, _: Claim) -> None:
        """It was dropped before."""

    async def _attempt(self, taken: Claim | None) -> None:
        pinned = taken.namespace_id if taken else ""
        for _ in range(TRIES_MAX):
            found = await self.home.cell.read()
            if found and found.value.state == "dropped" and is_signed_by(found.value, self._change):
                require_claim(self._claim)
                return await self._done()
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"{self.home.text}: it may have been dropped, and was changed since")
            if found is None or not await self.home.is_there(found.value) or pinned not in {"", found.value.id}:
                raise self.home.missing()
            self._is_marked = True
            await gather_all(
                [
                    hold_claim(self._claim, namespace_id=found.value.id),  # D2, C7
                    update.mark_place(self.lake, self.home.place, self._mark),  # I1
                ]
            )
            pinned = found.value.id if self._claim.is_keyed else ""
            if await self._is_dropped(found, is_emptied=await self.home.is_emptied()):
                return await self._done()
        raise Busy(f"{self.home.text}: somebody keeps putting something into it")

    async def _is_dropped(self, found: Versioned[H], *, is_emptied: bool) -> bool:
        """Mark, look, act; False to start over. NotEmpty when there is a child that is not to be taken along."""
        try:
            marked = await self.home.cell.swap(replace(found.value, state="dropping"), expected=found.version)
        except SwapLost:
            return False
        try:
            child, _ = await gather_all([self.home.first_child(found.value.id), self._helped(found.value)])
        except SandurError:
            await self._call_off(marked)
            raise
        if child is not None:
            # When somebody changed it since, what was a child may be none any more.
            if not await self._call_off(marked) or is_emptied:
                return False
            raise NotEmpty(f"{self.home.text} is not empty. It holds {child}")
        gone = self.home.gone(found.value, self._change, self.lake.clock.now_ms())
        try:
            await self.home.cell.swap(gone, expected=marked.version)  # It happens here.
        except SwapLost as lost:  # Somebody had a child to show (N6).
            self._is_uncertain |= not lost.is_definite
            return False
        return True

    async def _helped(self, record: H) -> None:
        await help_predecessor(self.lake, record)

    async def _call_off(self, marked: Versioned[H]) -> bool:
        try:
            await self.home.cell.swap(replace(marked.value, state="active"), expected=marked.version)
        except SwapLost:
            return False
        return True

    async def _done(self) -> None:
        await self.lake.background.run(f"finish dropping {self.home.text}", self._finish_claim())

    async def _finish_claim(self) -> None:
        with contextlib.suppress(ClaimLost):  # Whoever has it finds what we left behind.
            await self._claim.done()


DROP_NAMESPACE: Final = "drop-namespace"


async def drop_namespace(lake: Lake, namespace: Namespace, request: Request) -> None:
    """Drop an empty namespace; NotFound when there is none, NotEmpty when it holds anything."""
    await drop_container(lake, _NamespaceContainer(lake, namespace), request)


@dataclass(frozen=True)
class _NamespaceContainer:
    lake: Lake
    namespace: Namespace
    operation: str = DROP_NAMESPACE

    @property
    def text(self) -> str:
        return f"Namespace {self.namespace}"

    @property
    def cell(self) -> Cell[NamespaceRecord]:
        return self.lake.namespace(self.namespace)

    @property
    def place(self) -> Place:
        return place_of(self.namespace)

    def missing(self) -> NotFound:
        return namespace_not_found(self.namespace)

    async def is_there(self, record: NamespaceRecord) -> bool:
        return await is_namespace_visible(self.lake, self.namespace, record)

    async def is_emptied(self) -> bool:
        return False

    async def first_child(self, home_id: str) -> str | None:
        below = first_child_namespace(self.lake, self.namespace.catalog, self.namespace, home_id)
        namespace, name = await gather_all([below, self._first_name(home_id)])
        return namespace or name

    async def _first_name(self, home_id: str) -> str | None:
        layout = self.lake.layout

        async def looked(key: str) -> str | None:
            identifier = layout.parse_name(key)
            spot = await settle_name(self.lake, identifier, dropping=home_id)
            return f"the {spot.live.name.value.kind} {identifier}" if spot.live else None

        return await first_found(list_keys(self.lake, layout.names_folder(self.namespace)), looked)

    def gone(self, record: NamespaceRecord, change: LastChange, now_ms: int) -> NamespaceRecord:
        del record
        return dropped_namespace(now_ms, change)


DROPS_AT_ONCE: Final = 16
ROUNDS_MAX: Final = 3


async def empty_catalog(lake: Lake, catalog: str, source: Source) -> None:
    """Drop all namespaces of a catalog and what is in them; somebody may be putting something into it meanwhile."""
    folder = lake.layout.namespaces_folder(catalog)
    namespaces = [lake.layout.parse_namespace(key) async for key in list_keys(lake, folder)]
    await _drop_all(lake, namespaces, source)


async def drop_namespace_cascade(lake: Lake, namespace: Namespace, request: Request) -> None:
    """Drop a namespace and all that is in it; NotFound when there is none."""
    for rounds in range(ROUNDS_MAX):
        await _empty_namespace(lake, namespace, request.source)
        try:
            return await drop_namespace(lake, namespace, request)
        except NotEmpty:
            if rounds + 1 == ROUNDS_MAX:
                raise
    return None


async def _empty_namespace(lake: Lake, namespace: Namespace, source: Source) -> None:
    layout = lake.layout
    folder, beginning = layout.namespaces_folder(namespace.catalog), layout.namespaces_below(namespace)
    below = [layout.parse_namespace(key) async for key in list_keys(lake, folder, beginning=beginning)]
    await _drop_all(lake, below, source)
    await _drop_names(lake, namespace, source)


async def _drop_all(lake: Lake, namespaces: list[Namespace], source: Source) -> None:
    """The deepest first: a namespace goes only when there is none below it."""
    for namespace in sorted(namespaces, key=lambda namespace: -len(namespace.levels)):
        await _drop_names(lake, namespace, source)
        # Gone already, or somebody was faster to put something into it, which whoever drops the parent finds.
        with contextlib.suppress(NotFound, NotEmpty):
            await drop_namespace(lake, namespace, Request(hash="", source=source))


async def _drop_names(lake: Lake, namespace: Namespace, source: Source) -> None:
    layout = lake.layout
    keys = [key async for key in list_keys(lake, layout.names_folder(namespace))]
    for start in range(0, len(keys), DROPS_AT_ONCE):
        await gather_all(_drop_name(lake, key, source) for key in keys[start : start + DROPS_AT_ONCE])


async def _drop_name(lake: Lake, key: str, source: Source) -> None:
    identifier = lake.layout.parse_name(key)
    live = (await settle_name(lake, identifier)).live
    if live is None:
        return
    record, request = live.name.value, Request(hash="", source=source)
    with contextlib.suppress(NotFound):  # Somebody else was faster.
        if record.kind in {"table", "view"}:
            await drop_table(lake, identifier, request=request)
        else:
            await drop_name(lake, identifier, kind=record.kind, request=request, formats=(record.format,))


DROP_CATALOG: Final = "drop-catalog"


async def drop_catalog(lake: Lake, name: str, *, force: bool, request: Request) -> None:
    """When this returns the catalog is gone; NotFound, or NotEmpty when it holds something and `force` is not set."""
    if name == lake.settings.default_catalog:
        raise Invalid(f"Catalog {name} cannot be dropped: it is the default catalog of this server")
    await drop_container(lake, _CatalogContainer(lake, name, request, force), request)


@dataclass(frozen=True)
class _CatalogContainer:
    lake: Lake
    name: str
    request: Request
    force: bool
    operation: str = DROP_CATALOG

    @property
    def text(self) -> str:
        return f"Catalog {self.name}"

    @property
    def cell(self) -> Cell[Catalog]:
        return self.lake.catalog(self.name)

    @property
    def place(self) -> Place:
        return Place(CATALOGS, self.name)

    def missing(self) -> NotFound:
        return catalog_not_found(self.name)

    async def is_there(self, record: Catalog) -> bool:
        return catalog_exists(record)

    async def is_emptied(self) -> bool:
        if self.force:
            await empty_catalog(self.lake, self.name, self.request.source)
        return self.force

    async def first_child(self, home_id: str) -> str | None:
        return await first_child_namespace(self.lake, self.name, None, home_id)

    def gone(self, record: Catalog, change: LastChange, now_ms: int) -> Catalog:
        return replace(record, state="dropped", properties={}, change=change, updated_ms=now_ms)
