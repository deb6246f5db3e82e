"""Handlers for subscriptions: create, list, change, rotate, replay, delete, and their dead letters."""

from collections.abc import Mapping
from typing import Final

import msgspec

from sandur.catalog.event_feed.events import EventFilter, filter_of
from sandur.catalog.event_feed.subscriptions import DeliveryCursor, State, Subscription
from sandur.errors import BadRequest
from sandur.operations.audit.search import time_of
from sandur.operations.event_feed import subscriptions as operations
from sandur.server.context import Call, whole_number
from sandur.server.control.principals import answer_with
from sandur.server.http import NO_CONTENT, Answer

_CREATED: Final = 201


class FilterBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which events: full names with dots, tables also by uuid. Nothing means all."""

    catalogs: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    object_types: tuple[str, ...] = ()

    def build(self) -> EventFilter:
        return filter_of(
            catalogs=self.catalogs,
            namespaces=self.namespaces,
            tables=self.tables,
            kinds=self.kinds,
            object_types=self.object_types,
        )


class NewSubscriptionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`begin` is `now`, `oldest`, or a time: `2026-01-31T12:00:00Z`, or `2h` (ago)."""

    url: str
    filter: FilterBody = FilterBody()
    description: str = ""
    begin: str = operations.NOW


class SubscriptionChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str | None = None
    filter: FilterBody | None = None
    description: str | None = None
    state: State | None = None


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to begin again, or whether to try the dead letters again."""

    begin: str = ""
    dead_letters: bool = False


async def create_subscription(call: Call) -> Answer:
    body = call.body(NewSubscriptionBody, "subscription")
    wanted = operations.NewSubscription(
        body.url, body.filter.build(), body.description, _begin(call, body.begin or operations.NOW)
    )
    made = await operations.create_subscription(call.lake, wanted, call.request())
    return _with_secret(made, status=_CREATED)


async def list_subscriptions(call: Call) -> Answer:
    found = await operations.list_subscriptions(call.lake)
    return answer_with({"subscriptions": [_info(one) for one in found]})


async def load_subscription(call: Call) -> Answer:
    found = await operations.load_subscription(call.lake, call.value("id"))
    return answer_with({**_info(found.subscription), "progress": _progress(found.cursor)})


async def update_subscription(call: Call) -> Answer:
    body = call.body(SubscriptionChange, "subscription")
    if body == SubscriptionChange():
        raise BadRequest("Malformed subscription: expected url, filter, description or state")
    changed = await operations.change_subscription(
        call.lake,
        call.value("id"),
        url=body.url,
        wanted=body.filter.build() if body.filter else None,
        description=body.description,
        state=body.state,
    )
    return answer_with(_info(changed))


async def rotate_secret(call: Call) -> Answer:
    return _with_secret(await operations.rotate_secret(call.lake, call.value("id"), call.request()))


async def delete_subscription(call: Call) -> Answer:
    await operations.delete_subscription(call.lake, call.value("id"))
    return NO_CONTENT


async def replay(call: Call) -> Answer:
    body = call.body(ReplayBody, "replay")
    if bool(body.begin) == body.dead_letters:
        raise BadRequest("Malformed replay: expected either begin or dead_letters")
    if body.dead_letters:
        again = await operations.replay_dead_letters(call.lake, call.value("id"))
        return answer_with({"dead_letters": again})
    cursor = await operations.replay(call.lake, call.value("id"), _begin(call, body.begin))
    return answer_with({"progress": _progress(cursor)})


async def list_dead_letters(call: Call) -> Answer:
    size = call.query.get("page_size")
    page = await operations.list_dead_letters(
        call.lake,
        call.value("id"),
        token=call.query.get("page_token") or None,
        size=None if size is None else whole_number(size, "page_size", at_least=1),
    )
    letters = [
        {
            "event_id": one.event_id,
            "type": one.type,
            "attempts": one.attempts,
            "first_ms": one.first_ms,
            "last_ms": one.last_ms,
            "reason": one.reason,
        }
        for one in page.entries
    ]
    return answer_with({"dead_letters": letters, "next_page_token": page.next_token})


def _begin(call: Call, text: str) -> str | int:
    return text if text in {operations.NOW, operations.OLDEST} else time_of(text, call.lake.clock.now_ms())


def _with_secret(made: operations.SubscriptionWithSecret, *, status: int = 200) -> Answer:
    secret = {"secret": made.secret} if made.secret else {}
    return answer_with({**_info(made.subscription), **secret}, status=status)


def _info(one: Subscription) -> Mapping[str, object]:
    return {
        "id": one.id,
        "url": one.url,
        "filter": {
            "names": [".".join(path) for path in one.wanted.names],
            "uuids": one.wanted.uuids,
            "kinds": one.wanted.kinds,
            "object_types": one.wanted.object_types,
        },
        "description": one.description,
        "state": one.state,
        "reason": one.reason,
        "owner": one.owner,
        "secrets": [{"created_ms": held.created_ms, "expires_ms": held.expires_ms or None} for held in one.secrets],
        "created_ms": one.created_ms,
        "changed_ms": one.changed_ms,
    }


def _progress(cursor: DeliveryCursor | None) -> Mapping[str, object]:
    """How far a subscription was served. `position` grows, and is otherwise opaque."""
    if cursor is None:
        return {"delivered": 0, "waiting": 0, "dead_letters": 0, "delivered_ms": None, "failure": "", "position": ""}
    return {
        "delivered": cursor.delivered,
        "waiting": len(cursor.parked),
        "dead_letters": cursor.dead_letters,
        "delivered_ms": cursor.delivered_ms or None,
        "failure": cursor.failure,
        "position": str(cursor.position),
    }
