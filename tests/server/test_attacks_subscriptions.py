"""Attacks by a principal that may subscribe to events: the server as a way into private networks."""

import asyncio

import pytest

from tests.events.deliveries import SEALING_KEY
from tests.events.receivers import receiver
from tests.events.test_http import served

SUBSCRIPTIONS = "/api/sandur/v1/subscriptions"


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://0.0.0.0/",
        "http://example.org/",
        "file:///etc/passwd",
        "gopher://example.org/",
        "https://user@example.org/",
    ],
)
async def test_a_private_address_is_refused_at_once(url: str) -> None:
    async with served(sealing_keys=(SEALING_KEY,), deliveries=False) as server:
        answer = await server.client.post(SUBSCRIPTIONS, json={"url": url})

        assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("host", ["localhost", "2130706433", "127.1", "0x7f000001"])
async def test_a_name_of_a_private_address_gets_no_request(host: str) -> None:
    with receiver() as hook:
        async with served(sealing_keys=(SEALING_KEY,)) as server:
            await server.set_up("t")
            body = {"url": f"https://{host}:{hook.port}/", "begin": "oldest"}
            id_ = (await server.send("POST", SUBSCRIPTIONS, body))["id"]
            failure = ""
            async with asyncio.timeout(60):
                while not failure:
                    await asyncio.sleep(0.02)
                    failure = (await server.send("GET", f"{SUBSCRIPTIONS}/{id_}"))["progress"]["failure"]

    assert "not public" in failure
    assert not hook.got
