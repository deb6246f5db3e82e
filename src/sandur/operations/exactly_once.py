"""The frame of a mutation that may carry a key: tried, replayed, taken over, and refused for good (G3, C7, C8)."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sandur.catalog.records import Claim, Definite
from sandur.catalog.sources import Request
from sandur.errors import Busy, SandurError
from sandur.operations.claims import ClaimLost, KeyClaim
from sandur.operations.lake import Lake

T = TypeVar("T")

FOLLOWS_MAX: Final = 8


def claim_of(lake: Lake, request: Request, operation: str) -> KeyClaim:
    """The claim of a request, not taken yet; without a key there is none."""
    key_hash = request.key_hash
    return KeyClaim(lake, request, operation, lake.claim(operation, key_hash) if key_hash else None)


async def exactly_once(
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


async def hold(claim: KeyClaim, *, uuid: str = "", namespace_id: str = "") -> None:
    """C7 (fence): the key is ours when this returns, and was when what we decided on was read; else ClaimLost.

    Called between reading and swapping: whoever takes the key over later reads later, and finds what the swap made.
    """
    if claim.held:
        await claim.take_anew(uuid=claim.held.value.uuid)  # A bump: nothing changes but the version.
    else:
        await claim.take(uuid=uuid, namespace_id=namespace_id)


def must_hold(claim: KeyClaim) -> None:
    """Before an answer rests on what was done under our key: ClaimLost when we have not taken it in this request.

    Only the claim can tell whether it was done by this very request, or by another that had the same key.
    """
    if claim.is_keyed and claim.held is None:
        raise ClaimLost
