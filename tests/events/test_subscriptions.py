"""Subscriptions over HTTP: create, change, rotate, replay and delete them, who may, and what arrives."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from sandur.catalog.event_feed.subscriptions import Subscription
from sandur.catalog.event_feed.webhooks import signed_headers
from sandur.operations.event_feed.subscriptions import cursor_cell
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lake
from tests.events.deliveries import SEALING_KEY
from tests.events.receivers import Receiver, receiver
from tests.events.test_http import Server, _login, served
from tests.fakes.fixed_clock import FixedClock
from tests.server.secured_server import ADMIN_SECRET

API = "/api/sandur/v1"
SUBSCRIPTIONS = f"{API}/subscriptions"
SETTINGS: dict[str, Any] = {"sealing_keys": (SEALING_KEY,), "delivery_addresses": ("127.0.0.0/8",)}
SECONDS_MAX = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.005)


def _lake(server: Server) -> Lake:
    return server.catalog.lakes.lake("default", "default")


def _names(hook: Receiver) -> list[str]:
    found = [got.event["data"] for got in hook.accepted]
    return [f"{one['name']}{one.get('version', '')}" for one in found if one["type"] == "table.committed"]


async def test_a_commit_arrives_signed_and_the_secret_verifies_it() -> None:
    with receiver() as hook:
        async with served(**SETTINGS) as server:
            await server.set_up("t")
            made = await server.send("POST", SUBSCRIPTIONS, {"url": hook.url, "filter": {"tables": ["main.ns.t"]}})
            await server.commit("t", "1")
            await until(lambda: _names(hook) == ["t1"])

            secret = base64.b64decode(made["secret"].removeprefix("whsec_"))
            got = next(one for one in hook.accepted if one.event["data"]["type"] == "table.committed")
            seconds = int(got.headers["webhook-timestamp"])
            expected = signed_headers(got.event["id"], seconds, got.body, [secret])
            assert {name: got.headers[name] for name in expected} == expected
            assert got.event["source"] == "/catalogs/main"

            shown = await server.send("GET", f"{SUBSCRIPTIONS}/{made['id']}")
            assert "secret" not in shown
            assert (shown["state"], shown["filter"]["names"]) == ("active", ["main.ns.t"])


async def test_a_paused_subscription_gets_nothing_until_it_is_resumed() -> None:
    with receiver() as hook:
        async with served(**SETTINGS) as server:
            await server.set_up("t")
            made = await server.send("POST", SUBSCRIPTIONS, {"url": hook.url, "begin": "oldest"})
            await until(lambda: "t0" in _names(hook))
            stopped = await server.send("PATCH", f"{SUBSCRIPTIONS}/{made['id']}", {"state": "paused"})
            assert stopped["state"] == "paused"
            held = await _settled_cursor(server, made["id"])
            await server.commit("t", "1")
            await server.send("PATCH", f"{SUBSCRIPTIONS}/{made['id']}", {"state": "active"})
            await until(lambda: "t1" in _names(hook))
            assert held
            assert _names(hook) == ["t0", "t1"]


async def _settled_cursor(server: Server, id_: str) -> bool:
    """Wait until no server holds the cursor."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            found = await cursor_cell(_lake(server), id_).read()
            if found and not found.value.held_until_ms:
                return True
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, "is malformed"),
        ({"url": "http://example.org/"}, "needs https"),
        ({"url": "https://169.254.169.254/latest/meta-data"}, "not public"),
        ({"url": "nonsense"}, "Invalid URL"),
        ({"url": "https://example.org/", "filter": {"kinds": ["x"]}}, "Invalid kind"),
        ({"url": "https://example.org/", "filter": {"unknown": []}}, "is malformed"),
        ({"url": "https://example.org/", "begin": "yesterday"}, "Invalid time"),
        ({"url": "https://example.org/", "description": "x" * 501}, "description"),
        ({"url": "https://example.org/", "state": "active"}, "is malformed"),
        ([], "is malformed"),
    ],
)
async def test_a_bad_subscription_is_refused_and_leaves_nothing(body: object, text: str) -> None:
    async with served(sealing_keys=(SEALING_KEY,)) as server:
        answer = await server.client.post(SUBSCRIPTIONS, json=body)

        assert (answer.status_code, text in answer.json()["error"]["message"]) == (400, True), answer.text
        assert (await server.send("GET", SUBSCRIPTIONS))["subscriptions"] == []


