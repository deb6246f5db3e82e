"""A Spark job that outlives its credential gets a new one in its midst, from the server."""

from collections.abc import Iterator

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.keyless_lake import KeylessLake, keyless_lake
from tests.interop.matrix import S3, operation
from tests.interop.spark.flavours import ON_S3
from tests.interop.spark.spark_processes import SPARKS, catalog_of, running_spark
from tests.servers.seaweedfs import seaweedfs, with_vending

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

LIFETIME_SECONDS = 15
# The rows are slow: the job takes longer than a credential lives, and writes its file at the end.
PAUSE_MS, ROWS = 2_000, 20
PAUSE = f"reflect('java.lang.Thread', 'sleep', {PAUSE_MS}L)"
SLOW = f"SELECT id, concat('n', {PAUSE}) AS name, id / 2 AS amount FROM range(0, {ROWS}, 1, 1)"
REFRESH = "tables/{table}/credentials' status=200"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeylessLake]:
    """A lake whose credentials live for seconds: the issuer cuts them shorter than the server requests."""
    SPARKS.end()
    with (
        seaweedfs(tmp_path_factory.mktemp("brief"), session_seconds_max=LIFETIME_SECONDS) as settings,
        keyless_lake(tmp_path_factory.mktemp("brief-lake"), with_vending(settings).s3) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def spark(lake: KeylessLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conversation]:
    catalogs = [
        catalog_of(lake.writer, name="renewing"),
        catalog_of(lake.writer, name="stubborn", properties={"client.refresh-credentials-enabled": "false"}),
    ]
    with running_spark(ON_S3, tmp_path_factory.mktemp("spark-brief"), catalogs) as running:
        yield running


@operation("Spark", "no keys: credential renewed in a job", store=S3)
def test_a_job_that_outlives_its_credential_gets_a_new_one(lake: KeylessLake, spark: Conversation) -> None:
    spark.sql("CREATE TABLE renewing.work.slow (id BIGINT, name STRING, amount DOUBLE)")
    before = lake.server.process.log.count(REFRESH)

    spark.sql(f"INSERT INTO renewing.work.slow {SLOW}")

    assert lake.server.process.log.count(REFRESH) > before
    assert spark.sql("SELECT count(*), sum(id) FROM renewing.work.slow") == [[ROWS, sum(range(ROWS))]]


def test_a_job_that_does_not_renew_its_credential_fails(spark: Conversation) -> None:
    """The same job: so it is the renewal that makes the other one succeed."""
    spark.sql("CREATE TABLE stubborn.work.stale (id BIGINT, name STRING, amount DOUBLE)")

    with pytest.raises(EngineError, match=r"(?i)expired|403|denied"):
        spark.sql(f"INSERT INTO stubborn.work.stale {SLOW}")
