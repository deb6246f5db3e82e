"""What an SDK really sends: botocore without keys, with PyIceberg's signer, against a server and a real S3."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.session import Session
from pyiceberg.exceptions import SignError
from pyiceberg.io.fsspec import S3V4RestSigner

from sandur.settings import Settings
from tests.interop.server_address import server_settings
from tests.server.requests import create_table
from tests.server.secured_server import SecuredServer, secured_server
from tests.servers.seaweedfs import BUCKET

NAMES = ("data/a.parquet", "p=1/x y/ü", "p=a%2Fb/it's+1&c")


@pytest.fixture(scope="module")
def server(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("signing-sdk")
    options: dict[str, Any] = {**server_settings(seaweedfs_settings.s3), "s3_access": "sign"}
    with secured_server(folder, "--store", f"s3://{BUCKET}/{folder.name}", **options) as made:
        made.administer("POST", "/v1/main/namespaces", {"namespace": ["sales"]})
        yield made


@pytest.fixture(scope="module")
def folders(server: SecuredServer) -> list[str]:
    """The beginnings of the keys of two tables."""
    made = [
        server.administer("POST", "/v1/main/namespaces/sales/tables", create_table(name)) for name in ("mine", "other")
    ]
    return [one["metadata"]["location"].removeprefix(f"s3://{BUCKET}/") for one in made]


@pytest.fixture(scope="module")
def s3(server: SecuredServer, seaweedfs_settings: Settings) -> Any:
    """A client of botocore whose requests PyIceberg's signer has signed, by the signer of the table `mine`."""
    signer = S3V4RestSigner(
        {
            "uri": server.url,
            "token": server.admin_token,
            "s3.signer.endpoint": "v1/main/namespaces/sales/tables/mine/sign",
        }
    )
    client = Session().create_client(
        "s3",
        region_name=seaweedfs_settings.s3.region,
        endpoint_url=seaweedfs_settings.s3.endpoint,
        config=Config(signature_version=UNSIGNED, retries={"max_attempts": 0}),
    )
    client.meta.events.register_last("before-sign.s3", signer)
    return client


@pytest.mark.parametrize("name", NAMES)
def test_files_are_written_read_listed_and_deleted(s3: Any, folders: list[str], name: str) -> None:
    here = {"Bucket": BUCKET, "Key": f"{folders[0]}/{name}"}

    s3.put_object(**here, Body=b"0123456789", ContentType="application/octet-stream")
    assert s3.get_object(**here)["Body"].read() == b"0123456789"
    assert s3.get_object(**here, Range="bytes=2-3")["Body"].read() == b"23"
    assert s3.head_object(**here)["ContentLength"] == 10
    listed = s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{folders[0]}/", MaxKeys=100)
    assert here["Key"] in [one["Key"] for one in listed["Contents"]]
    s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{folders[0]}/", Delimiter="/", StartAfter=folders[0], FetchOwner=True)
    s3.delete_object(**here)


def test_a_file_is_uploaded_in_parts_or_not_at_all(s3: Any, folders: list[str]) -> None:
    here = {"Bucket": BUCKET, "Key": f"{folders[0]}/parts"}

    upload = s3.create_multipart_upload(**here)["UploadId"]
    part = s3.upload_part(**here, UploadId=upload, PartNumber=1, Body=b"a" * 10)
    parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
    s3.complete_multipart_upload(**here, UploadId=upload, MultipartUpload={"Parts": parts})
    another = s3.create_multipart_upload(**here)["UploadId"]
    s3.abort_multipart_upload(**here, UploadId=another)

    assert s3.get_object(**here)["Body"].read() == b"a" * 10


def test_what_reaches_beyond_the_table_is_not_signed(s3: Any, folders: list[str]) -> None:
    mine, other = ({"Bucket": BUCKET, "Key": f"{folder}/a"} for folder in folders)
    s3.put_object(**mine, Body=b"mine")

    for operation, arguments in (
        (s3.get_object, other),
        (s3.put_object, other),
        (s3.delete_object, other),
        (s3.copy_object, {**mine, "CopySource": other}),
        (s3.put_object, {**mine, "ACL": "public-read"}),
        (s3.put_object, {**mine, "Tagging": "a=b"}),
        (s3.put_object_tagging, {**mine, "Tagging": {"TagSet": []}}),
        (s3.get_object, {**mine, "VersionId": "1"}),
        (s3.get_object, {**mine, "ResponseContentType": "text/html"}),
        (s3.list_objects_v2, {"Bucket": BUCKET}),
        (s3.list_objects_v2, {"Bucket": BUCKET, "Prefix": f"{folders[1]}/"}),
        (s3.list_objects, {"Bucket": BUCKET, "Prefix": f"{folders[0]}/"}),
        (s3.list_object_versions, {"Bucket": BUCKET, "Prefix": f"{folders[0]}/"}),
        (s3.list_multipart_uploads, {"Bucket": BUCKET}),
        (s3.delete_bucket, {"Bucket": BUCKET}),
        (s3.list_buckets, {}),
        (s3.delete_objects, {"Bucket": BUCKET, "Delete": {"Objects": [{"Key": mine["Key"]}]}}),
    ):
        with pytest.raises(SignError, match="Failed to sign request 403"):
            operation(**arguments)
    assert s3.get_object(**mine)["Body"].read() == b"mine"