async def test_without_a_sealing_key_no_secret_is_kept() -> None:
    async with served() as server:
        answer = await server.client.post(SUBSCRIPTIONS, json={"url": "https://example.org/"})

        assert (answer.status_code, "sealing_keys" in answer.json()["error"]["message"]) == (400, True)


async def test_changes_of_a_subscription_are_checked() -> None:
    async with served(sealing_keys=(SEALING_KEY,), deliveries=False) as server:
        id_ = (await server.send("POST", SUBSCRIPTIONS, {"url": "https://example.org/"}))["id"]
        changes: list[object] = [{}, {"state": "disabled"}, {"state": "x"}, {"url": "ftp://x"}, {"filter": {"x": []}}]
        for body in changes:
            assert (await server.client.patch(f"{SUBSCRIPTIONS}/{id_}", json=body)).status_code == 400, body
        replays: list[object] = [{}, {"begin": "oldest", "dead_letters": True}, {"begin": "never"}]
        for body in replays:
            assert (await server.client.post(f"{SUBSCRIPTIONS}/{id_}/replay", json=body)).status_code == 400, body
        assert (await server.client.get(f"{SUBSCRIPTIONS}/{id_}/dead-letters?page_token=x")).status_code == 400
        for path in ("", "/dead-letters"):
            assert (await server.client.get(f"{SUBSCRIPTIONS}/unknown{path}")).status_code == 404
        changed = await server.send("PATCH", f"{SUBSCRIPTIONS}/{id_}", {"url": "https://example.org/new"})
        assert changed["url"] == "https://example.org/new"


async def test_a_retry_with_its_key_finds_the_first_subscription_and_the_first_secret() -> None:
    key = "019b76da-a800-7fe0-80ef-4102a55d6d96"
    async with served(sealing_keys=(SEALING_KEY,), deliveries=False) as server:
        server.client.headers["Idempotency-Key"] = key
        first = await server.send("POST", SUBSCRIPTIONS, {"url": "https://example.org/"})
        again = await server.send("POST", SUBSCRIPTIONS, {"url": "https://example.org/"})
        rotated = await server.send("POST", f"{SUBSCRIPTIONS}/{first['id']}/rotate-secret")
        twice = await server.send("POST", f"{SUBSCRIPTIONS}/{first['id']}/rotate-secret")

        assert (again["id"], "secret" in again) == (first["id"], False)
        assert ("secret" in rotated, "secret" in twice) == (True, False)
        assert len(twice["secrets"]) == 2
        assert len((await server.send("GET", SUBSCRIPTIONS))["subscriptions"]) == 1


async def test_a_principal_manages_its_own_subscriptions_and_an_administrator_all() -> None:
    async with served(
        authentication="on", admin_secret=ADMIN_SECRET, sealing_keys=(SEALING_KEY,), deliveries=False
    ) as server:
        assert (await server.client.get(SUBSCRIPTIONS)).status_code == 401
        server.client.headers.update(await _login(server, "admin", ADMIN_SECRET))
        ann, bob = [await _principal(server, name) for name in ("ann", "bob")]
        made = await server.client.post(SUBSCRIPTIONS, json={"url": "https://example.org/"}, headers=ann)
        id_ = made.json()["id"]

        async def status(method: str, path: str, headers: dict[str, str], body: object = None) -> int:
            answer = await server.client.request(method, f"{SUBSCRIPTIONS}{path}", headers=headers, json=body)
            return answer.status_code

        assert made.status_code == 201
        for method, path, body in (
            ("GET", "", None),
            ("PATCH", "", {"state": "paused"}),
            ("POST", "/rotate-secret", None),
            ("POST", "/replay", {"begin": "oldest"}),
            ("GET", "/dead-letters", None),
            ("DELETE", "", None),
        ):
            assert await status(method, f"/{id_}{path}", bob, body) == 403, (method, path)
            assert await status(method, f"/unknown{path}", bob, body) == 403, "bob does not learn which exist"
        assert (await server.client.get(SUBSCRIPTIONS, headers=bob)).json()["subscriptions"] == []
        assert [one["id"] for one in (await server.send("GET", SUBSCRIPTIONS))["subscriptions"]] == [id_]
        assert await status("GET", f"/{id_}", ann) == 200
        assert await status("DELETE", f"/{id_}", ann) == 204


