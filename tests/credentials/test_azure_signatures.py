"""Shared access signatures of Azure: verified with the text of Microsoft's library, with Azurite, and refused."""

import base64
import datetime as dt
import logging
from collections.abc import Callable
from urllib.parse import parse_qs

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import AzureStore

from sandur.catalog.credentials.access_boundaries import Directory
from sandur.catalog.credentials.profiles import AccessScope, StorageProfile
from sandur.clock import SystemClock
from sandur.errors import ServiceRefused, Unavailable, Unsupported
from sandur.settings import Settings
from sandur.storage.credentials.azure import READS, WRITES, SharedAccess, issue, signed_access, text_to_sign
from tests.credentials.scripted_issuer import Answer, scripted_issuer
from tests.fakes.fixed_clock import FixedClock
from tests.servers.azurite import ACCOUNT, ACCOUNT_KEY, CONTAINER
from tests.servers.processes import LOOPBACK, free_ports

HIERARCHICAL = Answer(headers={"x-ms-is-hns-enabled": "true"})
KEY = base64.b64decode(ACCOUNT_KEY)
EXPIRES_MS = int(dt.datetime(2027, 1, 2, 3, 4, 5, tzinfo=dt.UTC).timestamp() * 1_000)
NO_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")


def scope(*locations: str, writes: bool = True) -> AccessScope:
    return AccessScope(locations=locations, writes=writes)


def profile_of(endpoint: str, *, hierarchical: bool = True, account_key: str = ACCOUNT_KEY) -> StorageProfile:
    return StorageProfile(
        cloud="azure",
        access="vend",
        endpoint=endpoint,
        account_name=ACCOUNT,
        account_key=account_key,
        hierarchical=hierarchical,
        lifetime_seconds=1_800,
    )


@pytest.mark.parametrize(
    ("path", "permissions", "protocols", "signature"),
    [
        ("lake/sales/orders", READS, "https", "u5y4qBZ2QmCLP7FYfPq8/THZL7zakdIB1L2rMpnXRsE="),
        (
            "lake/__unitystorage/sales/orders-0b6c",
            WRITES,
            "https",
            "ZRWK51QM0M+ZdoTKaMXrJsYq5en1Z+a764hHOtHCB2w=",
        ),
        ("a b/ü%20+&=/x", WRITES, "https,http", "mnmziPuxYzUQLdeSVnBQxMJwHGILbPLTVVnA5ohurO8="),
        ("top", READS, "https", "2YZ90paE9x0F4gX/7APHYxj1DIpZJdY6b4mYnsN+NLo="),
    ],
)
def test_a_directory_is_signed_as_by_the_library_of_microsoft(
    path: str, permissions: str, protocols: str, signature: str
) -> None:
    """The signatures come from azure-storage-blob 12.31.1, for the public key of the emulators."""
    access = SharedAccess(
        account="myaccount",
        directory=Directory("data", path),
        permissions=permissions,
        expires_ms=EXPIRES_MS,
        protocols="https" if protocols == "https" else "https,http",
    )

    query = {name: values[0] for name, values in parse_qs(signed_access(access, KEY), strict_parsing=True).items()}

    assert query == {
        "sv": "2023-11-03",
        "spr": protocols,
        "se": "2027-01-02T03:04:05Z",
        "sr": "d",
        "sp": permissions,
        "sdd": str(path.count("/") + 1),
        "sig": signature,
    }


def test_the_text_that_is_signed_has_one_line_for_each_field() -> None:
    access = SharedAccess(account="acct", directory=Directory("data", "t"), permissions=READS, expires_ms=EXPIRES_MS)

    text = text_to_sign(access, "2027-01-02T03:04:05Z")

    fields = ["rl", "", "2027-01-02T03:04:05Z", "/blob/acct/data/t", "", "", "https", "2023-11-03", "d"]
    assert text.split("\n") == [*fields, *[""] * 7]


