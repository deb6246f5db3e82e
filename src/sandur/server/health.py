"""Pages outside the APIs: liveness, readiness and metrics."""

import asyncio
from typing import Final, Protocol

import msgspec

from sandur.errors import SandurError
from sandur.server.errors import Problem, encode_problem
from sandur.server.http import ALLOW, CONTENT_TYPE, Answer, json_answer
from sandur.server.metrics import Metrics

_STORE_SECONDS_MAX: Final = 5.0
_METHODS: Final = ("GET", "HEAD")
_QUOTED_BYTES_MAX: Final = 200


class Watched(Protocol):
    """What the pages report on."""

    @property
    def is_started(self) -> bool:
        """Whether the store probe passed and the catalog is open."""
        ...

    async def reach_store(self) -> None:
        """Make one small store call; raises when the store does not answer."""
        ...

    def update_metrics(self) -> None:
        """Bring the metrics of this process up to date."""
        ...


class Pages:
    """`/healthz`, `/readyz` and `/metrics`; everything else is not found."""

    def __init__(self, watched: Watched, metrics: Metrics) -> None:
        self._watched = watched
        self._exposition = metrics.exposition
        self._pages = {b"/healthz": self._healthz, b"/readyz": self._readyz, b"/metrics": self._metrics}

    async def answer(self, method: str, path: bytes) -> Answer:
        page = self._pages.get(path)
        if page is None:
            quoted = path[:_QUOTED_BYTES_MAX].decode("latin-1")
            message = f"Nothing is served at {quoted}; the catalog is at /v1 and /iceberg/v1"
            return json_answer(encode_problem(Problem(404, "NotFoundException", message)), status=404)
        if method not in _METHODS:
            allowed = ", ".join(_METHODS).encode()
            return Answer(405, b"Method Not Allowed", ((CONTENT_TYPE, b"text/plain; charset=utf-8"), (ALLOW, allowed)))
        return await page()

    async def _healthz(self) -> Answer:
        return _status("alive")

    async def _readyz(self) -> Answer:
        if not self._watched.is_started:
            return _status("not ready", reason="the server has not finished its start")
        try:
            await asyncio.wait_for(self._watched.reach_store(), _STORE_SECONDS_MAX)
        except TimeoutError:
            return _status("not ready", reason=f"the store did not answer within {_STORE_SECONDS_MAX:g} seconds")
        except SandurError as error:
            return _status("not ready", reason=f"the store does not answer: {error}")
        return _status("ready")

    async def _metrics(self) -> Answer:
        self._watched.update_metrics()
        body, content_type = await asyncio.to_thread(self._exposition)
        return Answer(200, body, ((CONTENT_TYPE, content_type.encode()),))


def _status(status: str, *, reason: str | None = None) -> Answer:
    if reason is None:
        return json_answer(msgspec.json.encode({"status": status}))
    return json_answer(msgspec.json.encode({"status": status, "reason": reason}), status=503)
