"""Downscoped tokens of Google: what a real client can do with one on the double, and how the exchange fails."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import GCSStore

from sandur.catalog.credentials.profiles import AccessScope, StorageCredential, StorageProfile
from sandur.clock import SystemClock
from sandur.errors import ServiceRefused, Unavailable, Unsupported
from sandur.settings import Settings
from sandur.storage.credentials.gcs import issue
from tests.credentials.gcs_client import gcs_client
from tests.credentials.scripted_issuer import Answer, scripted_issuer
from tests.fakes.fixed_clock import FixedClock
from tests.servers.gcs import ACCOUNT_PATH, BUCKET, EXCHANGE_PATH, TOKEN
from tests.servers.processes import LOOPBACK, free_ports

HOUR_MS = 3_600_000
SOURCE = "source-secret"
CONFINED = "confined-secret"
INJECTION = "a\r\nX-Injected: b"


def profile_of(settings: Settings, *, bearer_token: str = TOKEN, service_account: str = "") -> StorageProfile:
    return StorageProfile(
        cloud="gcs",
        access="vend",
        endpoint=settings.gcs.endpoint,
        sts_endpoint=settings.gcs.sts_endpoint,
        bearer_token=bearer_token,
        service_account=service_account,
    )


def scope(*folders: str, writes: bool = True) -> AccessScope:
    return AccessScope(locations=tuple(f"gs://{BUCKET}/{folder}" for folder in folders), writes=writes)


def keys(store: GCSStore, prefix: str | None) -> list[str]:
    try:
        return [entry["path"] for page in obstore.list(store, prefix) for entry in page]
    except GenericError as error:  # obstore has no class for a listing that is refused.
        raise PermissionDeniedError if "403 Forbidden" in str(error) else error from error


async def lake(settings: Settings) -> str:
    """A folder with the tables `orders` and `orders-x`, written with the keys of the server."""
    root = SystemClock().new_id()
    server = gcs_client(settings, TOKEN)
    for key in ("orders/metadata/1.json", "orders/data/1.parquet", "orders-x/data/1.parquet", "returns/1.parquet"):
        await obstore.put_async(server, f"{root}/{key}", key.encode())
    return root


async def test_a_writer_works_in_its_table(gcs_settings: Settings) -> None:
    root = await lake(gcs_settings)
    clock = FixedClock()

    credential = await issue(profile_of(gcs_settings), scope(f"{root}/orders"), clock)

    store = gcs_client(gcs_settings, credential.oauth_token)
    obstore.put(store, f"{root}/orders/data/2.parquet", b"rows")
    obstore.copy(store, f"{root}/orders/data/1.parquet", f"{root}/orders/data/3.parquet")
    obstore.delete(store, f"{root}/orders/data/1.parquet")
    assert obstore.get(store, f"{root}/orders/data/3.parquet").bytes() == b"orders/data/1.parquet"
    assert keys(store, f"{root}/orders/data") == [f"{root}/orders/data/2.parquet", f"{root}/orders/data/3.parquet"]
    assert credential.expires_ms == clock.now_ms() + HOUR_MS


Attempt = Callable[[GCSStore, str], object]

ATTEMPTS: dict[str, Attempt] = {
    "read the neighbour": lambda store, root: obstore.get(store, f"{root}/returns/1.parquet"),
    "read the sibling with the same start": lambda store, root: obstore.get(store, f"{root}/orders-x/data/1.parquet"),
    "head of the neighbour": lambda store, root: obstore.head(store, f"{root}/returns/1.parquet"),
    "write to the neighbour": lambda store, root: obstore.put(store, f"{root}/returns/2.parquet", b""),
    "write beside the table": lambda store, root: obstore.put(store, f"{root}/orders", b""),
    "delete in the sibling": lambda store, root: obstore.delete(store, f"{root}/orders-x/data/1.parquet"),
    "list the parent": keys,
    "list the sibling": lambda store, root: keys(store, f"{root}/orders-x"),
    "list the bucket": lambda store, _: keys(store, None),
    "copy from elsewhere": lambda store, root: obstore.copy(store, f"{root}/returns/1.parquet", f"{root}/orders/1"),
    "copy to elsewhere": lambda store, root: obstore.copy(store, f"{root}/orders/data/1.parquet", f"{root}/returns/2"),
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS)
async def test_a_writer_reaches_nothing_beside_its_table(gcs_settings: Settings, attempt: Attempt) -> None:
    root = await lake(gcs_settings)
    credential = await issue(profile_of(gcs_settings), scope(f"{root}/orders"), FixedClock())

    with pytest.raises(PermissionDeniedError):
        attempt(gcs_client(gcs_settings, credential.oauth_token), root)


WRITES: dict[str, Attempt] = {
    "put": lambda store, root: obstore.put(store, f"{root}/orders/data/2.parquet", b""),
    "overwrite": lambda store, root: obstore.put(store, f"{root}/orders/data/1.parquet", b""),
    "delete": lambda store, root: obstore.delete(store, f"{root}/orders/data/1.parquet"),
    "copy": lambda store, root: obstore.copy(store, f"{root}/orders/data/1.parquet", f"{root}/orders/data/2.parquet"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_reader_cannot_write(gcs_settings: Settings, write: Attempt) -> None:
    root = await lake(gcs_settings)
    credential = await issue(profile_of(gcs_settings), scope(f"{root}/orders", writes=False), FixedClock())
    store = gcs_client(gcs_settings, credential.oauth_token)

    with pytest.raises(PermissionDeniedError):
        write(store, root)

    assert obstore.get(store, f"{root}/orders/data/1.parquet").bytes() == b"orders/data/1.parquet"


async def test_one_token_opens_all_locations_of_a_table(gcs_settings: Settings) -> None:
    root = await lake(gcs_settings)

    credential = await issue(profile_of(gcs_settings), scope(f"{root}/orders", f"{root}/returns"), FixedClock())

    store = gcs_client(gcs_settings, credential.oauth_token)
    assert obstore.get(store, f"{root}/orders/data/1.parquet").bytes()
    assert obstore.get(store, f"{root}/returns/1.parquet").bytes()
    with pytest.raises(PermissionDeniedError):
        obstore.get(store, f"{root}/orders-x/data/1.parquet")


async def test_a_downscoped_token_cannot_be_exchanged_for_a_wider_one(gcs_settings: Settings) -> None:
    credential = await issue(profile_of(gcs_settings), scope("narrow"), FixedClock())
    profile = profile_of(gcs_settings, bearer_token=credential.oauth_token)

    with pytest.raises(ServiceRefused, match="400 invalid_request"):
        await issue(profile, scope("wide"), FixedClock())


def key_file(folder: Path, token_uri: str) -> Path:
    """The key file of a service account whose tokens come from the given address."""
    key = rsa.generate_private_key(65_537, 2_048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    file = folder / "account.json"
    account = {"type": "service_account", "client_email": "s@p.iam.gserviceaccount.com", "private_key": text}
    file.write_text(json.dumps(account | {"token_uri": token_uri, "project_id": "p"}))
    return file


@pytest.mark.parametrize("form", [str, Path.read_text])
async def test_the_key_of_a_service_account_is_a_source_of_tokens(
    gcs_settings: Settings, tmp_path: Path, form: Callable[[Path], str]
) -> None:
    """The path of its file, or its content, as the storage registry has it."""
    file = key_file(tmp_path, gcs_settings.gcs.endpoint + ACCOUNT_PATH)
    root = await lake(gcs_settings)
    profile = profile_of(gcs_settings, bearer_token="", service_account=form(file))

    credential = await issue(profile, scope(f"{root}/orders"), SystemClock())

    assert keys(gcs_client(gcs_settings, credential.oauth_token), f"{root}/orders/data")


@pytest.mark.parametrize("token_uri", ["http://127.0.0.1:9/token", "not a url"])
async def test_a_service_account_that_gets_no_token_is_a_clear_failure(
    gcs_settings: Settings, tmp_path: Path, token_uri: str
) -> None:
    file = key_file(tmp_path, token_uri)

    with pytest.raises(Unavailable, match=r"check gcs\.service_account"):
        await issue(profile_of(gcs_settings, bearer_token="", service_account=str(file)), scope("t"), FixedClock())


@pytest.mark.parametrize("key", ["/no/such/file", "{", '{"private_key": "secret"}', "{}"])
async def test_a_key_that_cannot_be_read_is_a_clear_failure_that_shows_no_secret(
    gcs_settings: Settings, key: str
) -> None:
    with pytest.raises(Unavailable, match=r"check gcs\.service_account") as failure:
        await issue(profile_of(gcs_settings, bearer_token="", service_account=key), scope("t"), FixedClock())

    assert "secret" not in str(failure.value)
    assert "/no/such" not in str(failure.value)


async def test_a_location_that_cannot_be_confined_is_refused_before_any_request() -> None:
    profile = StorageProfile(cloud="gcs", access="vend", bearer_token=TOKEN, sts_endpoint="http://127.0.0.1:9")

    with pytest.raises(Unsupported, match="quote"):
        await issue(profile, scope("o'brien"), FixedClock())


def token_json(**fields: object) -> bytes:
    return json.dumps({"access_token": CONFINED, "token_type": "Bearer", "expires_in": 3_600} | fields).encode()


async def issue_from(answer: Answer) -> StorageCredential:
    with scripted_issuer(answer) as script:
        profile = StorageProfile(cloud="gcs", access="vend", bearer_token=SOURCE, sts_endpoint=script.url)
        return await issue(profile, scope("t"), FixedClock())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(400, b'{"error":"invalid_grant","error_description":"source-secret"}'), "400 invalid_grant"),
        (Answer(401, b"source-secret"), "refuses: 401"),
        (Answer(403, b'{"error":"source-secret"}'), "403;"),
        (Answer(302, headers={"Location": "http://127.0.0.1:9/source-secret"}), "302"),
        (Answer(200, b""), "not the JSON of a token"),
        (Answer(200, b"<html>source-secret</html>"), "not the JSON of a token"),
        (Answer(200, b'{"access_token":1}'), "not the JSON of a token"),
        (Answer(200, b"\xff\xfe"), "not the JSON of a token"),
        (Answer(200, token_json(access_token="")), "no bearer token"),
        (Answer(200, token_json(access_token=INJECTION)), "no bearer token"),
        (Answer(200, token_json(token_type=SOURCE)), "no bearer token"),
        (Answer(200, token_json(access_token=SOURCE)), "server's own token"),
        (Answer(200, token_json(expires_in=0)), "not plausible"),
        (Answer(200, token_json(expires_in=-5)), "not plausible"),
        (Answer(200, token_json(expires_in=10**12)), "not plausible"),
        (Answer(200, token_json(expires_in=None)), "does not say when it expires"),
        (Answer(200, b"x" * 100_000), "does not answer"),
    ],
)
async def test_an_answer_without_a_confined_token_is_a_failure_that_shows_no_secret(
    answer: Answer, reason: str
) -> None:
    with pytest.raises(Unavailable, match=reason) as failure:
        await issue_from(answer)

    assert SOURCE not in f"{failure.value} {failure.value!r}"


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_service_that_is_busy_may_be_tried_again(status: int) -> None:
    with pytest.raises(Unavailable, match=f"Security Token Service answered {status}") as failure:
        await issue_from(Answer(status, b"source-secret"))

    assert type(failure.value) is Unavailable


async def test_a_service_that_is_down_is_a_clear_failure() -> None:
    url = f"http://{LOOPBACK}:{free_ports(1)[0]}/v1/token"
    profile = StorageProfile(cloud="gcs", access="vend", bearer_token=SOURCE, sts_endpoint=url)

    with pytest.raises(Unavailable, match="Security Token Service does not answer: ConnectError"):
        await issue(profile, scope("t"), FixedClock())


@pytest.mark.parametrize("endpoint", ["ftp://x/token", "http://", "no url", "http://[::1/x"])
async def test_an_endpoint_that_is_not_a_url_is_a_clear_failure(endpoint: str) -> None:
    profile = StorageProfile(cloud="gcs", access="vend", bearer_token=SOURCE, sts_endpoint=endpoint)

    with pytest.raises(Unavailable, match="does not answer"):
        await issue(profile, scope("t"), FixedClock())


class SlowClock(FixedClock):
    """The clock advances by one second with each reading."""

    def now_ms(self) -> int:
        self.advance(1_000)
        return super().now_ms()


async def test_the_expiry_counts_from_the_start_of_the_exchange() -> None:
    """Else the time that the exchange takes would be added to it, and clients would use a token that has expired."""
    clock = SlowClock()
    began_ms = clock.time_ms
    with scripted_issuer(Answer(200, token_json(expires_in=600))) as script:
        profile = StorageProfile(cloud="gcs", access="vend", bearer_token=SOURCE, sts_endpoint=script.url)

        credential = await issue(profile, scope("t"), clock)

    assert credential.expires_ms == began_ms + 1_000 + 600_000


async def test_a_token_that_has_expired_on_our_clock_is_not_given_out() -> None:
    clock = SlowClock()
    with scripted_issuer(Answer(200, token_json(expires_in=1))) as script:
        profile = StorageProfile(cloud="gcs", access="vend", bearer_token=SOURCE, sts_endpoint=script.url)

        with pytest.raises(Unavailable, match="it is expired"):
            await issue(profile, scope("t"), clock)


async def test_a_credential_and_its_profile_show_no_secret() -> None:
    credential = await issue_from(Answer(200, token_json(access_token=CONFINED)))

    assert "secret" not in f"{credential!r} {credential} {credential.profile!r}"


async def test_the_log_shows_no_secret(
    gcs_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = key_file(tmp_path, gcs_settings.gcs.endpoint + ACCOUNT_PATH)

    for profile in (
        profile_of(gcs_settings),
        profile_of(gcs_settings, bearer_token="", service_account=file.read_text()),
    ):
        credential = await issue(profile, scope("t"), SystemClock())

        assert credential.oauth_token not in caplog.text
    assert TOKEN not in caplog.text
    assert "PRIVATE KEY" not in caplog.text
    assert EXCHANGE_PATH in caplog.text


async def test_an_unknown_token_opens_nothing(gcs_settings: Settings) -> None:
    with pytest.raises(UnauthenticatedError):
        obstore.get(gcs_client(gcs_settings, "guessed"), "x")
