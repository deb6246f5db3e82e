"""`sandur login`, `whoami` and `logout` against a real server and a real identity provider."""

import asyncio
import contextlib
import io
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from sandur.cli.flags import ServerFlags
from sandur.cli.login import LoginFlags, log_in
from sandur.client.openid import Issuer, Tokens, discover
from sandur.clock import SystemClock
from sandur.errors import Unauthenticated
from tests.cli.commands import User, ended
from tests.server.logins import ADMIN_SECRET
from tests.server.process import ServerProcess
from tests.servers.browser import refuse, sign_in
from tests.servers.oidc_provider import SCOPE, Client, OidcProvider

BY_SECRET = ("login", "--client-id", "admin", "--client-secret-stdin")


class BusyClock(SystemClock):
    """A clock that does something instead of waiting, and remembers how long it should have waited."""

    def __init__(self, *actions: Callable[[], object]) -> None:
        self._actions = list(actions)
        self.waits: list[float] = []
        self.shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.shift_ms += int(seconds * 1_000)
        if self._actions:
            await asyncio.to_thread(self._actions.pop(0))


def by_device(user: User, secured: ServerProcess, clock: BusyClock, *, profile: str = "default") -> None:
    """Log in with a code, in this process."""
    shared = ServerFlags(profile, secured.url)
    flags = LoginFlags(shared, None, None, False, True, None, False, 0, None, None)  # noqa: FBT003 - in their order
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CONFIG_HOME", str(user.home))
        log_in(flags, clock)


def log_in_person(user: User, secured: ServerProcess, person: str, *, profile: str = "default") -> BusyClock:
    """A person enters the code while the command waits for the second time."""
    said = io.StringIO()

    def enter_code() -> None:
        sign_in(said.getvalue().split("or open ")[1].split()[0], person)

    clock = BusyClock(lambda: None, enter_code)
    with contextlib.redirect_stderr(said):
        by_device(user, secured, clock, profile=profile)
    return clock


def test_a_person_logs_in_with_the_browser(user: User, secured: ServerProcess, oidc: OidcProvider) -> None:
    browser = f"{sys.executable} -m tests.servers.browser ann %s"
    done = ended(user.start("login", "--server", secured.url, "--json", BROWSER=browser))
    assert done.code == 0, done.err
    printed = done.err
    me = user.run("whoami", "--json").json

    assert (me["name"], me["issuer"], me["server"]) == ("127.0.0.1~ann", oidc.issuer, secured.url)
    assert "code_challenge_method=S256" in printed
    held = user.credentials()["default"]
    assert held["refresh_token"]
    for secret in (held["access_token"], held["refresh_token"]):
        assert secret not in printed
        assert secret not in secured.log
        assert secret not in (user.folder / "config.toml").read_text()


def test_a_person_who_cancels_is_not_logged_in(user: User, secured: ServerProcess, oidc: OidcProvider) -> None:
    process = user.start("login", "--server", secured.url, "--no-browser")
    assert process.stderr is not None
    address = next(line for line in process.stderr if line.startswith(oidc.issuer)).strip()

    httpx.get(refuse(address))
    done = ended(process)

    assert done.code == 4
    assert "refused the login: access_denied" in done.err
    assert not (user.folder / "credentials.json").exists()


def test_an_answer_of_another_login_is_refused(user: User, secured: ServerProcess, oidc: OidcProvider) -> None:
    process = user.start("login", "--server", secured.url, "--no-browser")
    assert process.stderr is not None
    address = httpx.URL(next(line for line in process.stderr if line.startswith(oidc.issuer)).strip())
    callback = httpx.URL(address.params["redirect_uri"])

    icon = httpx.get(callback.copy_with(path="/favicon.ico"))
    forged = httpx.get(callback.copy_merge_params({"code": "stolen", "state": "guessed"}))
    done = ended(process)

    assert (icon.status_code, forged.status_code) == (404, 200)
    assert (done.code, "does not belong to this login" in done.err) == (4, True)


@pytest.mark.usefixtures("oidc")
def test_a_person_logs_in_with_a_code(user: User, secured: ServerProcess) -> None:
    clock = log_in_person(user, secured, "bob")

    assert user.run("whoami", "--json").json["name"] == "127.0.0.1~bob"
    assert clock.waits == [5, 5]


