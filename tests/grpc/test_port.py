"""The port: TLS, certificates of clients, health, reflection, limits of messages, and refusal of an unsafe start."""

import asyncio
import datetime as dt
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sandur.errors import BadRequest, Unfit
from sandur.server.addresses import check_exposure
from sandur.server.grpc.routes import SERVICES
from sandur.server.grpc.server import GrpcServer
from sandur.setting_sources import load_settings
from sandur.settings import GrpcSettings, Settings
from sandur.storage.memory import MemoryStore
from sandur.v1 import catalogs_pb2, tables_pb2
from tests.crash.gated_store import GatedStore, writes_to
from tests.grpc.direct import Direct, opened
from tests.grpc.stubs import method_of, table_name
from tests.grpc.test_calls import commit, make_table, properties_of
from tests.server.logins import ADMIN_SECRET

LIST = catalogs_pb2.ListCatalogsRequest()
NOT_BEFORE = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NOT_AFTER = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)


class Pair(NamedTuple):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def issue(name: str, issuer: Pair | None = None) -> Pair:
    """A certificate for loopback, signed by the issuer or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer: Any = serialization.load_pem_private_key(issuer.key, None) if issuer else key
    signed_by = x509.load_pem_x509_certificate(issuer.certificate).subject if issuer else subject
    addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signed_by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(signer, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(made.public_bytes(serialization.Encoding.PEM), pem)


def write_pair(folder: Path, pair: Pair) -> None:
    (folder / "server.pem").write_bytes(pair.certificate)
    (folder / "server.key").write_bytes(pair.key)


def tls_settings(folder: Path, *, client_ca: str = "") -> GrpcSettings:
    certificate, private_key = str(folder / "server.pem"), str(folder / "server.key")
    return GrpcSettings(port=0, certificate=certificate, private_key=private_key, client_ca=client_ca)


@asynccontextmanager
async def listening(**settings: object) -> AsyncIterator[str]:
    """The address of services in this process."""
    direct = await opened(**settings)  # type: ignore[arg-type] # Settings by name.
    server = await direct.listen()
    yield f"127.0.0.1:{server.port}"
    await server.stop()
    await direct.close()


async def list_catalogs(address: str, trusted: bytes, client: Pair | None = None) -> Any:
    mine = {"private_key": client.key, "certificate_chain": client.certificate} if client else {}
    credentials = grpc.ssl_channel_credentials(root_certificates=trusted, **mine)
    async with grpc.aio.secure_channel(address, credentials) as channel:
        return await method_of(channel, "Catalogs.List")(LIST, timeout=20)


async def test_over_tls_a_client_trusts_the_issuer_of_the_certificate(tmp_path: Path) -> None:
    authority, stranger = issue("authority"), issue("stranger")
    write_pair(tmp_path, issue("server", authority))

    async with listening(grpc=tls_settings(tmp_path)) as address:
        found = await list_catalogs(address, authority.certificate)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await list_catalogs(address, stranger.certificate)

    assert [one.name for one in found.catalogs] == ["main"]
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


async def test_with_mtls_a_client_needs_a_certificate_of_the_authority(tmp_path: Path) -> None:
    authority, stranger = issue("authority"), issue("stranger")
    write_pair(tmp_path, issue("server", authority))
    (tmp_path / "ca.pem").write_bytes(authority.certificate)

    async with listening(grpc=tls_settings(tmp_path, client_ca=str(tmp_path / "ca.pem"))) as address:
        found = await list_catalogs(address, authority.certificate, issue("client", authority))
        for client in (None, issue("client", stranger)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await list_catalogs(address, authority.certificate, client)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE

    assert len(found.catalogs) == 1


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    old, new = issue("old"), issue("new")
    write_pair(tmp_path, issue("server", old))

    async with listening(grpc=tls_settings(tmp_path)) as address:
        await list_catalogs(address, old.certificate)
        (tmp_path / "server.key").unlink()  # In the middle of a renewal the old pair is still used.
        await list_catalogs(address, old.certificate)
        write_pair(tmp_path, issue("server", new))
        found = await list_catalogs(address, new.certificate)

    assert len(found.catalogs) == 1


async def test_a_certificate_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    direct = await opened(grpc=tls_settings(tmp_path))

    with pytest.raises(BadRequest, match=r"server\.key.*grpc\.certificate"):
        await direct.listen()
    await direct.close()


@pytest.mark.parametrize(
    "flags",
    [
        {"grpc.certificate": "a"},
        {"grpc.private_key": "a"},
        {"grpc.client_ca": "a"},
        {"grpc.port": 70_000},
        {"grpc.connection_age": "PT0S"},
    ],
)
def test_settings_that_do_not_fit_together_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(BadRequest, match="grpc"):
        load_settings(flags=flags)


def test_without_tls_no_other_machine_reaches_the_port() -> None:
    everywhere = Settings(host="0.0.0.0", authentication="on", grpc=GrpcSettings(port=0))  # noqa: S104 - refused

    with pytest.raises(BadRequest, match=r"grpc\.allow_plaintext"):
        check_exposure(everywhere)
    for safe in (
        Settings(host="0.0.0.0", authentication="on", grpc=GrpcSettings(port=0, allow_plaintext=True)),  # noqa: S104 - allowed
        Settings(host="0.0.0.0", authentication="on", grpc=GrpcSettings(port=0, certificate="a", private_key="b")),  # noqa: S104 - TLS
        Settings(host="127.0.0.1", grpc=GrpcSettings(port=0)),
        Settings(host="0.0.0.0", authentication="on"),  # noqa: S104 - without gRPC
    ):
        check_exposure(safe)


async def test_a_port_that_is_taken_is_named(direct: Direct) -> None:
    server = await direct.listen()
    other = await opened(grpc=GrpcSettings(port=server.port))

    with pytest.raises(Unfit, match="--grpc-port"):
        await GrpcServer(other.settings, other.catalog, other.requests, port=server.port).start()
    await other.close()
    await server.stop()


async def test_health_is_that_of_the_store_and_needs_no_token() -> None:
    async with (
        listening(authentication="on", admin_secret=ADMIN_SECRET) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        found = [await health.Check(health_pb2.HealthCheckRequest(service=name)) for name in ("", *SERVICES)]
        watched = await health.Watch(health_pb2.HealthCheckRequest()).read()
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health.Check(health_pb2.HealthCheckRequest(service="none"))

    assert {one.status for one in (*found, watched)} == {health_pb2.HealthCheckResponse.SERVING}
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


async def test_a_client_finds_the_services_and_their_definitions_by_reflection() -> None:
    async with listening() as address, grpc.aio.insecure_channel(address) as channel:
        ask = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        questions = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="sandur.v1.Tables"),
        ]
        services, file = [answer async for answer in ask(iter(questions))]

    names = {service.name for service in services.list_services_response.service}
    assert names >= {*SERVICES, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert b"CommitTransaction" in b"".join(file.file_descriptor_response.file_descriptor_proto)


async def test_a_message_beyond_the_limit_is_refused_also_if_it_is_compressed() -> None:
    async with listening(request_bytes_max=100_000) as address, grpc.aio.insecure_channel(address) as channel:
        large = tables_pb2.CommitTableRequest(table=table_name("t"), body=b" " * 200_000)
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await method_of(channel, "Tables.Commit")(large, compression=compression)
            assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_without_a_token_the_answer_comes_before_the_message() -> None:
    """Attack 13: a client without a token makes the server hold no messages. These clients never send theirs."""
    async with (
        listening(authentication="on", admin_secret=ADMIN_SECRET) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        for path in ("/sandur.v1.Tables/Commit", "/sandur.v1.Events/Subscribe"):
            call = channel.stream_stream(path)(metadata=(("authorization", "Bearer x"),))
            async with asyncio.timeout(30):
                assert await call.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_call_without_a_message_is_refused() -> None:
    async with listening() as address, grpc.aio.insecure_channel(address) as channel:
        call = channel.stream_stream("/sandur.v1.Tables/Get")()
        await call.done_writing()

        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert await call.details() == "The call has no message"


async def test_an_unknown_method_is_unimplemented() -> None:
    async with listening() as address, grpc.aio.insecure_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/sandur.v1.Tables/Explode")(b"")

    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_a_change_whose_client_cancels_over_the_wire_is_finished() -> None:
    store = GatedStore(MemoryStore(), holds=lambda _call: False)
    direct = await opened(store)
    await make_table(direct)
    server = await direct.listen()
    store._holds = writes_to("iceberg_pointers")

    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = method_of(channel, "Tables.Commit")(commit(a="b"))
        waiting = asyncio.ensure_future(call.code())
        await store.is_held.wait()
        call.cancel()
        assert await waiting == grpc.StatusCode.CANCELLED
        store.release()
    await server.stop()

    assert (await properties_of(direct))["a"] == "b"
    await direct.close()
