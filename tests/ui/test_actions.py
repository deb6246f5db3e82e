"""The actions of the UI: form, preview, change; and what happens if something is in the way."""

import httpx
import pytest

from tests.server.conftest import Catalogs
from tests.server.requests import SNAPSHOT_ID, add_snapshot, create_table
from tests.ui.browsers import Browser, Page

TABLE = "/v1/namespaces/sales/tables/orders"


@pytest.fixture
async def browser(client: httpx.AsyncClient) -> Browser:
    """A catalog without authentication that has one table with two snapshots."""
    (await client.post("/v1/namespaces", json={"namespace": ["sales"]})).raise_for_status()
    (await client.post("/v1/namespaces/sales/tables", json=create_table("orders"))).raise_for_status()
    metadata = await load(client)
    (await client.post(TABLE, json=add_snapshot(metadata))).raise_for_status()
    second = add_snapshot(await load(client), snapshot_id=SNAPSHOT_ID + 1, parent=SNAPSHOT_ID, number=2)
    (await client.post(TABLE, json=second)).raise_for_status()
    return Browser(client)


async def load(client: httpx.AsyncClient) -> dict[str, object]:
    answer = await client.get(TABLE)
    return dict(answer.raise_for_status().json()["metadata"])


def action(name: str, *, namespace: str = "sales", object_: str = "orders") -> str:
    return f"/ui/actions/{name}/main/{namespace}/{object_}"


async def test_a_namespace_is_created_with_its_properties(browser: Browser) -> None:
    done = await browser.act(
        "/ui/actions/create-namespace/main", name="eu", parent="sales", comment="Europe", properties="a = 1\nb=x = y"
    )

    page = await browser.follow(done)
    assert "It was created." in page.text
    found = (await browser.client.get("/v1/namespaces/sales%1Feu")).json()
    assert found["properties"]["comment"] == "Europe"
    assert (found["properties"]["a"], found["properties"]["b"]) == ("1", "x = y")


async def test_a_preview_changes_nothing(browser: Browser) -> None:
    form = await browser.open("/ui/actions/create-namespace/main")
    preview = await browser.send(form, name="eu", comment="In Europe")

    assert "main.eu is created" in preview.text
    assert "sandur create namespace main.eu '--property=comment=In Europe'" in preview.text
    assert (await browser.client.get("/v1/namespaces/eu")).status_code == 404


async def test_a_form_that_is_sent_twice_acts_once(catalogs: Catalogs, browser: Browser) -> None:
    preview = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    first = await browser.send(preview, step="apply")
    await catalogs.settled()  # Until the end of its claim, the same form is refused as active.
    second = await browser.send(preview, step="apply")

    assert (first.status, second.status) == (303, 303)
    again = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    other = await browser.send(again, step="apply")
    assert other.status == 409
    assert "already exists" in other.text


async def test_a_table_is_restored_to_a_snapshot(browser: Browser) -> None:
    preview = await browser.send(await browser.open(action("restore")), snapshot=str(SNAPSHOT_ID))
    done = await browser.send(preview, step="apply")

    assert str(SNAPSHOT_ID + 1) in preview.text
    assert (await load(browser.client))["current-snapshot-id"] == SNAPSHOT_ID
    assert "restored" in (await browser.follow(done)).text


async def test_the_timeline_leads_to_the_form_that_restores_a_version(browser: Browser) -> None:
    past = await browser.open("/ui/data/main/sales/tables/orders/timeline?at=1")
    current = await browser.open("/ui/data/main/sales/tables/orders/timeline")
    restore = next(link for link in past.tree.links() if "/actions/restore" in link)
    form, unchosen = await browser.open(restore), await browser.open(action("restore"))
    at_current = await browser.open(f"{action('restore')}?snapshot={SNAPSHOT_ID + 1}")

    assert "/ui/data/main/sales/tables/orders/diff?from=1" in past.tree.links()
    assert not [link for link in current.tree.links() if "/actions/restore" in link]
    # The current snapshot is offered only if the link names it: nothing else may be chosen in its place.
    assert [page.fields()["snapshot"] for page in (form, unchosen)] == [str(SNAPSHOT_ID)] * 2
    assert [len(list(page.tree.every("option"))) for page in (form, unchosen, at_current)] == [1, 1, 2]
    assert "at this snapshot already" in (await browser.send(at_current)).text