@pytest.mark.usefixtures("oidc")
def test_a_code_that_is_not_entered_expires(user: User, secured: ServerProcess) -> None:
    clock = BusyClock()

    with pytest.raises(Unauthenticated, match="the code has expired"):
        by_device(user, secured, clock)

    assert sum(clock.waits) >= 600
    assert user.run("profile", "list", "--json").json == []


def test_a_program_logs_in_with_its_secret(user: User, secured: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{ADMIN_SECRET}\n")

    done = user.run("login", "--server", secured.url, "--client-id", "admin", "--client-secret-file", str(file))
    me = user.run("whoami", "-o", "json").json

    assert done.code == 0, done.err
    assert (me["name"], me["kind"], me["profile"]) == ("admin", "service", "default")
    assert ADMIN_SECRET not in done.out + done.err
    assert all(ADMIN_SECRET not in one.read_text() for one in user.folder.iterdir())


def test_a_recovered_administrator_of_another_tenant_logs_in(user: User, secured: ServerProcess) -> None:
    store = str(secured.folder / "data")
    made = user.run("admin", "recover", "--tenant", "acme", "--store", store, "--json").json
    arguments = ("--client-id", "admin", "--client-secret-stdin", "--server", secured.url)

    elsewhere = user.run("login", *arguments, stdin=made["client_secret"])
    done = user.run("login", *arguments, "--tenant", "acme", "--profile", "acme", stdin=made["client_secret"])

    assert (elsewhere.code, done.code) == (4, 0), done.err
    me = user.run("whoami", "--profile", "acme", "--json").json
    assert (me["name"], me["tenant"]) == ("admin", "acme")


def test_only_their_owner_may_read_the_tokens(admin: User) -> None:
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in (*admin.folder.iterdir(), admin.folder)}

    assert modes == {"config.toml": 0o600, "credentials.json": 0o600, ".lock": 0o600, "sandur": 0o700}

    (admin.folder / "credentials.json").chmod(0o640)
    refused = admin.run("whoami")

    assert (refused.code, "chmod 600" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "message"),
    [
        (("--client-id", "admin", "--client-secret-stdin"), "wrong", 4, "the client is unknown or its secret is wrong"),
        (("--client-id", "admin", "--client-secret-stdin"), "", 1, "the client secret is empty"),
        (("--client-secret-stdin",), "x", 1, "pass it with --client-id"),
        (("--client-id", "x", "--client-secret-stdin", "--client-secret-file", "f"), "x", 1, "choose one"),
        (("--client-id", "x", "--client-secret-file", "missing"), "", 1, "cannot be read"),
        (("--issuer", "https://other.example"), "", 1, "does not accept https://other.example; its issuers are: http"),
        (("--output", "xml"), "", 1, "expected table or json"),
        (("--profile", "a b"), "", 1, "expected up to 63 letters"),
    ],
)
def test_a_login_that_fails_says_why(
    user: User, secured: ServerProcess, arguments: tuple[str, ...], stdin: str, code: int, message: str
) -> None:
    done = user.run("login", "--server", secured.url, *arguments, stdin=stdin)

    assert (done.code, message in done.err) == (code, True), done.err
    assert not (user.folder / "credentials.json").exists()


def test_a_server_that_does_not_answer_has_its_own_exit_code(user: User) -> None:
    done = ended(user.start("login", "--server", "http://127.0.0.1:9"))

    assert (done.code, done.out) == (7, "")
    assert "http://127.0.0.1:9: no answer" in done.err


def test_a_token_goes_to_its_own_server_only(admin: User, secured: ServerProcess) -> None:
    elsewhere = admin.run("whoami", "--server", f"http://localhost:{secured.port}")

    assert elsewhere.code == 4
    assert f"needs a login; log in with: sandur login --profile default --server http://localhost:{secured.port}" in (
        elsewhere.err
    )


@pytest.mark.usefixtures("oidc")
def test_two_profiles_are_two_people(admin: User, secured: ServerProcess) -> None:
    log_in_person(admin, secured, "bob", profile="bob")

    listed = admin.run("profile", "list", "--json").json
    names = [admin.run("whoami", "--json", *flags).json["name"] for flags in ((), ("--profile", "bob"))]
    admin.run("profile", "use", "bob")

    assert [(one["name"], one["current"], one["state"]) for one in listed] == [
        ("bob", False, "logged in"),
        ("default", True, "logged in"),
    ]
    assert names == ["admin", "127.0.0.1~bob"]
    assert admin.run("whoami", "--json").json["name"] == "127.0.0.1~bob"
    missing = admin.run("whoami", "--profile", "carl")
    assert (missing.code, "sandur login --profile carl" in missing.err) == (3, True)


