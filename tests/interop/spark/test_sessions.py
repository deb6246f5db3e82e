"""`sandur.spark.session` in a process that has a session already."""

import subprocess
import sys

import pytest

from tests.interop.matrix import operation
from tests.interop.spark.running import SPARKS
from tests.server.process import ServerProcess

SCRIPT = """
import sys
from pyspark.sql import SparkSession
import sandur.spark
from sandur.errors import Invalid

url = sys.argv[1]
local = {"spark.master": "local[1]", "spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
plain = SparkSession.builder.config(map=local).getOrCreate()
try:
    sandur.spark.session(url)
except Invalid as error:
    print("refused:", error)
plain.stop()

first = sandur.spark.session(url, options=local)
again = sandur.spark.session(sandur.spark.Connection(name="other", uri=url))
print("the same:", first is again)
again.sql("CREATE NAMESPACE other.made_by_a_session")
print("found:", [row[0] for row in first.sql("SHOW NAMESPACES IN sandur LIKE 'made_by*'").collect()])
first.stop()
"""


@pytest.mark.interop
@pytest.mark.timeout(600)
@operation("Spark", "namespaces")
def test_a_running_session_learns_more_catalogs_or_says_why_it_cannot(folder_server: ServerProcess) -> None:
    SPARKS.end()

    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, folder_server.url], capture_output=True, text=True, timeout=500, check=True
    )

    refused, same, found = done.stdout.splitlines()
    assert refused.startswith("refused: a Spark session runs already, without Iceberg")
    assert same == "the same: True"
    assert found == "found: ['made_by_a_session']"
