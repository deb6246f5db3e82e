"""Idempotency keys: claimed once, replayed with the same answer, taken over when the owner is gone (G3, C4, C7, C8)."""

import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from sandur.catalog.events import CatalogEvent, attempted
from sandur.catalog.records import AttemptedFile, Claim, Definite, Request, error_of, failure_of
from sandur.errors import Busy, Hidden, KeyReused, SandurError
from sandur.operations.audit.notes import note_replay
from sandur.operations.lake import Lake
from sandur.storage.cell import Attempts, Cell, Versioned
from sandur.storage.contract import ABSENT

T = TypeVar("T")

FOLLOWS_MAX: Final = 8
_RETRY_AFTER_SECONDS: Final = 2


class ClaimLost(Exception):
    """Another attempt holds the claim: stop, and follow it."""


class KeyClaim:
    """The claim of one request. Without a key there is no cell: nothing is written and the claim is never lost."""

    def __init__(self, lake: Lake, request: Request, operation: str, cell: Cell[Claim] | None) -> None:
        self._lake = lake
        self._request = request
        self._operation = operation
        self._cell = cell
        self.held: Versioned[Claim] | None = None

    @property
    def is_keyed(self) -> bool:
        return self._cell is not None

    @property
    def pinned_uuid(self) -> str | None:
        """The uuid that the claim commits this request to; None while the claim is not held."""
        return self.held.value.uuid if self.held else None

    async def take(
        self,
        *,
        uuid: str = "",
        life: str = "",
        namespace_id: str = "",
        rename_id: str = "",
        tried: AttemptedFile | None = None,
        event: CatalogEvent | None = None,
    ) -> None:
        """Take the key or, if it is held already, add the file, rename or event that comes next (C7, R8, E7: a fence).

        When this returns, the claim is written. Raises ClaimLost if another attempt holds it.
        """
        if self._cell is None:
            return
        claim = self.held.value if self.held else self._opened(uuid=uuid, life=life, namespace_id=namespace_id)
        grown = replace(
            claim,
            locations=(*claim.locations, tried) if tried else claim.locations,
            renames=(*claim.renames, rename_id) if rename_id else claim.renames,
            events=(*claim.events, attempted(event)) if event else claim.events,
        )
        if self.held is None or grown != claim:
            await self._swap(grown)

    async def repin(self, *, uuid: str) -> None:
        """N10: commit the claim to another uuid, because the pinned one can never exist."""
        if self.held:
            await self._swap(replace(self.held.value, uuid=uuid))

    async def done(
        self, *, uuid: str = "", location: str = "", answer: str = "", error: SandurError | None = None
    ) -> None:
        """Make the outcome final before it is answered (G3). Raises ClaimLost if another attempt holds the key."""
        if self._cell is None:
            return
        claim = self.held.value if self.held else self._opened(uuid=uuid)
        failure = failure_of(error) if error else None
        await self._swap(replace(claim, state="done", location=location, answer=answer, failure=failure))

    async def finish(self, *, location: str = "", answer: str = "") -> None:
        """Make success final in the background. If the claim was taken over, the new owner finds the change itself."""
        if self.held and self.held.value.state == "open":
            with contextlib.suppress(ClaimLost):
                await self.done(location=location, answer=answer)

    async def check_names(self) -> None:
        """Raise Renamed if the request was refused under names that are not current: then nothing is final."""
        names = self._lake.names
        if names and not names.is_done:
            await names.look(self._lake)

    async def release(self) -> None:
        """Leave the claim to the next retry at once: this attempt gave up and nothing of it can still take effect."""
        if self.held and self.held.value.state == "open":
            try:
                with contextlib.suppress(ClaimLost):
                    await self._swap(replace(self.held.value, started_ms=0))
            except SandurError as error:  # The claim is taken over once it is stale.
                self._lake.incidents.work_failed("release a claim", error)

    async def read(self) -> Versioned[Claim] | None:
        """The stored claim, whichever attempt holds it; None if the key is not claimed."""
        return await self._cell.read() if self._cell else None

    async def follow(self, find_done: Callable[[Claim], Awaitable[Claim | None]] | None = None) -> Claim:
        """C8: find out what to do after the key turned out to be taken.

        Returns the claim of a request that succeeded, or a stale claim that this request has now taken over. Raises the
        recorded failure of a request that failed, and Busy while another attempt is active. The caller reads everything
        else only after this call.

        A request that succeeded may leave its claim open. `find_done` then finds the proof of its success, and returns
        the claim as it would be if it were done; None without a proof, which means nothing.
        """
        if self._cell is None:
            raise Busy("there is no key to follow")
        async for _ in Attempts(self._lake.clock):
            found = await self._cell.read()
            if found is None:
                raise self._busy()  # Our own claim, whose answer was lost, is still in flight.
            claim = found.value
            if claim.request_hash != self._request.hash or claim.operation != self._operation:
                raise KeyReused(f"Idempotency-Key {self._request.key} was already used for a different request")
            if claim.state == "done":
                note_replay()
                if claim.failure:
                    raise error_of(claim.failure)
                return claim
            if find_done and (done := await find_done(claim)):
                note_replay()
                return done
            if claim.started_ms + self._lake.settings.claim_timeout_ms > self._lake.clock.now_ms():
                raise self._busy()
            taken = replace(claim, owner=self._lake.clock.new_id(), started_ms=self._lake.clock.now_ms())
            self.held = await self._cell.try_swap(taken, expected=found.version)
            if self.held:
                return self.held.value
        raise self._busy()

    def _opened(self, *, uuid: str, life: str = "", namespace_id: str = "") -> Claim:
        return Claim(
            state="open",
            request_hash=self._request.hash,
            operation=self._operation,
            owner=self._lake.clock.new_id(),
            started_ms=self._lake.clock.now_ms(),
            uuid=uuid,
            life=life,
            namespace_id=namespace_id,
        )

    async def _swap(self, claim: Claim) -> None:
        if self._cell:
            self.held = await self._cell.try_swap(claim, expected=self.held.version if self.held else ABSENT)
            if self.held is None:
                raise ClaimLost

    def _busy(self) -> Busy:
        return Busy(
            f"another request with Idempotency-Key {self._request.key} is active",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        )


