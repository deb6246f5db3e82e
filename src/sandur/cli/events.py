"""`sandur tail` and `sandur subscription`: follow the events of a catalog, and have them delivered."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.catalog.event_feed.events import EventFilter, event_json, filter_of
from sandur.cli.flags import ServerFlags
from sandur.cli.login import fetch, run_on_server
from sandur.cli.output import print_json, print_rows, say
from sandur.cli.store_admin import StoreFlags, run_on_store
from sandur.client.profiles import user_profiles
from sandur.client.sessions import API, Session, connected, find_target
from sandur.clock import Clock, SystemClock
from sandur.errors import Busy, Unavailable
from sandur.operations.audit.search import time_of
from sandur.operations.event_feed.reader import pull_events
from sandur.operations.event_feed.streams import follow, open_stream
from sandur.operations.lake import Lake

_PAGE: Final = 1_000
_PAGES_MAX: Final = 1_000_000
_RECONNECT_SECONDS: Final = 2.0
_RECONNECT_SECONDS_MAX: Final = 30.0
_SUBSCRIPTIONS: Final = f"{API}/subscriptions"

Show = Callable[[Mapping[str, Any]], None]


class TailFlags(NamedTuple):
    """What to follow. Without `since`, only what happens from now on; without `follows`, up to now."""

    catalogs: Sequence[str] = ()
    namespaces: Sequence[str] = ()
    tables: Sequence[str] = ()
    kinds: Sequence[str] = ()
    since: str | None = None
    follows: bool = True

    @property
    def query(self) -> dict[str, str]:
        named = {"catalog": self.catalogs, "namespace": self.namespaces, "table": self.tables, "kind": self.kinds}
        query = {name: ",".join(values) for name, values in named.items() if values}
        return {**query, **({"since": self.since} if self.since else {})}

    def filter(self, clock: Clock) -> EventFilter:
        return filter_of(
            catalogs=self.catalogs,
            namespaces=self.namespaces,
            tables=self.tables,
            kinds=self.kinds,
            since_ms=time_of(self.since, clock.now_ms()) if self.since else 0,
        )


def tail(flags: TailFlags, server: ServerFlags, store: StoreFlags | None) -> None:
    """Print events until the user ends it: through the server, or directly on the store."""
    show: Show = _show_json if server.as_json else _show_line
    try:
        if store:
            run_on_store(lambda lake: _tail_store(lake, flags, show), store, access="change")
        else:
            _tail_server(flags, server, show)
    except KeyboardInterrupt:
        pass


async def _tail_store(lake: Lake, flags: TailFlags, show: Show) -> None:
    wanted = flags.filter(lake.clock)
    if not flags.follows:
        token: str | None = None
        for _ in range(_PAGES_MAX):
            page, token = await pull_events(lake, wanted, token=token, page_size=_PAGE)
            for placed in page.events:
                show(msgspec.to_builtins(event_json(placed.event)))
            if not page.has_more:
                return
    position, wanted = await open_stream(lake, wanted, None)
    async for part in follow(lake, wanted, position):
        for placed in part.page.events:
            show(msgspec.to_builtins(event_json(placed.event)))
        if part.end:
            raise Unavailable(part.end)


def _tail_server(flags: TailFlags, server: ServerFlags, show: Show) -> None:
    profiles = user_profiles(os.environ)
    target = find_target(profiles, profile=server.profile, server=server.server, environment=os.environ)

    async def run() -> None:
        async with connected(target, profiles, SystemClock()) as session:
            await (_follow(session, flags, show) if flags.follows else _pull(session, flags, show))

    asyncio.run(run())


async def _pull(session: Session, flags: TailFlags, show: Show) -> None:
    query = {**flags.query, "page_size": str(_PAGE)}
    for _ in range(_PAGES_MAX):
        page = await fetch(session, "/events", **query)
        for event in page["events"]:
            show(event)
        if not page["has_more"]:
            return
        query["page_token"] = page["next_page_token"]


async def _follow(session: Session, flags: TailFlags, show: Show) -> None:
    """Follow the stream; after a break, connect again behind the last event."""
    last_id, pause_seconds = "", _RECONNECT_SECONDS
    while True:
        try:
            headers = {"Last-Event-ID": last_id} if last_id else {}
            async with session.stream(f"{API}/events/stream", query=flags.query, headers=headers) as lines:
                async for event in parse_stream(lines):
                    pause_seconds = _RECONNECT_SECONDS
                    last_id = event.id or last_id
                    if event.type not in {"heartbeat", "end"}:
                        show(msgspec.json.decode(event.data))
        except (Unavailable, Busy) as error:
            say(f"{error}; connecting again in {pause_seconds:g} s")
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _RECONNECT_SECONDS_MAX)


class StreamedEvent(NamedTuple):
    id: str
    type: str
    data: str


async def parse_stream(lines: AsyncIterator[str]) -> AsyncIterator[StreamedEvent]:
    """The events of a stream of server-sent events."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
        elif fields:
            if "data" in fields:
                yield StreamedEvent(fields.get("id", ""), fields.get("event", "message"), fields["data"])
            fields = {}


