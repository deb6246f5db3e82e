"""Which requests to S3 are signed: exactly those that stay within the folders of a table."""

import random  # noqa: TID251 - seeded

import pytest
from msgspec.structs import replace

from sandur.catalog.credentials.signed_requests import JudgedRequest, StorageRequest, home_of, judge
from sandur.errors import Forbidden
from tests.signatures.generated import (
    BUCKET,
    DATA_HOME,
    ENDPOINT,
    HOME,
    NEIGHBOUR,
    REGION,
    TWIN,
    attack,
    delete_body,
    home_profile,
    homes,
    object_uri,
    valid_request,
)
from tests.signatures.independent_judge import objections

PROFILE = home_profile()
OWN = object_uri(f"{HOME}/data/a.parquet")
LIST = f"{ENDPOINT}/{BUCKET}?list-type=2"


def judged(
    method: str = "GET", uri: str = OWN, *, body: str | None = None, region: str = REGION, **headers: str
) -> JudgedRequest:
    given = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return judge(StorageRequest(method, uri, region, given, body), homes(PROFILE))


def refused(
    method: str = "GET", uri: str = OWN, *, body: str | None = None, region: str = REGION, **headers: str
) -> str:
    with pytest.raises(Forbidden) as error:
        judged(method, uri, body=body, region=region, **headers)
    return str(error.value)


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("GET", ""),
        ("GET", "?x-id=GetObject"),
        ("GET", "?partNumber=1"),
        ("HEAD", ""),
        ("PUT", "?x-id=PutObject"),
        ("PUT", "?partNumber=10000&uploadId=a.b-c_d~e&x-id=UploadPart"),
        ("POST", "?uploads"),
        ("POST", "?uploads="),
        ("POST", "?uploadId=abc"),
        ("DELETE", ""),
        ("DELETE", "?uploadId=abc"),
    ],
)
def test_the_operations_of_clients_on_an_object_of_the_table_are_signed(method: str, query: str) -> None:
    found = judged(method, OWN + query)

    assert found.places == (f"s3://{BUCKET}/{HOME}/data/a.parquet",)
    assert (found.method, found.host, found.path) == (method, "127.0.0.1:8333", f"/{BUCKET}/{HOME}/data/a.parquet")


@pytest.mark.parametrize(
    "key", ["data/p=1/x.parquet", "a b/ü/日本", "p=a%2Fb/x", "p=http%3A%2F%2Fh/x", "it's", "a+b", "...", "..a", "~"]
)
def test_keys_of_real_tables_are_signed_in_the_encoding_of_the_sdks(key: str) -> None:
    assert judged(uri=object_uri(f"{HOME}/{key}")).places == (f"s3://{BUCKET}/{HOME}/{key}",)


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (f"{NEIGHBOUR}/secret", "not below a location"),
        (f"{TWIN}/secret", "not below a location"),
        (HOME, "not below a location"),
        ("", "only as a list"),
        (f"{HOME}/../neighbour/secret", "'.' or '..'"),
        (f"{HOME}/./a", "'.' or '..'"),
        (f"{HOME}/..%252Fneighbour", "'.' or '..'"),
        (f"{HOME}/%25252e%25252e/neighbour", "'.' or '..'"),
        (f"{HOME}//a", "empty segment"),
        (f"{HOME}/a/", "empty segment"),
        (f"{HOME}/..%2Fneighbour", "normal percent-encoding"),
        (f"{HOME}%2Fa", "normal percent-encoding"),
        (f"{HOME}/%61", "normal percent-encoding"),
        (f"{HOME}/%c3%bc", "normal percent-encoding"),
        (f"{HOME}/%FF", "not UTF-8"),
        (f"{HOME}/a+b=", "not a plain http"),
        (f"{HOME}/a%0Ab", "not printable"),
        (f"{HOME}/a%00", "not printable"),
        (f"{HOME}/a%5Cb", "backslash"),
        (f"{HOME}/ü", "not a plain http"),
        (f"{HOME}/a#b", "not a plain http"),
        (f"{HOME}/" + "a" * 1_100, "longer than"),
        (f"{HOME}/tenant%3Dt/workspace%3Dw/_catalog/x", "catalog's own folder"),
        (f"{HOME}/%" + "25" * 12 + "41", "many times"),
    ],
)
def test_keys_that_could_be_read_as_others_are_refused(raw: str, found: str) -> None:
    assert found in refused(uri=f"{ENDPOINT}/{BUCKET}/{raw}")


