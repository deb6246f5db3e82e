"""The port of the gRPC services: its address, TLS, limits, health and reflection, from its start to its end."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import grpc
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sandur.clock import Clock
from sandur.errors import BadRequest, Unfit
from sandur.server.grpc.routes import METHODS, SERVICES
from sandur.server.grpc.service import Services
from sandur.server.process import RunningCatalog
from sandur.server.requests import Requests
from sandur.settings import GrpcSettings, Settings, seconds_of

HEALTH: Final[str] = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name

_WATCH_SECONDS: Final = 5.0
_WATCHERS_MAX: Final = 100
_STREAMS_MAX: Final = 10_000
"""Calls of one process that may be open beside the requests in progress: subscriptions and watchers."""
_METADATA_BYTES_MAX: Final = 64 << 10
_STREAMS_PER_CONNECTION_MAX: Final = 1_000
_GRACE_SECONDS: Final = 60
"""How long calls of a connection that is too old may continue."""
_PING_SECONDS_MIN: Final = 10
"""The shortest time between two keepalive pings of a client. More frequent ones end its connection."""

log = structlog.get_logger()


class GrpcServer:
    """The gRPC services of one process."""

    def __init__(self, settings: Settings, catalog: RunningCatalog, requests: Requests, *, port: int) -> None:
        self.port = port
        self._settings = settings
        self._catalog = catalog
        self._clock = requests.clock
        self._services = Services(METHODS, requests, settings)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen on the port; raises Unfit if that is not possible, BadRequest for a certificate that is no use."""
        settings = self._settings
        at_once_max = settings.requests_at_once_max + _STREAMS_MAX
        server = grpc.aio.server(options=_options(settings), maximum_concurrent_rpcs=at_once_max)
        server.add_generic_rpc_handlers((self._services,))
        health_pb2_grpc.add_HealthServicer_to_server(Health(self._catalog, self._clock), server)
        reflection.enable_server_reflection((*SERVICES, HEALTH, reflection.SERVICE_NAME), server)
        address = f"[{settings.host}]:{self.port}" if ":" in settings.host else f"{settings.host}:{self.port}"
        try:
            if settings.grpc.certificate:
                self.port = server.add_secure_port(address, _credentials(settings.grpc))
            else:
                self.port = server.add_insecure_port(address)
        except RuntimeError:
            raise Unfit(
                f"cannot listen on {settings.host} port {self.port} for gRPC: the port is in use, or not "
                "allowed; choose another with --grpc-port (0 takes a free one)"
            ) from None
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Refuse new calls, and finish those in progress within the time that the settings allow."""
        if self._server is None:
            return
        seconds = seconds_of(self._settings.shutdown_timeout)
        began = asyncio.get_running_loop().time()
        await self._server.stop(seconds)
        left = seconds - (asyncio.get_running_loop().time() - began)
        await self._services.finish_changes(max(0.0, left))


def _options(settings: Settings) -> Sequence[tuple[str, int]]:
    age_ms = seconds_of(settings.grpc.connection_age) * 1_000
    return (
        ("grpc.so_reuseport", int(settings.workers > 1)),
        ("grpc.max_receive_message_length", settings.request_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES_MAX),
        ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION_MAX),
        # A connection stays with one worker. Closed from time to time, connections spread over all of them.
        ("grpc.max_connection_age_ms", age_ms),
        ("grpc.max_connection_age_grace_ms", _GRACE_SECONDS * 1_000),
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_SECONDS_MIN * 1_000),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_SECONDS_MIN * 1_000),
        ("grpc.keepalive_permit_without_calls", 1),
    )


class _Pem(NamedTuple):
    """The files of a certificate; `stamps` change when a file is replaced."""

    key: bytes
    chain: bytes
    client_ca: bytes | None
    stamps: tuple[tuple[int, int, int], ...]


def _credentials(settings: GrpcSettings) -> grpc.ServerCredentials:
    """The certificate of the server, which is read again when its files change: no restart renews it."""
    current = _read_pem(settings)
    needs_certificate = bool(settings.client_ca)

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal current
        try:
            if _stamps(settings) == current.stamps:
                return None
            current = _read_pem(settings)
        except (
            OSError,
            BadRequest,
        ) as error:  # The old certificate stays in use: half of a renewal is no reason to stop.
            log.warning("the gRPC certificate cannot be read", reason=str(error))
            return None
        return _configuration(current)

    return grpc.dynamic_ssl_server_credentials(
        _configuration(current), renewed, require_client_authentication=needs_certificate
    )


def _configuration(pem: _Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.chain)], root_certificates=pem.client_ca)


def _files(settings: GrpcSettings) -> list[Path]:
    names = (settings.private_key, settings.certificate, settings.client_ca)
    return [Path(name) for name in names if name]


def _stamps(settings: GrpcSettings) -> tuple[tuple[int, int, int], ...]:
    found = [file.stat() for file in _files(settings)]
    return tuple((one.st_mtime_ns, one.st_size, one.st_ino) for one in found)


def _read_pem(settings: GrpcSettings) -> _Pem:
    """The files of the settings; raises BadRequest if one of them cannot be read."""
    try:
        stamps = _stamps(settings)
        key, chain, *rest = [file.read_bytes() for file in _files(settings)]
    except OSError as error:
        raise BadRequest(
            f"the certificate of the gRPC port cannot be read: {error.filename}: {os.strerror(error.errno or 0)}; set "
            "grpc.certificate, grpc.private_key and grpc.client_ca to PEM files that this user can read"
        ) from None
    return _Pem(key, chain, rest[0] if rest else None, stamps)


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # grpc has no types.
    """The standard health service: whether the store can be used. It needs no token, like `/readyz`."""

    def __init__(self, catalog: RunningCatalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock
        self._watchers = 0

    async def Check(  # noqa: N802 - the name of the protocol
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        if request.service and request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"There is no service {request.service[:100]}")
        return health_pb2.HealthCheckResponse(status=await self._status())

    async def Watch(  # noqa: N802 - the name of the protocol
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """The status now, and each time that it changes."""
        if self._watchers >= _WATCHERS_MAX:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many clients watch the health; call Check")
        known = not request.service or request.service in SERVICES
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        last, self._watchers = None, self._watchers + 1
        try:
            while self._catalog.is_started:
                status = await self._status() if known else unknown
                if status != last:
                    yield health_pb2.HealthCheckResponse(status=status)
                last = status
                await self._clock.sleep(_WATCH_SECONDS)
        finally:
            self._watchers -= 1

    async def _status(self) -> int:
        is_serving = self._catalog.is_started and await self._catalog.health.problem() is None
        found = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        return int(found)
