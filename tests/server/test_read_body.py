"""Reading request bodies: limits of size and time, and clients that disconnect."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from sandur.server import http
from sandur.server.http import ClientGone, Receive, Refused, read_body

EXPECTED = {b"content-length": b"1"}


def arriving(*parts: bytes, hangs_up: bool = False) -> Receive:
    left = list(parts)

    async def receive() -> MutableMapping[str, Any]:
        if not left:
            return {"type": "http.disconnect"}
        part = left.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(left) or hangs_up}

    return receive


async def test_the_parts_of_a_body_are_joined() -> None:
    assert await read_body(arriving(b"a", b"", b"bc"), EXPECTED, 3) == b"abc"


async def test_a_request_without_a_length_has_no_body() -> None:
    assert await read_body(arriving(), {}, 3) == b""


async def test_a_body_that_is_too_large_is_read_to_its_end_and_refused() -> None:
    receive = arriving(b"ab", b"cd", b"ef")

    with pytest.raises(Refused) as caught:
        await read_body(receive, EXPECTED, 3)

    assert caught.value.status == 413
    assert (await receive())["type"] == "http.disconnect"


async def test_an_endless_body_is_refused() -> None:
    async def endless() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"a" * 10, "more_body": True}

    with pytest.raises(Refused, match="larger than 100 bytes"):
        await read_body(endless, EXPECTED, 100)


async def test_a_disconnect_raises_client_gone() -> None:
    with pytest.raises(ClientGone):
        await read_body(arriving(b"a", hangs_up=True), EXPECTED, 3)


async def test_a_body_that_does_not_arrive_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent() -> MutableMapping[str, Any]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(http, "BODY_SECONDS_MAX", 0.01)
    with pytest.raises(Refused) as caught:
        await read_body(silent, EXPECTED, 3)

    assert caught.value.status == 408
