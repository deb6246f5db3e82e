"""The identity of a request: tokens, headers, and what the settings fix."""

import pytest

from sandur.catalog.events import Source
from sandur.catalog.security.manifest import Caller
from sandur.errors import BadRequest
from sandur.server.addresses import check_exposure, is_loopback, resolve, setting_warnings
from sandur.server.http import HttpRequest, Refused
from sandur.server.identity import ANONYMOUS_BEARER, Bearer, Identity, identity_of, source_of
from sandur.setting_sources import load_settings
from sandur.settings import Settings

OPEN = Settings()
ANN = Caller("id-of-ann", "ann")


def request(**headers: str) -> HttpRequest:
    sent = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return HttpRequest("GET", b"/", b"", sent, b"", "request-1")


def test_without_headers_everything_is_default() -> None:
    assert identity_of(request(), OPEN, ANONYMOUS_BEARER) == Identity("default", "default", "anonymous")


def test_headers_choose_tenant_and_workspace() -> None:
    chosen = identity_of(request(x_sandur_tenant="acme", x_sandur_workspace="dev-1"), OPEN, ANONYMOUS_BEARER)

    assert chosen == Identity("acme", "dev-1", "anonymous")


def test_settings_fix_tenant_and_workspace() -> None:
    settings = Settings(tenant="acme", workspace="prod")

    chosen = identity_of(request(x_sandur_tenant="other", x_sandur_workspace="other"), settings, ANONYMOUS_BEARER)

    assert chosen == Identity("acme", "prod", "anonymous")


@pytest.mark.parametrize("name", ["", "a/b", "..", ".", "a b", "-a", "a" * 64, "é", "a\x1fb", "tenant=x"])
def test_a_bad_tenant_is_a_bad_request(name: str) -> None:
    with pytest.raises(BadRequest, match="x-sandur-tenant"):
        identity_of(request(x_sandur_tenant=name), OPEN, ANONYMOUS_BEARER)


def test_the_token_chooses_tenant_and_workspace_where_it_names_them() -> None:
    bearer = Bearer(ANN, tenant="acme")

    assert identity_of(request(x_sandur_workspace="dev"), OPEN, bearer)[:3] == ("acme", "dev", "ann")
    assert identity_of(request(x_sandur_tenant="acme"), OPEN, bearer)[:3] == ("acme", "default", "ann")


@pytest.mark.parametrize("settings", [OPEN, Settings(tenant="other")])
def test_a_token_for_another_tenant_is_refused(settings: Settings) -> None:
    with pytest.raises(Refused) as caught:
        identity_of(request(x_sandur_tenant="other"), settings, Bearer(ANN, tenant="acme"))

    assert caught.value.status == 403


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
    check_exposure(Settings(host=host, authentication="on"))


@pytest.mark.parametrize("host", ["nowhere.invalid", "fe80::1%nowhere", "127.0.0.1.1"])
def test_an_unknown_host_is_called_unknown(host: str) -> None:
    with pytest.raises(BadRequest, match=f"cannot listen on host {host}: the host is unknown .* --host"):
        resolve(host)


@pytest.mark.parametrize(
    ("flags", "doubt"),
    [
        ({"admin_secret": "hush", "authentication": "on"}, "setting admin_secret is shorter than 16 characters"),
        (
            {"token_lifetime": "P1D", "authentication": "on"},
            "setting token_lifetime is P1D: tokens are valid for one hour",
        ),
        ({"oidc": [{"issuer": "https://x", "audience": "y"}]}, "setting oidc is ignored because authentication is off"),
    ],
)
def test_settings_that_are_hardly_meant_are_doubted(flags: dict[str, object], doubt: str) -> None:
    (found,) = setting_warnings(load_settings(flags=flags))

    assert found.startswith(doubt)
    assert "hush" not in found


@pytest.mark.parametrize("flags", [{}, {"admin_secret": "s" * 32, "authentication": "on"}])
def test_usual_settings_are_not_doubted(flags: dict[str, object]) -> None:
    assert not list(setting_warnings(load_settings(flags=flags)))
