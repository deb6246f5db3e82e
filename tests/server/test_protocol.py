"""HTTP/1.1 at the socket: ignored upgrades, bounded heads, and header names that keep their case."""

import asyncio
from collections.abc import Iterable

import pytest

from sandur.server.http import CACHE_CONTROL, ETAG
from sandur.server.protocol import HEAD_BYTES_MAX, JoinedWrites
from tests.server.wire import exchange, serving

UPGRADE = (
    b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQBAAAAAAIAAAAA\r\nContent-Length: 5\r\n\r\n"
)
LAST = b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nxyz"


async def echo(scope, receive, send) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - the shape is ASGI's
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    said = scope["method"].encode() + b" " + scope["raw_path"] + b" " + body
    headers = [(b"content-length", b"%d" % len(said)), (ETAG, b'"tag"'), (CACHE_CONTROL, b"private")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


def bodies(answer: bytes) -> list[bytes]:
    return [part.split(b"\r\n\r\n", 1)[1] for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "packets",
    [
        (UPGRADE + b"hello" + LAST,),
        (UPGRADE, b"hello", LAST),
        (UPGRADE[:70], UPGRADE[70:] + b"he", b"llo" + LAST[:10], LAST[10:]),
        (*(bytes([byte]) for byte in UPGRADE[:40]), UPGRADE[40:] + b"hello" + LAST),
    ],
    ids=["one packet", "body later", "cut anywhere", "byte by byte"],
)
async def test_a_request_with_an_h2c_upgrade_keeps_its_body(packets: tuple[bytes, ...]) -> None:
    async with serving(echo) as port:
        answer = await exchange(port, *packets)

    assert bodies(answer) == [b"POST /a hello", b"POST /b xyz"]


async def test_two_upgrades_in_a_row_are_two_requests() -> None:
    async with serving(echo) as port:
        answer = await exchange(port, UPGRADE + b"hello" + UPGRADE + b"again" + LAST)

    assert bodies(answer) == [b"POST /a hello", b"POST /a again", b"POST /b xyz"]


async def test_a_chunked_body_of_a_request_with_an_upgrade_is_read() -> None:
    chunked = UPGRADE.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")

    async with serving(echo) as port:
        answer = await exchange(port, chunked + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n" + LAST)

    assert bodies(answer) == [b"POST /a hello", b"POST /b xyz"]


async def test_a_websocket_is_answered_in_plain_http() -> None:
    request = b"GET /a HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"

    async with serving(echo) as port:
        answer = await exchange(port, request + LAST)

    assert bodies(answer) == [b"GET /a ", b"POST /b xyz"]


async def test_etag_and_cache_control_have_the_case_that_java_expects() -> None:
    async with serving(echo) as port:
        answer = await exchange(port, LAST)

    assert b'\r\nETag: "tag"\r\n' in answer
    assert b"\r\nCache-Control: private\r\n" in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x00\x01 garbage\r\n\r\n", b"400"),
        (b"GET /a HTTP/1.1\r\nbroken header\r\n\r\n", b"400"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_BYTES_MAX + 1) + b"\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * (HEAD_BYTES_MAX + 1), b"431"),
        (b"GET / HTTP/1.1\r\n" + b"X: aaaaaaaa\r\n" * 6_000, b"431"),
        (b"GET /" + b"a" * (HEAD_BYTES_MAX + 1) + b" HTTP/1.1\r\n\r\n", b"431"),
    ],
)
async def test_a_broken_request_gets_a_json_error_and_the_connection_closes(
    request_bytes: bytes, status: bytes
) -> None:
    async with serving(echo) as port:
        answer = await exchange(port, request_bytes)

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in answer
    assert b'"code":' + status in answer


class Recorder(asyncio.Transport):
    """A transport that records what is sent, packet by packet."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.sent.append(b"".join(list_of_data))

    def close(self) -> None:
        self.sent.append(b"closed")


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


def test_the_head_of_an_answer_is_sent_with_its_body() -> None:
    recorder = Recorder()
    joined = JoinedWrites(recorder)
    for packet in (HEAD, b"ab", HEAD, b"cd"):
        joined.write(packet)

    assert recorder.sent == [HEAD + b"ab", HEAD + b"cd"]


def test_a_head_without_a_body_is_sent_at_the_end() -> None:
    recorder = Recorder()
    joined = JoinedWrites(recorder)
    joined.write(HEAD)
    joined.flush()
    joined.flush()
    joined.write(HEAD)
    joined.close()

    assert recorder.sent == [HEAD, HEAD, b"closed"]


def test_a_100_continue_is_sent_at_once() -> None:
    recorder = Recorder()
    JoinedWrites(recorder).write(b"HTTP/1.1 100 Continue\r\n\r\n")

    assert recorder.sent == [b"HTTP/1.1 100 Continue\r\n\r\n"]


async def test_an_answer_to_head_arrives_while_the_connection_stays_open() -> None:
    async with serving(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), timeout=30)
        writer.write(LAST)
        answer = await asyncio.wait_for(reader.read(), timeout=30)
        writer.close()

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert bodies(answer) == [b"POST /b xyz"]