async def test_a_signature_is_for_the_directory_and_the_time_that_the_profile_says() -> None:
    clock = FixedClock(1_767_225_600_999)
    with scripted_issuer(HIERARCHICAL) as script:
        credential = await issue(profile_of(script.url), scope("az://data/lake/orders"), clock)
        reader = await issue(profile_of(script.url), scope("az://data/lake/orders", writes=False), clock)

    query = parse_qs(credential.sas_token)
    assert (query["sr"], query["sdd"], query["sp"]) == (["d"], ["2"], ["racwdlm"])
    assert parse_qs(reader.sas_token)["sp"] == ["rl"]
    assert query["se"] == ["2026-01-01T00:30:00Z"]
    assert credential.expires_ms == 1_767_225_600_000 + 1_800_000
    assert [path for path, _ in script.received] == ["/?restype=account&comp=properties"] * 2
    assert credential.sas_token not in f"{credential!r} {credential}"


async def test_the_log_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with scripted_issuer(HIERARCHICAL) as script:
        credential = await issue(profile_of(script.url), scope("az://data/lake/orders"), FixedClock())

    assert "comp=properties" in caplog.text
    assert ACCOUNT_KEY not in caplog.text
    assert "SharedKey" not in caplog.text
    assert parse_qs(credential.sas_token)["sig"][0] not in caplog.text


def azure_client(settings: Settings, sas_token: str) -> AzureStore:
    """A client that has the signature and nothing else."""
    return AzureStore(
        CONTAINER,
        config={"endpoint": settings.azure.endpoint, "account_name": ACCOUNT, "sas_key": sas_token},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def signed(kind: str, path: str, permissions: str, *, lifetime_ms: int = 600_000) -> str:
    """A signature by our code for a blob or a container: Azurite verifies these, but refuses every directory."""
    access = SharedAccess(
        account=ACCOUNT,
        directory=Directory(CONTAINER, path),
        permissions=permissions,
        expires_ms=SystemClock().now_ms() // 1_000 * 1_000 + lifetime_ms,
        protocols="https,http",
        kind="b" if kind == "b" else "c",
    )
    return signed_access(access, KEY)


async def blob(settings: Settings) -> str:
    path = f"{SystemClock().new_id()}/a b/ü%20+&=.parquet"
    server = AzureStore(
        CONTAINER,
        config={"endpoint": settings.azure.endpoint, "account_name": ACCOUNT, "account_key": ACCOUNT_KEY},
        client_options={"allow_http": True},
    )
    await obstore.put_async(server, path, b"rows")
    return path


@pytest.mark.parametrize("kind", ["b", "c"])
async def test_azurite_verifies_our_signatures(azurite_settings: Settings, kind: str) -> None:
    path = await blob(azurite_settings)

    store = azure_client(azurite_settings, signed(kind, path, "rl" if kind == "c" else "r"))

    assert obstore.get(store, path).bytes() == b"rows"


Attempt = Callable[[AzureStore, str], object]

ATTEMPTS: dict[str, tuple[Callable[[str], str], Attempt]] = {
    "a reader writes": (lambda path: signed("b", path, "r"), lambda store, path: obstore.put(store, path, b"")),
    "a reader deletes": (lambda path: signed("b", path, "r"), obstore.delete),
    "another blob": (lambda path: signed("b", path, "r"), lambda store, path: obstore.get(store, path + "2")),
    "an expired one": (
        lambda path: signed("b", path, "r", lifetime_ms=-60_000),
        obstore.get,
    ),
    "more rights than were signed": (
        lambda path: signed("b", path, "r").replace("sp=r", "sp=rw"),
        lambda store, path: obstore.put(store, path, b""),
    ),
    "a later expiry than was signed": (
        lambda path: signed("b", path, "r", lifetime_ms=-60_000).replace("se=2", "se=3"),
        obstore.get,
    ),
}


@pytest.mark.parametrize(("sas_token", "attempt"), ATTEMPTS.values(), ids=ATTEMPTS)
async def test_azurite_refuses_what_a_signature_does_not_allow(
    azurite_settings: Settings, sas_token: Callable[[str], str], attempt: Attempt
) -> None:
    path = await blob(azurite_settings)
    store = azure_client(azurite_settings, sas_token(path))

    with pytest.raises(BaseError, match="403"):
        attempt(store, path)


async def test_an_account_that_says_it_is_flat_gets_no_signature(azurite_settings: Settings) -> None:
    """Azurite answers the signed question, and has no hierarchical namespace."""
    profile = profile_of(azurite_settings.azure.endpoint)

    with pytest.raises(Unsupported, match=r"opens the whole container.*devstoreaccount1 says that it has none"):
        await issue(profile, scope(f"az://{CONTAINER}/t"), SystemClock())


async def test_a_wrong_key_is_a_clear_failure(azurite_settings: Settings) -> None:
    wrong = base64.b64encode(b"another key of an account").decode()
    profile = profile_of(azurite_settings.azure.endpoint, account_key=wrong)

    with pytest.raises(ServiceRefused, match=r"answered 403; check .*azure\.account_key"):
        await issue(profile, scope(f"az://{CONTAINER}/t"), SystemClock())


async def test_an_account_that_the_settings_call_flat_is_not_asked() -> None:
    with (
        scripted_issuer(HIERARCHICAL) as script,
        pytest.raises(Unsupported, match=r"opens the whole container.*set azure\.hierarchical"),
    ):
        await issue(profile_of(script.url, hierarchical=False), scope("az://data/t"), FixedClock())

    assert not script.received


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (Answer(headers={"x-ms-is-hns-enabled": "false"}), Unsupported, "says that it has none"),
        (Answer(), Unsupported, "says that it has none"),
        (Answer(headers={"x-ms-is-hns-enabled": "True; x"}), Unsupported, "says that it has none"),
        (Answer(403, b"AuthenticationFailed"), ServiceRefused, r"answered 403; check .*azure\.account_key"),
        (Answer(307, headers={"Location": "http://127.0.0.1:9/"}), ServiceRefused, "answered 307"),
        (Answer(503), Unavailable, "answered 503"),
        (Answer(200, b"x" * 100_000, HIERARCHICAL.headers), Unavailable, "does not answer"),
    ],
)
async def test_no_signature_without_the_word_of_the_account(answer: Answer, kind: type[Exception], reason: str) -> None:
    with scripted_issuer(answer) as script, pytest.raises(kind, match=reason) as failure:
        await issue(profile_of(script.url), scope("az://data/t"), FixedClock())

    assert ACCOUNT_KEY not in f"{failure.value} {failure.value!r}"


