"""The short form of the soak; the long one is a command."""

import threading
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sandur.settings import seconds_of
from tests.pipeline.soak import POLICY, RUN_S, RUNS_AFTER, RUNS_MAX, Soak, run_beside

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


class SlowWriter(threading.Thread):
    """Ends once it is waited for, so after any number of runs."""

    def __init__(self) -> None:
        self._enough = threading.Event()
        super().__init__(target=self._enough.wait, daemon=True)

    def join(self, timeout: float | None = None) -> None:
        self._enough.set()
        super().join(timeout)


def test_writers_go_on_alone_after_the_most_runs() -> None:
    """However fast the runs are, their clock stays far from the age of orphans."""
    writer, runs = SlowWriter(), count(1)
    writer.start()

    def maintain() -> None:
        assert next(runs) <= RUNS_MAX

    run_beside([writer], maintain)

    assert next(runs) == RUNS_MAX + 1
    assert not writer.is_alive()
    assert seconds_of(POLICY["orphans"]["age"]) > (RUNS_MAX + RUNS_AFTER) * RUN_S
