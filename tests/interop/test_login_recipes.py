"""Every recipe for a login in `docs/engines.md` works as printed: at the server, and at an identity provider."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.recipes import DEFAULT_ADDRESS, Recipe, recipes, runner_of
from tests.interop.secured_lake import GROUP, create_tables
from tests.server.secured_server import Issuer, Login, SecuredServer, secured_server
from tests.servers.oidc_provider import Client, OidcProvider

AT_THE_SERVER, AT_A_PROVIDER = "at the server", "at a provider"
TOKEN_ENDPOINT = f"http://{DEFAULT_ADDRESS}/v1/oauth/tokens"
# Spark has its token endpoint in a comment: tests of its own log in at a provider.
ONLY_AT_THE_SERVER = frozenset({"spark"})


def _cases() -> Iterator[object]:
    for recipe in recipes(mark="login"):
        for where in (AT_THE_SERVER, AT_A_PROVIDER):
            is_quick = recipe.name != "spark" and where == AT_A_PROVIDER
            marks = [] if is_quick else [pytest.mark.interop, pytest.mark.timeout(900)]
            if where == AT_THE_SERVER or recipe.name not in ONLY_AT_THE_SERVER:
                yield pytest.param(recipe, where, id=f"{recipe.name}-{where}", marks=marks)


@pytest.fixture(scope="module")
def server(running_oidc_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("logins")
    with secured_server(folder, issuers=[Issuer(running_oidc_provider.issuer)]) as running:
        create_tables(running)
        yield running


@pytest.fixture(scope="module")
def principal(server: SecuredServer) -> Login:
    return server.create_principal("loader", GROUP)


@pytest.mark.parametrize(("recipe", "where"), list(_cases()))
def test_a_login_works_as_it_is_printed(
    recipe: Recipe, where: str, server: SecuredServer, principal: Login, oidc: OidcProvider, tmp_path: Path
) -> None:
    oidc.configure({"etl": Client(claims={"groups": [GROUP]})})
    login, endpoint = principal, server.token_endpoint
    if where == AT_A_PROVIDER:
        login, endpoint = Login("etl", oidc.secret("etl")), oidc.token_endpoint
    filled = recipe.text.replace(TOKEN_ENDPOINT, endpoint).replace(DEFAULT_ADDRESS, server.url.removeprefix("http://"))
    filled = filled.replace("my-id", login.client_id).replace("my-secret", login.client_secret)

    printed = runner_of(recipe)(Recipe(recipe.name, recipe.language, filled), tmp_path)

    assert "1" in printed
