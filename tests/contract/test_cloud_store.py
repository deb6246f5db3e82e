"""Cloud stores beyond the contract: credentials, unreachable servers, unsorted listings."""

import asyncio
import base64
import datetime as dt
import hashlib
import hmac
from email.utils import formatdate
from urllib.parse import parse_qsl, quote

import msgspec
import pytest

from sandur.clock import SystemClock
from sandur.errors import OutcomeUnknown, SwapLost, Unavailable
from sandur.settings import AzureSettings, GcsSettings, S3Settings, Settings
from sandur.storage.contract import ABSENT, ObjectStore, Version
from sandur.storage.locations import open_store
from sandur.storage.probe import verify_store
from tests.servers import azurite
from tests.servers.processes import LOOPBACK, free_ports

ETAG = Version('"d41d8cd98f00b204e9800998ecf8427e"')


def fresh(url: str) -> str:
    return f"{url}/{SystemClock().new_id()}"


async def keys(store: ObjectStore, *, after: str | None = None, limit: int = 1_000) -> list[str]:
    return [entry.key for entry in await store.list("", after=after, limit=limit)]


async def test_the_listing_of_a_store_that_lists_folder_by_folder_is_sorted(seaweedfs_settings: Settings) -> None:
    """SeaweedFS lists `a/b` before `a-b`, and omits `a/b` from a listing that starts after `a-b`."""
    store = open_store(fresh("s3://sandur"), seaweedfs_settings)
    for key in ("a/b", "a/c", "a-b", "a.json", "a0"):
        await store.put(key, key.encode(), expected=ABSENT)

    assert await keys(store, limit=1) == ["a-b"]
    assert await keys(store, after="a-b", limit=2) == ["a.json", "a/b"]
    assert await keys(store, after="a/b") == ["a/c", "a0"]
    await store.close()


async def test_the_probe_detects_an_unsorted_listing(seaweedfs_settings: Settings) -> None:
    url = fresh("s3://sandur")
    writer, reader = open_store(url, seaweedfs_settings), open_store(url, seaweedfs_settings)
    for key in ("a/b", "a-b", "a0"):
        await writer.put(key, key.encode(), expected=ABSENT)

    await verify_store(reader, SystemClock())

    assert await keys(reader, after="a-b") == ["a/b", "a0"]
    await writer.close()
    await reader.close()


_ENTRY = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Generation>7</Generation>"
    '<ETag>"d41d8cd98f00b204e9800998ecf8427e"</ETag><Size>{size}</Size></Contents>'
)
_MARKED = {
    "t/": 0,
    "t/_SUCCESS": 0,
    "t/_delta_log/": 0,
    "t/_delta_log/0.json": 2,
    "t/year-2": 2,
    "t/year/": 0,
    "t/z": 2,
}


