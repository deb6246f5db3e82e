"""Every action: a form, a preview that changes nothing, an idempotency key, and a button that acts once."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import httpx
import pytest

from sandur.server.ui.actions.routes import ACTION_ROUTES
from sandur.storage.memory import MemoryStore
from tests.crash.unity_mutations import FUNCTION
from tests.server.conftest import Catalogs
from tests.server.requests import SNAPSHOT_ID, add_snapshot, create_table, create_view
from tests.ui.browsers import Browser

UNITY: Final = "/api/2.1/unity-catalog"
_KEY: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


class Step(NamedTuple):
    """An action with what is filled in. `typed` confirms it, where data can be lost."""

    path: str
    values: Mapping[str, str] = {}
    typed: str = ""


STEPS: Final = (
    Step("create-namespace/main", {"name": "made"}),
    Step("namespace-properties/main/sales", {"properties": "a = 1"}),
    Step("drop-namespace/main/empty", {}, "empty"),
    Step("create-view/main/sales", {"name": "v2", "sql": "select 1 as id", "columns": "id BIGINT"}),
    Step("edit-view/main/sales/v", {"sql__0": "select 2"}),
    Step("rename-table/main/sales/orders", {"name": "bills"}),
    Step("rename-view/main/sales/v", {"name": "w"}),
    Step("drop-table/main/sales/orders", {}, "orders"),
    Step("drop-table/main/sales/orders", {"purge": "on"}, "orders"),
    Step("drop-view/main/sales/v", {}, "v"),
    Step("drop-volume/main/sales/files", {}, "files"),
    Step("drop-function/main/sales/f", {}, "f"),
    Step("drop-model/main/sales/m", {}, "m"),
    Step("undrop/table/main/sales/gone", {"name": "main.sales.back"}),
    Step("restore/main/sales/orders", {"snapshot": str(SNAPSHOT_ID)}),
    Step("restore-delta/main/sales/d", {"version": "0"}),
    Step("create-ref/main/sales/orders", {"ref": "v1", "snapshot": str(SNAPSHOT_ID)}),
    Step("remove-ref/main/sales/orders", {"ref": "old"}, "old"),
    Step("table-properties/main/sales/orders", {"properties": "a = 1"}),
    Step("maintain/main/sales/orders"),
    *(
        Step(f"comment/{type_}/{name}", {"comment": "new"})
        for type_, name in (
            ("catalog", "main"),
            ("schema", "main.sales"),
            ("table", "main.sales.orders"),
            ("view", "main.sales.v"),
            ("volume", "main.sales.files"),
            ("registered_model", "main.sales.m"),
        )
    ),
    Step("tags/table/main.sales.orders", {"tags": "pii = yes"}),
    Step("policy/table/main.sales.orders", {"values": 'mode = "run"'}),
)
# These need principals, so they are tried with authentication: test_sessions.py, test_secured.py.
WITH_PRINCIPALS: Final = {"/actions/grant/{securable_type}/{full_name}", "/actions/owner/{securable_type}/{full_name}"}
# A log that an engine wrote has more than one version: test_real_tables.py.
OF_ENGINES: Final = {"restore-delta/main/sales/d"}


@pytest.fixture
async def browser(catalogs: Catalogs) -> Browser:
    client = await catalogs.open(MemoryStore(), janitors=False, deliveries=False)
    await fill(client)
    await catalogs.settled()  # What follows the answers is not counted below.
    return Browser(client)


async def fill(client: httpx.AsyncClient) -> None:
    async def made(path: str, body: object) -> httpx.Response:
        return (await client.post(path, json=body)).raise_for_status()

    for name in ("sales", "empty"):
        await made("/v1/namespaces", {"namespace": [name]})
    rest = "/v1/namespaces/sales"
    for name in ("orders", "gone"):
        await made(f"{rest}/tables", create_table(name))
    for number in (1, 2):
        table = (await client.get(f"{rest}/tables/orders")).json()["metadata"]
        ids = {"snapshot_id": SNAPSHOT_ID + number - 1, "parent": SNAPSHOT_ID if number > 1 else None}
        await made(f"{rest}/tables/orders", add_snapshot(table, number=number, **ids))  # type: ignore[arg-type] # By name.
    old = {"action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": SNAPSHOT_ID}
    await made(f"{rest}/tables/orders", {"requirements": [], "updates": [old]})
    (await client.delete(f"{rest}/tables/gone")).raise_for_status()
    await made(f"{rest}/views", create_view("v"))
    where = {"catalog_name": "main", "schema_name": "sales"}
    await made("/api/sandur/v1/tables/main/sales", {"name": "d", "format": "delta", "columns": "id BIGINT"})
    await made(f"{UNITY}/volumes", {**where, "name": "files", "volume_type": "MANAGED"})
    await made(f"{UNITY}/models", {**where, "name": "m"})
    function = {name: getattr(FUNCTION, name) for name in FUNCTION.__struct_fields__}
    known = {name: value for name, value in function.items() if value is not None}
    info = {**known, **where, "name": "f", "input_params": {"parameters": []}, "routine_definition": "1"}
    await made(f"{UNITY}/functions", {"function_info": info})


@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join((*step.path.split("/"), *step.values)))
async def test_an_action_is_previewed_confirmed_and_done_once(catalogs: Catalogs, browser: Browser, step: Step) -> None:
    link = f"/ui/actions/{step.path}"
    (operation,) = {route.operation for route in ACTION_ROUTES if route.method == "POST" and matches(route.path, step)}
    before = await writes_of(browser.client, operation)
    form = await browser.open(link)
    has_fields = step.path.split("/")[0] != "maintain"
    if step.path in OF_ENGINES:
        assert "The table has no earlier version" in form.text
        return
    preview = await browser.send(form, **step.values) if has_fields else form
    if step.typed:
        unconfirmed = await browser.send(preview, step="apply")
        assert (unconfirmed.status, f"Type {step.typed} to confirm" in unconfirmed.text) == (400, True)
    after = await writes_of(browser.client, operation)
    done = []
    for _ in range(2):
        done.append(await browser.send(preview, step="apply", typed=step.typed))
        await catalogs.settled()  # Until the end of its claim, the same form is refused as active.

    assert (form.status, preview.status) == (200, 200), preview.answer.text
    assert all(_KEY.fullmatch(page.fields()["key"]) for page in (form, preview))
    assert after == before
    assert await writes_of(browser.client, operation) > after
    assert [page.status for page in done] == [303, 303], done[-1].answer.text
    assert done[0].answer.headers["location"] == done[1].answer.headers["location"]


def matches(path: str, step: Step) -> bool:
    return bool(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path.removeprefix("/actions/")), step.path))


async def writes_of(client: httpx.AsyncClient, operation: str) -> float:
    """What requests of an operation wrote to the store so far. What works beside them counts for other operations."""
    lines = (await client.get("/metrics")).text.splitlines()
    kinds = ("put", "swap", "delete")
    wanted = [one for one in lines if one.startswith("sandur_storage_calls") and f'operation="{operation}"' in one]
    return sum(float(one.split()[-1]) for one in wanted if any(f'call="{kind}"' in one for kind in kinds))


def test_the_steps_are_those_of_every_action() -> None:
    actions = {route.path for route in ACTION_ROUTES if route.method == "POST"}
    tried = {path for path in actions for step in STEPS if matches(path, step)}

    assert actions - tried == WITH_PRINCIPALS
