"""The identity of a request: tokens, headers, and what the settings fix."""

import jwt
import pytest

from sandur.catalog.records import Source
from sandur.errors import BadRequest
from sandur.server.addresses import check_exposure, is_loopback, resolve, setting_warnings
from sandur.server.context import Bearer, Identity, identify, signed_token, source_of
from sandur.server.http import HttpRequest, Refused
from sandur.settings import Settings, load_settings

OPEN = Settings()
LOCKED = load_settings(flags={"authentication": "token", "token": "hush"})


def request(**headers: str) -> HttpRequest:
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return HttpRequest("GET", b"/", b"", sent, b"", "request-1")


def test_without_headers_everything_is_default() -> None:
    assert identify(request(), OPEN, needs_token=True) == Identity("default", "default", "anonymous")


def test_headers_choose_tenant_and_workspace() -> None:
    chosen = identify(request(x_sandur_tenant="acme", x_sandur_workspace="dev-1"), OPEN, needs_token=True)

    assert chosen == Identity("acme", "dev-1", "anonymous")


def test_settings_fix_tenant_and_workspace() -> None:
    settings = Settings(tenant="acme", workspace="prod")

    chosen = identify(request(x_sandur_tenant="other", x_sandur_workspace="other"), settings, needs_token=True)

    assert chosen == Identity("acme", "prod", "anonymous")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "a b", "-a", "a" * 64, "é", "a\x1fb", "tenant=x"])
def test_a_bad_tenant_is_a_bad_request(name: str) -> None:
    with pytest.raises(BadRequest, match="x-sandur-tenant"):
        identify(request(x_sandur_tenant=name), OPEN, needs_token=True)


@pytest.mark.parametrize("value", ["Bearer hush", "bearer hush", "BEARER  hush "])
def test_the_right_token_is_accepted(value: str) -> None:
    assert identify(request(authorization=value), LOCKED, needs_token=True).principal == "token"


@pytest.mark.parametrize("value", ["", "hush", "Bearer", "Bearer ", "Bearer hush2", "Bearer Hush", "Basic hush"])
def test_any_other_token_is_refused(value: str) -> None:
    with pytest.raises(Refused) as caught:
        identify(request(authorization=value), LOCKED, needs_token=True)

    assert caught.value.status == 401


@pytest.mark.parametrize(
    ("value", "message", "challenge"),
    [
        ("", "has no bearer token", b"Bearer"),
        ("Basic aHVzaA==", "has no bearer token", b"Bearer"),
        ("Bearer ", "has no bearer token", b"Bearer"),
        ("Bearer hush2", "is wrong or has expired", b'Bearer error="invalid_token"'),
    ],
)
def test_a_wrong_token_is_called_wrong_and_a_missing_one_missing(value: str, message: str, challenge: bytes) -> None:
    with pytest.raises(Refused, match=message) as caught:
        identify(request(authorization=value), LOCKED, needs_token=True)

    assert dict(caught.value.headers) == {b"WWW-Authenticate": challenge}


