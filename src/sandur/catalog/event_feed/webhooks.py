"""Webhooks: the envelope of an event (CloudEvents 1.0), its signatures (Standard Webhooks), and allowed receivers."""

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec

from sandur.catalog.event_feed.events import Event, event_json, time_text
from sandur.errors import BadRequest, Invalid

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - how Standard Webhooks marks a secret
SECRET_BYTES: Final = 32
URL_CHARS_MAX: Final = 2_000
CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"

_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_PORTS: Final = {"https": 443, "http": 80}

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


def envelope(event: Event, *, is_gap: bool = False) -> bytes:
    """The body of a delivery. The event before this one is named by `previous`; `gap`: it was not delivered before."""
    source = f"/catalogs/{event.identifier.catalog}" if event.identifier else "/metastore"
    fields: dict[str, object] = {
        "specversion": "1.0",
        "id": event.id,
        "source": source,
        "type": f"io.sandur.{event.type}.v1",
        "subject": event.object_id,
        "time": time_text(event.time_ms),
        "datacontenttype": "application/json",
    }
    if event.version is not None:
        fields["sequence"] = str(event.version)
    if event.previous:
        fields["previous"] = event.previous
    if parent := event.source.traceparent:
        fields["traceparent"] = parent
    if is_gap:
        fields["gap"] = True
    return msgspec.json.encode({**fields, "data": event_json(event)})


def signed_headers(message_id: str, time_seconds: int, body: bytes, secrets: Sequence[bytes]) -> Mapping[str, str]:
    """The headers that prove where a body comes from: one signature for each secret that is valid now."""
    signatures = " ".join(f"v1,{_signature(message_id, time_seconds, body, secret)}" for secret in secrets)
    return {"webhook-id": message_id, "webhook-timestamp": str(time_seconds), "webhook-signature": signatures}


def _signature(message_id: str, time_seconds: int, body: bytes, secret: bytes) -> str:
    signed = b"%s.%d.%s" % (message_id.encode(), time_seconds, body)
    return base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def secret_text(secret: bytes) -> str:
    return SECRET_PREFIX + base64.b64encode(secret).decode()


class Receiver(NamedTuple):
    """The parts of the URL of a receiver. `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What the header `Host` names."""
        named = f"[{self.host}]" if ":" in self.host else self.host
        return named if self.port == _PORTS[self.scheme] else f"{named}:{self.port}"

    def __str__(self) -> str:
        """Without path and query, which may hold a token."""
        return f"{self.scheme}://{self.authority}"


def parse_networks(texts: Sequence[str]) -> tuple[IpNetwork, ...]:
    """The networks of the setting `delivery_addresses`; raises BadRequest for a text that is not one."""
    try:
        return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts)
    except ValueError as error:
        raise BadRequest(f"setting delivery_addresses: {error}; expected networks such as 10.1.0.0/16") from None


def checked_receiver(url: str, allowed: Sequence[IpNetwork]) -> Receiver:
    """The receiver of a URL. Raises Invalid unless it has https, or http where the settings allow private addresses."""
    parts = _split(url)
    if parts.scheme == "http" and not allowed:
        raise Invalid(
            "Invalid URL of a receiver: it needs https; http is only for private networks that the setting "
            "delivery_addresses allows"
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    receiver = Receiver(parts.scheme, parts.hostname or "", parts.port or _PORTS[parts.scheme], path)
    if (literal := _literal(receiver.host)) and (reason := refusal_of(literal, receiver, allowed)):
        raise Invalid(f"Invalid URL of a receiver: {reason}")
    return receiver


def _split(url: str) -> SplitResult:
    """The parts of a URL with a host, a scheme of HTTP, and nothing that HTTP does not send; Invalid otherwise."""
    if len(url) > URL_CHARS_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise Invalid(f"Invalid URL of a receiver: expected at most {URL_CHARS_MAX} characters of ASCII without spaces")
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise Invalid(f"Invalid URL of a receiver: {error}") from None
    if parts.scheme not in _PORTS or not has_host:
        raise Invalid("Invalid URL of a receiver: expected https://host/path")
    if parts.username or parts.password or parts.fragment:
        raise Invalid("Invalid URL of a receiver: it has a user, a password or a fragment; remove it")
    return parts


def _literal(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def refusal_of(address: IpAddress, receiver: Receiver, allowed: Sequence[IpNetwork]) -> str:
    """Why nothing is sent to this address; empty if it is allowed.

    An address that stands for another one (mapped, translated or tunnelled IPv4) is judged as that one.
    """
    judged = _embedded(address)
    if any(judged.version == network.version and judged in network for network in allowed):
        return ""
    if not judged.is_global or judged.is_multicast or judged.is_reserved or judged.is_unspecified:
        return f"{receiver.host} has the address {address}, which is not public; see the setting delivery_addresses"
    return "" if receiver.scheme == "https" else f"{receiver.host} has a public address, which needs https"


def _embedded(address: IpAddress) -> IpAddress:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address
