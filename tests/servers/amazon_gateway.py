"""A proxy that makes a local S3 look like Amazon's, for clients that know no other endpoint.

A client connects to `s3.us-east-1.amazonaws.com` through it (`HTTPS_PROXY`), and trusts its certificate
(`SSL_CERT_FILE`). Behind TLS, the bytes go to the local S3 unchanged, so signatures stay valid.
"""

import asyncio
import contextlib
import datetime as dt
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.servers.processes import LOOPBACK

DOMAIN: Final = "s3.us-east-1.amazonaws.com"
REGION: Final = "us-east-1"
_VALID_FROM: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_VALID_UNTIL: Final = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
_READ_BYTES: Final = 1 << 16
_SECONDS_MAX: Final = 30


class Gateway(NamedTuple):
    """The address of the proxy, and the certificate that signs that of the domain."""

    url: str
    certificate: Path

    def environment(self) -> dict[str, str]:
        """The environment of a client: through the proxy, without keys of its own."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        proxy = {"HTTPS_PROXY": self.url, "NO_PROXY": f"{LOOPBACK},localhost", "SSL_CERT_FILE": str(self.certificate)}
        return own | proxy


@contextlib.contextmanager
def amazon_gateway(folder: Path, endpoint: str) -> Iterator[Gateway]:
    """The proxy in front of a local S3, until the block ends."""
    port = int(endpoint.rpartition(":")[2])
    authority = _write_certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "domain.pem")
    started: Future[tuple[int, Callable[[], object]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(context, port, started)), daemon=True)
    thread.start()
    own_port, stop = started.result(_SECONDS_MAX)
    try:
        yield Gateway(f"http://{LOOPBACK}:{own_port}", authority)
    finally:
        stop()
        thread.join(_SECONDS_MAX)


async def _serve(context: ssl.SSLContext, port: int, started: "Future[tuple[int, Callable[[], object]]]") -> None:
    """Listen until the function that `started` gets is called; it also gets the port."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _connect(reader, writer, context, port)
        except (OSError, asyncio.IncompleteReadError):
            pass  # The client has gone.
        finally:
            writer.transport.abort()

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    server = await asyncio.start_server(connected, LOOPBACK, 0)
    async with server:
        started.set_result((server.sockets[0].getsockname()[1], lambda: loop.call_soon_threadsafe(stopped.set)))
        await stopped.wait()


async def _connect(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext, port: int
) -> None:
    await reader.readuntil(b"\r\n\r\n")  # CONNECT s3.us-east-1.amazonaws.com:443
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    await writer.drain()
    await writer.start_tls(context)
    behind, towards = await asyncio.open_connection(LOOPBACK, port)
    try:
        await asyncio.gather(_copy(reader, towards), _copy(behind, writer))
    finally:
        towards.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ_BYTES):
        writer.write(data)
        await writer.drain()
    writer.close()


def _write_certificates(folder: Path) -> Path:
    """Write an authority, whose file is returned, and a certificate for the domain and its buckets."""
    authority_key, domain_key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    authority = _certificate("Sandur's tests", "Sandur's tests", 1, authority_key)
    authority = authority.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    domain = _certificate(DOMAIN, "Sandur's tests", 2, domain_key)
    names = x509.SubjectAlternativeName([x509.DNSName(DOMAIN), x509.DNSName(f"*.{DOMAIN}")])
    signed = domain.add_extension(names, critical=False).sign(authority_key, SHA256())
    private = domain_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "domain.pem").write_bytes(private + signed.public_bytes(Encoding.PEM))
    file = folder / "authority.pem"
    file.write_bytes(authority.sign(authority_key, SHA256()).public_bytes(Encoding.PEM))
    return file


def _certificate(subject: str, issuer: str, number: int, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
    )
