"""A double of Google Cloud Storage: the part of its XML API that obstore speaks, atomic and in memory.

No available emulator supports that API (docs/decisions/0004-testing-without-a-gcs-emulator.md), so this double must
behave like Google: generations never repeat, conditions are evaluated under one lock, an ETag is a hash of the bytes,
and a listing is in the byte order of the names.

PyArrow speaks the JSON API instead (`tests/servers/gcs_json.py`), and holds Python's lock while it waits: for it the
double runs in a process of its own.

It also exchanges its token for downscoped ones, as Google's Security Token Service does, and enforces their boundaries
(`tests/servers/access_boundary.py`). Only a token of the double itself, or of its service account, can be exchanged.
"""

import bisect
import contextlib
import datetime as dt
import hashlib
import itertools
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar, Final, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from sandur.clock import SystemClock
from sandur.settings import GcsSettings, Settings
from tests.servers.access_boundary import Request, Rule, is_allowed, parse_boundary
from tests.servers.gcs_json import JSON_PATHS, JsonApi
from tests.servers.processes import LOOPBACK, free_ports, running

BUCKET: Final = "sandur"
TOKEN: Final = "a-token-of-the-double"  # noqa: S105 - known only to the double

EXCHANGE_PATH: Final = "/v1/token"
ACCOUNT_PATH: Final = "/token"
"""The token service of the double, and that of its service accounts (`token_uri` in their key files)."""

_PAGE_MAX: Final = 1_000
_LIFETIME_SECONDS: Final = 3_600
_VERBS: Final = {"PUT": "create", "DELETE": "delete"}


class Blob(NamedTuple):
    """An object at one generation."""

    data: bytes
    generation: int
    modified_ms: int

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


class Bucket:
    """The objects, and the one lock under which they are read and changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._blobs: dict[str, Blob] = {}
        self._names: list[str] = []
        self._generation = 1_760_000_000_000_000

    def find(self, name: str) -> Blob | None:
        return self._blobs.get(name)

    def write(self, name: str, data: bytes) -> Blob:
        self._generation += 1
        if name not in self._blobs:
            bisect.insort(self._names, name)
        self._blobs[name] = Blob(data, self._generation, SystemClock().now_ms())
        return self._blobs[name]

    def remove(self, name: str) -> None:
        del self._blobs[name]
        del self._names[bisect.bisect_left(self._names, name)]

    def names(self, *, prefix: str, after: str, count: int) -> list[str]:
        start = max(bisect.bisect_left(self._names, prefix), bisect.bisect_right(self._names, after))
        page = self._names[start : start + count]
        return [name for name in page if name.startswith(prefix)]


class Tokens:
    """The tokens that the double has issued, with the rules of each. No rules means that it opens everything."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._rules: dict[str, Sequence[Rule] | None] = {TOKEN: None}

    def issue(self, rules: Sequence[Rule] | None) -> str:
        token = f"{TOKEN}-{next(self._numbers)}"
        self._rules[token] = rules
        return token

    def exchange(self, form: dict[str, str]) -> str:
        """A downscoped token. Raises ValueError if Google would refuse the request."""
        kind = "urn:ietf:params:oauth:token-type:access_token"
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:token-exchange":
            raise ValueError("grant_type")
        if form.get("subject_token_type") != kind or form.get("requested_token_type") != kind:
            raise ValueError("token type")
        if self._rules.get(form.get("subject_token", ""), ()) is not None:
            raise ValueError("subject_token")
        return self.issue(parse_boundary(form["options"]))

    def is_known(self, token: str) -> bool:
        return token in self._rules

    def allows(self, token: str, request: Request) -> bool:
        rules = self._rules[token]
        return rules is None or is_allowed(rules, request)