def test_a_client_declares_its_run_and_stays_a_client() -> None:
    identity = Identity("default", "default", "anonymous")

    assert source_of(request(user_agent="PyIceberg/0.12.0"), identity) == Source(
        kind="rest", principal="anonymous", client="PyIceberg/0.12.0"
    )
    assert source_of(request(x_sandur_run_id="run-1", x_sandur_task_id="task-2"), identity) == Source(
        kind="rest", principal="anonymous", run_id="run-1", task_id="task-2"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_only_loopback_hosts_are_served_without_a_token(host: str) -> None:
    assert is_loopback(host)
    check_exposure(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.org"])  # noqa: S104 - refused here
def test_other_hosts_need_a_token_or_the_flag(host: str) -> None:
    with pytest.raises(BadRequest, match="authentication is off"):
        check_exposure(Settings(host=host))

    check_exposure(Settings(host=host, allow_unauthenticated=True))
    check_exposure(load_settings(flags={"host": host, "authentication": "token", "token": "hush"}))


@pytest.mark.parametrize("host", ["nowhere.invalid", "fe80::1%nowhere", "127.0.0.1.1"])
def test_an_unknown_host_is_called_unknown(host: str) -> None:
    with pytest.raises(BadRequest, match=f"cannot listen on host {host}: the host is unknown .* --host"):
        resolve(host)


@pytest.mark.parametrize(
    ("flags", "doubt"),
    [
        ({"token": "hush"}, "setting token is ignored because authentication is off"),
        ({"token": "hush", "authentication": "token"}, "setting token is shorter than 32 bytes"),
    ],
)
def test_settings_that_are_hardly_meant_are_doubted(flags: dict[str, object], doubt: str) -> None:
    (found,) = setting_warnings(load_settings(flags=flags))

    assert found.startswith(doubt)
    assert "hush" not in found


@pytest.mark.parametrize("flags", [{}, {"token": "s" * 32, "authentication": "token"}])
def test_usual_settings_are_not_doubted(flags: dict[str, object]) -> None:
    assert not list(setting_warnings(load_settings(flags=flags)))


def test_no_token_is_accepted_if_none_is_set() -> None:
    with pytest.raises(BadRequest, match="needs the setting token"):
        check_exposure(Settings(authentication="token"))


SECRET = "a secret of at least thirty-two bytes"  # noqa: S105 - of the test
SIGNED = load_settings(flags={"authentication": "token", "token": SECRET})
LATER = 4_000_000_000


def signed(*, secret: str = SECRET, expires: int = LATER, **bearer: str) -> str:
    return "Bearer " + signed_token(Bearer(**{"principal": "ann", **bearer}), secret=secret, expires_at_seconds=expires)


def test_a_signed_token_sets_tenant_workspace_and_principal() -> None:
    value = signed(tenant="acme", workspace="dev")

    assert identify(request(authorization=value), SIGNED, needs_token=True) == Identity("acme", "dev", "ann")


def test_a_signed_token_without_a_tenant_leaves_it_to_the_headers() -> None:
    chosen = identify(request(authorization=signed(), x_sandur_tenant="acme"), SIGNED, needs_token=True)

    assert chosen == Identity("acme", "default", "ann")


def test_a_header_with_another_tenant_than_the_token_is_refused() -> None:
    sent = request(authorization=signed(tenant="acme"), x_sandur_tenant="other")

    with pytest.raises(Refused) as caught:
        identify(sent, SIGNED, needs_token=True)

    assert caught.value.status == 403
    assert identify(
        request(authorization=signed(tenant="acme"), x_sandur_tenant="acme"), SIGNED, needs_token=True
    ) == Identity("acme", "default", "ann")


@pytest.mark.parametrize(
    "value",
    [
        signed(secret="another secret of thirty-two bytes, or more"),  # noqa: S106 - of the test
        signed(expires=1),
        "Bearer " + jwt.encode({"sub": "ann", "exp": LATER}, "", algorithm="none"),
        "Bearer " + jwt.encode({"exp": LATER}, SECRET, algorithm="HS256"),
        "Bearer " + jwt.encode({"sub": "ann"}, SECRET, algorithm="HS256"),
        "Bearer " + jwt.encode({"sub": "ann", "exp": LATER, "tenant": 1}, SECRET, algorithm="HS256"),
        "Bearer a.b.c",
    ],
    ids=["another secret", "expired", "unsigned", "no subject", "no expiry", "tenant is a number", "malformed"],
)
def test_a_token_that_is_not_validly_signed_is_refused(value: str) -> None:
    with pytest.raises(Refused) as caught:
        identify(request(authorization=value), SIGNED, needs_token=True)

    assert caught.value.status == 401


def test_a_token_signed_with_a_short_secret_is_refused() -> None:
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        value = signed(secret="hush")  # noqa: S106 - of the test

    with pytest.raises(Refused):
        identify(request(authorization=value), LOCKED, needs_token=True)