@pytest.mark.parametrize(
    "uri",
    [
        OWN.replace("127.0.0.1", "evil"),
        OWN.replace("127.0.0.1", "127.0.0.1.evil"),
        OWN.replace("127.0.0.1", "a@127.0.0.1"),
        OWN.replace(":8333", ":8334"),
        OWN.replace(":8333", ""),
        OWN.replace("http:", "https:"),
        OWN.replace("http:", "HTTP:"),
        OWN.replace(f"/{BUCKET}/", "/other/"),
        OWN.replace(f"/{BUCKET}/", f"/{BUCKET.upper()}/"),
        OWN.replace(f"/{BUCKET}/", f"//{BUCKET}/"),
        OWN.replace("127.0.0.1", f"{BUCKET}.127.0.0.1").replace(f"/{BUCKET}/", "/"),
        f"s3://{BUCKET}/{HOME}/a",
        "",
        "x" * 20_000,
    ],
)
def test_another_host_scheme_port_bucket_or_style_is_refused(uri: str) -> None:
    assert refused(uri=uri)


def test_another_region_is_refused() -> None:
    assert "region 'eu-west-1'" in refused(region="eu-west-1")


@pytest.mark.parametrize(
    ("method", "query", "found"),
    [
        ("GET", "versionId=1", "'versionId'"),
        ("GET", "acl", "'acl'"),
        ("PUT", "acl", "'acl'"),
        ("PUT", "tagging", "'tagging'"),
        ("GET", "uploadId=1", "'uploadId'"),
        ("GET", "response-content-type=a", "'response-content-type'"),
        ("PUT", "partNumber=1", "'partNumber'"),
        ("PUT", "uploadId=1", "'uploadId'"),
        ("PUT", "partNumber=0&uploadId=1", "partNumber has the value '0'"),
        ("PUT", "partNumber=1&partNumber=2&uploadId=1", "'partNumber' is repeated"),
        ("POST", "uploads=1", "uploads has the value '1'"),
        ("POST", "", "no parameters"),
        ("POST", "select&select-type=2", "'select'"),
        ("POST", "delete", "'delete'"),
        ("DELETE", "tagging", "'tagging'"),
        ("GET", "list-type=2&prefix=lake%2Fhome%2F", "'list-type'"),
        ("PATCH", "", "method 'PATCH'"),
        ("OPTIONS", "", "method 'OPTIONS'"),
        ("get", "", "method 'get'"),
    ],
)
def test_other_operations_on_an_object_are_refused(method: str, query: str, found: str) -> None:
    assert found in refused(method, f"{OWN}?{query}")


@pytest.mark.parametrize(
    "prefix", ["lake%2Fhome%2F", "lake%2Fhome%2Fdata", "lake%2Fhome%2Fdata%2F", "lake%2Fdata%20of%20home%2F"]
)
def test_a_list_below_the_table_is_signed_as_the_sdks_send_it(prefix: str) -> None:
    further = "&delimiter=%2F&max-keys=1000&encoding-type=url&fetch-owner=false&start-after=a&continuation-token=b%3D"

    found = judged(uri=f"{LIST}&prefix={prefix}{further}")

    assert found.query.startswith("continuation-token=b%3D&delimiter=%2F&encoding-type=url&")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "&prefix=",
        "&prefix=lake%2Fhome",
        "&prefix=lake",
        "&prefix=lake%2Fhome-x%2F",
        "&prefix=lake%2Fneighbour%2F",
        "&prefix=lake/home/",
        "&prefix=lake%2fhome%2f",
        "&prefix=lake%2Fhome%2F..%2Fneighbour",
        "&prefix=lake%2Fhome%2F%2F",
        "&prefix=lake%2Fhome%2F&prefix=lake%2Fhome%2F",
        "&prefix=lake%2Fhome%2F&versions",
        "&prefix=lake%2Fhome%2F&list-type=2",
        "&prefix=lake%2Fhome%2F&marker=a",
        "&prefix=lake%2Fhome%2F&max-keys=-1",
    ],
)
def test_a_list_of_anything_else_is_refused(query: str) -> None:
    assert refused(uri=LIST + query)


