"""Delta's client of Unity Catalog logs in with a secret or a token, and does what its grants allow.

Spark's connector logs in with the same classes, but the registries of the tests do not have it.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from sandur.cli.main import app
from tests.interop.matrix import ROOT
from tests.interop.secured_lake import GROUP
from tests.server.secured_server import Issuer, SecuredServer, secured_server
from tests.server.unity.client import UNITY
from tests.servers.oidc_provider import SCOPE, Client, OidcProvider

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

WAYS = ("service principal", "program of the provider", "token of the provider")


@pytest.fixture(scope="module")
def server(running_oidc_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("delta-logins")
    with secured_server(folder, issuers=[Issuer(running_oidc_provider.issuer)]) as running:
        running.administer("POST", f"{UNITY}/schemas", {"catalog_name": "main", "name": "sales"})
        for name in ("readable", "hidden"):
            create = [
                "delta",
                "create",
                f"main.sales.{name}",
                "--columns",
                "id BIGINT",
                "--store",
                str(folder / "data"),
            ]
            made = CliRunner().invoke(app, create, env={"SANDUR_FSYNC": "never"})
            assert made.exit_code == 0, made.output
        running.create_principal("reader", GROUP)
        running.grant(GROUP, ["USE CATALOG"], "catalog", "main")
        running.grant(GROUP, ["USE SCHEMA"], "schema", "main.sales")
        running.grant(GROUP, ["SELECT"], "table", "main.sales.readable")
        yield running


@pytest.fixture(scope="module")
def facts(
    server: SecuredServer, running_oidc_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[str, str]]:
    """What each client found out."""
    provider = running_oidc_provider
    provider.reset()
    provider.configure({"etl": Client(claims={"groups": [GROUP]})})
    login = server.create_principal("delta", GROUP)
    logins = {
        "service principal": _oauth(server.token_endpoint, *login),
        "program of the provider": _oauth(provider.token_endpoint, "etl", provider.secret("etl")),
        "token of the provider": {"auth.type": "static", "auth.token": provider.token()},
        "wrong secret": _oauth(server.token_endpoint, login.client_id, "wrong"),
    }
    folder = str(tmp_path_factory.mktemp("delta-session"))
    session = [sys.executable, "-m", "tests.interop.delta_login_session", server.url, folder, json.dumps(logins)]
    ran = subprocess.run(session, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    said = [line.removeprefix("FACTS ") for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
    assert said, f"{ran.stdout[-2_000:]}\n{ran.stderr[-4_000:]}"
    found: dict[str, dict[str, str]] = json.loads(said[0])
    return found


def _oauth(address: str, client_id: str, client_secret: str) -> dict[str, str]:
    given = {"uri": address, "clientId": client_id, "clientSecret": client_secret, "scope": SCOPE}
    return {"auth.type": "oauth", **{f"auth.oauth.{name}": value for name, value in given.items()}}


@pytest.mark.parametrize("way", WAYS)
def test_the_client_loads_what_it_may_read(facts: dict[str, dict[str, str]], way: str) -> None:
    assert facts[way]["readable"] == "done"


@pytest.mark.parametrize("way", WAYS)
def test_the_client_is_refused_outside_its_grants(facts: dict[str, dict[str, str]], way: str) -> None:
    assert "NoSuchTableException" in facts[way]["hidden"]
    assert "CREATE TABLE" in facts[way]["new"]


def test_a_wrong_secret_gets_no_token(facts: dict[str, dict[str, str]]) -> None:
    assert all("Failed to renew OAuth token" in outcome for outcome in facts["wrong secret"].values())
