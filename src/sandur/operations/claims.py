"""Idempotency keys: taken once, replayed alike, taken over when their owner is gone (C4, C7, C8)."""

from typing import Final

from msgspec.structs import replace

from sandur.catalog.records import AttemptedFile, Claim, error_of, failure_of
from sandur.catalog.sources import Request
from sandur.errors import Busy, KeyReused, SandurError, SwapLost
from sandur.operations.lake import Lake
from sandur.storage.cell import Cell, Held
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
        self.held: Held[Claim] | None = None

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

    async def take_anew(self, *, uuid: str) -> None:
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

    async def read(self) -> Held[Claim] | None:
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
