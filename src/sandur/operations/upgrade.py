"""The upgrade of a store to the newest version of records (V4): raise the format, bring every record to it, finish.

It needs no pause: servers of this version work on. It may be interrupted at any point and run again.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.location_claims import LocationClaim
from sandur.catalog.record_versions import FIRST_FORMAT, NEWEST, FormatVersion, Record, StoreFormat
from sandur.catalog.records import (
    Catalog,
    Claim,
    DeltaStage,
    DeltaTable,
    ModelVersion,
    NameRecord,
    NamespaceRecord,
    Pointer,
    PurgeOrder,
    Securable,
    Stage,
    Transaction,
)
from sandur.catalog.security.manifest import SecurityManifest
from sandur.catalog.security.users import User
from sandur.errors import SandurError, Unfit
from sandur.operations.janitors.events import ensure_events
from sandur.operations.janitors.sweep import list_layouts
from sandur.operations.lake import Lake, Lakes
from sandur.settings import Settings
from sandur.storage.cell import Cell, gather_in_batches
from sandur.storage.contract import Listed, ObjectStore, list_pages
from sandur.storage.layout import LOCATION_CLAIMS, STORE_FORMAT, Layout
from sandur.storage.record_form import decode_record, read_format

AT_ONCE: Final = 32
FAILURES_MAX: Final = 100

_FOLDERS: Final[Mapping[str, tuple[Callable[[Layout], str], type[Record]]]] = {
    # What a stalled older server could still complete comes first.
    "transactions": (Layout.transactions_folder, Transaction),
    "names": (Layout.all_names_folder, NameRecord),
    "pointers": (Layout.pointers_folder, Pointer),
    "delta_tables": (Layout.delta_tables_folder, DeltaTable),
    "securables": (Layout.securables_folder, Securable),
    "namespaces": (Layout.all_namespaces_folder, NamespaceRecord),
    "catalogs": (Layout.catalogs_folder, Catalog),
    "model_versions": (Layout.all_model_versions_folder, ModelVersion),
    "users": (Layout.users_folder, User),
    "commit_claims": (Layout.commit_claims_folder, Claim),
    "claims": (Layout.claims_folder, Claim),
    "stages": (Layout.stages_folder, Stage),
    "delta_stages": (Layout.delta_stages_folder, DeltaStage),
    "purge_orders": (Layout.purge_orders_folder, PurgeOrder),
}
"""The folders of every workspace that hold records, and the kind of these."""

_SINGLE: Final[Mapping[str, tuple[Callable[[Layout], str], type[Record]]]] = {
    "grants": (Layout.security_manifest, SecurityManifest),
    "storage": (Layout.storage_registry, StorageRegistry),
}

Progress = Callable[[str, int, int], None]
"""Receives a kind of records, how many were visited so far, and how many of them are new or were upgraded."""


class UpgradeReport(NamedTuple):
    """The result of an upgrade or of its dry run: how many records of each kind exist, and how many were old.

    `failures` are records that could not be upgraded: their keys and the reasons, at most FAILURES_MAX.
    """

    before: FormatVersion
    after: FormatVersion
    state: str
    records: Mapping[str, int]
    old: Mapping[str, int]
    failures: Sequence[str]
    failed: int


async def upgrade(lakes: Lakes, settings: Settings, *, is_dry: bool, on_progress: Progress) -> UpgradeReport:
    """Upgrade all workspaces of a store; raises Unfit if a newer Sandur did. A dry run changes nothing.

    The format stays `raising` while a record cannot be upgraded: repair or remove it, and run the upgrade again.
    """
    store, cell = lakes.store, Cell(lakes.store, STORE_FORMAT, StoreFormat, lakes.clock)
    found = await read_format(store)
    before = FormatVersion(found.major, found.minor)
    if before > NEWEST:
        raise Unfit(f"the store has version {before}, and this Sandur knows versions up to {NEWEST}: upgrade Sandur")
    if not is_dry and before < NEWEST:
        await cell.update(lambda now: _raised(now, lakes.clock.now_ms()), is_idempotent=True)
    if not is_dry:
        await lakes.form.read()
    visitor = _Visitor(lakes, is_dry=is_dry, on_progress=on_progress)
    # Not only the tenant of the settings: the format is that of the whole store.
    async for layout in list_layouts(store, replace(settings, tenant="", workspace="")):
        await visitor.visit_workspace(layout)
    await visitor.visit_folder("location_claims", LOCATION_CLAIMS, LocationClaim)
    if not is_dry and not visitor.failed:
        await cell.update(lambda now: _steady(now, lakes.clock.now_ms()), is_idempotent=True)
        await lakes.form.read()
    after = await read_format(store)
    return UpgradeReport(
        before,
        NEWEST,
        after.state,
        visitor.records,
        visitor.old,
        visitor.failures,
        visitor.failed,
    )


def _raised(found: StoreFormat | None, now_ms: int) -> StoreFormat | None:
    """V3: the format before any record. It never goes down."""
    now = found or FIRST_FORMAT
    if (now.major, now.minor) >= NEWEST:
        return None
    # A minor adds nothing that older records must have.
    state = "raising" if now.major < NEWEST.major else now.state
    return replace(now, major=NEWEST.major, minor=NEWEST.minor, state=state, changed_ms=now_ms)


def _steady(found: StoreFormat | None, now_ms: int) -> StoreFormat | None:
    is_raising = found is not None and found.state == "raising" and found.major == NEWEST.major
    return replace(found, state="steady", changed_ms=now_ms) if found and is_raising else None


class _Visitor:
    """Visits every record, and swaps the old ones to the form of the store."""

    def __init__(self, lakes: Lakes, *, is_dry: bool, on_progress: Progress) -> None:
        self._lakes = lakes
        self._store: ObjectStore = lakes.store
        self._is_dry = is_dry
        self._lake: Lake | None = None
        self._on_progress = on_progress
        self.records: Counter[str] = Counter()
        self.old: Counter[str] = Counter()
        self.failures: list[str] = []
        self.failed = 0

    async def visit_workspace(self, layout: Layout) -> None:
        self._lake = self._lakes.fresh_lake(layout)
        for name, (folder, kind) in _FOLDERS.items():
            await self.visit_folder(name, folder(layout), kind)
        for name, (key, kind) in _SINGLE.items():
            if listed := await self._store.head(key(layout)):
                await self._visit_all(name, [listed], kind)

    async def visit_folder(self, name: str, folder: str, kind: type[Record]) -> None:
        pages: AsyncIterator[Sequence[Listed]] = list_pages(self._store, folder)
        async for page in pages:
            await self._visit_all(name, page, kind)

    async def _visit_all(self, name: str, page: Sequence[Listed], kind: type[Record]) -> None:
        async def visit(listed: Listed) -> None:
            try:
                is_old = await self._visit(listed.key, kind)
                self.old[name] += is_old
            except SandurError as error:
                self.failed += 1
                if len(self.failures) < FAILURES_MAX:
                    self.failures.append(f"{listed.key}: {error}")

        await gather_in_batches(page, visit, at_once=AT_ONCE)
        self.records[name] += len(page)
        self._on_progress(name, self.records[name], self.old[name])

    async def _visit(self, key: str, kind: type[Record]) -> bool:
        """V4: whether the record was old. Afterwards a slower swap of an older server loses."""
        stored = await self._store.get(key)
        if stored is None:
            return False
        is_old = decode_record(key, stored.data, kind).v < NEWEST.major
        if self._is_dry:
            return is_old
        if is_old:
            cell = Cell(self._store, key, kind, self._lakes.clock, None, self._lakes.form)
            await cell.update(_adopted, is_idempotent=True)
        # Otherwise the next writer of the record adopts it; a damaged one beside it is reported by its own key.
        with contextlib.suppress(SandurError):
            await self._adopt(key)
        return is_old

    async def _adopt(self, key: str) -> None:
        """The first event of the record, in a swap of its own: whether it counts is known only once it is settled."""
        if self._lake:
            await ensure_events(self._lake, key)


def _adopted(found: Record | None) -> Record | None:
    """V5: the same record; the swap writes it in the form of the store. None if it is gone, or another did it."""
    return found if found and found.v < NEWEST.major else None
