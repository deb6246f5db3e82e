"""Trace one commit and one load through the ASGI application, and print the files and frames they pass through."""

import ast
import asyncio
import importlib
import json
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

import structlog

from sandur import settings as settings_module
from sandur.clock import SystemClock
from sandur.settings import Settings

PACKAGE: Final = Path(settings_module.__file__).parent
TABLES: Final = "/v1/namespaces/ns/tables"
_STORE_METHODS: Final = frozenset({"are_current", "get", "get_if_changed", "head", "put", "delete", "version_now"})
_OK: Final = 200
_SETTLE_SECONDS: Final = 0.2
"""Longer than the work after an answer, so that the work of an earlier commit is not traced."""
_STORES: Final = frozenset({"local.py", "memory.py"})
_SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": True}],
}

Application = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Any]


class Tracer:
    """Collects the files of the package whose functions run, and the longest chain from a handler to the store."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.longest: Sequence[str] = ()
        self.swap: Sequence[str] = ()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (name := _file_of(frame)) is None:
            return
        self.files.setdefault(name)
        path = Path(name)
        if frame.f_back is not None and _file_of(frame.f_back) == name:
            return  # A call inside the store.
        if path.parent.name == "storage" and path.name in _STORES and frame.f_code.co_name in _STORE_METHODS:
            chain = _chain(frame)
            if len(chain) > len(self.longest):
                self.longest = chain
            if chain and frame.f_code.co_name == "put":
                self.swap = chain  # The swap is the last write before the answer.


def _file_of(frame: FrameType) -> str | None:
    file = frame.f_code.co_filename
    return str(Path(file).relative_to(PACKAGE)) if file.startswith(str(PACKAGE)) else None


def _chain(frame: FrameType) -> Sequence[str]:
    """The frames of the package below the handler of a dialect, the store's method last; empty if no handler called it.

    The handler is the innermost function of a dialect: what it calls is no longer HTTP.
    """
    found: list[str] = []
    above: FrameType | None = frame
    while above is not None:
        if (name := _file_of(above)) is not None:
            if name.startswith("server/") and "_rest/" in name:
                return found[::-1]
            found.append(f"{name}:{above.f_code.co_name}")
        above = above.f_back
    return ()


async def _request(app: Application, method: str, path: str, body: object = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    scope = {
        "type": "http",
        "method": method,
        "raw_path": path.encode(),
        "path": path,
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())],
    }
    answers: list[Any] = []

    async def receive() -> object:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: object) -> None:
        answers.append(message)

    await app(scope, receive, send)
    if answers[0]["status"] != _OK:
        raise RuntimeError(f"{method} {path}: {answers[0]['status']} {answers[1]['body']!r}")
    return bytes(answers[1]["body"])


async def _traced(work: Awaitable[object]) -> Tracer:
    tracer = Tracer()
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        await work
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return tracer


def _build() -> Callable[[Settings], tuple[Application, Any]]:
    """The function that builds the server, in whichever module of `sandur.server` it is."""
    for path in sorted((PACKAGE / "server").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "build" for node in tree.body):
            build: Callable[[Settings], tuple[Application, Any]] = importlib.import_module(
                f"sandur.server.{path.stem}"
            ).build
            return build
    raise RuntimeError("sandur.server: no module defines build")


async def _measure(folder: str) -> dict[str, object]:
    app, catalog = _build()(Settings(store=folder, log_level="error", janitors=False))
    await catalog.start()
    await _request(app, "POST", "/v1/namespaces", {"namespace": ["ns"]})
    made = json.loads(await _request(app, "POST", TABLES, {"name": "t", "schema": _SCHEMA}))
    lists = f"{made['metadata']['location']}/metadata"

    clock = SystemClock()

    def append(number: int) -> Awaitable[bytes]:
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": clock.now_ms(),
            "manifest-list": f"{lists}/{number}.avro",
            "summary": {"operation": "append"},
        }
        moved = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}
        updates = [{"action": "add-snapshot", "snapshot": snapshot}, moved]
        return _request(app, "POST", f"{TABLES}/t", {"requirements": [], "updates": updates})

    def load() -> Awaitable[bytes]:
        return _request(app, "GET", f"{TABLES}/t")

    for number in (1, 2):
        await append(number)
        await load()
    await asyncio.sleep(_SETTLE_SECONDS)
    committing = await _traced(append(3))
    loading = await _traced(load())
    await catalog.close()
    return {
        name: {"files": list(tracer.files), "longest": tracer.longest, "swap": tracer.swap}
        for name, tracer in (("commit", committing), ("load", loading))
    }


def main() -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(_measure(folder))))


if __name__ == "__main__":
    main()
