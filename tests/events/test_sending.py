"""Deliveries to real receivers: what they answer, what they do not, and where nothing is ever sent."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandur.catalog.event_feed.subscriptions import Answered
from sandur.catalog.event_feed.webhooks import IpAddress
from sandur.clock import SystemClock
from sandur.operations.event_feed import send
from sandur.operations.event_feed.send import HttpSender, Resolve
from sandur.settings import Settings
from tests.events.receivers import Behaviour, receiver

LOOPBACK = Settings(delivery_addresses=("127.0.0.0/8",))


async def _post(url: str, settings: Settings = LOOPBACK, **options: object) -> Answered:
    sender = HttpSender(settings, **options)  # type: ignore[arg-type] # By name.
    try:
        return await sender.post(url, b'{"a":1}', {"webhook-id": "m"})
    finally:
        await sender.close()


def _resolves_to(*addresses: str) -> Resolve:
    async def resolve(_host: str, _port: int) -> Sequence[IpAddress]:
        return [ipaddress.ip_address(one) for one in addresses]

    return resolve


async def test_a_body_arrives_with_its_headers() -> None:
    with receiver() as server:
        answer = await _post(f"{server.url}?x=1")

    (got,) = server.got
    assert answer.status == 200
    assert (got.path, got.body) == ("/hook?x=1", b'{"a":1}')
    assert got.headers["webhook-id"] == "m"
    assert got.headers["host"] == f"127.0.0.1:{server.port}"
    assert got.headers["content-type"].startswith("application/cloudevents+json")


@pytest.mark.parametrize(
    ("behaviour", "status", "reason"),
    [
        (500, 500, "status 500"),
        ("drop", 0, ""),
        ("garbage", 0, ""),
        ((302, {"location": "http://127.0.0.1:1/elsewhere"}), 302, "redirects are not followed"),
    ],
)
async def test_a_receiver_that_fails_is_reported_and_never_raises(
    behaviour: Behaviour, status: int, reason: str
) -> None:
    with receiver(lambda _: behaviour) as server:
        answer = await _post(server.url)

    assert answer.status == status
    assert reason in answer.reason
    assert len(server.got) == 1, "a redirect is not followed"


async def test_a_receiver_that_stalls_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "ANSWER_SECONDS_MAX", 0.2)
    with receiver(lambda _: "stall") as server:
        answer = await _post(server.url)

    assert (answer.status, "no answer" in answer.reason) == (0, True)


async def test_a_receiver_that_does_not_listen_is_reported() -> None:
    with receiver() as server:
        url = server.url

    answer = await _post(url)
    assert (answer.status, "ConnectError" in answer.reason) == (0, True)


@pytest.mark.parametrize(
    ("headers", "milliseconds"),
    [
        ({"retry-after": "120"}, 120_000),
        ({"retry-after": "soon"}, 0),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "9" * 50}, 999_999_999_000),
        ({}, 0),
    ],
)
async def test_retry_after_is_read(headers: dict[str, str], milliseconds: int) -> None:
    with receiver(lambda _: (429, headers)) as server:
        answer = await _post(server.url)

    assert (answer.status, answer.retry_after_ms) == (429, milliseconds)


async def test_retry_after_may_be_a_date() -> None:
    headers = {"date": "Thu, 01 Jan 2026 00:00:00 GMT", "retry-after": "Thu, 01 Jan 2026 00:01:40 GMT"}
    with receiver(lambda _: (503, headers)) as server:
        answer = await _post(server.url)

    assert answer.retry_after_ms == 100_000


async def test_a_name_with_a_private_address_is_refused_when_it_is_resolved() -> None:
    with receiver() as server:
        for address in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "::1"):
            url = f"https://rebound.example.org:{server.port}/"
            answer = await _post(url, Settings(), resolve=_resolves_to(address))
            assert (answer.status, "not public" in answer.reason) == (0, True), address

    assert not server.got


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to() -> None:
    """A second resolution could give another address: there is none."""
    calls = []

    async def resolve(host: str, _port: int) -> Sequence[IpAddress]:
        calls.append(host)
        return [ipaddress.ip_address("127.0.0.1" if len(calls) == 1 else "127.0.0.99")]

    with receiver() as server:
        answer = await _post(f"http://receiver.example.org:{server.port}/", resolve=resolve)

    assert (answer.status, calls) == (200, ["receiver.example.org"])
    assert server.got[0].headers["host"] == f"receiver.example.org:{server.port}"


async def test_a_receiver_with_a_dead_address_is_reached_at_its_next_one() -> None:
    with receiver() as server:
        url = f"http://receiver.example.org:{server.port}/"
        answer = await _post(url, resolve=_resolves_to("127.0.0.2", "127.0.0.1"))

    assert answer.status == 200


async def test_a_name_that_does_not_resolve_is_reported() -> None:
    async def resolve(_host: str, _port: int) -> Sequence[IpAddress]:
        raise OSError("Name or service not known")

    assert "not known" in (await _post("https://nowhere.example.org/", resolve=resolve)).reason


def _certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server with a certificate for a name, and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1_000, dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(file)
    trusting = ssl.create_default_context(cadata=certificate.public_bytes(serialization.Encoding.PEM).decode())
    return serving, trusting


async def test_with_https_the_certificate_must_be_that_of_the_host(tmp_path: Path) -> None:
    serving, trusting = _certificate(tmp_path, "receiver.example.org")
    resolve = _resolves_to("127.0.0.1")
    with receiver(context=serving) as server:
        right = await _post(f"https://receiver.example.org:{server.port}/", resolve=resolve, context=trusting)
        wrong = await _post(f"https://other.example.org:{server.port}/", resolve=resolve, context=trusting)
        unknown = await _post(f"https://receiver.example.org:{server.port}/", resolve=resolve)

    assert right.status == 200
    assert (wrong.status, unknown.status) == (0, 0)
    assert "CERTIFICATE_VERIFY_FAILED" in wrong.reason
    assert len(server.got) == 1


async def test_a_connection_that_another_host_opened_is_not_used(tmp_path: Path) -> None:
    """Both names lead to one address, as an attacker can arrange who answers for a name of its own there."""
    serving, trusting = _certificate(tmp_path, "attacker.example.org")
    with receiver(context=serving) as server:
        sender = HttpSender(LOOPBACK, resolve=_resolves_to("127.0.0.1"), context=trusting)
        own = await sender.post(f"https://attacker.example.org:{server.port}/", b"{}", {})
        others = await sender.post(f"https://victim.example.org:{server.port}/", b"{}", {})
        again = await sender.post(f"https://attacker.example.org:{server.port}/", b"{}", {})
        await sender.close()

    assert (own.status, again.status) == (200, 200)
    assert "CERTIFICATE_VERIFY_FAILED" in others.reason
    assert len(server.got) == 2


async def test_the_clients_of_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send, "_HOSTS_MAX", 2)
    with receiver() as server:
        sender = HttpSender(LOOPBACK, resolve=_resolves_to("127.0.0.1"))
        answers = [
            await sender.post(f"http://{name}.example.org:{server.port}/", b"{}", {}) for name in ("a", "b", "c", "a")
        ]
        await sender.close()

    assert [one.status for one in answers] == [200] * 4
    assert len(sender._clients) == 2
