"""A maintenance run in its own process that kills itself at a write of its driver or of its catalog server."""

import sys
from functools import partial

from sandur.cli.catalog_server import open_catalog
from sandur.clock import SystemClock
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import JobContext
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.maintenance.engine import session_options
from sandur.pipeline.runs import create_session
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect
from tests.pipeline.conftest import OPTIONS
from tests.pipeline.killed_driver import KillingStore


def main() -> None:
    folder, form, who, when, step = sys.argv[1:]
    settings = Settings(store=folder, fsync="never")

    def opened(of: str) -> ObjectStore:
        plain = connect(settings, SystemClock())
        return KillingStore(plain, step, after=when == "after") if of == who else plain

    spark = create_session(
        "local[2]", name="killed", options={**OPTIONS, **session_options(settings, with_delta=form == "delta")}
    )
    blocking = BlockingLake(settings, store=opened("driver"))
    with JobContext(
        spark=spark,
        blocking=blocking,
        run_id="killed",
        connect_store=lambda: opened("driver"),
        open_catalog=partial(open_catalog, settings, store=opened("server")),
    ) as context:
        MAINTAIN.run(context)


if __name__ == "__main__":
    main()
