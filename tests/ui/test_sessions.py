"""Login, sessions and forms: who is logged in, for how long, and whose forms count."""

import httpx
import msgspec
import pytest

from sandur.server.ui.pages.login import own_path
from tests.server.conftest import Catalogs
from tests.server.logins import ADMIN_SECRET, SECURED, bearer, make_principal
from tests.server.providers import HOUR, MINUTE, ShiftedClock
from tests.ui.browsers import ORIGIN, Browser


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def browser(catalogs: Catalogs, clock: ShiftedClock) -> Browser:
    """A browser at a server with authentication, before its login."""
    return Browser(await catalogs.open_with(SECURED, clock=clock))


def session_cookie(browser: Browser) -> str:
    return browser.client.cookies.get("sandur") or ""


async def test_a_page_without_a_session_leads_to_the_login_and_back(browser: Browser) -> None:
    refused = await browser.open("/ui/data/main?begins=a")
    sent_there = await browser.open("/ui/data/main?begins=a", **{"Sec-Fetch-Mode": "navigate"})
    login = await browser.follow(sent_there)
    done = await browser.send(login, name="admin", secret=ADMIN_SECRET)

    assert refused.status == 401
    assert "/ui/login?next=%2Fui%2Fdata%2Fmain%3Fbegins%3Da" in refused.tree.links()
    assert done.answer.headers["location"] == "/ui/data/main?begins=a"
    assert (await browser.follow(done)).status == 200


async def test_the_login_has_its_styles(browser: Browser) -> None:
    page = await browser.open("/ui/login")

    assert [one.attributes["href"].rpartition("/")[2] for one in page.tree.every("link", rel="stylesheet")] == [
        "sandur.css", "actions.css",
    ]  # fmt: skip


async def test_a_principal_logs_in_by_its_secret_a_token_or_an_api_key(browser: Browser) -> None:
    admin = await bearer(browser.client)
    key = await browser.client.post("/api/sandur/v1/principals/admin/api-keys", headers=admin)
    secrets = (("admin", ADMIN_SECRET), ("", admin["Authorization"].split()[1]), ("", key.json()["api_key"]))
    names = []
    for name, secret in secrets:
        browser.client.cookies.clear()
        assert (await browser.log_in(name, secret)).status == 303
        names.append((await browser.open("/ui/me")).tree.one(class_="who").text)

    assert names == ["admin", "admin", "admin"]


@pytest.mark.parametrize(
    ("name", "secret"), [("admin", "wrong"), ("", "wrong"), ("", "a.b.c"), ("nobody", "x"), ("x", "")]
)
async def test_a_wrong_secret_logs_no_one_in_and_is_not_shown(browser: Browser, name: str, secret: str) -> None:
    page = await browser.log_in(name, secret)

    assert page.status in {400, 401}
    assert not session_cookie(browser)
    assert page.tree.one("input", name="secret").attributes.get("value") is None


async def test_too_many_wrong_secrets_must_wait(browser: Browser) -> None:
    statuses = [(await browser.log_in("admin", "wrong")).status for _ in range(11)]

    assert statuses[-1] == 429


async def test_the_cookie_is_for_this_server_alone(catalogs: Catalogs) -> None:
    settings = msgspec.structs.replace(SECURED, host="0.0.0.0")  # noqa: S104 - it is not bound
    client = await catalogs.open_with(settings)
    secured = {"Host": "lake.example", "Origin": "https://lake.example", "X-Forwarded-Proto": "https"}
    login = await client.get("/ui/login", headers=secured)
    cookie = login.headers["set-cookie"].split(";")[0]
    form = {"form_token": login.text.split('name="form_token" value="')[1].split('"')[0]}
    sent = {"name": "admin", "secret": ADMIN_SECRET, **form}
    done = await client.post("/ui/login", data=sent, headers={**secured, "Cookie": cookie})
    plain = await client.get("/ui/login", headers={"Host": "lake.example"})

    cookies = [one.split("; ") for one in done.headers.get_list("set-cookie")]
    session = next(one for one in cookies if one[0].startswith("__Host-sandur="))
    assert {"Path=/", "HttpOnly", "SameSite=Lax", "Secure"} <= set(session)
    assert not any(part.startswith("Domain") for part in session)
    assert "did not come by https" in plain.text


async def test_the_cookie_counts_for_pages_only(browser: Browser) -> None:
    await browser.log_in("admin", ADMIN_SECRET)

    assert (await browser.open("/ui")).status == 200
    assert (await browser.client.get("/v1/namespaces")).status_code == 401
    assert (await browser.client.get("/api/sandur/v1/me")).status_code == 401


