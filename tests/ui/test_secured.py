"""Pages with authentication: what a caller may not see looks like what does not exist, and refusals say what to do."""

import httpx
import pytest

from sandur.catalog.security.privileges import OPEN
from sandur.server.ui.routes import ROUTES
from sandur.storage.memory import MemoryStore
from tests.events.deliveries import SEALING_KEY
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED, bearer, make_principal
from tests.server.requests import create_table
from tests.ui.html import parse
from tests.ui.scene import DATA, EVIL, LEVEL, TABLE, TABLE_PAGE, VIEW, Scene, make_scene, segment

OWN = "/api/sandur/v1"


class Place:
    def __init__(self, client: httpx.AsyncClient, scene: Scene, guest: dict[str, str]) -> None:
        self.client = client
        self.scene = scene
        self.guest = guest

    async def grant(self, type_: str, name: str, *privileges: str) -> None:
        change = {"changes": [{"principal": "guest", "add": privileges}]}
        (await self.client.patch(f"{OWN}/grants/{type_}/{segment(name)}", json=change)).raise_for_status()

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path, headers=self.guest)


@pytest.fixture
async def place(catalogs: Catalogs) -> Place:
    store = MemoryStore()
    client = await catalogs.open(
        store,
        authentication="on",
        admin_secret=SECURED.admin_secret,
        sealing_keys=(SEALING_KEY,),
        deliveries=False,
    )
    admin = await bearer(client)
    client.headers.update(admin)
    scene = await make_scene(client, store, subscribes=True)
    return Place(client, scene, await make_principal(client, admin, "guest"))


async def test_without_a_session_every_page_leads_to_the_login(place: Place) -> None:
    place.client.headers.pop("Authorization")
    for path in place.scene.pages():
        answer = await place.client.get(path)

        assert answer.status_code == 401, path
        assert parse(answer.text).one("h1").text == "Log in to see this page"


