"""Addresses and sockets of the server, and the check that an open address needs authentication."""

import ipaddress
import socket
from typing import Final

from sandur.errors import BadRequest
from sandur.settings import Settings

BACKLOG: Final = 2048


def check_exposure(settings: Settings) -> None:
    """BadRequest when other machines could change tables without a token."""
    if settings.authentication == "token":
        if not settings.token:
            raise BadRequest("setting authentication: 'token' needs the setting token, the secret that clients send")
        return
    if not is_loopback(settings.host) and not settings.allow_unauthenticated:
        raise BadRequest(
            f"host {settings.host}: other machines can reach it and authentication is off. Set authentication = "
            "'token', or use --allow-unauthenticated if a proxy in front of the server authenticates clients"
        )


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
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise BadRequest(f"cannot listen on {host}: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise BadRequest(f"cannot listen on {host} port {port}: {error}") from None
    return bound


def port_of(bound: socket.socket) -> int:
    port = bound.getsockname()[1]
    return int(port)


def address_of(host: str, port: int) -> str:
    """The URL of the server for clients on this machine."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised, not bound
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
