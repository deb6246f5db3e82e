"""Idempotency keys: claimed once, replayed with the same answer, taken over when the owner is gone (G3, C4, C7, C8)."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from sandur.catalog.records import AttemptedFile, Claim, Definite, error_of, failure_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, KeyReused, SandurError, SwapLost
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Versioned
from sandur.storage.contract import ABSENT

FOLLOWS_MAX: Final = 8
_RETRY_AFTER_SECONDS: Final = 2


class ClaimLost(Exception):
    """Somebody else holds the claim: stop, and follow it."""


class KeyClaim:
    """The claim of one request. Without a key there is none: then nothing is written and nothing is ever lost."""

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
    def is_open(self) -> bool:
        """Whether we hold the claim and nothing is final yet."""
        return self.held is not None and self.held.value.state == "open"

    async def take(
        self, *, uuid: str = "", namespace_id: str = "", rename_id: str = "", tried: AttemptedFile | None = None
    ) -> None:
        """Take the key, or, when it is ours already, add a file or a rename that will be tried (C7, R8: the fence).

        When this returns the claim says so; ClaimLost when somebody else has it.
        """
        if self._cell is None:
            return
        claim = self.held.value if self.held else self._opened(uuid=uuid, namespace_id=namespace_id)
        grown = replace(
            claim,
            locations=(*claim.locations, tried) if tried else claim.locations,
            renames=(*claim.renames, rename_id) if rename_id else claim.renames,
        )
        if self.held is None or grown != claim:
            await self._swap(grown)

    async def repin(self, *, uuid: str) -> None:
        """N10: pin another uuid, for that of the claim can never come to be."""
        if self.held:
            await self._swap(replace(self.held.value, uuid=uuid))

    async def done(
        self, *, uuid: str = "", location: str = "", answer: str = "", error: SandurError | None = None
    ) -> None:
        """Make the outcome final, before it is answered (G3); ClaimLost when somebody else has the key."""
        if self._cell is None:
            return
        claim = self.held.value if self.held else self._opened(uuid=uuid)
        failure = failure_of(error) if error else None
        await self._swap(replace(claim, state="done", location=location, answer=answer, failure=failure))

    async def let_go(self) -> None:
        """Leave the claim to the next retry at once: we gave up, and nothing of ours can still take effect."""
        if self.held and self.is_open:
            try:
                await self._swap(replace(self.held.value, started_ms=0))
            except (ClaimLost, SandurError):
                return  # It is taken over when it is stale.

    async def read(self) -> Versioned[Claim] | None:
        """The claim as it stands, whoever has it."""
        return await self._cell.read() if self._cell else None

    async def follow(self) -> Claim:
        """C8: what becomes of us now that the key is taken.

        The claim of a request that is done and was a success; its failure is raised. An open one that is stale is
        ours when this returns; one that is young is Busy. The caller reads everything else only after this.
        """
        if self._cell is None:
            raise Busy("there is no key to follow")
        for _ in range(FOLLOWS_MAX):
            found = await self._cell.read()
            if found is None:
                raise self._busy()  # Our own claim, whose answer was lost, is still in flight.
            claim = found.value
            if claim.request_hash != self._request.hash or claim.operation != self._operation:
                raise KeyReused(f"Idempotency-Key {self._request.key} was used before for another request")
            if claim.state == "done":
                if claim.failure:
                    raise error_of(claim.failure)
                return claim
            if claim.started_ms + self._lake.settings.claim_timeout_ms > self._lake.clock.now_ms():
                raise self._busy()
            self.held = found
            try:
                await self._swap(replace(claim, owner=self._lake.clock.new_id(), started_ms=self._now_ms()))
            except ClaimLost:
                continue
            return self.held.value
        raise self._busy()

    def _opened(self, *, uuid: str, namespace_id: str = "") -> Claim:
        return Claim(
            state="open",
            request_hash=self._request.hash,
            operation=self._operation,
            owner=self._lake.clock.new_id(),
            started_ms=self._now_ms(),
            uuid=uuid,
            namespace_id=namespace_id,
        )

    async def _swap(self, claim: Claim) -> None:
        if self._cell is None:
            return
        try:
            self.held = await self._cell.swap(claim, expected=self.held.version if self.held else ABSENT)
        except SwapLost:
            self.held = None
            raise ClaimLost from None

    def _now_ms(self) -> int:
        return self._lake.clock.now_ms()

    def _busy(self) -> Busy:
        return Busy(
            f"a request with Idempotency-Key {self._request.key} is under way", retry_after_seconds=_RETRY_AFTER_SECONDS
        )


T = TypeVar("T")


def claim_for(lake: Lake, request: Request, operation: str) -> KeyClaim:
    """The claim of a request, not taken yet; without a key there is none."""
    key_hash = request.key_hash
    return KeyClaim(lake, request, operation, lake.claim(operation, key_hash) if key_hash else None)


async def run_exactly_once(
    claim: KeyClaim,
    attempt: Callable[[Claim | None], Awaitable[T]],
    replay: Callable[[Claim], Awaitable[T]],
) -> T:
    """What an attempt answers, or what was answered to an earlier one under the same key.

    An attempt gets the claim it continues, if it continues one, and raises ClaimLost when somebody else has the key. A
    definite refusal is answered only after the claim keeps it (G3). After anything else that went wrong the claim is
    left to the next retry at once: the attempt sees to it that whatever it left behind is recognised.
    """
    taken: Claim | None = None
    for _ in range(FOLLOWS_MAX):
        try:
            return await _kept(claim, attempt(taken))
        except ClaimLost:
            taken = await claim.follow()
            if taken.state == "done":
                return await replay(taken)
    raise Busy("other requests with the same Idempotency-Key are under way")


async def _kept(claim: KeyClaim, attempt: Awaitable[T]) -> T:
    try:
        return await attempt
    except Definite as error:
        await claim.done(error=error)
        raise
    except SandurError:
        await claim.let_go()
        raise


async def hold_claim(claim: KeyClaim, *, uuid: str = "", namespace_id: str = "") -> None:
    """C7 (fence): the key is ours when this returns, and was when what we decided on was read; else ClaimLost.

    Called between reading and swapping: whoever takes the key over later reads later, and finds what the swap made.
    """
    if claim.held:
        await claim.repin(uuid=claim.held.value.uuid)  # A bump: nothing changes but the version.
    else:
        await claim.take(uuid=uuid, namespace_id=namespace_id)


def require_claim(claim: KeyClaim) -> None:
    """Before an answer rests on what was done under our key: ClaimLost when we have not taken it in this request.

    Only the claim can tell whether it was done by this very request, or by another that had the same key.
    """
    if claim.is_keyed and claim.held is None:
        raise ClaimLost
