"""A bucket that cannot be used says why, in one line that names the setting to correct."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from sandur.cli.main import app
from sandur.errors import BadRequest, OutcomeUnknown, SandurError, Unavailable, Unfit
from sandur.settings import AzureSettings, GcsSettings, S3Settings, Settings
from sandur.storage.contract import ABSENT, ObjectStore, Version
from sandur.storage.locations import connect, open_store
from sandur.storage.probe import check_store
from tests.fakes.fixed_clock import FixedClock
from tests.server.test_serve import sandur
from tests.servers.processes import LOOPBACK

ETAG = Version('"d41d8cd98f00b204e9800998ecf8427e"')

Spoil = Callable[[Settings], Settings]


def with_s3(**changes: str) -> Spoil:
    return lambda settings: replace(settings, s3=replace(settings.s3, **changes))


def without_scheme(settings: Settings) -> Settings:
    return with_s3(endpoint=settings.s3.endpoint.removeprefix("http://"))(settings)


BROKEN: Mapping[str, tuple[Spoil, str, str]] = {
    "unknown key": (with_s3(access_key_id="nobody"), "InvalidAccessKeyId", "s3.access_key_id"),
    "wrong secret": (with_s3(secret_access_key="wrong"), "SignatureDoesNotMatch", "s3.secret_access_key"),  # noqa: S106 - wrong on purpose
    "dead endpoint": (
        with_s3(endpoint=f"http://{LOOPBACK}:9"),  # The port of the discard service, which nothing serves.
        "Connection refused",
        "s3.endpoint",
    ),
    "unknown host": (with_s3(endpoint="http://nowhere.invalid:9000"), "nowhere.invalid", "s3.endpoint"),
    "another protocol": (
        lambda settings: with_s3(endpoint=settings.s3.endpoint.replace("http:", "https:"))(settings),
        "no TLS connection",
        "s3.endpoint",
    ),
    "missing bucket": (lambda settings: replace(settings, store="s3://missing/x"), "does not exist", "create it"),
}


def assert_readable(text: str) -> None:
    assert "\n" not in text
    assert "Debug" not in text
    assert "RetryError" not in text
    assert "<Error>" not in text
    assert len(text) < 600


def broken(case: str, working: Settings) -> Settings:
    return BROKEN[case][0](replace(working, store="s3://sandur/failures"))


def calls(store: ObjectStore) -> list[Awaitable[object]]:
    return [
        store.get("a/b"),
        store.get_if_changed("a/b", seen=ETAG),
        store.head("a/b"),
        store.list("a/"),
        store.put("a/b", b"1", expected=ABSENT),
        store.put("a/b", b"1", expected=ETAG),
        store.delete("a/b", expected=ETAG),
    ]


@pytest.mark.parametrize("case", [case for case in BROKEN if case != "missing bucket"])
async def test_every_call_gives_its_reason_in_one_line(case: str, seaweedfs_settings: Settings) -> None:
    settings = broken(case, seaweedfs_settings)
    store = open_store(settings.store, settings)

    for call in calls(store):
        with pytest.raises((Unavailable, OutcomeUnknown)) as caught:
            await call
        assert_readable(str(caught.value))
    await store.close()


async def test_a_missing_bucket_is_not_an_empty_store(seaweedfs_settings: Settings) -> None:
    """Only reads: SeaweedFS creates a missing bucket with the first write."""
    store = open_store("s3://missing/x", seaweedfs_settings)

    for call in (store.get("a/b"), store.get_if_changed("a/b", seen=ETAG), store.list("a/")):
        with pytest.raises(Unavailable, match="the bucket does not exist") as caught:
            await call
        assert_readable(str(caught.value))
    await store.close()


@pytest.mark.parametrize("case", BROKEN)
def test_the_check_of_a_store_names_the_reason_and_the_setting(case: str, seaweedfs_settings: Settings) -> None:
    _, reason, setting = BROKEN[case]

    with pytest.raises(Unfit) as caught:
        check_store(broken(case, seaweedfs_settings), creates=True)

    assert_readable(str(caught.value))
    assert str(caught.value).startswith("store s3://")
    assert reason in str(caught.value)
    assert setting in str(caught.value)


async def test_the_reason_survives_the_retries(seaweedfs_settings: Settings) -> None:
    settings = broken("dead endpoint", seaweedfs_settings)
    store = connect(settings, FixedClock())

    for call in calls(store):
        with pytest.raises((Unavailable, OutcomeUnknown), match=r"Connection refused|connection attempts failed"):
            await call
    await store.close()


@pytest.mark.parametrize(
    ("store", "settings", "setting"),
    [
        ("s3://b/x", Settings(s3=S3Settings(endpoint="127.0.0.1:9000")), "s3.endpoint"),
        ("s3://b/x", Settings(s3=S3Settings(endpoint="localhost")), "s3.endpoint"),
        ("s3://b/x", Settings(s3=S3Settings(endpoint="http://")), "s3.endpoint"),
        ("s3://b/x", Settings(s3=S3Settings(endpoint="http://a b")), "s3.endpoint"),
        ("s3://b/x", Settings(s3=S3Settings(endpoint="ftp://host")), "s3.endpoint"),
        ("gs://b/x", Settings(gcs=GcsSettings(endpoint="host:1", bearer_token="t")), "gcs.endpoint"),  # noqa: S106 - of a test
        ("az://b/x", Settings(azure=AzureSettings(endpoint="host:1", account_name="x")), "azure.endpoint"),
    ],
)
def test_an_endpoint_that_is_not_a_url_is_refused(store: str, settings: Settings, setting: str) -> None:
    with pytest.raises(BadRequest, match=f"setting {setting}: .* is not a URL") as caught:
        open_store(store, settings)

    assert_readable(str(caught.value))


def test_an_endpoint_of_the_environment_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:9000")

    with pytest.raises(BadRequest, match=r"AWS_ENDPOINT_URL: .* write http://127.0.0.1:9000"):
        open_store("s3://b/x", Settings())


def test_a_bucket_with_invalid_characters_is_refused() -> None:
    with pytest.raises(BadRequest, match="bucket 'my bucket'"):
        open_store("s3://my bucket/x", Settings(s3=S3Settings(endpoint="http://127.0.0.1:1")))


@pytest.mark.parametrize("setting", ["access_key_id", "session_token", "region"])
def test_a_key_with_a_line_break_is_refused(setting: str) -> None:
    s3 = replace(S3Settings(endpoint="http://127.0.0.1:9"), **{setting: "a\n"})

    with pytest.raises(BadRequest, match=f"setting s3.{setting}: it contains a line break"):
        open_store("s3://b/x", Settings(s3=s3))


def test_a_key_of_the_environment_with_a_line_break_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a\n")

    with pytest.raises(BadRequest, match="AWS_ACCESS_KEY_ID: it contains a line break"):
        open_store("s3://b/x", Settings())


@pytest.mark.parametrize(
    "azure", [AzureSettings(), AzureSettings(account_name="x", account_key="not base64")], ids=["no account", "no key"]
)
def test_settings_that_describe_no_account_are_refused(azure: AzureSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)

    with pytest.raises(BadRequest, match="store az://c cannot be opened: ") as caught:
        open_store("az://c/x", Settings(azure=azure))

    assert_readable(str(caught.value))


COMMANDS = (
    ["catalog", "list"],
    ["catalog", "create", "lake"],
    ["index", "rebuild"],
    ["probe"],
    ["run", "compact"],
    ["pipeline"],
)


@pytest.mark.parametrize("case", ["unknown key", "missing bucket", "no scheme"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
def test_every_command_prints_the_same_line(
    command: list[str], case: str, seaweedfs_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = without_scheme(seaweedfs_settings) if case == "no scheme" else broken(case, seaweedfs_settings)
    store = "s3://missing/x" if case == "missing bucket" else "s3://sandur/failures"
    for name, value in environment(settings).items():
        monkeypatch.setenv(name, value)

    result = CliRunner().invoke(app, [*command, "--store", store])

    assert isinstance(result.exception, SandurError), result.output
    assert_readable(str(result.exception))
    expected = {
        "unknown key": f"store {store} cannot be used: the keys are wrong",
        "missing bucket": f"store {store} cannot be used: the bucket does not exist",
        "no scheme": "setting s3.endpoint",
    }
    assert str(result.exception).startswith(expected[case])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_server_prints_one_line_and_exits_with_code_1(workers: str, seaweedfs_settings: Settings) -> None:
    settings = environment(broken("wrong secret", seaweedfs_settings))
    named = {name.removeprefix("SANDUR_").lower(): value for name, value in settings.items()}

    done = sandur("--store", "s3://sandur/failures", "--port", "0", "--workers", workers, **named)

    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("sandur: store s3://sandur/failures cannot be used: the keys are wrong")


def environment(settings: Settings) -> Mapping[str, str]:
    s3 = settings.s3
    return {
        "SANDUR_S3_ENDPOINT": s3.endpoint,
        "SANDUR_S3_REGION": s3.region,
        "SANDUR_S3_ACCESS_KEY_ID": s3.access_key_id,
        "SANDUR_S3_SECRET_ACCESS_KEY": s3.secret_access_key,
    }


@pytest.mark.parametrize(
    "command", [["catalog", "list"], ["index", "rebuild"], ["delta", "rename", "main.a.b", "c"], ["run", "compact"]]
)
@pytest.mark.parametrize("store", ["nothing", "a folder", "file:"])
def test_a_command_that_does_not_create_refuses_a_store_that_does_not_exist(
    command: list[str], store: str, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    if store == "a folder":
        folder.mkdir()
    url = f"file://{folder}" if store == "file:" else str(folder)

    result = CliRunner().invoke(app, [*command, "--store", url])

    assert isinstance(result.exception, Unfit)
    assert str(result.exception).startswith(f"store {url} does not exist")
    assert not folder.exists() or not list(folder.iterdir())


async def test_listing_the_catalogs_of_an_empty_bucket_writes_nothing(
    seaweedfs_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "s3://sandur/never-written"
    for name, value in environment(seaweedfs_settings).items():
        monkeypatch.setenv(name, value)

    result = await asyncio.to_thread(CliRunner().invoke, app, ["catalog", "list", "--json", "--store", url])
    store = open_store(url, seaweedfs_settings)

    assert result.output == "[]\n"
    assert await store.list("") == []
    await store.close()


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


async def test_a_bucket_that_throttles_is_recognised_by_every_call() -> None:
    """A write stays unknown: some servers say this of a write that reached a part of their disks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 503 Slow Down\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(_SLOW_DOWN)
        writer.write(head + _SLOW_DOWN)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    async with server:
        endpoint = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        keys = S3Settings(endpoint=endpoint, region="us-east-1", access_key_id="a", secret_access_key="b")  # noqa: S106 - no secret
        store = open_store("s3://bucket/x", Settings(s3=keys))
        failures = [await _failure(call) for call in calls(store)]
        await store.close()

    assert [type(failure) for failure in failures] == [Unavailable] * 4 + [OutcomeUnknown] * 3
    assert all(failure.is_throttled for failure in failures)


async def _failure(call: Awaitable[object]) -> Unavailable | OutcomeUnknown:
    try:
        await call
    except (Unavailable, OutcomeUnknown) as failure:
        return failure
    pytest.fail("the call succeeded")
