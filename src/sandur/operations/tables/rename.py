"""Rename a table or view (rules R1-R9): the new name first, as `moving`; then the old one, as `moved`."""

import asyncio
import contextlib
from collections.abc import Collection
from typing import Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.identifiers import Format, Identifier, Kind, checked_identifier
from sandur.catalog.records import NameRecord
from sandur.catalog.sources import Request
from sandur.errors import AlreadyExists, Busy, NotFound, OutcomeUnknown, SandurError, SwapLost
from sandur.operations.concurrency import gather_all
from sandur.operations.idempotency import ClaimLost, KeyClaim
from sandur.operations.index import update
from sandur.operations.lake import Lake
from sandur.operations.tables.names import (
    ICEBERG,
    RENAME,
    NameSlot,
    ResolvedName,
    active_record,
    confirm_namespace,
    resolve_name,
    resolve_namespace,
    settle_name,
)
from sandur.storage.cell import Versioned
from sandur.storage.contract import Expected

TRIES_MAX: Final = 8
FOLLOWS_MAX: Final = 4


async def rename(
    lake: Lake,
    source: Identifier,
    target: Identifier,
    *,
    kind: Kind,
    request: Request,
    formats: Collection[Format] = ICEBERG,
) -> None:
    """What was `source` is `target`, at one moment for every reader. A name of another format is as none."""
    checked_identifier(target)
    if source == target:
        found = await resolve_name(lake, source)
        if found is None or not found.is_a(kind, formats):
            raise _missing(source, kind)
        return
    await _Rename(lake, source, target, kind, request, formats).run()


class _Plan(NamedTuple):
    """What R1 read: the table, what the two swaps expect, and the namespace the new name is made for."""

    source: ResolvedName
    new: Expected
    namespace_id: str


class _Refusal(NamedTuple):
    """Why it may not be; a value, for it is told only after the proof was looked for (R8 order)."""

    error: SandurError


