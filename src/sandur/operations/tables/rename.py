"""Rename a table or view (rules R1–R9): the new name first, as `moving`; then the old one, as `moved`."""

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent
from sandur.catalog.identifiers import Format, Identifier, Kind, checked_identifier
from sandur.catalog.records import Claim, NameRecord, Request
from sandur.errors import AlreadyExists, Busy, Forbidden, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.access import check_names_early, read_authority, require, resolve_authorized
from sandur.operations.events import event_of, name_subject
from sandur.operations.idempotency import KeyClaim, claim_for, key_hash_of, run_exactly_once
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.receipts import CatalogReceipts
from sandur.operations.securable_chains import name_chain, namespace_chain, record_chain
from sandur.operations.tables.changes import SWAP_DELAY_MS_MAX
from sandur.operations.tables.names import (
    ICEBERG,
    RENAME,
    NameSlot,
    ResolvedName,
    active_record,
    confirm_namespace,
    freed_record,
    name_not_found,
    namespace_not_found,
    pointer_cell,
    resolve_namespace,
    settle_name,
)
from sandur.storage.cell import Attempts, Versioned, gather_all
from sandur.storage.contract import Expected
from sandur.storage.keys import validate_key


async def rename(
    lake: Lake,
    source: Identifier,
    target: Identifier,
    *,
    kind: Kind,
    request: Request,
    formats: Collection[Format] = ICEBERG,
    uuid: str = "",
) -> str:
    """Move what is named `source` to `target`, at one moment for every reader, and return its uuid.

    A name of another format than `formats`, or of another object than `uuid`, does not exist for the caller.
    """
    checked_identifier(target)
    validate_key(lake.layout.name(source))  # Before its mark: lists read the names that have one.
    if source == target:
        missing = name_not_found(source, kind)
        found = await resolve_authorized(lake, source, lambda found: found.is_a(kind, formats), missing=missing)
        return found.uuid
    claim = claim_for(lake, request, RENAME)
    # Each name has a mark of its own: one index may list both.
    marks = {identifier: lake.clock.new_id() for identifier in (source, target)}
    renaming = _Rename(lake, source, target, kind, formats, claim, request, marks, uuid)
    async with update.finishing(lake, "finish rename", renaming.finish_index):
        return await run_exactly_once(claim, renaming.attempt, renaming.replay)


class _Plan(NamedTuple):
    """What R1 read: the table, the version that the new name must have, and the new name's namespace."""

    source: ResolvedName
    expected: Expected
    namespace_id: str


class _Refusal(NamedTuple):
    """Why the rename is refused. It is raised only after the search for a proof that it happened (R8 order).

    It is not an error itself, because `gather_all` would raise it.
    """

    error: SandurError


