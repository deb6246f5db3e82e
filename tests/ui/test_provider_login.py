"""Logins at a real identity provider: code and PKCE, renewal by the refresh token, and what may go wrong."""

import msgspec
import pytest

from sandur.settings import OidcSettings
from tests.server.conftest import Catalogs
from tests.server.logins import SECURED
from tests.server.providers import HOUR, ShiftedClock
from tests.servers.browser import refuse, sign_in
from tests.servers.oidc_provider import AUDIENCE, CLIENTS, SCOPE, Client, OidcProvider
from tests.ui.browsers import Browser

CALLBACK = "http://localhost/ui/callback"
CLIENT = Client(secret="", redirect_uris=(CALLBACK,), lifetime_seconds=600)


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def browser(catalogs: Catalogs, oidc: OidcProvider, clock: ShiftedClock) -> Browser:
    oidc.configure({**CLIENTS, "ui": CLIENT})
    settings = OidcSettings(
        issuer=oidc.issuer,
        audience=AUDIENCE,
        name="people",
        ui_client_id="ui",
        ui_scopes=f"openid offline_access {SCOPE}",
    )
    return Browser(await catalogs.open_with(msgspec.structs.replace(SECURED, oidc=(settings,)), clock=clock))


async def begin(browser: Browser, next_: str = "/ui/me") -> str:
    """The address at the provider to which the button of the login leads."""
    page = await browser.open(f"/ui/login?next={next_}")
    link = next(link for link in page.tree.links() if "provider=" in link)
    answer = await browser.open(link)
    assert answer.status == 303
    return str(answer.answer.headers["location"])


async def test_a_person_logs_in_at_the_provider(browser: Browser) -> None:
    address = await begin(browser)
    back = sign_in(address, "ann")
    done = await browser.open(back)

    assert "code_challenge_method=S256" in address
    assert done.answer.headers["location"] == "/ui/me"
    assert "people~ann" in (await browser.follow(done)).text


async def test_the_refresh_token_keeps_a_session(browser: Browser, clock: ShiftedClock) -> None:
    await browser.open(sign_in(await begin(browser), "ann"))
    clock.shift_ms += 6 * 60_000
    first = await browser.open("/ui/me")
    second = await browser.open("/ui/me")

    assert (first.status, second.status) == (200, 200)
    assert "set-cookie" in first.answer.headers
    assert "set-cookie" not in second.answer.headers
    clock.shift_ms += 13 * HOUR
    assert (await browser.open("/ui/me")).status == 401


async def test_only_the_browser_that_began_a_login_ends_it(browser: Browser) -> None:
    back = sign_in(await begin(browser), "ann")
    browser.client.cookies.clear()
    stolen = await browser.open(back)
    await begin(browser)
    mixed = await browser.open(back)

    assert stolen.status == 400
    assert mixed.status == 401
    assert "does not belong to this login" in mixed.text
    assert (await browser.open("/ui/me")).status == 401


async def test_a_person_who_cancels_is_told_so(browser: Browser) -> None:
    page = await browser.open(refuse(await begin(browser)))

    assert page.status == 401
    assert "refused the login" in page.text


async def test_a_login_begins_only_at_a_configured_provider(browser: Browser) -> None:
    page = await browser.open("/ui/login?provider=https%3A%2F%2Fevil.example")

    assert page.status == 400


async def test_a_login_that_takes_too_long_begins_again(browser: Browser, clock: ShiftedClock) -> None:
    back = sign_in(await begin(browser), "ann")
    clock.shift_ms += 11 * 60_000

    assert (await browser.open(back)).status == 400
