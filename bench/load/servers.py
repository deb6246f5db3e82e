"""Start new servers under test, each on a free loopback port and in its own folder."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench.load.target import Target
from bench.provenance import REPOSITORY
from sandur.settings import Settings
from tests.rck.kit import class_path
from tests.servers.processes import LOOPBACK, TWIN_OFFSET, free_ports, running
from tests.servers.seaweedfs import BUCKET, seaweedfs

PEER: Final = "peer"
"""SeaweedFS's own Iceberg REST server: it stores tables in its own buckets and does not sync."""

REFERENCE: Final = "reference"
REFERENCE_POM: Final = Path(__file__).with_name("reference.xml")
SOURCE: Final = REPOSITORY / "src"
_WAREHOUSE: Final = "warehouse"
_PARTS: Final = ("master", "volume", "filer", "s3", "admin")


@contextlib.contextmanager
def sandur_on_folder(name: str, folder: Path, *, fsync: str, workers: int, source: Path = SOURCE) -> Iterator[Target]:
    """A server from a source tree, on a folder."""
    environment = {"SANDUR_FSYNC": fsync, "PYTHONPATH": str(source)}
    with running_sandur(name, folder, f"{folder}/data", workers, environment) as target:
        yield target


@contextlib.contextmanager
def sandur_on_s3(name: str, folder: Path, *, workers: int, source: Path = SOURCE) -> Iterator[Target]:
    """A server from a source tree, on a bucket of its own SeaweedFS, whose CPU time does not count as the server's."""
    (folder / "bucket").mkdir()
    with (
        seaweedfs(folder / "bucket") as settings,
        running_sandur(
            name,
            folder,
            f"s3://{BUCKET}/bench",
            workers,
            {**s3_environment(settings), "PYTHONPATH": str(source)},
        ) as target,
    ):
        yield target


@contextlib.contextmanager
def peer(folder: Path) -> Iterator[Target]:
    iceberg, *others = free_ports(len(_PARTS) + 1)
    ports = dict(zip(_PARTS, others, strict=True))
    uri = f"http://{LOOPBACK}:{iceberg}"
    command: list[str | Path] = [Path(sys.executable).parent / "weed", "mini", f"-dir={folder}"]
    command += [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-tableBucket={_WAREHOUSE}", f"-s3.port.iceberg={iceberg}"]
    for part, port in ports.items():
        command += [f"-{part}.port={port}", f"-{part}.port.grpc={port + TWIN_OFFSET}"]
    command += [f"-{part}.localSocket={folder}/{part}.sock" for part in ("s3", "filer")]
    command += ["-s3.port.lance=0", "-webdav=false", "-admin.ui=false", "-master.telemetry=false"]
    try:
        with running(command, answers=f"{uri}/v1/config", folder=folder) as pid:
            yield Target(PEER, uri, warehouse=f"s3://{_WAREHOUSE}/", pids=[pid])
    finally:
        for part, port in ports.items():  # Their path is fixed, and the server does not remove all of them.
            Path(f"/tmp/seaweedfs-{part}-grpc-{port + TWIN_OFFSET}.sock").unlink(missing_ok=True)  # noqa: S108 - see above


@contextlib.contextmanager
def reference(folder: Path, settings: Settings, warehouse: str) -> Iterator[Target]:
    """Iceberg's own REST server: a JDBC catalog on SQLite, with its files below a folder of the bucket."""
    port, s3 = free_ports(1)[0], settings.s3
    uri = f"http://{LOOPBACK}:{port}"
    catalog = {
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": f"s3://{BUCKET}/{warehouse}",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_REST_PORT": str(port),
        "AWS_REGION": s3.region,
        "AWS_ACCESS_KEY_ID": s3.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
    }
    command = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", class_path(REFERENCE_POM)]
    command.append("org.apache.iceberg.rest.RESTCatalogServer")
    with running(command, answers=f"{uri}/v1/config", folder=folder, environment={**os.environ, **catalog}) as pid:
        yield Target(REFERENCE, uri, pids=[pid])


@contextlib.contextmanager
def running_sandur(
    name: str, folder: Path, store: str, workers: int, environment: Mapping[str, str]
) -> Iterator[Target]:
    """A server on any store, with these variables set."""
    port = free_ports(1)[0]
    uri = f"http://{LOOPBACK}:{port}"
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "serve", "--store", store]
    command += ["--host", LOOPBACK, "--port", str(port), "--workers", str(workers)]
    # Logging costs time too: the level is the default, and the lines go to a file.
    with running(command, answers=f"{uri}/readyz", folder=folder, environment={**os.environ, **environment}) as pid:
        yield Target(name, uri, pids=[pid])


def s3_environment(settings: Settings) -> dict[str, str]:
    """The variables with which a server reaches the bucket."""
    return {
        "SANDUR_S3_ENDPOINT": settings.s3.endpoint,
        "SANDUR_S3_REGION": settings.s3.region,
        "SANDUR_S3_ACCESS_KEY_ID": settings.s3.access_key_id,
        "SANDUR_S3_SECRET_ACCESS_KEY": settings.s3.secret_access_key,
    }