async def test_an_account_that_is_down_is_a_clear_failure() -> None:
    endpoint = f"http://{LOOPBACK}:{free_ports(1)[0]}"

    with pytest.raises(Unavailable, match="storage account devstoreaccount1 does not answer: ConnectError"):
        await issue(profile_of(endpoint), scope("az://data/t"), FixedClock())


@pytest.mark.parametrize(
    ("account_key", "kind", "reason"),
    [
        ("", Unsupported, r"only the key of the account \(azure\.account_key\) can sign"),
        ("not base64!", ServiceRefused, "not base64"),
        ("ü", ServiceRefused, "not base64"),
    ],
)
async def test_without_the_key_of_the_account_there_is_no_signature(
    monkeypatch: pytest.MonkeyPatch, account_key: str, kind: type[Exception], reason: str
) -> None:
    for variable in NO_KEYS:
        monkeypatch.delenv(variable, raising=False)

    with pytest.raises(kind, match=reason):
        await issue(profile_of("http://127.0.0.1:9", account_key=account_key), scope("az://data/t"), FixedClock())


async def test_several_directories_are_refused_before_any_request() -> None:
    with pytest.raises(Unsupported, match="for one directory"):
        await issue(profile_of("http://127.0.0.1:9"), scope("az://data/a", "az://data/b"), FixedClock())