@pytest.mark.usefixtures("oidc")
def test_an_expired_login_of_a_person_is_renewed(user: User, secured: ServerProcess) -> None:
    log_in_person(user, secured, "ann")
    user.change_credentials("default", expires_ms=1)
    before = user.credentials()["default"]

    me = user.run("whoami", "--json").json

    after = user.credentials()["default"]
    assert me["name"] == "127.0.0.1~ann"
    assert after["access_token"] != before["access_token"]
    assert after["expires_ms"] > 1
    assert after["refresh_token"]


def test_an_expired_login_of_a_program_says_how_to_log_in(admin: User) -> None:
    admin.change_credentials("default", expires_ms=1)

    done = admin.run("whoami")

    assert done.code == 4
    assert "has expired; log in with: sandur login --profile default" in done.err
    assert admin.run("profile", "list", "--json").json[0]["state"] == "expired"


def test_a_login_of_a_program_is_renewed_before_it_ends(admin: User) -> None:
    soon = SystemClock().now_ms() + 60_000
    admin.change_credentials("default", expires_ms=soon)

    assert admin.run("whoami", "--json").json["name"] == "admin"
    assert admin.credentials()["default"]["expires_ms"] > soon + 600_000


def test_while_the_provider_is_down_a_valid_token_is_used(
    user: User, secured: ServerProcess, oidc: OidcProvider
) -> None:
    log_in_person(user, secured, "ann")
    oidc.break_keys()
    user.change_credentials("default", expires_ms=SystemClock().now_ms() + 60_000)

    valid = user.run("whoami", "--json")
    user.change_credentials("default", expires_ms=1)
    expired = user.run("whoami")

    assert valid.json["name"] == "127.0.0.1~ann"
    assert (expired.code, "cannot be renewed" in expired.err) == (7, True)


def test_logout_removes_the_tokens_and_ends_the_refresh_token(
    user: User, secured: ServerProcess, oidc: OidcProvider
) -> None:
    log_in_person(user, secured, "ann")
    refresh_token = user.credentials()["default"]["refresh_token"]

    done = user.run("logout")

    assert done.code == 0, done.err
    assert user.credentials() == {}
    form = {"grant_type": "refresh_token", "client_id": "cli", "refresh_token": refresh_token}
    assert httpx.post(oidc.token_endpoint, data=form).json()["error"] == "invalid_grant"
    assert user.run("whoami").code == 4
    assert user.run("profile", "list", "--json").json[0]["state"] == "logged out"


def test_logout_removes_the_tokens_even_if_the_provider_is_down(
    user: User, secured: ServerProcess, oidc: OidcProvider
) -> None:
    log_in_person(user, secured, "ann")
    oidc.break_keys()

    done = user.run("logout", "--forget")

    assert (done.code, "may still accept a copy" in done.err) == (0, True)
    assert user.credentials() == {}
    assert user.run("profile", "list", "--json").json == []


def test_a_token_of_the_environment_goes_first(admin: User, user: User, secured: ServerProcess) -> None:
    token = admin.credentials()["default"]["access_token"]
    machine = User(user.home, SANDUR_TOKEN=token, SANDUR_SERVER=secured.url)
    broken = User(user.home, SANDUR_TOKEN=token[::-1], SANDUR_SERVER=secured.url)

    assert machine.run("whoami", "--json").json["name"] == "admin"
    refused = broken.run("whoami")
    assert (refused.code, "the token is that of SANDUR_TOKEN" in refused.err) == (4, True)


def test_a_command_without_a_server_says_how_to_name_one(user: User) -> None:
    done = user.run("whoami")

    assert (done.code, "sandur login --server URL" in done.err) == (1, True)


async def test_tokens_for_another_audience_are_not_sent_to_the_server(oidc: OidcProvider) -> None:
    oidc.configure({"cli": Client(secret="", audience="another")})
    issuer = Issuer(oidc.issuer, "sandur", "cli", f"openid {SCOPE}")
    login = oidc.login("ann")

    with pytest.raises(Unauthenticated, match="are not for sandur"):
        Tokens(login.access_token, login.id_token).for_audience(issuer)
    assert Tokens("opaque", login.id_token).for_audience(Issuer(oidc.issuer, "cli")) == login.id_token
    async with httpx.AsyncClient() as http:
        with pytest.raises(Unauthenticated, match="invalid_grant"):
            await (await discover(http, issuer, "cli")).refresh("unknown")