@pytest.mark.parametrize("scheme", ["s3", "gs"])
async def test_the_markers_of_folders_are_not_listed(scheme: str) -> None:
    """Hadoop creates the empty object `t/_delta_log/` for a folder. No call reaches it: a key does not end in `/`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, *_ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")
        path, _, query = target.partition("?")
        after = dict(parse_qsl(query)).get("start-after", "")
        entries = [_ENTRY.format(key=f"x/{key}", size=size) for key, size in _MARKED.items() if f"x/{key}" > after]
        body = f"<ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>{''.join(entries)}</ListBucketResult>"
        status = "200 OK" if method == "GET" or path.removeprefix("/b/x/") in _MARKED else "404 Not Found"
        text = body if method == "GET" else ""
        fields = f'ETag: "d41d8cd98f00b204e9800998ecf8427e"\r\nLast-Modified: {formatdate(0, usegmt=True)}\r\n'
        head = f"HTTP/1.1 {status}\r\n{fields}Connection: close\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, LOOPBACK, 0)
    async with server:
        endpoint = f"http://{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        s3 = S3Settings(endpoint=endpoint, region="x", access_key_id="x", secret_access_key="x")  # noqa: S106 - not a real secret
        gcs = GcsSettings(endpoint=endpoint, bearer_token="x")  # noqa: S106 - not a real secret
        store = open_store(f"{scheme}://b/x", Settings(s3=s3, gcs=gcs))
        listed = [entry.key for entry in await store.list("t/")]
        behind = [entry.key for entry in await store.list("t/", after="t/_SUCCESS")]
        await store.close()

    assert listed == ["t/_SUCCESS", "t/_delta_log/0.json", "t/year-2", "t/z"]
    assert behind == ["t/_delta_log/0.json", "t/year-2", "t/z"]


@pytest.mark.parametrize("url", ["s3://sandur/x", "az://sandur/x", "gs://sandur/x"])
async def test_an_unreachable_server_is_not_an_empty_store(url: str) -> None:
    endpoint = f"http://{LOOPBACK}:{free_ports(1)[0]}"
    settings = Settings(
        s3=S3Settings(endpoint=endpoint, region="x", access_key_id="x", secret_access_key="x"),  # noqa: S106 - not a real secret
        azure=AzureSettings(endpoint=endpoint, account_name="x", account_key="eA=="),
        gcs=GcsSettings(endpoint=endpoint, bearer_token="x"),  # noqa: S106 - not a real secret
    )
    version = Version(f"17|{ETAG}") if url.startswith("gs:") else ETAG
    store = open_store(url, settings)

    for read in (store.get("a"), store.head("a"), store.get_if_changed("a", seen=version), store.list("")):
        with pytest.raises(Unavailable):
            await read
    for write in (store.put("a", b"1", expected=ABSENT), store.put("a", b"1", expected=version)):
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await write
    with pytest.raises(Unavailable):
        await store.delete("a", expected=version)
    await store.close()


async def test_a_wrong_key_of_s3_is_refused_and_nothing_is_written(seaweedfs_settings: Settings) -> None:
    url = fresh("s3://sandur")
    right = open_store(url, seaweedfs_settings)
    version = await right.put("a", b"1", expected=ABSENT)
    wrong_key = msgspec.structs.replace(seaweedfs_settings.s3, secret_access_key="wrong")  # noqa: S106 - wrong on purpose
    wrong = open_store(url, msgspec.structs.replace(seaweedfs_settings, s3=wrong_key))

    for attempt in (
        wrong.get("a"),
        wrong.put("a", b"2", expected=version),
        wrong.put("b", b"2", expected=ABSENT),
        wrong.delete("a", expected=version),
        wrong.list(""),
    ):
        with pytest.raises(Unavailable):
            await attempt

    assert await keys(right) == ["a"]
    await wrong.close()
    await right.close()


async def test_a_wrong_token_of_gcs_is_refused_and_nothing_is_written(gcs_settings: Settings) -> None:
    url = fresh("gs://sandur")
    right = open_store(url, gcs_settings)
    version = await right.put("a", b"1", expected=ABSENT)
    wrong_token = msgspec.structs.replace(gcs_settings.gcs, bearer_token="wrong")  # noqa: S106 - wrong on purpose
    wrong = open_store(url, msgspec.structs.replace(gcs_settings, gcs=wrong_token))

    for attempt in (
        wrong.get("a"),
        wrong.put("a", b"2", expected=version),
        wrong.delete("a", expected=version),
        wrong.list(""),
    ):
        with pytest.raises(Unavailable):
            await attempt

    assert await keys(right) == ["a"]
    await wrong.close()
    await right.close()


async def test_a_shared_access_token_of_azure_is_sufficient(azurite_settings: Settings) -> None:
    token = AzureSettings(endpoint=azurite_settings.azure.endpoint, account_name=azurite.ACCOUNT, sas_token=_sas())
    store = open_store(fresh("az://sandur"), Settings(azure=token))

    for key in ("plain", "tenant=x/a%1Fb%20c.json", "a b", "ü"):
        first = await store.put(key, b"1", expected=ABSENT)
        second = await store.put(key, b"2", expected=first)
        with pytest.raises(SwapLost):
            await store.delete(key, expected=first)
        await store.delete(key, expected=second)

    assert await keys(store) == []
    await store.close()


async def test_azure_settings_come_from_the_usual_environment_variables(
    azurite_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", azurite.ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.ACCOUNT_KEY)
    store = open_store(fresh("az://sandur"), Settings(azure=AzureSettings(endpoint=azurite_settings.azure.endpoint)))

    version = await store.put("a%b", b"1", expected=ABSENT)
    await store.delete("a%b", expected=version)

    assert await keys(store) == []
    await store.close()


def _sas() -> str:
    """A token for the container with all permissions, valid for an hour."""
    until = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251 - the server's clock
    rights, api_version = "racwdl", "2020-12-06"
    # The fields between the resource and the version, and behind it, stay empty.
    fields = [rights, "", until, f"/blob/{azurite.ACCOUNT}/{azurite.CONTAINER}", "", "", "", api_version, "c"]
    text = "\n".join([*fields, *[""] * 7])
    signature = base64.b64encode(hmac.digest(base64.b64decode(azurite.ACCOUNT_KEY), text.encode(), hashlib.sha256))
    return f"sp={rights}&se={quote(until)}&sv={api_version}&sr=c&sig={quote(signature.decode(), safe='')}"
