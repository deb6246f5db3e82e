"""Create, change and delete subscriptions, rotate their secrets, replay their events, and list their dead letters."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from sandur.catalog.audit import AuditedChange
from sandur.catalog.event_feed.events import START, EventFilter, Position, checked_filter
from sandur.catalog.event_feed.subscriptions import (
    PENDING_MAX,
    ROTATION_MS,
    SECRETS_MAX,
    DeadLetter,
    DeliveryCursor,
    Parked,
    SealedSecret,
    State,
    Subscription,
)
from sandur.catalog.event_feed.webhooks import SECRET_BYTES, checked_receiver, parse_networks, secret_text
from sandur.catalog.paging import Page, decode_page_token, encode_page_token
from sandur.catalog.records import Request
from sandur.clock import uuid_v8
from sandur.errors import Conflict, Damaged, Exhausted, Forbidden, Invalid, NotFound, SwapLost, Unfit
from sandur.operations.access import authorize_caller, read_authority, require_metastore
from sandur.operations.audit.notes import note_changes
from sandur.operations.credentials.sealed_secrets import Sealing
from sandur.operations.event_feed.reader import oldest_entry, position_at
from sandur.operations.event_feed.watch import FeedWatch
from sandur.operations.feed_readers import FeedReaders
from sandur.operations.identity.principals import OTHERS
from sandur.operations.lake import Lake
from sandur.splicing import NOT_JSON
from sandur.storage.cell import Cell, Versioned, gather_all, gather_in_batches
from sandur.storage.contract import Listed

SUBSCRIPTIONS_MAX: Final = 1_000
"""Subscriptions of one workspace: every server looks through all of them."""
OWN_MAX: Final = 100
DESCRIPTION_CHARS_MAX: Final = 500
NOW: Final = "now"
OLDEST: Final = "oldest"
_READS_AT_ONCE: Final = 64
_DEAD_PAGE_MAX: Final = 1_000


class SubscriptionChanges:
    """Tells the deliveries of this process that a subscription was created or changed here."""

    def __init__(self, _lake: Lake) -> None:
        self.listener: Callable[[], None] | None = None

    def note(self) -> None:
        if self.listener:
            self.listener()


class NewSubscription(NamedTuple):
    """What a client asks for. `begin` is `now`, `oldest`, or a time in milliseconds."""

    url: str
    wanted: EventFilter = EventFilter()
    description: str = ""
    begin: str | int = NOW


class SubscriptionStatus(NamedTuple):
    """A subscription, and how far it was served; without a cursor it was not served yet."""

    subscription: Subscription
    cursor: DeliveryCursor | None = None


class SubscriptionWithSecret(NamedTuple):
    """A subscription and its newest secret; None for a replay: it was shown to the first request only."""

    subscription: Subscription
    secret: str | None


async def create_subscription(lake: Lake, wanted: NewSubscription, request: Request) -> SubscriptionWithSecret:
    """Create a subscription that acts with the rights of the caller. With a key, a retry finds the first one."""
    await authorize_caller(lake)
    caller = lake.access.caller if lake.access else None
    if caller and caller.actor:
        raise Forbidden(f"{caller.actor.name} acts for {caller.name}, and may not subscribe for {caller.name}")
    _check(lake, wanted.url, wanted.description)
    now_ms, secret = lake.clock.now_ms(), os.urandom(SECRET_BYTES)
    owner_id = caller.id if caller else ""
    made = Subscription(
        id=_derived_id("subscription", request, owner_id) or lake.clock.new_uuid(),
        url=wanted.url,
        wanted=checked_filter(wanted.wanted),
        description=wanted.description,
        secrets=(_sealed(lake, secret, lake.clock.new_uuid()),),
        owner=caller.name if caller else request.source.principal,
        owner_id=owner_id,
        is_external=bool(caller and caller.is_external),
        start=await _position(lake, wanted.begin),
        created_ms=now_ms,
        changed_ms=now_ms,
    )
    cell = lake.uncached(lake.layout.subscription(made.id), Subscription)
    if found := await cell.read():
        return SubscriptionWithSecret(found.value, None)
    await _check_room(lake, owner_id)
    # First of all: from here on, the feed keeps what the subscription needs.
    await FeedReaders(lake).register(reader_name(made.id), after=made.start.entry - 1)
    try:
        stored = await cell.create(made)
    except SwapLost:
        return SubscriptionWithSecret((await _read(lake, made.id)).value, None)
    _note(None, stored.value)
    lake.feature(SubscriptionChanges).note()
    return SubscriptionWithSecret(stored.value, secret_text(secret))


async def list_subscriptions(lake: Lake) -> Sequence[Subscription]:
    """Those of the caller; all of them for an administrator."""
    found, authority = await gather_all((read_subscriptions(lake), read_authority(lake)))
    if lake.access is None:
        return found
    try:
        require_metastore(lake, authority, situation=OTHERS)
    except Forbidden:
        lake.access.decisions.clear()  # Nothing is denied: the caller gets its own.
        require_metastore(lake, authority)
        return [one for one in found if one.owner_id == lake.access.caller.id]
    return found


async def load_subscription(lake: Lake, subscription_id: str) -> SubscriptionStatus:
    found, cursor = await gather_all((_authorized(lake, subscription_id), cursor_cell(lake, subscription_id).read()))
    return SubscriptionStatus(found.value, cursor.value if cursor else None)


async def change_subscription(
    lake: Lake,
    subscription_id: str,
    *,
    url: str | None = None,
    wanted: EventFilter | None = None,
    description: str | None = None,
    state: State | None = None,
) -> Subscription:
    """Change the fields that are given. `active` resumes where the deliveries stopped."""
    if state == "disabled":
        raise Invalid("Invalid state: only the server disables a subscription; pause it instead")
    await _authorized(lake, subscription_id)
    if url is not None or description is not None:
        _check(lake, url, description)
    checked = None if wanted is None else checked_filter(wanted)

    def changed(before: Subscription) -> Subscription:
        after = replace(
            before,
            url=before.url if url is None else url,
            wanted=before.wanted if checked is None else checked,
            description=before.description if description is None else description,
            state=state or before.state,
            reason="" if state else before.reason,
        )
        return before if after == before else replace(after, changed_ms=lake.clock.now_ms())

    return await _update(lake, subscription_id, changed)


async def rotate_secret(lake: Lake, subscription_id: str, request: Request) -> SubscriptionWithSecret:
    """Make a new secret. Deliveries carry signatures of both for a day, or until the next rotation."""
    before = await _authorized(lake, subscription_id)
    now_ms, secret = lake.clock.now_ms(), os.urandom(SECRET_BYTES)
    secret_id = _derived_id("secret", request, subscription_id) or lake.clock.new_uuid()
    if any(one.id == secret_id for one in before.value.secrets):
        return SubscriptionWithSecret(before.value, None)
    new = _sealed(lake, secret, secret_id)

    def rotated(found: Subscription) -> Subscription:
        kept = [replace(one, expires_ms=now_ms + ROTATION_MS) for one in found.secrets[: SECRETS_MAX - 1]]
        return replace(found, secrets=(new, *kept), changed_ms=now_ms)

    return SubscriptionWithSecret(await _update(lake, subscription_id, rotated), secret_text(secret))


async def delete_subscription(lake: Lake, subscription_id: str) -> None:
    """Delete a subscription. A delivery in progress may still arrive; the janitors remove its dead letters."""
    found = await _authorized(lake, subscription_id)
    cell = lake.uncached(lake.layout.subscription(subscription_id), Subscription)
    try:
        await cell.empty(expected=found.version)
    except SwapLost:
        raise Conflict(f"Subscription {subscription_id} has changed; load it and delete it again") from None
    _note(found.value, None)
    await FeedReaders(lake).remove(reader_name(subscription_id))
    cursor = await cursor_cell(lake, subscription_id).read()
    if cursor:
        with contextlib.suppress(SwapLost):  # Its holder wrote once more; the janitors remove it.
            await cursor_cell(lake, subscription_id).empty(expected=cursor.version)
    lake.feature(SubscriptionChanges).note()


async def replay(lake: Lake, subscription_id: str, begin: str | int) -> DeliveryCursor:
    """Deliver again what happened from a time on; what waits for a retry is delivered from there, too."""
    await _authorized(lake, subscription_id)
    position = await _position(lake, begin)

    await FeedReaders(lake).register(reader_name(subscription_id), after=position.entry - 1)

    def moved(before: DeliveryCursor | None) -> DeliveryCursor:
        return replace(_released(before, position), position=position, parked=())

    return await _move(lake, subscription_id, moved)


async def replay_dead_letters(lake: Lake, subscription_id: str) -> int:
    """Try the dead letters again, at most PENDING_MAX of them; returns how many."""
    await _authorized(lake, subscription_id)
    listed = await lake.store.list(lake.layout.dead_letters_folder(subscription_id), limit=PENDING_MAX)
    letters = [letter for one in listed if (letter := await _read_letter(lake, one))]
    again = {letter.receipt: Parked(letter.receipt, letter.position) for letter in letters}

    def parked(before: DeliveryCursor | None) -> DeliveryCursor:
        held = before.parked if before else ()
        kept = [one for one in held if one.receipt not in again]
        if len(kept) + len(again) > 2 * PENDING_MAX:
            raise Exhausted(f"Subscription {subscription_id} has {len(kept)} events that wait; try again later")
        merged = sorted((*kept, *again.values()), key=lambda one: one.position)
        return replace(_released(before, START), parked=tuple(merged))

    await _move(lake, subscription_id, parked)
    for one in listed:
        with contextlib.suppress(SwapLost):  # It became a dead letter again.
            await lake.store.delete(one.key, expected=one.version)
    return len(again)


async def list_dead_letters(
    lake: Lake, subscription_id: str, *, token: str | None, size: int | None
) -> Page[DeadLetter]:
    what = ("dead letters", subscription_id)
    limit = min(size or _DEAD_PAGE_MAX, _DEAD_PAGE_MAX)
    folder = lake.layout.dead_letters_folder(subscription_id)
    after = folder + decode_page_token(token, what) if token else None
    _, listed = await gather_all(
        (_authorized(lake, subscription_id), lake.store.list(folder, after=after, limit=limit))
    )
    found = await gather_in_batches(listed, lambda one: _read_letter(lake, one), at_once=_READS_AT_ONCE)
    more = encode_page_token(what, listed[-1].key[len(folder) :]) if len(listed) == limit else None
    return Page([one for one in found if one], more)


def reader_name(subscription_id: str) -> str:
    """The name under which a subscription is registered as a reader of the feed."""
    return f"subscription-{subscription_id}"


def cursor_cell(lake: Lake, subscription_id: str) -> Cell[DeliveryCursor]:
    return lake.uncached(lake.layout.delivery_cursor(subscription_id), DeliveryCursor)


async def read_subscriptions(lake: Lake) -> Sequence[Subscription]:
    """All subscriptions of a workspace, by id."""

    async def read(listed: Listed) -> Subscription | None:
        try:
            found = await lake.uncached(listed.key, Subscription).read()
        except Damaged as error:  # One bad record does not stop the others.
            lake.incidents.object_damaged(error.key, error.reason)
            return None
        return found.value if found else None

    listed = await lake.store.list(lake.layout.subscriptions_folder(), limit=SUBSCRIPTIONS_MAX)
    return [one for one in await gather_in_batches(listed, read, at_once=_READS_AT_ONCE) if one]


async def reseal_subscriptions(lake: Lake) -> tuple[int, Sequence[str]]:
    """Seal the secrets of all subscriptions with the first key. Returns how many, and those that no key opens."""
    sealing, done, failed = lake.feature(Sealing), 0, []
    for one in await read_subscriptions(lake):

        def resealed(found: Subscription) -> Subscription:
            subject = f"Subscription {found.id}"
            secrets = [
                replace(held, sealed=sealing.reseal_bytes(held.sealed, subject=subject)) for held in found.secrets
            ]
            return replace(found, secrets=tuple(secrets))

        try:
            await _update(lake, one.id, resealed)
            done += 1
        except Unfit:
            failed.append(one.id)
    return done, failed


async def _read_letter(lake: Lake, listed: Listed) -> DeadLetter | None:
    found = await lake.store.get(listed.key)
    try:
        return msgspec.json.decode(found.data, type=DeadLetter) if found else None
    except NOT_JSON as error:
        lake.incidents.object_damaged(listed.key, f"is not a dead letter: {error}")
        return None


def _released(before: DeliveryCursor | None, position: Position) -> DeliveryCursor:
    """The cursor without a holder, in a new epoch: its holder notices by the next swap."""
    held = before or DeliveryCursor(position=position)
    return replace(held, holder="", held_until_ms=0, epoch=held.epoch + 1)


async def _move(
    lake: Lake, subscription_id: str, decide: Callable[[DeliveryCursor | None], DeliveryCursor]
) -> DeliveryCursor:
    moved = await cursor_cell(lake, subscription_id).update(
        decide, is_idempotent=True, subject=f"the cursor of subscription {subscription_id}"
    )
    lake.feature(SubscriptionChanges).note()
    if moved is None:
        raise NotFound(f"Subscription does not exist: {subscription_id[:100]}", subject="subscription")
    return moved.value


async def _update(lake: Lake, subscription_id: str, change: Callable[[Subscription], Subscription]) -> Subscription:
    before: list[Subscription] = []

    def decide(found: Subscription | None) -> Subscription | None:
        if found is None:
            raise NotFound(f"Subscription does not exist: {subscription_id[:100]}", subject="subscription")
        before[:] = [found]
        after = change(found)
        return None if after is found else after

    cell = lake.uncached(lake.layout.subscription(subscription_id), Subscription)
    changed = await cell.update(decide, is_idempotent=True, subject=f"subscription {subscription_id}")
    if changed is None:
        raise NotFound(f"Subscription does not exist: {subscription_id[:100]}", subject="subscription")
    if changed.value is not before[0]:
        _note(before[0], changed.value)
        lake.feature(SubscriptionChanges).note()
    return changed.value


async def disable_subscription(lake: Lake, subscription_id: str, reason: str) -> None:
    """The server's own change, after a receiver said that it is gone, or when the owner may do nothing any more."""
    await _update(lake, subscription_id, lambda before: replace(before, state="disabled", reason=reason))


