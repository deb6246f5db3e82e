"""Reports of scans and commits that engines sent long ago: the pipeline has made its statistics of them."""

from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.contract import Listed


async def visit(lake: Lake, listed: Listed) -> Outcome:
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _age_ms(settings: Settings) -> int:
    return seconds_of(settings.report_retention) * 1_000


REPORTS = Janitor("reports", lambda layout: layout.operational_folder("metrics"), _age_ms, visit)