async def test_a_commit_after_the_preview_is_a_conflict_that_shows_the_new_state(browser: Browser) -> None:
    preview = await browser.send(await browser.open(action("restore")), snapshot=str(SNAPSHOT_ID))
    third = add_snapshot(await load(browser.client), snapshot_id=99, parent=SNAPSHOT_ID + 1, number=3)
    (await browser.client.post(TABLE, json=third)).raise_for_status()

    conflict = await browser.send(preview, step="apply")
    repeated = await browser.send(conflict, step="apply")

    assert conflict.status == 409
    assert "has changed in the meantime" in conflict.text
    assert "(99)" in conflict.text
    assert conflict.fields()["key"] != preview.fields()["key"]
    assert repeated.status == 303
    assert (await load(browser.client))["current-snapshot-id"] == SNAPSHOT_ID


async def test_tags_and_branches_are_created_and_removed(browser: Browser) -> None:
    await browser.act(action("create-ref"), ref="v1", type="tag", snapshot=str(SNAPSHOT_ID))
    refs = (await load(browser.client))["refs"]
    taken = await browser.send(await browser.open(action("create-ref")), ref="v1", snapshot=str(SNAPSHOT_ID))
    removed = await browser.act(action("remove-ref"), ref="v1", typed="v1")

    assert isinstance(refs, dict)
    assert refs["v1"] == {"snapshot-id": SNAPSHOT_ID, "type": "tag"}
    assert taken.status == 409
    assert removed.status == 303
    assert "v1" not in str((await load(browser.client))["refs"])


async def test_properties_change_and_a_form_from_before_is_a_conflict(browser: Browser) -> None:
    old = await browser.open(action("table-properties"))
    await browser.act(action("table-properties"), properties="a = 1\nb = 2")
    await browser.act(action("table-properties"), properties="b = 3")
    late = await browser.send(old, properties="c = 4")

    assert (await load(browser.client))["properties"] == {"b": "3"}
    assert late.status == 409
    assert late.fields()["properties"] == "c = 4"


async def test_a_drop_needs_the_name_and_says_what_becomes_of_the_files(browser: Browser) -> None:
    form = await browser.open(action("drop-table"))
    kept, purged = await browser.send(form), await browser.send(form, purge="on")
    wrong = await browser.send(kept, step="apply", typed="order")
    right = await browser.send(wrong, step="apply", typed="orders")

    assert "stay where they are" in kept.text
    assert "deleted 10 minutes after the drop" in purged.text
    assert wrong.status == 400
    assert (await browser.follow(right)).status == 200
    assert (await browser.client.get(TABLE)).status_code == 404


async def test_what_was_dropped_comes_back(browser: Browser) -> None:
    await browser.act(action("drop-table"), typed="orders")
    listed = await browser.open("/ui/dropped/main")
    link = next(link for link in listed.tree.links() if "/actions/undrop/" in link)
    done = await browser.act(link, name="main.sales.again")

    assert (await browser.follow(done)).status == 200
    assert (await browser.client.get("/v1/namespaces/sales/tables/again")).status_code == 200


async def test_a_table_is_renamed(browser: Browser) -> None:
    done = await browser.act(action("rename-table"), name="bills")
    same = await browser.send(await browser.open(action("rename-table", object_="bills")))

    assert done.answer.headers["location"] == "/ui/data/main/sales/tables/bills?done=renamed"
    assert same.status == 400
    assert "The new name is the old one" in same.text


async def test_a_view_is_created_and_edited(browser: Browser) -> None:
    where = "/ui/actions/create-view/main/sales"
    await browser.act(where, name="v", sql="select 1 as id", columns="id BIGINT", dialect="trino")
    edited = await browser.act(action("edit-view", object_="v"), sql__0="select 2 as id")
    view = (await browser.client.get("/v1/namespaces/sales/views/v")).json()["metadata"]

    assert edited.status == 303
    assert [one["representations"][0]["sql"] for one in view["versions"]] == ["select 1 as id", "select 2 as id"]
    assert (await browser.follow(edited)).status == 200


