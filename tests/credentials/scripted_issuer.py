"""An HTTP server that answers as the test says: for the ways in which the issuers of credentials fail."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, NamedTuple

from tests.servers.processes import LOOPBACK


class Answer(NamedTuple):
    """What the server answers."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}


@dataclass
class Script:
    """The answer to every request, and the requests that were received: the path, and the body."""

    url: str
    answer: Answer
    received: list[tuple[str, str]] = field(default_factory=list)


class _Exchange(BaseHTTPRequestHandler):
    script: ClassVar[Script]

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.script.received.append((self.path, body.decode()))
        status, content, headers = self.script.answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""


@contextlib.contextmanager
def scripted_issuer(answer: Answer) -> Iterator[Script]:
    exchange = type("Exchange", (_Exchange,), {})
    with ThreadingHTTPServer((LOOPBACK, 0), exchange) as server:
        script = Script(f"http://{LOOPBACK}:{server.server_address[1]}", answer)
        exchange.script = script  # type: ignore[attr-defined]  # a subclass made for this script
        thread = threading.Thread(target=server.serve_forever, args=[0.01], name="scripted-issuer")
        thread.start()
        try:
            yield script
        finally:
            server.shutdown()
            thread.join()
