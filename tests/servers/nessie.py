"""Nessie, in Java, with its catalog in memory and its tables in the bucket of the tests."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sandur.settings import S3Settings
from tests.interop.engines.environments import java_home, maven_files
from tests.servers.processes import LOOPBACK, free_ports, running

_JAVA_VERSION: Final = 21


@contextlib.contextmanager
def nessie(folder: Path, s3: S3Settings, warehouse: str) -> Iterator[str]:
    """The address of a fresh server; NotInstalled if Java or Maven is missing. Its tables are below `warehouse`."""
    (jar,) = maven_files("nessie").glob("*.jar")
    port, management_port = free_ports(2)
    s3_options = "nessie.catalog.service.s3.default-options"
    settings = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": str(port),
        "quarkus.management.host": LOOPBACK,
        "quarkus.management.port": str(management_port),
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "tests",
        "nessie.catalog.warehouses.tests.location": warehouse,
        f"{s3_options}.endpoint": s3.endpoint,
        f"{s3_options}.region": s3.region,
        f"{s3_options}.path-style-access": "true",
        f"{s3_options}.access-key": "urn:nessie-secret:quarkus:tests.keys",
        "tests.keys.name": s3.access_key_id,
        "tests.keys.secret": s3.secret_access_key,
    }
    command: list[str | Path] = [java_home(_JAVA_VERSION) / "bin" / "java", "-Xmx512m"]
    command += [f"-D{name}={value}" for name, value in settings.items()]
    url = f"http://{LOOPBACK}:{port}/iceberg"
    answers = f"{url}/v1/config?warehouse=tests"
    with running([*command, "-jar", jar], answers=answers, folder=folder, environment=dict(os.environ)):
        yield url
