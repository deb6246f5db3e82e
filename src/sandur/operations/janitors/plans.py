"""Plans of scans whose time is over."""

from sandur.operations.janitors.sweeping import Janitor, Outcome
from sandur.operations.lake import Lake
from sandur.operations.planning.plans import PLAN_TTL_MS_MIN, PLANS_FOLDER, plan_ttl_ms
from sandur.settings import Settings
from sandur.storage.contract import Listed


async def visit(lake: Lake, listed: Listed) -> Outcome:
    await lake.store.delete(listed.key, expected=listed.version)
    return "removed"


def _age_ms(settings: Settings) -> int:
    """A little more than the lifetime: the store's clock need not be ours."""
    return plan_ttl_ms(settings) + PLAN_TTL_MS_MIN


PLANS = Janitor("plans", lambda layout: layout.operational_folder(PLANS_FOLDER), _age_ms, visit)