async def test_no_one_can_make_or_change_a_session(browser: Browser) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    cookie = session_cookie(browser)
    token = await bearer(browser.client)
    statuses = []
    for forged in (cookie[:-4] + "AAAA", token["Authorization"].split()[1], "x", "", '"', "a" * 5_000):
        answer = await browser.client.get("/ui", headers={"Cookie": f"sandur={forged}"})
        statuses.append(answer.status_code)

    assert statuses == [401] * 6


async def test_a_login_replaces_what_was_there_before(browser: Browser) -> None:
    """Session fixation: no secret from before the login counts after it."""
    login = await browser.open("/ui/login")
    planted = browser.client.cookies.get("sandur-login")
    first = await browser.send(login, name="admin", secret=ADMIN_SECRET)
    cookie = session_cookie(browser)
    await browser.log_in("admin", ADMIN_SECRET)

    assert first.status == 303
    assert planted
    assert browser.client.cookies.get("sandur-login") is None
    assert session_cookie(browser) not in {cookie, planted}
    old_form = await browser.post("/ui/login", {**login.fields(), "name": "admin", "secret": ADMIN_SECRET})
    assert old_form.status == 400


async def test_a_session_is_renewed_while_it_is_used_and_ends_after_half_a_day(
    browser: Browser, clock: ShiftedClock
) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    cookies = {session_cookie(browser)}
    for _ in range(15):
        clock.shift_ms += 45 * MINUTE
        assert (await browser.open("/ui")).status == 200
        cookies.add(session_cookie(browser))
    clock.shift_ms += 45 * MINUTE

    assert len(cookies) == 16
    assert (await browser.open("/ui")).status == 401


async def test_a_session_that_no_one_uses_ends_with_its_token(browser: Browser, clock: ShiftedClock) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    clock.shift_ms += HOUR + 2 * MINUTE

    assert (await browser.open("/ui")).status == 401


async def test_a_form_of_a_session_that_is_over_is_kept(browser: Browser, clock: ShiftedClock) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    form = await browser.open("/ui/actions/create-namespace/main")
    clock.shift_ms += 2 * HOUR
    over = await browser.send(form, name="eu", comment="<kept>")
    await browser.log_in("admin", ADMIN_SECRET)
    again = await browser.send(over, step="edit")
    preview = await browser.send(again)
    done = await browser.send(preview, step="apply")

    assert over.status == 401
    assert "Authorization: Bearer" not in over.text  # That is for programs.
    assert (over.fields()["name"], over.fields()["comment"]) == ("eu", "<kept>")
    assert not {"form_token", "key"} & over.fields().keys()
    assert (again.status, again.fields()["comment"]) == (200, "<kept>")
    assert done.status == 303


async def test_a_revoked_principal_is_logged_out(browser: Browser) -> None:
    admin = await bearer(browser.client)
    await make_principal(browser.client, admin, "ann")
    made = await browser.client.post("/api/sandur/v1/principals/ann/secrets", headers=admin)
    await browser.log_in("ann", made.json()["client_secret"])
    before = await browser.open("/ui")
    await browser.client.post("/api/sandur/v1/principals/ann/revoke-tokens", headers=admin)

    assert before.status == 200
    assert (await browser.open("/ui")).status == 401


async def test_a_logout_ends_the_session(browser: Browser) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    me = await browser.open("/ui/me")
    refused = await browser.post("/ui/logout", {"form_token": "wrong"})
    done = await browser.send(me)

    assert refused.status == 403
    assert (done.status, session_cookie(browser)) == (303, "")
    assert (await browser.open("/ui")).status == 401


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/ui", "//evil.example/ui", "/\\evil.example", "/ui\\..\\evil", "/v1/config", "javascript:",
        "/ui/login?next=/ui", "/uix", "http:/ui", "/ui/\r\nSet-Cookie: a=b", " /ui", "/ui/ü", "/ui/" + "a" * 3_000,
    ],
)  # fmt: skip
def test_a_login_leads_to_own_pages_only(target: str) -> None:
    assert own_path(target) == "/ui"


@pytest.mark.parametrize("target", ["/ui", "/ui/", "/ui?a=b", "/ui/data/main/a%1Fb?begins=%2F&after=x#s1"])
def test_a_login_leads_back_to_its_page(target: str) -> None:
    assert own_path(target) == target


