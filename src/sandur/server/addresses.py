"""Addresses, sockets and open files of the server, and the check that an open address needs authentication."""

import contextlib
import errno
import ipaddress
import resource
import socket
from collections.abc import Iterator
from typing import Final

from sandur.errors import BadRequest, Unsupported
from sandur.settings import LIFETIME_SECONDS_MAX, Settings, seconds_of

BACKLOG: Final = 2048
FILES_RESERVED: Final = 192
"""Open files that are not for connections: those of the store, of its threads and of the interpreter."""

_FILES_WANTED: Final = 65_536
_SECRET_CHARS_MIN: Final = 16
_HINTS: Final = {
    errno.EADDRINUSE: "the port is in use; choose another with --port (0 takes a free one)",
    errno.EACCES: "this user may not use the port; choose one above 1023 with --port",
    errno.EADDRNOTAVAIL: "it is not an address of this machine; choose another with --host",
}


def check_exposure(settings: Settings) -> None:
    """Raise BadRequest when other machines could change tables without a token, or would send tokens unencrypted."""
    grpc = settings.grpc
    if grpc.port >= 0 and not grpc.certificate and not grpc.allow_plaintext and not is_loopback(settings.host):
        raise BadRequest(
            f"host {settings.host}: other machines can reach the gRPC port and it has no TLS. Set grpc.certificate and "
            "grpc.private_key, or grpc.allow_plaintext if a proxy in front of the server adds TLS"
        )
    if settings.authentication == "on":
        return
    if not is_loopback(settings.host) and not settings.allow_unauthenticated:
        raise BadRequest(
            f"host {settings.host}: other machines can reach it and authentication is off. Set authentication = "
            "'on', or use --allow-unauthenticated if a proxy in front of the server authenticates clients"
        )


def raise_file_limit() -> int:
    """Allow this process as many open files as it may have, and return how many; at least twice the reserve."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, _FILES_WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # Then it stays as it is.
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return _FILES_WANTED if soft == resource.RLIM_INFINITY else max(soft, 2 * FILES_RESERVED)


def setting_warnings(settings: Settings) -> Iterator[str]:
    """Warnings about settings that are allowed, but probably not intended."""
    if settings.admin_secret and len(settings.admin_secret) < _SECRET_CHARS_MIN:
        yield f"setting admin_secret is shorter than {_SECRET_CHARS_MIN} characters: it can be guessed"
    if seconds_of(settings.token_lifetime) > LIFETIME_SECONDS_MAX:
        yield f"setting token_lifetime is {settings.token_lifetime}: tokens are valid for one hour at most"
    if settings.oidc and settings.authentication == "off":
        yield "setting oidc is ignored because authentication is off: set authentication = 'on' to require tokens"


def resolve(host: str) -> None:
    """Raise BadRequest if the host is unknown."""
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise BadRequest(
            f"cannot listen on host {host}: the host is unknown ({reason}); use an address of this machine, such as "
            "127.0.0.1, with --host"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind_socket(host: str, port: int, *, is_shared: bool) -> socket.socket:
    """A socket bound to the address, not yet listening; port 0 takes a free one.

    Several processes can bind a shared address: the kernel spreads connections evenly over them. On one inherited
    socket the first process awake takes most of a burst.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        hint = _HINTS.get(error.errno or 0, str(error))
        raise BadRequest(f"cannot listen on {host} port {port}: {hint}") from None
    return bound


def port_of(bound: socket.socket) -> int:
    port = bound.getsockname()[1]
    return int(port)


def address_of(host: str, port: int) -> str:
    """The URL of the server for clients on this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised, not bound
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def check_preview(settings: Settings, *, wants_sql: bool) -> None:
    """Raise Unsupported if the settings allow no rows of tables, or no queries, or if anybody could read them."""
    is_reachable = settings.authentication == "off" and not is_loopback(settings.host)
    if settings.preview == "off" or is_reachable:
        why = "other machines can reach this server without a login" if is_reachable else "the setting preview is off"
        raise Unsupported(f"Previews are switched off: {why}")
    if wants_sql and settings.preview != "sql":
        raise Unsupported("Queries are switched off: the setting preview is 'rows', and a query needs 'sql'")