async def _principal(server: Server, name: str) -> dict[str, str]:
    made = await server.send("POST", f"{API}/principals", {"name": name})
    return await _login(server, name, made["client_secret"])


async def test_the_audit_trail_has_every_change_and_no_secret() -> None:
    async with served(
        authentication="on", admin_secret=ADMIN_SECRET, sealing_keys=(SEALING_KEY,), deliveries=False
    ) as server:
        server.client.headers.update(await _login(server, "admin", ADMIN_SECRET))
        made = await server.send("POST", SUBSCRIPTIONS, {"url": "https://example.org/token/abc?key=hidden"})
        await server.send("PATCH", f"{SUBSCRIPTIONS}/{made['id']}", {"state": "paused"})
        await server.send("DELETE", f"{SUBSCRIPTIONS}/{made['id']}")
        await server.catalog.audit.flush()
        found = (await server.send("GET", f"{API}/audit"))["records"]

        changes = {one["operation"]: one["changes"][0] for one in found if "ubscription" in one["operation"]}
        assert set(changes) == {"createSubscription", "updateSubscription", "deleteSubscription"}
        assert changes["updateSubscription"]["after"]["state"] == "paused"
        text = json.dumps(found)
        assert "hidden" not in text
        assert made["secret"] not in text


async def test_the_janitor_removes_what_belongs_to_no_subscription() -> None:
    async with served(sealing_keys=(SEALING_KEY,), deliveries=False) as server:
        id_ = (await server.send("POST", SUBSCRIPTIONS, {"url": "https://example.org/"}))["id"]
        await server.send("POST", f"{SUBSCRIPTIONS}/{id_}/replay", {"begin": "oldest"})
        lake = _lake(server)
        record = lake.uncached(lake.layout.subscription(id_), Subscription)
        found = await record.read()
        assert found
        await record.empty(expected=found.version)

        later = server.catalog.lakes.fresh_lake(lake.layout)
        later.clock = FixedClock(lake.clock.now_ms() + 2 * 86_400_000)
        await run_janitors(later, {}, on_error=lambda *_: None)
        assert await cursor_cell(lake, id_).read() is None


async def test_metrics_count_deliveries_and_measure_their_lag() -> None:
    with receiver() as hook:
        async with served(**SETTINGS) as server:
            await server.set_up("t")
            await server.send("POST", SUBSCRIPTIONS, {"url": hook.url, "begin": "oldest"})
            await until(lambda: "t0" in _names(hook))
            await until(lambda: "sandur_delivery_seconds_count" in _metrics(server))
            assert 'sandur_deliveries_total{result="delivered"}' in _metrics(server)


def _metrics(server: Server) -> str:
    server.catalog.update_metrics()
    return server.app._metrics.exposition()[0].decode()


async def test_a_deleted_subscription_gets_nothing_more() -> None:
    with receiver() as hook:
        async with served(**SETTINGS) as server:
            await server.set_up("t")
            made = await server.send("POST", SUBSCRIPTIONS, {"url": hook.url, "begin": "oldest"})
            await until(lambda: "t0" in _names(hook))
            answer: httpx.Response = await server.client.delete(f"{SUBSCRIPTIONS}/{made['id']}")
            if answer.status_code == 409:  # The server disabled or changed it at the same time.
                answer = await server.client.delete(f"{SUBSCRIPTIONS}/{made['id']}")
            assert answer.status_code == 204
            assert (await server.client.get(f"{SUBSCRIPTIONS}/{made['id']}")).status_code == 404
