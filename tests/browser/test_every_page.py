"""Every page in light, dark and on a small screen: no message, no violation of axe, no overflow; and its picture."""

import re
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser

from sandur.server.ui.routes import ROUTES
from tests.browser.chromium import LOOKS, Look, person
from tests.browser.place import LONG_NAMESPACE, LONG_TABLE, ORDERS, Place

CLICKS: Final = "/ui/data/main/web/tables/clicks"
DELTA_PARTS: Final = ("", "snapshots", "timeline", "diff", "files", "health", "lineage", "grants")
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
    "namespace-kind": "/ui/data/main/sales?kind=view",
    "web": "/ui/data/main/web",
    "timeline-at": f"{ORDERS}/timeline?at=3",
    "version": f"{ORDERS}/versions/3",
    "diff-files": f"{ORDERS}/diff?from=2&to=4&files=true",
    "view-timeline": "/ui/data/main/sales/views/large_orders/timeline",
    "view-lineage": "/ui/data/main/sales/views/large_orders/lineage",
    "view-grants": "/ui/data/main/sales/views/large_orders/grants",
    **{f"delta-{part or 'table'}": f"{CLICKS}/{part}" for part in DELTA_PARTS},
    "delta-rows": f"{CLICKS}/preview?run=true",
    "volume": "/ui/data/main/web/volumes/raw",
    "volume-grants": "/ui/data/main/web/volumes/raw/grants",
    "function": "/ui/data/main/web/functions/plus",
    "function-grants": "/ui/data/main/web/functions/plus/grants",
    "model": "/ui/data/main/web/models/forecast",
    "model-grants": "/ui/data/main/web/models/forecast/grants",
    "subscription": "/ui/subscriptions/{subscription}",
    "dropped-object": "/ui/id/{dropped}",
    "namespace-properties": "/ui/actions/namespace-properties/main/sales",
    "rename": "/ui/actions/rename-table/main/sales/orders",
    "rename-view": "/ui/actions/rename-view/main/sales/large_orders",
    "remove-tag": "/ui/actions/remove-ref/main/sales/orders",
    "restore-delta": "/ui/actions/restore-delta/main/web/clicks",
    "comment": "/ui/actions/comment/table/main.sales.orders",
    "comment-view": "/ui/actions/comment/view/main.sales.large_orders",
    "comment-catalog": "/ui/actions/comment/catalog/main",
    "comment-namespace": "/ui/actions/comment/schema/main.sales",
    "comment-volume": "/ui/actions/comment/volume/main.web.raw",
    "comment-model": "/ui/actions/comment/registered_model/main.web.forecast",
    "owner": "/ui/actions/owner/table/main.sales.orders",
    "tags": "/ui/actions/tags/table/main.sales.orders",
    "undrop": "/ui/actions/undrop/table/main/web/gone",
    "drop-namespace": "/ui/actions/drop-namespace/main/web",
    "drop-view": "/ui/actions/drop-view/main/sales/large_orders",
    "drop-volume": "/ui/actions/drop-volume/main/web/raw",
    "drop-function": "/ui/actions/drop-function/main/web/plus",
    "drop-model": "/ui/actions/drop-model/main/web/forecast",
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


def test_every_page_and_form_has_a_picture() -> None:
    opened = [
        path.partition("?")[0].replace("{", "").replace("}", "") for path in (*PAGES.values(), *PREVIEWS.values())
    ]
    left = {
        route.path
        for route in ROUTES
        if route.method == "GET"
        and not any(
            re.fullmatch("/ui" + re.sub(r"\{\w+\}", "[^/]+", route.path.rstrip("/")) + "/?", one) for one in opened
        )
    }

    assert left == {"/static/{hash}/{file}", "/login", "/callback"}  # The picture of the login is taken by itself.


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
            await someone.open(path.format(subscription=place.subscription, dropped=place.dropped))
            if name in PREVIEWS:
                choice = someone.page.locator("select[name=snapshot]")
                if await choice.count():
                    await choice.select_option(index=2)
                if name != "maintain-preview":  # It has nothing to fill in.
                    await someone.page.get_by_role("button", name="Preview").click()
            await someone.page.wait_for_load_state("networkidle")
            await someone.page.screenshot(path=pictures / f"{name}-{look}.png", full_page=True)
            # A part of a page has no title: axe examines it within its page.
            wrong += await someone.violations() if name != "version" else []
            if overflow := await someone.overflow():
                wrong.append(f"{path} is {overflow} pixels wider than the window")

    assert not wrong, "\n".join(wrong)


@pytest.mark.browser
async def test_pages_are_printed_without_what_only_a_screen_needs(
    browser: Browser, place: Place, pictures: Path
) -> None:
    async with person(browser, place) as someone:
        page = someone.page
        await page.emulate_media(media="print")
        for name in ("table", "timeline", "snapshots", "diff", "lineage", "health"):
            await someone.open(PAGES[name])
            await page.screenshot(path=pictures / f"{name}-print.png", full_page=True)
            for hidden in (".top", ".tabs", "main form .field", "button", ".foot", ".copy", ".do"):
                assert [await one.is_visible() for one in await page.locator(hidden).all()].count(True) == 0, hidden
            assert await page.locator("h1").is_visible()
            for shown in await page.locator("main table, main svg.plot, main svg.graph").all():
                assert await shown.is_visible() or await shown.evaluate("e => !!e.closest('details')"), name
