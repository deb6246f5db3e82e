"""Addresses and sockets of the server, and the check that an open address needs authentication."""

import ipaddress
import socket
from typing import Final

from sandur.errors import BadRequest
from sandur.settings import Settings

BACKLOG: Final = 2048


def check_exposure(settings: Settings) -> None:
    """BadRequest when anybody on the network could change tables without proving who they are."""
    if settings.authentication == "token":
        if not settings.token:
            raise BadRequest("setting authentication: token needs the setting token, the secret that clients send")
        return
    if not is_loopback(settings.host) and not settings.allow_unauthenticated:
        raise BadRequest(
            f"host {settings.host}: it can be reached from other machines and authentication is off. Set "
            "authentication = 'token', or say --allow-unauthenticated if something in front of it sees to that"
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
    """A socket at the address, not yet listening; port 0 takes a free one.

    A shared address may be bound by several processes at once: the kernel then spreads connections over those that
    listen. On one inherited socket the first process awake would take nearly all of them.
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
    """How the server is called by clients on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - recognised, not bound
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