@pytest.mark.parametrize(
    ("method", "query"),
    [("GET", ""), ("GET", "?uploads"), ("GET", "?location"), ("HEAD", ""), ("PUT", ""), ("DELETE", ""), ("POST", "")],
)
def test_the_bucket_itself_is_not_reached(method: str, query: str) -> None:
    for slash in ("", "/"):
        assert refused(method, f"{ENDPOINT}/{BUCKET}{slash}{query}")


def test_a_list_of_objects_to_delete_is_signed_with_the_hash_of_its_body() -> None:
    found = judged(
        "POST", f"{ENDPOINT}/{BUCKET}?delete", body=delete_body(f"{HOME}/a&b", f"{DATA_HOME}/c"), content_md5="x"
    )

    assert found.places == (f"s3://{BUCKET}/{HOME}/a&b", f"s3://{BUCKET}/{DATA_HOME}/c")
    assert len(found.payload_hash) == 64
    assert found.is_delete_list


def test_the_client_cannot_replace_the_hash_of_a_list_of_objects_to_delete() -> None:
    uri = f"{ENDPOINT}/{BUCKET}?delete"
    body = delete_body(f"{HOME}/a")

    found = judged("POST", uri, body=body, x_amz_content_sha256="UNSIGNED-PAYLOAD")

    assert found.payload_hash == judged("POST", uri, body=body).payload_hash != "UNSIGNED-PAYLOAD"
    assert "x-amz-content-sha256" not in found.headers


@pytest.mark.parametrize(
    "body",
    [None, "", delete_body(), delete_body(f"{HOME}/a", f"{NEIGHBOUR}/secret"), delete_body(f"{HOME}/../neighbour/x")],
)
def test_a_list_of_objects_to_delete_elsewhere_is_refused(body: str | None) -> None:
    assert refused("POST", f"{ENDPOINT}/{BUCKET}?delete", body=body)


def test_headers_are_signed_left_unsigned_or_refused_by_name() -> None:
    found = judged(
        "PUT",
        Content_MD5="x",
        Content_Type="application/octet-stream",
        x_amz_checksum_crc32="AAAA",
        x_amz_server_side_encryption="AES256",
        Range="bytes=0-1",
        X_Amz_Date="20200101T000000Z",
        amz_sdk_invocation_id="1",
        User_Agent="x",
        Host="127.0.0.1:8333",
    )

    assert set(found.headers) == {
        "content-md5", "content-type", "x-amz-checksum-crc32", "x-amz-server-side-encryption",
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        *(
            "x-amz-copy-source",
            "X-Amz-Copy-Source-Range",
            "x-amz-acl",
            "x-amz-grant-full-control",
            "x-amz-security-token",
        ),
        *("x-amz-website-redirect-location", "x-amz-object-lock-mode", "x-amz-tagging", "x-amz-storage-class"),
        *(
            "x-amz-meta-x",
            "x-amz-rename-source",
            "authorization",
            "x-http-method-override",
            "cookie",
            "x-forwarded-host",
        ),
        *("x-amz-server-side-encryption-customer-key", "cache-control", "", "x-amz-unknown"),
    ],
)
def test_other_headers_are_refused(name: str) -> None:
    request = StorageRequest("PUT", OWN, REGION, {name: ["value"]})

    with pytest.raises(Forbidden, match="is not among those that are signed"):
        judge(request, homes(PROFILE))