async def _authorized(lake: Lake, subscription_id: str) -> Versioned[Subscription]:
    """The subscription, if it is the caller's own or the caller is an administrator. Others learn nothing."""
    cell = lake.uncached(lake.layout.subscription(subscription_id), Subscription)
    found, authority = await gather_all((cell.read(), read_authority(lake)))
    caller = lake.access.caller if lake.access else None
    is_own = found is not None and caller is not None and caller.actor is None and found.value.owner_id == caller.id
    require_metastore(lake, authority, situation="" if is_own else OTHERS)
    if found is None:
        raise NotFound(f"Subscription does not exist: {subscription_id[:100]}", subject="subscription")
    return found


async def _read(lake: Lake, subscription_id: str) -> Versioned[Subscription]:
    found = await lake.uncached(lake.layout.subscription(subscription_id), Subscription).read()
    if found is None:
        raise NotFound(f"Subscription does not exist: {subscription_id[:100]}", subject="subscription")
    return found


async def _check_room(lake: Lake, owner_id: str) -> None:
    held = await read_subscriptions(lake)
    own = sum(one.owner_id == owner_id for one in held)
    if len(held) >= SUBSCRIPTIONS_MAX or (owner_id and own >= OWN_MAX):
        raise Exhausted(
            f"Too many subscriptions: {len(held)} of at most {SUBSCRIPTIONS_MAX}, {own} of at most {OWN_MAX} for one "
            "owner; delete one"
        )