def _show_json(event: Mapping[str, Any]) -> None:
    print(msgspec.json.encode(event).decode(), flush=True)  # noqa: T201 - output for machines


def _show_line(event: Mapping[str, Any]) -> None:
    name = ".".join((event.get("catalog", ""), *event.get("namespace", ()), event.get("name", ""))).strip(".")
    parts = [event["time"], event["type"], name or event["object_id"]]
    parts += [str(event[field]) for field in ("operation",) if event.get(field)]
    parts += [f"version {event['version']}"] if "version" in event else []
    parts += [f"from {'.'.join(event['renamed_from'])}"] if "renamed_from" in event else []
    parts += [f"({', '.join(event['details'])})"] if event.get("details") else []
    by = event.get("source", {}).get("principal")
    print(" ".join([*parts, *([f"by {by}"] if by else [])]), flush=True)  # noqa: T201 - output


def create_subscription(url: str, flags: ServerFlags, *, wanted: TailFlags, description: str, begin: str) -> None:
    body = {
        "url": url,
        "description": description,
        "begin": begin,
        "filter": {
            "catalogs": list(wanted.catalogs),
            "namespaces": list(wanted.namespaces),
            "tables": list(wanted.tables),
            "kinds": list(wanted.kinds),
        },
    }
    _print_made(_request("POST", _SUBSCRIPTIONS, flags, body), "Created subscription {id}.", flags)


def rotate(id_: str, flags: ServerFlags) -> None:
    made = _request("POST", f"{_path(id_)}/rotate-secret", flags, None)
    _print_made(made, "Subscription {id} has a new secret; for a day, deliveries carry signatures of both.", flags)


def _print_made(made: Mapping[str, Any], text: str, flags: ServerFlags) -> None:
    if flags.as_json:
        print_json(made)
        return
    say(text.format(id=made["id"]))
    if secret := made.get("secret"):
        say("The secret that verifies its deliveries is not shown again:")
        print_rows(["subscription", "secret"], [[made["id"], secret]], empty="")


def show_subscriptions(flags: ServerFlags) -> None:
    found = run_on_server(lambda session: fetch(session, "/subscriptions"), flags)["subscriptions"]
    if flags.as_json:
        print_json(found)
        return
    rows = [[one["id"], one["state"], one["owner"], one["url"], one["description"]] for one in found]
    print_rows(["subscription", "state", "owner", "url", "description"], rows, empty="No subscriptions.")


def show_subscription(id_: str, flags: ServerFlags) -> None:
    found = run_on_server(lambda session: fetch(session, f"/subscriptions/{quote(id_, safe='')}"), flags)
    if flags.as_json:
        print_json(found)
        return
    wanted = {name: ", ".join(values) for name, values in found.pop("filter").items() if values}
    shown = {**found, **wanted, **found.pop("progress"), "secrets": len(found["secrets"])}
    shown.pop("progress", None)
    print_rows(
        ["", ""],
        [[name.replace("_", " "), str(value)] for name, value in shown.items() if value not in {"", None}],
        empty="",
    )


def set_state(id_: str, flags: ServerFlags, state: str) -> None:
    changed = _request("PATCH", _path(id_), flags, {"state": state})
    if flags.as_json:
        print_json(changed)
        return
    say(f"Subscription {id_} is {changed['state']}.")


def delete_subscription(id_: str, flags: ServerFlags) -> None:
    run_on_server(lambda session: session.request("DELETE", _path(id_)), flags)
    say(f"Deleted subscription {id_}.")


def replay(id_: str, flags: ServerFlags, *, begin: str | None, is_dead_letters: bool) -> None:
    body = {"dead_letters": True} if is_dead_letters else {"begin": begin or ""}
    answer = _request("POST", f"{_path(id_)}/replay", flags, body)
    if flags.as_json:
        print_json(answer)
        return
    what = f"{answer['dead_letters']} dead letters" if is_dead_letters else f"everything since {begin}"
    say(f"Subscription {id_} delivers {what} again.")


def show_dead_letters(id_: str, flags: ServerFlags) -> None:
    async def fetch_all(session: Session) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query: dict[str, str] = {}
        for _ in range(_PAGES_MAX):
            page = await fetch(session, f"/subscriptions/{quote(id_, safe='')}/dead-letters", **query)
            found += page["dead_letters"]
            if not page["next_page_token"]:
                break
            query = {"page_token": page["next_page_token"]}
        return found

    found = run_on_server(fetch_all, flags)
    if flags.as_json:
        print_json(found)
        return
    rows = [[one["event_id"], one["type"], str(one["attempts"]), one["reason"]] for one in found]
    print_rows(["event", "type", "attempts", "reason"], rows, empty="No dead letters.")


def _request(method: str, path: str, flags: ServerFlags, body: object) -> dict[str, Any]:
    async def send(session: Session) -> bytes:
        return await session.request(method, path, body=body)

    work: Callable[[Session], Awaitable[bytes]] = send
    answer: dict[str, Any] = msgspec.json.decode(run_on_server(work, flags))
    return answer


def _path(id_: str) -> str:
    return f"{_SUBSCRIPTIONS}/{quote(id_, safe='')}"
