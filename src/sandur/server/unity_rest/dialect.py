"""An API of Unity Catalog as a dialect of the server: where it is mounted, its routes, and how it refuses."""

from collections.abc import Callable, Sequence

from sandur.operations.lakes import Lakes
from sandur.server.delta_rest import errors as delta_problems
from sandur.server.delta_rest.routes import DELTA_ROUTES
from sandur.server.http import Answer, HttpRequest, Refused
from sandur.server.identity import Identity
from sandur.server.unity_rest import errors
from sandur.server.unity_rest.call import Call, Service
from sandur.server.unity_rest.routes import CLASSIC_ROUTES, CONTROL_ROUTES
from sandur.server.unity_rest.routing import Route, RoutedCall, Router
from sandur.settings import Settings

Refusal = Callable[[Exception, str, str], Answer]
"""The answer to an error, given the operation and the id of the request."""


class UnityDialect:
    """The routes below one mount, all of which refuse in the same words."""

    def __init__(self, name: str, mount: bytes, routes: Sequence[Route], refusal: Refusal, service: Service) -> None:
        self.name = name
        # Also what only begins like the mount is refused in these words.
        self.mounts: Sequence[bytes] = (mount, mount.removesuffix(b"/"))
        self._mount = mount
        self._router = Router(routes)
        self._refusal = refusal
        self._service = service

    def routed(self, method: str, path: bytes) -> RoutedCall:
        below = path.removeprefix(self._mount) if path.startswith(self._mount) else b""
        return self._router.routed(method, below)

    async def answer(self, routed: RoutedCall, request: HttpRequest, identity: Identity) -> Answer:
        if routed.route is None:
            raise routed.refused or Refused(501, "Not served here")
        return await routed.route.answer(Call(self._service, routed.operation, routed.values, request, identity))

    def refusal(self, error: Exception, operation: str, request_id: str) -> Answer:
        return self._refusal(error, operation, request_id)


def unity_dialects(lakes: Lakes, settings: Settings) -> Sequence[UnityDialect]:
    """All of them, the longer mounts first."""
    service = Service(lakes, settings)
    return (
        UnityDialect("unity-delta", b"/api/2.1/unity-catalog/delta/v1/", DELTA_ROUTES, delta_problems.refusal, service),
        UnityDialect("unity", b"/api/2.1/unity-catalog/", CLASSIC_ROUTES, errors.refusal, service),
        UnityDialect("unity-control", b"/api/1.0/unity-control/", CONTROL_ROUTES, errors.refusal, service),
    )
