"""`sandur probe` on a bucket: the rights that the server needs, and whether credentials are issued."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from sandur.catalog.credentials.profiles import StorageProfile
from sandur.catalog.credentials.server_rights import server_rights
from sandur.cli.main import app
from sandur.errors import Unfit
from sandur.settings import Settings

ROLE: Final = "arn:aws-cn:iam::1:role/tables"


def probe(settings: Settings, folder: Path, *flags: str, **changed: str) -> Result:
    s3 = settings.s3
    fields = {name: getattr(s3, name) for name in s3.__struct_fields__} | changed
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    config = folder / "sandur.toml"
    config.write_text("\n".join(["[s3]", *lines]))
    arguments = ["probe", "--store", "s3://sandur/probed", "--config", str(config), *flags]
    return CliRunner().invoke(app, arguments, catch_exceptions=True)


def test_the_probe_issues_a_credential_and_prints_the_rights_of_the_server(
    seaweedfs_sts: Settings, tmp_path: Path
) -> None:
    done = probe(seaweedfs_sts, tmp_path)

    assert done.exit_code == 0, done.output
    assert "credentials for clients are issued (vend)" in done.output
    assert "s3:GetObject, s3:PutObject, s3:DeleteObject on arn:aws:s3:::sandur/probed/*" in done.output
    assert f"sts:AssumeRole on {seaweedfs_sts.s3.role_arn}" in done.output
    assert seaweedfs_sts.s3.secret_access_key not in done.output


def test_the_probe_fails_if_sts_does_not_answer(seaweedfs_sts: Settings, tmp_path: Path) -> None:
    done = probe(seaweedfs_sts, tmp_path, "--json", sts_endpoint="http://127.0.0.1:1")

    assert done.exit_code != 0
    assert isinstance(done.exception, Unfit)
    assert "credentials for clients cannot be issued: STS at http://127.0.0.1:1/ does not answer" in str(done.exception)


@pytest.mark.parametrize(
    ("location", "profile", "expected"),
    [
        ("s3://b/lake", {"cloud": "s3", "access": "none"}, ["arn:aws:s3:::b/lake/*", 'begins with "lake/"']),
        ("s3://b", {"cloud": "s3", "access": "sign"}, ["s3:AbortMultipartUpload", "arn:aws:s3:::b/*"]),
        (
            "s3://b/l",
            {"cloud": "s3", "access": "vend", "role_arn": ROLE},
            [f"sts:AssumeRole on {ROLE}", "arn:aws-cn:s3"],
        ),
        ("gs://b/lake", {"cloud": "gcs", "access": "vend"}, ["roles/storage.objectUser", "sts.googleapis.com"]),
        ("az://c/lake", {"cloud": "azure", "access": "none"}, ["Storage Blob Data Contributor on the container c"]),
        ("abfs://c@a.dfs.core.windows.net/l", {"cloud": "azure", "access": "vend"}, ["only the key signs a directory"]),
    ],
)
def test_the_rights_name_what_the_server_needs_and_where(
    location: str, profile: Mapping[str, str], expected: list[str]
) -> None:
    rights = " ".join(server_rights(location, StorageProfile(**profile)))  # type: ignore[arg-type] # Given by name.

    assert all(text in rights for text in expected), rights
