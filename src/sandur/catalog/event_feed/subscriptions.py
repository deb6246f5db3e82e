"""Subscriptions: their records, when a delivery is tried again, and which event of an object goes next."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from sandur.catalog.event_feed.events import Event, EventFilter, Position
from sandur.catalog.record_versions import Record
from sandur.catalog.security.manifest import Caller

State = Literal["active", "paused", "disabled"]

SECRETS_MAX: Final = 2
ROTATION_MS: Final = 86_400_000
"""How long the secret before the newest one still signs."""

PENDING_MAX: Final = 500
"""Events of one subscription that are read and not settled. Beyond that, reading waits."""
HELD_MAX: Final = 5_000
"""The same while an event waits for the one before it, which may come much later in the feed."""
OBJECTS_AT_ONCE: Final = 16
HOLD_MS: Final = 900_000
"""How long an event waits for the event before it."""

FIRST_RETRY_MS: Final = 5_000
RETRY_MAX_MS: Final = 6 * 3_600_000
RETRY_AFTER_MAX_MS: Final = 24 * 3_600_000
RETRIES_MS: Final = 3 * 86_400_000
"""How long a delivery is tried before it becomes a dead letter."""
_DOUBLINGS_MAX: Final = 20
_JITTER: Final = 0.2
_REASON_CHARS_MAX: Final = 200


class SealedSecret(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A secret that signs deliveries, sealed. `expires_ms` of 0: it is the newest one."""

    id: str
    sealed: str
    created_ms: int
    expires_ms: int = 0


class Subscription(Record, frozen=True, kw_only=True):
    """Events that are delivered to a URL, with the rights that its owner has at that time.

    `disabled` says why in `reason`: the receiver is gone, or the owner. `start` is the position of its first event.
    """

    id: str
    url: str
    wanted: EventFilter = EventFilter()
    description: str = ""
    state: State = "active"
    reason: str = ""
    secrets: tuple[SealedSecret, ...] = ()
    owner: str = ""
    owner_id: str = ""
    is_external: bool = False
    start: Position = Position(1)
    created_ms: int = 0
    changed_ms: int = 0

    @property
    def caller(self) -> Caller:
        """The owner as a caller. Groups that an identity provider claims in a token do not count: there is no token."""
        # A user of a provider was authenticated when the subscription was made: revocations since then count.
        return Caller(self.owner_id, self.owner, is_external=self.is_external, issued_ms=self.created_ms)


class Parked(msgspec.Struct, frozen=True, array_like=True):
    """An event that was read and is not settled: its receipt and position, and what was tried so far.

    `since_ms` is when it was first tried, or first held; it is next tried at `due_ms`. `reason` is the last failure.
    """

    receipt: str
    position: Position
    since_ms: int = 0
    attempts: int = 0
    due_ms: int = 0
    reason: str = ""


class DeliveryCursor(Record, frozen=True, kw_only=True):
    """How far a subscription was served: everything before `position` is settled, except for what is parked.

    Settled means: delivered, a dead letter, or not for this subscription. `holder` delivers until `held_until_ms`; a
    server that takes the cursor, or a request that moves it, raises the epoch.
    """

    position: Position
    parked: tuple[Parked, ...] = ()
    holder: str = ""
    epoch: int = 0
    held_until_ms: int = 0
    delivered: int = 0
    dead_letters: int = 0
    delivered_ms: int = 0
    failure: str = ""
    """Why an event waits for a retry, or why events were lost; empty if none waits."""

    @property
    def settled_entry(self) -> int:
        """The newest entry of the feed up to which everything is settled."""
        # The position of a parked event is behind it. Behind the last event of an entry, that is the next entry.
        needed = [one.position.entry - (not one.position.offset) for one in self.parked]
        return max(min([self.position.entry, *needed]) - 1, 0)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was not delivered: its receipt, and why."""

    event_id: str
    type: str
    receipt: str
    position: Position
    attempts: int
    first_ms: int
    last_ms: int
    reason: str


class Answered(NamedTuple):
    """What a receiver answered; a status of 0 means that it did not answer, and `reason` says why."""

    status: int
    reason: str = ""
    retry_after_ms: int = 0


Verdict = Literal["delivered", "retry", "dead", "disable"]
_OK: Final = range(200, 300)
_GONE: Final = 410


class Decided(NamedTuple):
    verdict: Verdict
    parked: Parked


def decide(parked: Parked, answer: Answered, *, now_ms: int, chance: float) -> Decided:
    """What happens after a try. `chance` in [0, 1) spreads the retries."""
    if answer.status in _OK:
        return Decided("delivered", parked)
    since_ms = parked.since_ms or now_ms
    attempts = parked.attempts + 1
    reason = (answer.reason or f"status {answer.status}")[:_REASON_CHARS_MAX]
    due_ms = now_ms + max(retry_delay_ms(attempts, chance), min(answer.retry_after_ms, RETRY_AFTER_MAX_MS))
    tried = msgspec.structs.replace(parked, since_ms=since_ms, attempts=attempts, due_ms=due_ms, reason=reason)
    if answer.status == _GONE:
        return Decided("disable", tried)
    return Decided("dead" if due_ms - since_ms > RETRIES_MS else "retry", tried)


def retry_delay_ms(attempts: int, chance: float) -> int:
    """The wait after some failures: 5 s, doubled each time, at most 6 h, with a fifth of jitter to either side."""
    plain = min(FIRST_RETRY_MS << min(attempts - 1, _DOUBLINGS_MAX), RETRY_MAX_MS)
    return round(plain * (1 + _JITTER * (2 * chance - 1)))


class Pending(NamedTuple):
    """An event that waits, with what was tried so far."""

    event: Event
    parked: Parked


Predecessor = Literal["settled", "pending", "unknown"]


def predecessor_of(event: Event, *, settled: Collection[str], pending: Collection[str]) -> Predecessor:
    """What is known about the event before this one in its chain; `unknown` needs a look at the store."""
    if event.previous is None or event.previous in settled:
        return "settled"
    return "pending" if event.previous in pending else "unknown"


class Choice(NamedTuple):
    """Which event of an object goes next: `event` with `is_gap` if its predecessor is missing. None: nothing is ready.

    `unknown` is an event whose predecessor must be looked for. `due_ms` is when a wait ends; 0 if no time ends it.
    """

    next: Pending | None = None
    is_gap: bool = False
    unknown: Pending | None = None
    due_ms: int = 0


def choose(
    queue: Sequence[Pending],
    *,
    settled: Collection[str],
    missing: Mapping[str, int],
    now_ms: int,
) -> Choice:
    """The next event of one object, whose pending events are in the order of their positions.

    An event goes after its predecessor. A failed event blocks its object until its retry is due. `missing` are events
    whose predecessor exists but was not read yet, with the time since when they are held; after HOLD_MS they go with a
    gap. A retry says again that there is a gap, unless the predecessor was found meanwhile: then that one goes first.
    """
    pending = {one.event.commit_key for one in queue}
    due_ms = 0
    for one in queue:
        key = one.event.commit_key
        if one.parked.attempts and one.parked.due_ms > now_ms:
            return Choice(due_ms=one.parked.due_ms)
        match predecessor_of(one.event, settled=settled, pending=pending):
            case "settled":
                return Choice(one)
            case "pending":
                continue
            case "unknown":
                if key not in missing:
                    return Choice(unknown=one)
                if one.parked.attempts or missing[key] + HOLD_MS <= now_ms:
                    return Choice(one, is_gap=True)
                due_ms = min(due_ms or missing[key] + HOLD_MS, missing[key] + HOLD_MS)
    return Choice(due_ms=due_ms)
