"""Whether the process lives, whether it may be sent requests, and its numbers."""

import asyncio
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandur.errors import SandurError
from sandur.server.metrics import exposition

_ANSWER_SECONDS_MAX: Final = 5.0
_UNAVAILABLE: Final = 503


class Watched(Protocol):
    """What readiness looks at."""

    @property
    def is_started(self) -> bool:
        """Whether the boot probe passed and the catalog is open."""
        ...

    async def reach_store(self) -> None:
        """Ask the store for something small; raises when it does not answer."""
        ...

    def show_counts(self) -> None:
        """Bring what Prometheus is told up to date."""
        ...


def health_routes(watched: Watched) -> list[Route]:
    async def healthz(_request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def readyz(_request: Request) -> Response:
        reason = await _why_not_ready(watched)
        if reason:
            return JSONResponse({"status": "not ready", "reason": reason}, status_code=_UNAVAILABLE)
        return JSONResponse({"status": "ready"})

    async def metrics(_request: Request) -> Response:
        watched.show_counts()
        body, content_type = await asyncio.to_thread(exposition)
        return Response(body, media_type=content_type)

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


def side_app(watched: Watched) -> Starlette:
    """The pages beside the protocols."""
    return Starlette(routes=health_routes(watched), exception_handlers={404: _not_found})


async def _why_not_ready(watched: Watched) -> str:
    if not watched.is_started:
        return "the server has not finished its start"
    try:
        await asyncio.wait_for(watched.reach_store(), _ANSWER_SECONDS_MAX)
    except TimeoutError:
        return f"the store gave no answer within {_ANSWER_SECONDS_MAX:g} seconds"
    except SandurError as error:
        return f"the store does not answer: {error}"
    return ""


async def _not_found(request: Request, _error: Exception) -> Response:
    message = f"Nothing is served at {request.url.path}; the catalog is at /v1 and /iceberg/v1"
    return JSONResponse({"error": {"message": message, "type": "NotFoundException", "code": 404}}, status_code=404)
