"""Signed requests at a real S3: what is signed works, and nothing beyond the table is read or changed."""

import hashlib
import http.client
import random  # noqa: TID251 - seeded
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import httpx
import pytest
from msgspec.structs import replace

from sandur.catalog.credentials.profiles import Keys
from sandur.catalog.credentials.signed_requests import Home, StorageRequest, judge
from sandur.clock import SystemClock
from sandur.errors import Forbidden
from sandur.operations.credentials.sealed_secrets import new_sealing_key
from sandur.settings import Settings
from sandur.storage.credentials.delete_checks import compares_bodies
from sandur.storage.credentials.signatures import signed_headers
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET
from tests.server.requests import create_table
from tests.signatures.generated import (
    BUCKET,
    DATA_HOME,
    HOME,
    NEIGHBOUR,
    REGION,
    TWIN,
    attack,
    delete_body,
    home_profile,
    homes,
    object_uri,
)
from tests.signatures.signing_server import NS, OLD_ROUTE, SIGNING, UNITY, SigningServer, set_up

SECRET = b"what only the neighbour may know"
KEYS = Keys("sandur", "sandur-secret")


class Sent(NamedTuple):
    status: int
    body: bytes


def send(request: StorageRequest, headers: Mapping[str, str], content: bytes = b"") -> Sent:
    """Send exactly this URI, with the headers of the client and those that are signed; no library changes them."""
    uri = urlsplit(request.uri)
    own = {name: values[0] for name, values in request.headers.items() if values and name.lower() not in headers}
    connection = http.client.HTTPConnection(uri.netloc, timeout=30)
    try:
        target = uri.path + (f"?{uri.query}" if uri.query else "")
        body = request.body.encode() if request.body is not None else content
        connection.request(request.method, target, body=body, headers={**own, **headers})
        answer = connection.getresponse()
        return Sent(answer.status, answer.read())
    finally:
        connection.close()