def key_hash_of(request: Request) -> str | None:
    """The hash of the idempotency key, which names objects in place of the key; None without a key.

    A8: a key belongs to its principal, so that no caller finds the answer that another one got.
    """
    if request.key is None:
        return None
    owner = request.source.principal_id
    return hashlib.sha256(f"{owner}\n{request.key}".encode() if owner else request.key.encode()).hexdigest()


def claim_for(lake: Lake, request: Request, operation: str) -> KeyClaim:
    """The claim of a request, not taken yet; without a key it has no effect."""
    key_hash = key_hash_of(request)
    return KeyClaim(lake, request, operation, lake.claim(operation, key_hash) if key_hash else None)


async def run_exactly_once(
    claim: KeyClaim,
    attempt: Callable[[Claim | None], Awaitable[T]],
    replay: Callable[[Claim], Awaitable[T]],
) -> T:
    """Return what an attempt answers, or what an earlier attempt under the same key answered.

    The attempt gets the claim that it continues, or None, and raises ClaimLost when another attempt holds the key. A
    definite refusal is answered only after the claim records it (G3). After any other failure the claim is released to
    the next retry: the attempt makes sure that whatever it left is recognised.
    """
    taken: Claim | None = None
    for _ in range(FOLLOWS_MAX):
        try:
            try:
                return await attempt(taken)
            except Hidden:  # A10: the next attempt may be allowed.
                await claim.release()
                raise
            except Definite as error:
                await claim.check_names()
                await claim.done(error=error)
                raise
            except SandurError:
                await claim.release()
                raise
        except ClaimLost:
            taken = await claim.follow()
            if taken.state == "done":
                return await replay(taken)
    raise Busy("other requests with the same Idempotency-Key are active")


async def hold_claim(claim: KeyClaim, *, uuid: str = "", namespace_id: str = "") -> None:
    """C7 (fence): make sure that this request holds the key; raises ClaimLost otherwise.

    Called between reading and swapping: an attempt that takes the key over later reads later, and finds the swap.
    """
    if claim.held:
        await claim.repin(uuid=claim.held.value.uuid)  # A bump: only the version changes.
    else:
        await claim.take(uuid=uuid, namespace_id=namespace_id)


def require_claim(claim: KeyClaim) -> None:
    """Raise ClaimLost if the request has a key that it has not taken.

    Called before an answer rests on what was done under the key: only the claim tells whether this very request did it,
    or another one with the same key.
    """
    if claim.is_keyed and claim.held is None:
        raise ClaimLost
