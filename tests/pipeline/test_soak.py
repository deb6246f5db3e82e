"""The short form of the soak; the long one is a command."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.soak import Soak

SEED = 22
STEPS = 8
"""Of each of the five writers."""


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_every_row_and_tag_stays_beside_writers_and_only_reachable_files_are_left(
    spark: SparkSession, tmp_path: Path
) -> None:
    soak = Soak(spark, tmp_path, tables=5, seed=SEED)

    done = soak.run(steps=STEPS)

    assert done["steps"] == 5 * STEPS
    assert done["operations_done"] >= done["runs"]
