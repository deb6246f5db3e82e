"""Real receivers of deliveries: HTTP servers on this machine that fail as a test tells them to."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple

import msgspec

Behaviour = int | Literal["stall", "drop", "garbage"] | tuple[int, Mapping[str, str]]
"""A status, with headers; or no answer, a closed connection, or an answer that is not HTTP."""


class Got(NamedTuple):
    """A request that arrived, whatever was answered."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


class Receiver(ThreadingHTTPServer):
    """Answers each request as `behave` says, and records those that it answered with 2xx in `accepted`."""

    daemon_threads = True

    def __init__(self, behave: Callable[[Got], Behaviour]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behave = behave
        self.got: list[Got] = []
        self.accepted: list[Got] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def handle_error(self, request: object, client_address: object) -> None:
        """A sender may be gone."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Receiver

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = self.rfile.read(length)
        if len(body) < length:  # Its sender died.
            self.close_connection = True
            return
        got = Got(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        behaviour = self.server.behave(got)
        with self.server.lock:
            self.server.got.append(got)
            if isinstance(behaviour, int) and 200 <= behaviour < 300:
                self.server.accepted.append(got)
        match behaviour:
            case "stall":
                self.server.ended.wait(30)
                self.close_connection = True
            case "drop":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            case "garbage":
                self.wfile.write(b"this is not HTTP\r\n\r\n")
                self.close_connection = True
            case int(status):
                self._answer(status, {})
            case (status, headers):
                self._answer(status, headers)

    def _answer(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing is logged."""


@contextlib.contextmanager
def receiver(
    behave: Callable[[Got], Behaviour] = lambda _: 200, *, context: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    server = Receiver(behave)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        thread.join()
        server.server_close()
