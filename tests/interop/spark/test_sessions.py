"""`sandur.spark.session` in a process that already has a session."""

import os
import subprocess
import sys

import pytest

from tests.interop.matrix import operation
from tests.interop.spark.spark_processes import SPARKS
from tests.server.process import ServerProcess

LOCAL = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}

BESIDE_A_PLAIN_SESSION = """
from pyspark.sql import SparkSession

plain = SparkSession.builder.config(map=local).getOrCreate()
try:
    sandur.spark.session(url)
except Invalid as error:
    print(error)
plain.stop()
"""

BESIDE_ONE_OF_OURS = """
first = sandur.spark.session(url, options=local)
again = sandur.spark.session(sandur.spark.Connection(name="other", uri=url))
again.sql("CREATE NAMESPACE other.made_by_a_session")
print(first is again, [row[0] for row in first.sql("SHOW NAMESPACES IN sandur LIKE 'made_by*'").collect()])
first.stop()
"""

# A proxy address without a listener, so that nothing can be downloaded; the server is reached directly.
NOWHERE = {"Host": "127.0.0.1", "Port": "9"}
CUT_OFF = " ".join(f"-D{scheme}.proxy{key}={value}" for scheme in ("http", "https") for key, value in NOWHERE.items())

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), operation("Spark", "namespaces")]


def printed(script: str, server: ServerProcess, **environment: str) -> str:
    """The output of the script in its own process."""
    SPARKS.end()
    begin = f"import sandur.spark\nfrom sandur.errors import Invalid\nurl, local = {server.url!r}, {LOCAL!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.strip()


def test_a_session_without_iceberg_cannot_be_reused(folder_server: ServerProcess) -> None:
    assert printed(BESIDE_A_PLAIN_SESSION, folder_server).startswith("a Spark session without Iceberg is running")


def test_catalogs_can_be_added_to_a_running_session(folder_server: ServerProcess) -> None:
    assert printed(BESIDE_ONE_OF_OURS, folder_server) == "True ['made_by_a_session']"


def test_jars_come_from_the_cache_after_the_first_download(folder_server: ServerProcess) -> None:
    for_s3 = "sandur.spark.session(sandur.spark.Connection(uri=url, s3=sandur.spark.S3Store()), options=local)"
    printed(f"{for_s3}.stop()", folder_server)

    output = printed(
        f"print({for_s3}.sql('SHOW NAMESPACES IN sandur').columns)", folder_server, JAVA_TOOL_OPTIONS=CUT_OFF
    )

    assert output == "['namespace']"
