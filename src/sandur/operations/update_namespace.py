"""Changing the properties of a namespace: one swap, at most once per key."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Namespace
from sandur.catalog.records import Claim, NamespaceRecord
from sandur.catalog.sources import Request
from sandur.errors import Busy, OutcomeUnknown, SwapLost
from sandur.operations import indexing
from sandur.operations.catalogs import load_catalog
from sandur.operations.concurrency import gather_all
from sandur.operations.create_namespace import check_namespace_location
from sandur.operations.idempotency import ClaimLost, claim_for, hold_claim, require_claim, run_exactly_once
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import change_of, help_predecessor, is_by, missing, shown_properties
from sandur.operations.tables.names import resolve_namespace
from sandur.storage.cell import Held

OPERATION: Final = "update-namespace"
TRIES_MAX: Final = 8


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
        self._claim = claim_for(lake, request, OPERATION)
        self._change = change_of(lake, request, OPERATION)
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
            if found and found.value.change and is_by(found.value, self._change):
                require_claim(self._claim)
                return await self._done(found.value.change.answer)
            if self._is_uncertain and not self._claim.is_keyed:
                raise OutcomeUnknown(f"namespace {self._namespace}: it may have been updated, and was changed since")
            if found is None:
                raise missing(self._namespace)
            check_namespace_location(self._lake, catalog, self._updates)
            if answer := await self._swap(found):
                return await self._done(answer)
        raise Busy(f"namespace {self._namespace}: it keeps changing")

    async def _swap(self, found: Held[NamespaceRecord]) -> str | None:
        """The answer, in the form in which it is kept; None when somebody was faster."""
        shown = shown_properties(found.value)
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