@dataclass(frozen=True)
class _Rename:
    """One request to rename."""

    lake: Lake
    source: Identifier
    target: Identifier
    kind: Kind
    formats: Collection[Format]
    claim: KeyClaim
    request: Request
    marks: dict[Identifier, str]
    uuid: str = ""

    async def attempt(self, continued: Claim | None) -> str:
        del continued  # The claim that is held pins the same table.
        round_1 = [update.mark(self.lake, identifier, mark) for identifier, mark in self.marks.items()]  # I1
        async for _ in Attempts(self.lake.clock):
            read_ms = self.lake.clock.now_ms()
            *_, plan = await gather_all([*round_1, self._plan()])
            round_1 = []
            if await self._is_proven():  # R8 order: after everything that would refuse the rename was read.
                await self.claim.done()
                return self.claim.pinned_uuid or ""
            if plan is None:
                continue
            if isinstance(plan, _Refusal):
                raise plan.error
            event = await self._event(plan)
            rename_id = event.id if event else self.lake.clock.new_id()
            life = plan.source.name.value.life
            # R8 all, R8 fence, E7
            await self.claim.take(uuid=plan.source.uuid, life=life, rename_id=rename_id, event=event)
            if await self._move(plan, rename_id, event, read_ms):
                return plan.source.uuid
        raise Busy(f"{self.source}: other requests keep changing the names")

    async def replay(self, done: Claim) -> str:
        await self._authorize_replay(done.uuid)
        return done.uuid

    async def _authorize_replay(self, uuid: str) -> None:
        """A9: a replay needs the right to rename, under the new name or, if the new parent gives none, the old one."""
        authority = await read_authority(self.lake)
        if authority is None:
            return
        missing = name_not_found(self.source, self.kind)
        name = await self.lake.name(self.source).read()
        if name is None or name.value.uuid != uuid:
            raise missing
        record = await pointer_cell(self.lake, name.value).read()
        chain = await record_chain(self.lake, authority, self.source, record, missing=missing)
        with contextlib.suppress(Forbidden, NotFound):
            require(self.lake, authority, chain, missing=missing)
            return
        above = await namespace_chain(self.lake, authority, self.source.namespace, missing=missing)
        require(self.lake, authority, (*above, chain[-1]), missing=missing)

    async def finish_index(self) -> None:
        await update.finish_together(self.lake, self.marks)

    async def _plan(self) -> _Plan | _Refusal | None:
        """R1: what to do, or why not; None to read again."""
        namespace, source, target, _ = await gather_all(
            (
                resolve_namespace(self.lake, self.target.namespace),
                settle_name(self.lake, self.source),
                settle_name(self.lake, self.target),
                check_names_early(self.lake),
            )
        )
        live, held = source.live, self.claim.held
        if live is None or not live.is_a(self.kind, self.formats) or self.uuid not in {"", live.uuid}:
            return _Refusal(name_not_found(self.source, self.kind))
        if held and (held.value.uuid, held.value.life) != (live.uuid, live.name.value.life):  # R8 pin, E7
            return _Refusal(name_not_found(self.source, self.kind))
        await self._authorize(live, namespace.value.id if namespace else None)
        if namespace is None:
            return _Refusal(namespace_not_found(self.target.namespace))
        if target.live:
            return await self._refuse_taken(source)
        return _Plan(live, target.expected, namespace.value.id)

    async def _authorize(self, live: ResolvedName, namespace_id: str | None) -> None:
        """The right to take the table away from its name, and to create it in the target namespace (A6).

        The source comes first, also if the target namespace does not exist (None): otherwise everyone could find out
        which namespaces exist.
        """
        if authority := await read_authority(self.lake):
            missing = name_not_found(self.source, self.kind)
            chain = await name_chain(self.lake, authority, live, missing=missing)
            require(self.lake, authority, chain, missing=missing)
            if namespace_id is None:
                return
            missing = namespace_not_found(self.target.namespace)
            target = await namespace_chain(self.lake, authority, self.target.namespace, namespace_id, missing=missing)
            require(self.lake, authority, target, missing=missing, situation="destination")

    async def _refuse_taken(self, source: NameSlot) -> _Refusal | None:
        """A taken target refuses only if the source existed all the time: it may just have been moved there."""
        target = await settle_name(self.lake, self.target)
        old = await self.lake.name(self.source).read()
        if target.live is None or old is None or old.version != source.expected:
            return None
        kind = target.live.name.value.kind
        text = f"Cannot rename {self.source} to {self.target}. {kind.capitalize()} already exists"
        return _Refusal(AlreadyExists(text, subject=kind))

    async def _event(self, plan: _Plan) -> CatalogEvent | None:
        """E5: the event lies on the new name; the old name proves it."""
        old = plan.source.name.value
        subject = name_subject(self.target, old)._replace(renamed_from=self.source)
        return await event_of(self.lake, "renamed", subject, self.request.source, before=old.last_event)

    async def _is_proven(self) -> bool:
        """R8 proof: a name that is `moved` by a rename of this claim proves the rename; later its receipt does (E7)."""
        claim = self.claim.held.value if self.claim.held else None
        if claim is None or not claim.renames:
            return False
        if await self._is_moved_by(claim.renames):
            return True
        receipts = self.lake.feature(CatalogReceipts)
        return any(await gather_all(receipts.exists(claim.uuid, tried) for tried in claim.events))

    async def _is_moved_by(self, renames: Collection[str]) -> bool:
        old = await self.lake.name(self.source).read()
        return old is not None and old.value.state == "moved" and old.value.rename_id in renames

    async def _move(self, plan: _Plan, rename_id: str, event: CatalogEvent | None, read_ms: int) -> bool:
        """R2–R5; False if the rename definitely did not happen and may be planned again."""
        source, target = self.lake.name(self.source), self.lake.name(self.target)
        moving = replace(
            active_record(plan.source.name.value),
            state="moving",
            namespace_id=plan.namespace_id,
            other=self.source,
            other_version=plan.source.name.version,
            rename_id=rename_id,
            renamed_by=self.request.source.principal,
            updated_ms=self.lake.clock.now_ms(),
            last_event=event,
        )
        new = await target.try_swap(moving, expected=plan.expected)  # R2
        if new is None:
            return False
        if not await confirm_namespace(self.lake, self.target.namespace, plan.namespace_id):  # R3
            await target.try_swap(freed_record(new.value), expected=new.version)
            raise namespace_not_found(self.target.namespace)
        if self.lake.access and self.lake.clock.now_ms() - read_ms > SWAP_DELAY_MS_MAX:  # Read the grants again.
            await target.try_swap(freed_record(new.value), expected=new.version)
            return False
        by = key_hash_of(self.request) or ""
        moved = replace(moving, state="moved", other=self.target, other_version="", by=by, last_event=None)
        try:
            await source.swap(moved, expected=plan.source.name.version)  # R4: the rename happens here.
        except SwapLost as lost:
            if lost.is_definite:
                await target.try_swap(freed_record(new.value), expected=new.version)
                return False
            if not await self._is_moved_by({rename_id}):
                raise OutcomeUnknown(f"{self.source}: the answer to the rename was lost") from lost
        await self.lake.background.run("finish rename", self._finish(new))
        return True

    async def _finish(self, new: Versioned[NameRecord]) -> None:
        """R5, after the answer: activate the new name. The old one stays `moved` until it is reused; it proves (E3)."""
        await self.lake.name(self.target).try_swap(active_record(new.value), expected=new.version)
        await gather_all((self.claim.finish(), self.lake.feature(CatalogReceipts).ensure(new.value.last_event)))