def _check(lake: Lake, url: str | None, description: str | None) -> None:
    if url is not None:
        checked_receiver(url, parse_networks(lake.settings.delivery_addresses))
    if description and len(description) > DESCRIPTION_CHARS_MAX:
        raise Invalid(f"Invalid description: at most {DESCRIPTION_CHARS_MAX} characters are allowed")


def _sealed(lake: Lake, secret: bytes, secret_id: str) -> SealedSecret:
    sealed = lake.feature(Sealing).seal_bytes(secret)
    return SealedSecret(id=secret_id, sealed=sealed, created_ms=lake.clock.now_ms())


def _derived_id(what: str, request: Request, owner: str) -> str:
    """The id of what a request with an idempotency key makes: a retry finds it. Empty without a key."""
    if request.key is None:
        return ""
    return uuid_v8(hashlib.sha256(f"{what}\n{owner}\n{request.key}".encode()).hexdigest())


async def _position(lake: Lake, begin: str | int) -> Position:
    """Where deliveries begin: behind the newest event, at the oldest one, or at a time."""
    newest = await lake.feature(FeedWatch).refresh()
    if begin == NOW:
        return Position(newest + 1)
    oldest = await oldest_entry(lake)
    return Position(oldest) if isinstance(begin, str) else await position_at(lake, begin, oldest=oldest, newest=newest)


def _note(before: Subscription | None, after: Subscription | None) -> None:
    named = after or before
    if named:
        change = AuditedChange(object="subscription", id=named.id, before=_audited(before), after=_audited(after))
        note_changes([change])


def _audited(subscription: Subscription | None) -> msgspec.Raw:
    """A subscription for the audit trail: without its secrets, and without the path of its URL, which may be one."""
    if subscription is None:
        return msgspec.Raw(b"null")
    fields = {
        "receiver": str(checked_receiver(subscription.url, parse_networks(("0.0.0.0/0", "::/0")))),
        "filter": subscription.wanted,
        "state": subscription.state,
        "owner": subscription.owner,
        "secrets": [one.id for one in subscription.secrets],
    }
    return msgspec.Raw(msgspec.json.encode(fields))