class _Rename:
    """One request to rename."""

    def __init__(
        self,
        lake: Lake,
        source: Identifier,
        target: Identifier,
        kind: Kind,
        request: Request,
        formats: Collection[Format],
    ) -> None:
        self._formats = formats
        key_hash = request.key_hash
        self._lake = lake
        self._source = source
        self._target = target
        self._kind = kind
        self._key_hash = key_hash or ""
        # A mark each: both names may be listed by the same index.
        self._marks = {identifier: lake.clock.new_id() for identifier in (source, target)}
        self._claim = KeyClaim(lake, request, RENAME, lake.claim(RENAME, key_hash) if key_hash else None)

    async def run(self) -> None:
        try:
            await self._run()
        except SandurError:
            await self._claim.let_go()
            raise
        finally:
            await self._lake.background.run("finish rename", self._finish_index())

    async def _run(self) -> None:
        for _ in range(FOLLOWS_MAX):
            try:
                return await self._attempts()
            except ClaimLost:
                if (await self._claim.follow()).state == "done":
                    return None
        raise Busy(f"{self._source}: is being renamed")

    async def _attempts(self) -> None:
        marks = [self._marked(self._source), self._marked(self._target)]  # I1
        for _ in range(TRIES_MAX):
            *_, planned = await gather_all([*marks, self._planned()])
            marks = []
            # R8 order: the proof that it happened is looked for after what would refuse it.
            if await self._is_proven():
                return await self._claim.done()
            if planned is None:
                continue
            if isinstance(planned, _Refusal):
                await self._claim.done(error=planned.error)  # G3
                raise planned.error
            rename_id = self._lake.clock.new_id()
            await self._claim.take(uuid=planned.source.uuid, rename_id=rename_id)  # R8 all, R8 fence
            if await self._moved(planned, rename_id):
                return None
        raise Busy(f"{self._source}: the names keep changing")

    async def _planned(self) -> _Plan | _Refusal | None:
        """R1: what to do, or why not; None to look again."""
        namespace, source, target = await asyncio.gather(
            resolve_namespace(self._lake, self._target.namespace),
            settle_name(self._lake, self._source),
            settle_name(self._lake, self._target),
        )
        live = source.live
        pinned = self._claim.held.value.uuid if self._claim.held else None
        if live is None or not live.is_a(self._kind, self._formats) or (pinned and live.uuid != pinned):  # R8 pin
            return _Refusal(_missing(self._source, self._kind))
        if namespace is None:
            return _Refusal(self._no_namespace())
        if target.live:
            return await self._conflict(source)
        return _Plan(live, target.expected, namespace.value.id)

    async def _conflict(self, source: NameSlot) -> _Refusal | None:
        """That the new name is taken refuses only if the old one was there all along: it may just have been moved."""
        target = await settle_name(self._lake, self._target)
        old = await self._lake.name(self._source).read()
        if target.live is None or old is None or old.version != source.expected:
            return None
        kind = target.live.name.value.kind
        text = f"Cannot rename {self._source} to {self._target}. {kind.capitalize()} already exists"
        return _Refusal(AlreadyExists(text, subject=kind))

    async def _is_proven(self) -> bool:
        """R8 proof: only `moved` by a rename of our claim proves it."""
        if self._claim.held is None or not self._claim.held.value.renames:
            return False
        old = await self._lake.name(self._source).read()
        return old is not None and old.value.state == "moved" and old.value.rename_id in self._claim.held.value.renames

    async def _moved(self, plan: _Plan, rename_id: str) -> bool:
        """R2–R5; False when it definitely did not happen and may be planned anew."""
        record = plan.source.name.value
        now_ms = self._lake.clock.now_ms()
        moving = replace(
            active_record(record),
            state="moving",
            other=self._source,
            other_version=plan.source.name.version,
            rename_id=rename_id,
            updated_ms=now_ms,
        )
        try:
            new = await self._lake.name(self._target).swap(moving, expected=plan.new)  # R2
        except SwapLost:
            return False
        if not await confirm_namespace(self._lake, self._target.namespace, plan.namespace_id):  # R3
            await self._give_back(new)
            error = self._no_namespace()
            await self._claim.done(error=error)
            raise error
        moved = replace(moving, state="moved", other=self._target, other_version="", by=self._key_hash)
        try:
            # R4: the rename happens here.
            await self._lake.name(self._source).swap(moved, expected=plan.source.name.version)
        except SwapLost as lost:
            if not lost.is_definite and not await self._is_moved(rename_id):
                raise OutcomeUnknown(f"{self._source}: the answer to the rename was lost") from lost
            if lost.is_definite:
                await self._give_back(new)
                return False
        await self._lake.background.run("finish rename", self._finish(new))
        return True

    async def _is_moved(self, rename_id: str) -> bool:
        old = await self._lake.name(self._source).read()
        return old is not None and (old.value.state, old.value.rename_id) == ("moved", rename_id)

    async def _give_back(self, new: Versioned[NameRecord]) -> None:
        with contextlib.suppress(SwapLost):
            await self._lake.name(self._target).swap(replace(new.value, state="free"), expected=new.version)

    async def _finish(self, new: Versioned[NameRecord]) -> None:
        """R5, behind the answer: the new name is active. The old one stays `moved` for whoever reuses it."""
        with contextlib.suppress(SwapLost):
            await self._lake.name(self._target).swap(active_record(new.value), expected=new.version)
        if self._claim.is_open:
            with contextlib.suppress(ClaimLost):
                await self._claim.done()

    async def _marked(self, identifier: Identifier) -> None:
        await update.mark(self._lake, identifier, self._marks[identifier])

    async def _finish_index(self) -> None:
        for identifier, mark in self._marks.items():
            await update.finish(self._lake, identifier, mark)

    def _no_namespace(self) -> NotFound:
        return NotFound(f"Namespace does not exist: {self._target.namespace}", subject="namespace")


def _missing(identifier: Identifier, kind: Kind) -> NotFound:
    return NotFound(f"{kind.capitalize()} does not exist: {identifier}", subject=kind)