class _Exchange(BaseHTTPRequestHandler):
    """One connection; the methods are named by the base class."""

    bucket: ClassVar[Bucket]
    json_api: ClassVar[JsonApi]
    tokens: ClassVar[Tokens]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def parse_request(self) -> bool:
        """Answer the JSON API here: its paths have nothing in common with those of the XML API."""
        if not super().parse_request():
            return False
        if not self.path.startswith(JSON_PATHS):
            return True
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        with self.bucket.lock:
            reply = self.json_api.answer(self.command, self.path, self.headers, body, self._denial_of)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        with contextlib.suppress(ConnectionError):  # PyArrow closes a download when it has enough.
            self.end_headers()
            self.wfile.write(reply.body)
            self.wfile.flush()
        return False

    def do_POST(self) -> None:
        """Issue a token."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        try:
            token = self.tokens.issue(None) if self.path == ACCOUNT_PATH else self.tokens.exchange(form)
        except (ValueError, KeyError):
            # The description quotes the whole request, token included: no error of ours may repeat it.
            problem = {"error": "invalid_request", "error_description": body}
            return self._answer(400, None, json.dumps(problem).encode())
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": _LIFETIME_SECONDS}
        return self._answer(200, None, json.dumps(answer).encode())

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        with self.bucket.lock:
            if source := self.headers["x-goog-copy-source"]:
                copied = self.bucket.find(unquote(source).removeprefix("/").removeprefix(f"{BUCKET}/"))
                data = copied.data if copied else b""
            if self._is_refused(found := self.bucket.find(self._name())):
                return self._refuse(found)
            blob = self.bucket.write(self._name(), data)
        return self._answer(200, blob)

    def do_GET(self) -> None:
        if status := self._denial():
            return self._answer(status)
        if not self._name():
            return self._list()
        with self.bucket.lock:
            blob = self.bucket.find(self._name())
        if blob is None:
            return self._answer(404)
        if self.headers["If-None-Match"] == blob.etag:
            return self._answer(304, blob)
        return self._answer(200, blob, blob.data)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        with self.bucket.lock:
            if self._is_refused(found := self.bucket.find(self._name())):
                return self._refuse(found)
            if found:
                self.bucket.remove(self._name())
        return self._answer(204 if found else 404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Log nothing."""

    def _list(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        prefix = query.get("prefix", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        count = min(int(query.get("max-keys", _PAGE_MAX)), _PAGE_MAX)
        with self.bucket.lock:
            names = self.bucket.names(prefix=prefix, after=after, count=count)
            contents = "".join(_described(name, self.bucket.find(name)) for name in names)
        more = f"<NextContinuationToken>{escape(names[-1])}</NextContinuationToken>" if len(names) == count else ""
        self._answer(200, None, f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode())

    def _name(self) -> str:
        """The object's name; empty if the path is the bucket itself."""
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").removeprefix("/")

    def _denial(self) -> int:
        return max(map(self._denial_of, self._requests()))

    def _denial_of(self, request: Request) -> int:
        """401 for an unknown token, 403 for what the token does not open, 0 if it may."""
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        if not self.tokens.is_known(token):
            return 401
        return 0 if self.tokens.allows(token, request) else 403

    def _requests(self) -> Sequence[Request]:
        """What the HTTP request wants; a copy reads its source as well."""
        bucket = f"projects/_/buckets/{BUCKET}"
        if not self._name():
            prefix = parse_qs(urlsplit(self.path).query).get("prefix", [""])[0]
            return [Request("storage.objects.list", bucket, prefix)]
        verb = _VERBS.get(self.command, "get")
        wanted = [Request(f"storage.objects.{verb}", f"{bucket}/objects/{self._name()}")]
        if source := self.headers["x-goog-copy-source"]:
            name = unquote(source).removeprefix("/").removeprefix(f"{BUCKET}/")
            wanted.append(Request("storage.objects.get", f"{bucket}/objects/{name}"))
        return wanted

    def _is_refused(self, found: Blob | None) -> bool:
        wanted = self.headers["x-goog-if-generation-match"]
        return bool(self._denial()) or (wanted is not None and wanted != str(found.generation if found else 0))

    def _refuse(self, found: Blob | None) -> None:
        wanted = self.headers["x-goog-if-generation-match"] or ""
        if status := self._denial():
            self._answer(status)
        elif not wanted.isdecimal():
            self._answer(400)
        else:
            self._answer(404 if found is None and self.command == "DELETE" else 412)

    def _answer(self, status: int, blob: Blob | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        if blob:
            self.send_header("ETag", blob.etag)
            self.send_header("x-goog-generation", str(blob.generation))
            self.send_header("Last-Modified", formatdate(usegmt=True))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextlib.contextmanager
def gcs_double() -> Iterator[Settings]:
    """Settings that open `gs://sandur/…` on a fresh, empty double."""
    with _Server((LOOPBACK, 0), _fresh_exchange()) as server:
        thread = threading.Thread(target=server.serve_forever, name="gcs-double")
        thread.start()
        try:
            yield _settings(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def gcs_process(folder: Path) -> Iterator[Settings]:
    """The same in a process of its own."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", __name__, str(port)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    settings = _settings(port)
    with running(command, answers=settings.gcs.endpoint, folder=folder, environment=environment):
        yield settings


def _fresh_exchange() -> type[_Exchange]:
    bucket = Bucket()
    parts = {"bucket": bucket, "tokens": Tokens(), "json_api": JsonApi(bucket, BUCKET)}
    return type("Exchange", (_Exchange,), parts)


def _settings(port: int) -> Settings:
    endpoint = f"http://{LOOPBACK}:{port}"
    return Settings(gcs=GcsSettings(endpoint=endpoint, bearer_token=TOKEN, sts_endpoint=endpoint + EXCHANGE_PATH))


def _described(name: str, blob: Blob | None) -> str:
    if blob is None:
        return ""
    return (
        f"<Contents><Key>{escape(name)}</Key><Generation>{blob.generation}</Generation><Size>{len(blob.data)}</Size>"
        f"<LastModified>{_time(blob.modified_ms)}</LastModified><ETag>{escape(blob.etag)}</ETag></Contents>"
    )


def _time(milliseconds: int) -> str:
    return dt.datetime.fromtimestamp(milliseconds / 1_000, dt.UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    _Server((LOOPBACK, int(sys.argv[1])), _fresh_exchange()).serve_forever()
