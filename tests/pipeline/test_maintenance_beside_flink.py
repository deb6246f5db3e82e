"""Compaction beside upserts of Flink, which write equality deletes: every row of a key stays the last one."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sandur.cli.catalog_server import open_catalog
from tests.interop.engines.conversation import Conversation, conversation
from tests.interop.engines.environments import NotInstalled
from tests.interop.engines.flink import flink_environment, flink_interpreter
from tests.interop.engines.session_config import catalog_config
from tests.pipeline.maintained import EAGER, maintained, set_policy
from tests.pipeline.test_maintenance_under_load import Writer
from tests.pipeline.world import World

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_800)]

KEYS = 4
TRIES_MAX = 20


def upserting(flink: Conversation) -> Writer:
    """Each statement replaces the row of one key and adds another; its rows are visible once it has returned."""

    def upsert(number: int) -> None:
        flink.sql(f"INSERT INTO sales.latest VALUES ({number % KEYS}, 'by {number}'), ({number}, 'new')")  # noqa: S608

    return Writer(upsert)


def test_compaction_beside_upserts_of_flink_keeps_the_last_row_of_each_key(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    try:
        interpreter = flink_interpreter()
    except NotInstalled as error:
        pytest.skip(f"Flink is not installed: {error}")
    with open_catalog(world.settings) as connection:
        config = catalog_config(connection.uri, connection.token or "")
        command: list[str | Path] = [interpreter, "-m", "tests.interop.engines.sessions.flink_session", config]
        with conversation(command, tmp_path, environment=flink_environment()) as flink:
            flink.sql(
                "CREATE TABLE sales.latest (id BIGINT NOT NULL, note STRING, PRIMARY KEY (id) NOT ENFORCED) "
                "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')"
            )
            for number in range(KEYS):
                flink.sql(f"INSERT INTO sales.latest VALUES ({number}, 'first')")  # noqa: S608 - a number
            set_policy(world, {**EAGER, "compaction": {"min_input_files": 2, "delete_files_per_file": 1}})
            writer = upserting(flink)

            with writer.beside():
                for _ in range(3):
                    maintained(world, spark)

            by_flink = sorted(map(tuple, flink.sql("SELECT id, note FROM sales.latest")))
        maintained(world, spark)
        session = spark.newSession()
        for option, value in connection.options().items():
            session.conf.set(option, value)
        by_spark = sorted(tuple(row) for row in session.sql("SELECT id, note FROM sandur.sales.latest").collect())

    last = {number % KEYS: f"by {number}" for number in writer.acknowledged}
    expected = dict.fromkeys(range(KEYS), "first") | last
    expected |= dict.fromkeys(writer.acknowledged, "new")
    assert writer.acknowledged
    assert dict(by_flink) == expected
    assert by_spark == by_flink
    assert len(by_flink) == len(expected)
    states = [(row["operation"], row["state"]) for row in world.dataset(spark, "maintenance")]
    assert ("compaction", "done") in states
    assert "failed" not in {state for _, state in states}