async def test_a_login_with_a_foreign_target_leads_to_the_first_page(browser: Browser) -> None:
    login = await browser.open("/ui/login?next=//evil.example/ui")
    done = await browser.send(login, name="admin", secret=ADMIN_SECRET, next="//evil.example/ui")

    assert "evil" not in login.answer.text
    assert done.answer.headers["location"] == "/ui"


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({}, "wrong"),
        ({}, ""),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, None),
        ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, None),
        ({"Origin": "http://localhost:9", "Sec-Fetch-Site": "same-site"}, None),
    ],
)
async def test_a_form_of_another_site_does_nothing(
    browser: Browser, headers: dict[str, str], token: str | None
) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    preview = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    fields = {**preview.fields(), "step": "apply", **({} if token is None else {"form_token": token})}
    refused = await browser.post("/ui/actions/create-namespace/main", fields, **headers)

    assert refused.status == 403
    namespaces = await browser.client.get("/v1/namespaces/eu", headers=await bearer(browser.client))
    assert namespaces.status_code == 404


async def test_a_form_without_an_origin_does_nothing(browser: Browser) -> None:
    await browser.log_in("admin", ADMIN_SECRET)
    preview = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    answer = await browser.client.post("/ui/actions/create-namespace/main", data={**preview.fields(), "step": "apply"})

    assert answer.status_code == 403


async def test_without_authentication_forms_need_the_secret_of_the_browser_too(client: httpx.AsyncClient) -> None:
    browser, other = Browser(client), {"Origin": ORIGIN}
    preview = await browser.send(await browser.open("/ui/actions/create-namespace/main"), name="eu")
    fields = {**preview.fields(), "step": "apply"}
    client.cookies.clear()
    refused = await browser.post("/ui/actions/create-namespace/main", fields, **other)

    assert refused.status == 403
    assert (await browser.open("/ui/login")).answer.headers["location"] == "/ui"


async def test_no_frame_shows_a_page(browser: Browser) -> None:
    """Clickjacking: also not the login, an error, a file or a redirect."""
    answers = [await browser.open(path) for path in ("/ui/login", "/ui", "/ui/none", "/ui/data/main")]
    await browser.log_in("admin", ADMIN_SECRET)
    answers += [await browser.open(path) for path in ("/ui", "/ui/actions/create-namespace/main", "/ui/login")]

    for page in answers:
        assert page.answer.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in page.answer.headers["content-security-policy"]
        assert page.answer.headers["cache-control"] == "no-store"


async def test_who_may_not_act_learns_which_privilege_is_missing(browser: Browser) -> None:
    admin = await bearer(browser.client)
    await make_principal(browser.client, admin, "ann")
    made = await browser.client.post("/api/sandur/v1/principals/ann/secrets", headers=admin)
    grants = {"changes": [{"principal": "ann", "add": ["USE CATALOG"]}]}
    await browser.client.patch("/api/sandur/v1/grants/catalog/main", json=grants, headers=admin)
    await browser.log_in("ann", made.json()["client_secret"])
    page = await browser.open("/ui/actions/create-namespace/main")
    hidden = await browser.open("/ui/actions/grant/catalog/other")
    grant = await browser.open("/ui/actions/grant/catalog/main")

    assert page.status == 403
    assert "CREATE SCHEMA on catalog main" in page.text
    assert grant.status == 403
    assert hidden.status == 404


async def test_a_grant_counts_at_once_and_is_recorded(browser: Browser) -> None:
    admin = await bearer(browser.client)
    ann = await make_principal(browser.client, admin, "ann")
    await browser.log_in("admin", ADMIN_SECRET)
    unknown = await browser.send(
        await browser.send(await browser.open("/ui/actions/grant/catalog/main"), principal="bob", add="USE CATALOG"),
        step="apply",
    )
    before = await browser.client.get("/v1/main/namespaces", headers=ann)
    done = await browser.act("/ui/actions/grant/catalog/main", principal="ann", add="use catalog, CREATE_SCHEMA")
    after = await browser.client.get("/v1/main/namespaces", headers=ann)

    assert unknown.status == 400
    assert "bob" in unknown.text
    assert (done.status, before.status_code, after.status_code) == (303, 404, 200)
    revoked = await browser.act("/ui/actions/grant/catalog/main", principal="ann", remove="USE CATALOG,CREATE SCHEMA")
    assert revoked.status == 303
    assert (await browser.client.get("/v1/main/namespaces", headers=ann)).status_code == 404
