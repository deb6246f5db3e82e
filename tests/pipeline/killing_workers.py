"""A daemon whose forked workers kill themselves at a step of their task, like `kill -9`."""

import os
from unittest.mock import patch

from sandur.clock import Clock
from sandur.pipeline import blocking_lake, workers
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.pipeline.killed_driver import KILLED_AT, KillingStore


def main() -> None:
    when, _, step = os.environ[KILLED_AT].partition(" ")

    def connect_killing_store(settings: Settings, clock: Clock) -> ObjectStore:
        return KillingStore(connect(settings, clock), step, after=when == "after")

    with patch.object(blocking_lake, "connect", connect_killing_store):
        workers.main()


if __name__ == "__main__":
    main()
