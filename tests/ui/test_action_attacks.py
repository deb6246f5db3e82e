"""Forms that try to break out of the pages, and changes whose outcome is unknown."""

import subprocess
from pathlib import Path
from typing import Final, TypeVar

import httpx
import pytest

from sandur.errors import OutcomeUnknown, Unavailable
from sandur.server.ui.actions.routes import ACTION_ROUTES
from sandur.storage.memory import MemoryStore
from tests.fakes.failing_store import FailingStore
from tests.server.conftest import Catalogs
from tests.ui.browsers import Browser, Page
from tests.ui.scene import EVIL, LEVEL, TABLE, forms, make_scene, segment
from tests.ui.test_every_page import check_frame, check_headers, check_safe

T = TypeVar("T")

_FILLED: Final[tuple[dict[str, str], ...]] = (
    {},
    {"columns": "id BIGINT", "name": "n"},
    {"properties": f"{EVIL.split('=')[0]} = {EVIL}"},
)


def check(page: Page, path: str) -> None:
    assert page.status in {200, 400, 404, 409}, (path, page.status, page.answer.text)
    check_headers(page.answer)
    check_safe(page.tree)
    check_frame(page.tree, path)


async def test_no_value_of_any_form_breaks_out(catalogs: Catalogs) -> None:
    store = MemoryStore()
    browser = Browser(await catalogs.open(store, deliveries=False))
    scene = await make_scene(browser.client, store)
    links = await forms(browser.client, scene)
    for link in links.values():
        form = await browser.open(link)
        check(form, link)
        if not list(form.tree.every("form", method="post")):
            continue
        visible = [one for one in form.fields() if one not in {"form_token", "key", "step", "base"}]
        for filled in _FILLED:
            preview = await browser.send(form, **{**dict.fromkeys(visible, EVIL), **filled})
            check(preview, link)

    assert {route.path for route in ACTION_ROUTES} == links.keys()


async def test_a_command_that_a_page_shows_runs_nothing_else(catalogs: Catalogs, tmp_path: Path) -> None:
    """People copy commands into a shell, and others choose the names in them."""
    store = MemoryStore()
    browser = Browser(await catalogs.open(store, deliveries=False))
    scene = await make_scene(browser.client, store)
    pages = [await browser.open(path) for path in scene.pages()]
    gone = (await browser.client.get("/api/sandur/v1/dropped?catalog=main")).json()["dropped"][0]["uuid"]
    pages.append(await browser.open(f"/ui/id/{gone}"))
    links = list((await forms(browser.client, scene)).values())
    links += [f"/ui/actions/{one}/main/{segment(LEVEL)}/{segment(TABLE)}" for one in ("restore", "create-ref")]
    values = {"principal": f"a {EVIL}", "add": "SELECT", "remove": "MODIFY", "ref": f"r {EVIL}", "snapshot": "1"}
    for link in links:
        form = await browser.open(link)
        pages.append(form)
        if list(form.tree.every("form", method="post")):
            renames = {"name": f"b {EVIL}"} if "/rename" in link else {}
            known = {name: value for name, value in {**values, **renames}.items() if name in form.fields()}
            pages.append(await browser.send(form, **known))
    shown = {code.text for page in pages for tag in ("pre", "code") for code in page.tree.every(tag)}

    commands = {one for one in shown if one.startswith("sandur ")}
    words = {one: words_in_a_shell(one, tmp_path) for one in commands}

    assert {one.split()[1] for one in commands} >= {"drop", "undrop", "rename", "rollback", "tag", "maintain", "grant"}
    assert [one for one in commands if EVIL in one and not any(EVIL in word for word in words[one])] == []
    assert [one for one in commands if "<script>" in one and EVIL not in "".join(words[one])] == []


def words_in_a_shell(command: str, folder: Path) -> list[str]:
    """The words that a shell passes to `sandur`."""
    script = f"sandur() {{ printf '%s\\0' \"$@\"; }}\n{command}"
    run = subprocess.run(["/bin/sh", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stderr) == (0, ""), (command, run.stderr)
    assert list(folder.iterdir()) == []
    return run.stdout.split("\0")[:-1]


async def test_an_address_cannot_fill_in_what_confirms(client: httpx.AsyncClient) -> None:
    (await client.post("/v1/namespaces", json={"namespace": ["sales"]})).raise_for_status()
    browser = Browser(client)
    form = await browser.open("/ui/actions/drop-namespace/main/sales?typed=sales&step=apply&key=x&form_token=y")
    preview = await browser.send(form)

    for page in (form, preview):
        assert "is dropped" in page.text
        assert not {"x", "y"} & set(page.fields().values())
        assert page.fields()["typed"] == ""
    assert (await client.get("/v1/namespaces/sales")).status_code == 200


async def test_a_notice_is_one_of_our_texts(client: httpx.AsyncClient) -> None:
    browser = Browser(client)
    known = await browser.open("/ui?done=dropped")
    evil = await browser.open("/ui?done=Call%20evil.example")

    assert "It was dropped." in known.text
    assert "evil.example" not in evil.answer.text


@pytest.mark.parametrize("is_applied", [True, False])
async def test_a_change_of_unknown_outcome_says_so_and_can_be_sent_again(
    catalogs: Catalogs, *, is_applied: bool
) -> None:
    store = FailingStore(MemoryStore())
    browser = Browser(await catalogs.open(store, claim_timeout_ms=1))
    preview = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    store.error, store.is_applied = OutcomeUnknown("the answer was lost on purpose"), is_applied
    unknown = await browser.send(preview, step="apply")
    store.error = None
    again = await browser.send(unknown, step="apply")

    assert unknown.status == 500
    assert "Look before you repeat" in unknown.text
    assert unknown.fields()["key"] == preview.fields()["key"]
    assert again.status == 303
    assert (await browser.follow(again)).status == 200


async def test_a_store_that_does_not_answer_leaves_the_form(catalogs: Catalogs) -> None:
    store = FailingStore(MemoryStore())
    browser = Browser(await catalogs.open(store))
    preview = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    store.error, store.is_applied = Unavailable("the store is down"), False
    down = await browser.send(preview, step="apply")
    store.error = None
    again = await browser.send(down, step="apply")

    assert down.status == 503
    assert "Nothing was changed" in down.text
    assert again.status == 303