@pytest.mark.parametrize(
    "headers",
    [
        {"content-md5": ["a", "b"]},
        {"content-md5": []},
        {"content-md5": ["a"], "Content-MD5": ["a"]},
        {"content-type": ["a\nx-amz-acl:public-read"]},
        {"content-type": ["ü"]},
        {"host": ["evil"]},
        {"x-amz-content-sha256": ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD"]},
        {f"h{number}": ["a"] for number in range(200)},
    ],
)
def test_repeated_headers_and_odd_values_are_refused(headers: dict[str, list[str]]) -> None:
    with pytest.raises(Forbidden):
        judge(StorageRequest("PUT", OWN, REGION, headers), homes(PROFILE))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "UNSIGNED-PAYLOAD"),
        ({"x_amz_content_sha256": "UNSIGNED-PAYLOAD"}, "UNSIGNED-PAYLOAD"),
        ({"x_amz_content_sha256": "0" * 64}, "0" * 64),
        ({"x_amz_trailer": "x-amz-checksum-crc32"}, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    ],
)
def test_the_hash_of_other_bodies_is_the_one_that_the_client_declares(headers: dict[str, str], expected: str) -> None:
    assert judged("PUT", **headers).payload_hash == expected


@pytest.mark.parametrize(
    ("uri", "region"),
    [
        (f"https://{BUCKET}.s3.eu-west-1.amazonaws.com/{HOME}/a", "eu-west-1"),
        (f"https://s3.eu-west-1.amazonaws.com/{BUCKET}/{HOME}/a", "eu-west-1"),
        (f"https://{BUCKET}.s3.dualstack.eu-west-1.amazonaws.com:443/{HOME}/a", "eu-west-1"),
        (f"https://{BUCKET}.s3.amazonaws.com/{HOME}/a", "us-east-1"),
        (f"https://{BUCKET}.s3.cn-north-1.amazonaws.com.cn/{HOME}/a", "cn-north-1"),
    ],
)
def test_both_styles_of_aws_are_signed_in_the_region_of_the_bucket(uri: str, region: str) -> None:
    home = home_of(replace(home_profile(""), region=region), f"s3://{BUCKET}/{HOME}")

    found = judge(StorageRequest("GET", uri, region, {}), [home])

    assert found.places == (f"s3://{BUCKET}/{HOME}/a",)


def test_a_service_with_virtual_hosts_is_reached_only_by_them() -> None:
    own = [home_of(home_profile(path_style=False), f"s3://{BUCKET}/{HOME}")]
    by_host = f"http://{BUCKET}.127.0.0.1:8333/{HOME}/a"

    assert judge(StorageRequest("GET", by_host, REGION, {}), own).host == f"{BUCKET}.127.0.0.1:8333"
    with pytest.raises(Forbidden):
        judge(StorageRequest("GET", object_uri(f"{HOME}/a"), REGION, {}), own)


def test_a_table_that_is_a_whole_bucket_is_refused() -> None:
    with pytest.raises(Forbidden, match="whole bucket"):
        home_of(PROFILE, f"s3://{BUCKET}")


def test_objects_with_different_credentials_are_not_deleted_together() -> None:
    other = home_of(replace(PROFILE, id="other"), f"s3://{BUCKET}/elsewhere")
    request = StorageRequest("POST", f"{ENDPOINT}/{BUCKET}?delete", REGION, {}, delete_body(f"{HOME}/a", "elsewhere/b"))

    with pytest.raises(Forbidden, match="different credentials"):
        judge(request, [*homes(PROFILE), other])


@pytest.mark.parametrize("seed", range(20))
def test_every_valid_request_is_signed(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        request = valid_request(chance)

        assert not list(objections(request, ENDPOINT)), request
        assert judge(request, homes(PROFILE)).uri == request.uri


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 220))])
def test_nothing_is_signed_that_the_independent_judge_objects_to(seed: int) -> None:
    chance = random.Random(seed)
    signed = 0
    for _ in range(500):
        request = attack(chance)
        try:
            judge(request, homes(PROFILE))
        except Forbidden:
            continue
        signed += 1

        assert not list(objections(request, ENDPOINT)), request
    assert signed > 50, f"seed {seed}: too few requests were signed to prove anything"