class Bucket:
    """A bucket with a table, a neighbour and a twin, as someone with its keys sees it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.profile = home_profile(endpoint)
        self._everything = [Home(self.profile, BUCKET, "lake/")]

    def sign_and_send(self, request: StorageRequest, content: bytes = b"") -> Sent:
        judged = judge(request, homes(self.profile))
        return send(request, signed_headers(judged, KEYS, SystemClock().now_ms()), content)

    def fill(self) -> None:
        for folder in (HOME, DATA_HOME, NEIGHBOUR, TWIN):
            content = SECRET if folder in {NEIGHBOUR, TWIN} else b"rows of the table"
            for name in ("secret", "data/a", "metadata/b"):
                self._as_owner("PUT", object_uri(f"{folder}/{name}", endpoint=self.endpoint), content)

    def neighbours(self) -> dict[str, str]:
        """The objects beside the table, with their ETags."""
        found: dict[str, str] = {}
        for folder in (NEIGHBOUR, TWIN):
            prefix = f"{folder}/".replace("/", "%2F")
            listed = self._as_owner("GET", f"{self.endpoint}/{BUCKET}?list-type=2&prefix={prefix}")
            for entry in ET.fromstring(listed.body).iter("{*}Contents"):  # noqa: S314 - of our own server
                found[entry.findtext("{*}Key") or ""] = entry.findtext("{*}ETag") or ""
        return found

    def _as_owner(self, method: str, uri: str, content: bytes = b"") -> Sent:
        request = StorageRequest(method, uri, REGION, {})
        judged = judge(request, self._everything)
        sent = send(request, signed_headers(judged, KEYS, SystemClock().now_ms()), content)
        assert sent.status == 200, sent.body
        return sent


@pytest.fixture(scope="module")
def bucket(seaweedfs_settings: Settings) -> Bucket:
    made = Bucket(seaweedfs_settings.s3.endpoint)
    made.fill()
    return made


def own(bucket: Bucket, method: str, name: str, query: str = "", **headers: str) -> StorageRequest:
    given = {key.replace("_", "-"): [value] for key, value in headers.items()}
    return StorageRequest(method, object_uri(f"{HOME}/{name}", endpoint=bucket.endpoint, query=query), REGION, given)


@pytest.mark.parametrize("name", ["data/x", "p=1/ü b/a%2Fb/it's+1", "~!*()"])
def test_a_file_is_written_read_listed_and_deleted(bucket: Bucket, name: str) -> None:
    written = bucket.sign_and_send(own(bucket, "PUT", name, Content_Type="text/plain"), b"0123456789")
    read = bucket.sign_and_send(own(bucket, "GET", name, Range="bytes=2-4", User_Agent="x"))
    listed = bucket.sign_and_send(
        StorageRequest("GET", f"{bucket.endpoint}/{BUCKET}?list-type=2&prefix=lake%2Fhome%2F&max-keys=1000", REGION, {})
    )
    deleted = bucket.sign_and_send(own(bucket, "DELETE", name))
    gone = bucket.sign_and_send(own(bucket, "HEAD", name))

    assert (written.status, read, deleted.status, gone.status) == (200, Sent(206, b"234"), 204, 404)
    assert listed.status == 200
    assert name.partition("/")[0].encode() in listed.body


def test_a_file_is_uploaded_in_parts(bucket: Bucket) -> None:
    begun = bucket.sign_and_send(own(bucket, "POST", "parts", "uploads"))
    upload = ET.fromstring(begun.body).findtext("{*}UploadId")  # noqa: S314 - of our own server
    part = bucket.sign_and_send(own(bucket, "PUT", "parts", f"partNumber=1&uploadId={upload}"), b"a" * 10)
    etag = hashlib.md5(b"a" * 10, usedforsecurity=False).hexdigest()
    listing = f"<Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
    complete = f"<CompleteMultipartUpload>{listing}</CompleteMultipartUpload>"
    done = bucket.sign_and_send(own(bucket, "POST", "parts", f"uploadId={upload}"), complete.encode())

    assert (begun.status, part.status, done.status) == (200, 200, 200)
    assert bucket.sign_and_send(own(bucket, "GET", "parts")).body == b"a" * 10


@pytest.mark.parametrize(
    "added", [{"x-amz-copy-source": f"/{BUCKET}/{NEIGHBOUR}/secret"}, {"x-amz-acl": "public-read"}]
)
def test_the_service_refuses_headers_that_the_signer_has_not_seen(bucket: Bucket, added: dict[str, str]) -> None:
    request = own(bucket, "PUT", "stolen")
    headers = signed_headers(judge(request, homes(bucket.profile)), KEYS, SystemClock().now_ms())

    assert send(request, {**headers, **added}).status == 403


def test_a_signature_is_good_for_nothing_else(bucket: Bucket) -> None:
    request = own(bucket, "GET", "secret")
    headers = signed_headers(judge(request, homes(bucket.profile)), KEYS, SystemClock().now_ms())

    assert send(request, headers).status == 200
    for other in (
        own(bucket, "PUT", "secret"),
        own(bucket, "GET", "data/a"),
        own(bucket, "GET", "secret", "versionId=null"),
        request._replace(uri=object_uri(f"{NEIGHBOUR}/secret", endpoint=bucket.endpoint)),
    ):
        assert send(other, headers).status == 403


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 40))])
def test_nothing_that_is_signed_touches_the_neighbour(bucket: Bucket, seed: int) -> None:
    before = bucket.neighbours()
    chance = random.Random(seed)
    accepted = 0
    for _ in range(250):
        request = attack(chance, bucket.endpoint)
        try:
            sent = bucket.sign_and_send(request)
        except Forbidden:
            continue
        accepted += 1

        assert sent.status < 500, request
        assert SECRET not in sent.body, request
        assert not any(f"{folder}/".encode() in sent.body for folder in (NEIGHBOUR, TWIN)), request
    assert accepted > 50
    assert bucket.neighbours() == before


async def test_this_service_does_not_compare_a_list_with_its_hash_so_no_list_is_signed(
    bucket: Bucket, seaweedfs_settings: Settings, catalogs: Catalogs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """If a newer SeaweedFS compares them, this test fails, and lists are signed there from then on."""
    home = homes(bucket.profile)[0]
    assert not await compares_bodies(home, KEYS, "nonce", SystemClock().now_ms())

    server = await signing_on(seaweedfs_settings, catalogs, tmp_path_factory.mktemp("signing").name)
    key = f"{server.table.removeprefix(f's3://{BUCKET}/')}/data/a"
    refused = await server.sign("admin", "POST", f"{server.endpoint}/{BUCKET}?delete", body=delete_body(key))

    assert refused.status_code == 403
    assert "does not compare the list of objects to delete" in refused.json()["error"]["message"]


async def test_a_client_without_keys_writes_and_reads_with_the_signatures_of_a_server(
    seaweedfs_settings: Settings, catalogs: Catalogs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = await signing_on(seaweedfs_settings, catalogs, tmp_path_factory.mktemp("signing").name)
    uri = server.uri(f"{server.table}/data/a")

    put = StorageRequest("PUT", uri, REGION, {})
    assert send(put, await server.signed("writer", "PUT", uri), b"rows").status == 200
    get = StorageRequest("GET", uri, REGION, {})
    assert send(get, await server.signed("reader", "GET", uri)) == Sent(200, b"rows")
    assert send(get, {}).status == 403
    metadata = (await server.administer("GET", "/v1/main/namespaces/sales/tables/orders"))["metadata-location"]
    file = server.uri(metadata)
    assert send(StorageRequest("GET", file, REGION, {}), await server.signed("reader", "GET", file)).status == 200


async def signing_on(settings: Settings, catalogs: Catalogs, name: str) -> SigningServer:
    """A server that signs, with its store in the bucket."""
    signing = replace(
        settings,
        store=f"s3://{BUCKET}/{name}",
        s3=replace(settings.s3, access="sign"),
        authentication="on",
        admin_secret=ADMIN_SECRET,
        log_level="error",
    )
    return await set_up(await catalogs.open_with(signing), settings.s3.endpoint)


async def test_a_table_in_an_external_location_is_signed_with_the_keys_of_its_credential(
    seaweedfs_settings: Settings, catalogs: Catalogs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root, keys = f"s3://{BUCKET}/{tmp_path_factory.mktemp('external').name}", seaweedfs_settings.s3
    settings = replace(SIGNING, store="memory:", s3=keys, allowed_locations=(root,), sealing_keys=(new_sealing_key(),))
    server = await set_up(await catalogs.open_with(settings), keys.endpoint)
    storage = {
        "access": "sign",
        "endpoint": keys.endpoint,
        "region": keys.region,
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
    }
    await server.administer("POST", f"{UNITY}/credentials", {"name": "k", "storage": storage})
    external = {"name": "l", "url": f"{root}/signed", "credential_name": "k"}
    await server.administer("POST", f"{UNITY}/external-locations", external)
    for name in ("signed", "plain"):
        placed = create_table(name, location=f"{root}/{name}/{name}")
        await server.administer("POST", f"{NS}/tables", placed)

    uri = server.uri(f"{root}/signed/signed/data/a")
    for path in (f"{NS}/tables/signed/sign", OLD_ROUTE):
        headers = await server.signed("writer", "PUT", uri, path=path)
        assert send(StorageRequest("PUT", uri, REGION, {}), headers, b"rows").status == 200
    plain = await server.sign("writer", "GET", server.uri(f"{root}/plain/plain/a"), path=f"{NS}/tables/plain/sign")
    assert plain.status_code == 501


async def test_a_service_that_compares_them_gets_lists(bucket: Bucket) -> None:
    """AWS does; no service of these tests does, so nothing is sent."""
    at_aws = Home(replace(bucket.profile, endpoint=""), BUCKET, f"{HOME}/")

    assert await compares_bodies(at_aws, KEYS, "nonce", SystemClock().now_ms())


def test_the_service_answers_a_foreign_signature_with_a_refusal(bucket: Bucket) -> None:
    request = own(bucket, "GET", "secret")
    headers = signed_headers(judge(request, homes(bucket.profile)), Keys("sandur", "guess"), SystemClock().now_ms())

    assert httpx.get(request.uri, headers=dict(headers)).status_code == 403