async def test_a_mistake_keeps_what_was_typed(browser: Browser) -> None:
    form = await browser.open("/ui/actions/create-view/main/sales")
    wrong = await browser.send(form, name="v", sql="select <b>", columns="id NOTHING_LIKE_THIS(")

    assert wrong.status == 400
    assert wrong.fields()["sql"] == "select <b>"


@pytest.mark.parametrize(
    ("type_", "name"), [("catalog", "main"), ("schema", "main.sales"), ("table", "main.sales.orders")]
)
async def test_tags_owners_comments_and_policies_change(browser: Browser, type_: str, name: str) -> None:
    changed = [
        await browser.act(f"/ui/actions/tags/{type_}/{name}", tags="pii = yes"),
        await browser.act(f"/ui/actions/comment/{type_}/{name}", comment="About <this>"),
        await browser.act(f"/ui/actions/policy/{type_}/{name}", values='mode = "run"\nsnapshots.min_to_keep = 5'),
    ]
    found = (await browser.client.get(f"/api/sandur/v1/tags/{type_}/{name}")).json()
    policy = (await browser.client.get(f"/api/sandur/v1/policies/{type_}/{name}")).json()

    assert [page.status for page in changed] == [303, 303, 303]
    assert found["tags"] == {"pii": "yes"}
    assert found["comment"] == "About <this>"
    assert policy["values"] == {"mode": "run", "snapshots": {"min_to_keep": 5}}


@pytest.mark.parametrize("values", ["snapshots.max_age = 1", "snapshots.max_age = " + "[" * 5_000 + "]" * 5_000])
async def test_a_policy_of_the_workspace_that_is_not_valid_is_refused(browser: Browser, values: str) -> None:
    form = await browser.open("/ui/actions/policy/metastore/metastore")
    wrong = await browser.send(form, values=values)

    assert wrong.status == 400


async def test_maintenance_is_planned_then_requested_once(browser: Browser) -> None:
    preview = await browser.open(action("maintain"))  # There is nothing to fill in.
    done = await browser.send(preview, step="apply")
    page = await browser.follow(done)
    again = await browser.open(action("maintain"))

    assert "sandur maintain main.sales.orders --request" in preview.text
    assert "was not measured yet" in preview.text
    assert "Maintenance is requested." in page.text
    assert next(page.tree.every(class_="state")).text.startswith("Maintenance was requested requested")
    assert "is already requested" in again.text
    assert not [one for one in again.tree.every("button") if one.attributes.get("value") == "apply"]
    (row,) = (await browser.client.get("/api/sandur/v1/maintenance/requests")).json()["rows"]
    assert (row["name"], row["state"]) == ("orders", "requested")


async def test_what_does_not_exist_is_not_found(browser: Browser) -> None:
    pages: list[Page] = [
        await browser.open(action(one, object_="none")) for one in ("restore", "drop-table", "rename-view")
    ]

    assert [page.status for page in pages] == [404, 404, 404]


async def test_a_volume_a_function_and_a_model_are_dropped(browser: Browser) -> None:
    unity = "/api/2.1/unity-catalog"
    body = {"catalog_name": "main", "schema_name": "sales", "name": "m"}
    (await browser.client.post(f"{unity}/models", json=body)).raise_for_status()
    done = await browser.act(action("drop-model", object_="m"), typed="m")

    assert done.status == 303
    assert (await browser.client.get(f"{unity}/models/main.sales.m")).status_code == 404


@pytest.mark.parametrize(
    ("name", "typed", "values"),
    [
        ("restore", "", {"snapshot": str(SNAPSHOT_ID)}),
        ("create-ref", "", {"ref": "v1", "snapshot": str(SNAPSHOT_ID)}),
        ("rename-table", "", {"name": "bills"}),
        ("drop-table", "orders", {}),
        ("drop-table", "orders", {"purge": "on"}),
    ],
)
async def test_a_button_that_is_pressed_twice_leads_to_the_same_page(
    catalogs: Catalogs, browser: Browser, name: str, typed: str, values: dict[str, str]
) -> None:
    preview = await browser.send(await browser.open(action(name)), **values)
    pages = []
    for _ in range(2):
        pages.append(await browser.send(preview, step="apply", typed=typed))
        await catalogs.settled()  # Until the end of its claim, the same form is refused as active.

    assert [page.status for page in pages] == [303, 303]
    assert pages[0].answer.headers["location"] == pages[1].answer.headers["location"]
