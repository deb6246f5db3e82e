"""Every page in light, dark and on a small screen: no message, no violation of axe, no overflow; and its picture."""

from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import LOOKS, Look, person
from tests.browser.place import LONG_NAMESPACE, LONG_TABLE, ORDERS, Place

PAGES: Final = {
    "home": "/ui",
    "search": "/ui/search?q=orders",
    "catalog": "/ui/data/main",
    "namespace": "/ui/data/main/sales",
    "table": ORDERS,
    "snapshots": f"{ORDERS}/snapshots",
    "timeline": f"{ORDERS}/timeline",
    "diff": f"{ORDERS}/diff?from=2&to=9",
    "files": f"{ORDERS}/files",
    "rows": f"{ORDERS}/preview?run=true&limit=8",
    "health": f"{ORDERS}/health",
    "lineage": f"{ORDERS}/lineage?depth=2",
    "grants": f"{ORDERS}/grants?principal=ann",
    "view": "/ui/data/main/sales/views/large_orders",
    "activity": "/ui/activity",
    "jobs": "/ui/jobs",
    "maintenance": "/ui/maintenance",
    "subscriptions": "/ui/subscriptions",
    "policies": "/ui/policies",
    "audit": "/ui/audit",
    "server": "/ui/server",
    "me": "/ui/me",
    "dropped": "/ui/dropped/main",
    "create-namespace": "/ui/actions/create-namespace/main",
    "create-view": "/ui/actions/create-view/main/sales",
    "edit-view": "/ui/actions/edit-view/main/sales/large_orders",
    "restore": "/ui/actions/restore/main/sales/orders",
    "tag": "/ui/actions/create-ref/main/sales/orders",
    "properties": "/ui/actions/table-properties/main/sales/orders",
    "grant": "/ui/actions/grant/table/main.sales.orders",
    "policy": "/ui/actions/policy/table/main.sales.orders",
    "missing": "/ui/data/main/none",
    "long-names": LONG_NAMESPACE,
    "long-table": LONG_TABLE,
    "long-catalog": "/ui/data/main?begins=a_name",
}
PREVIEWS: Final = {
    "drop-preview": "/ui/actions/drop-table/main/sales/by_country",
    "restore-preview": "/ui/actions/restore/main/sales/orders",
    "maintain-preview": "/ui/actions/maintain/main/sales/orders",
}


@pytest.mark.browser
@pytest.mark.parametrize("look", LOOKS)
async def test_every_page_is_fine(browser: Browser, place: Place, pictures: Path, look: Look) -> None:
    wrong: list[str] = []
    async with person(browser, place, look, logged_in=False) as someone:
        await someone.open("/ui/login")
        await someone.page.screenshot(path=pictures / f"login-{look}.png", full_page=True)
        wrong += await someone.violations()
        await someone.log_in()
        for name, path in {**PAGES, **PREVIEWS}.items():
            await someone.open(path)
            if name in PREVIEWS:
                choice = someone.page.locator("select[name=snapshot]")
                if await choice.count():
                    await choice.select_option(index=2)
                if name != "maintain-preview":  # It has nothing to fill in.
                    await someone.page.get_by_role("button", name="Preview").click()
            await someone.page.wait_for_load_state("networkidle")
            await someone.page.screenshot(path=pictures / f"{name}-{look}.png", full_page=True)
            wrong += await someone.violations()
            if overflow := await someone.overflow():
                wrong.append(f"{path} is {overflow} pixels wider than the window")

    assert not wrong, "\n".join(wrong)