@pytest.mark.parametrize("kind", ["principals", "groups"])
async def test_no_name_of_a_principal_or_group_has_markup(place: Place, kind: str) -> None:
    made = await place.client.post(f"{OWN}/{kind}", json={"name": EVIL})
    change = {"changes": [{"principal": EVIL, "add": ["SELECT"]}]}
    granted = await place.client.patch(f"{OWN}/grants/catalog/main", json=change)

    assert (made.status_code, granted.status_code // 100) == (400, 4)


async def test_the_owner_of_everything_sees_every_page(place: Place) -> None:
    refused = [path for path in place.scene.pages() if (await place.client.get(path)).status_code != 200]

    assert refused == []


async def test_a_guest_sees_nothing_that_it_has_no_right_to(place: Place) -> None:
    statuses = {path: (await place.get(path)).status_code for path in place.scene.pages()}

    hidden = [path for path, status in statuses.items() if "/data/" in path and status != 404]
    assert hidden == []
    for path in ("/ui", "/ui/activity", f"/ui/search?q={segment('orders <script>')}"):
        page = parse((await place.get(path)).text)
        assert "/data/" not in "".join(page.links()), path
    assert {path: status for path, status in statuses.items() if "/jobs" in path or "/audit" in path} == {
        path: 403 for path in statuses if "/jobs" in path or "/audit" in path
    }


ACTIONS = f"/ui/actions/drop-table/main/{segment(LEVEL)}"


@pytest.mark.parametrize(
    ("folder", "name", "part"),
    [
        ("/ui/data/main", LEVEL, ""),
        *((f"{DATA}/tables", TABLE, part) for part in ("", "/snapshots", "/timeline", "/diff", "/files", "/preview")),
        *((f"{DATA}/tables", TABLE, part) for part in ("/health", "/grants", "/versions/0")),
        *((f"{DATA}/views", VIEW, part) for part in ("", "/timeline", "/grants")),
        *((f"/ui/data/main/plain/{kind}s", kind[0], "") for kind in ("volume", "function", "model")),
        ("/ui/data/main/plain/tables", "d", "/files"),
        (ACTIONS, TABLE, ""),
    ],
    ids=lambda value: str(value).replace(segment(EVIL), "").replace(EVIL, ""),
)
async def test_what_is_hidden_looks_like_what_is_missing(place: Place, folder: str, name: str, part: str) -> None:
    hidden = await place.get(f"{folder}/{segment(name)}{part}")
    missing = await place.get(f"{folder}/{segment('none')}{part}")

    texts = [
        parse(answer.text).one("main").text.replace(f"plain.{one}", "NAME").replace(f"{LEVEL}.{one}", "NAME")
        for answer, one in ((hidden, name), (missing, "none"))
    ]
    assert (hidden.status_code, missing.status_code) == (404, 404)
    assert texts[0].replace(f": {LEVEL}", ": NAME") == texts[1].replace(": none", ": NAME")
    kind = next((one for one in ("volume", "function", "model", "view") if f"/{one}s" in folder), "")
    assert part or texts[1].removeprefix("Not found ").lower().startswith(kind)


async def test_a_refusal_says_which_privilege_is_missing_and_who_grants_it(place: Place) -> None:
    await place.grant("catalog", "main", "USE CATALOG")
    await place.grant("schema", f"main.{LEVEL}", "USE SCHEMA", "BROWSE")

    answer = await place.get(TABLE_PAGE)
    listed = parse((await place.get(DATA)).text)

    main = parse(answer.text).one("main").text
    assert answer.status_code == 403
    assert "SELECT or MODIFY" in main
    assert "sandur grant PRIVILEGE on NAME to guest" in main
    assert TABLE_PAGE in listed.links()


async def test_grants_show_a_guest_its_own_and_an_administrator_all(place: Place) -> None:
    await place.grant("catalog", "main", "USE CATALOG")
    await place.grant("schema", f"main.{LEVEL}", "USE SCHEMA", "SELECT")
    other = {"changes": [{"principal": "everyone", "add": ["MODIFY"]}]}
    (await place.client.patch(f"{OWN}/grants/catalog/main", json=other)).raise_for_status()

    own = parse((await place.get(f"{TABLE_PAGE}/grants")).text)
    others = parse((await place.get(f"{TABLE_PAGE}/grants?principal=admin")).text)
    everything = parse((await place.client.get(f"{TABLE_PAGE}/grants?principal=guest")).text)

    assert ["SELECT", f"schema main.{LEVEL}", "guest"] in own.rows()
    assert "Only your own grants are shown" in own.text
    assert "guest may not do this" in others.text
    assert ["SELECT", f"schema main.{LEVEL}", "guest"] in everything.rows()
    assert ["everyone", "MODIFY"] in everything.rows()


async def test_published_rows_are_only_of_tables_that_the_caller_sees(place: Place) -> None:
    (await place.client.post("/v1/main/namespaces/plain/tables", json=create_table("plain"))).raise_for_status()
    await place.grant("catalog", "main", "USE CATALOG")
    before = parse((await place.get("/ui/activity")).text)
    await place.grant("schema", f"main.{LEVEL}", "USE SCHEMA", "BROWSE")

    after = parse((await place.get("/ui/activity")).text)
    home = parse((await place.get("/ui")).text)

    assert before.rows() == []
    assert len(after.rows()) == 1  # The other commit has lost its name, so only an administrator sees it.
    assert not list(home.every("svg"))  # The commits of all tables are not for a guest.
    assert len(home.rows()) == 2


async def test_the_settings_are_for_administrators_and_have_no_secrets(place: Place) -> None:
    shown = await place.client.get("/ui/server")
    hidden = await place.get("/ui/server")

    assert "admin_secret" in shown.text
    for secret in (SECURED.admin_secret, SEALING_KEY):
        assert secret not in shown.text
    assert "admin_secret" not in hidden.text
    rows = dict(parse(shown.text).one("table").rows())
    known = {"janitor_garbage": "true", "allowed_hosts": "–", "token_lifetime": "PT1H", "sealing_keys": "(not shown)"}
    assert {name: rows[name] for name in known} == known


async def test_an_id_leads_to_the_name_of_today_only_for_those_who_see_it(place: Place) -> None:
    path = f"/ui/id/{place.scene.table}"
    allowed, refused = await place.client.get(path), await place.get(path)

    assert (allowed.status_code, allowed.headers["location"]) == (303, TABLE_PAGE)
    assert refused.status_code == 404


def test_only_static_files_and_the_login_itself_need_no_login() -> None:
    allowed = {"loadStaticFile", "showLogin", "logIn", "endProviderLogin", "logout"}
    assert {route.operation for route in ROUTES if route.needs is OPEN} == allowed
