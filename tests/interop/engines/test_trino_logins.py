"""Trino logs in at the server and at an identity provider, works within its grants and is refused outside them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from sandur.settings import Settings
from tests.interop.engines.conversation import EngineError
from tests.interop.engines.environments import NotInstalled
from tests.interop.engines.trino import SECURED, catalog_properties, trino_with
from tests.interop.matrix import S3, operation
from tests.interop.secured_lake import GROUP, create_tables
from tests.interop.server_address import Served, server_settings
from tests.server.secured_server import PRINCIPALS, Issuer, Login, SecuredServer, secured_server
from tests.servers.mock_oauth2 import MockOauth2, mock_oauth2
from tests.servers.oidc_provider import AUDIENCE, Client, OidcProvider

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module")
def provider(running_oidc_provider: OidcProvider) -> OidcProvider:
    running_oidc_provider.reset()
    running_oidc_provider.configure({"etl": Client(claims={"groups": [GROUP]}, lifetime_seconds=3_600)})
    return running_oidc_provider


@pytest.fixture(scope="module")
def second_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MockOauth2]:
    claims = {"sub": "etl", "aud": [AUDIENCE], "groups": [GROUP]}
    try:
        with mock_oauth2(tmp_path_factory.mktemp("mock-oauth2"), {"acme": {"etl": claims}}) as running:
            yield running
    except NotInstalled as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def served(
    provider: OidcProvider,
    second_provider: MockOauth2,
    seaweedfs_settings: Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SecuredServer, Served]]:
    folder = tmp_path_factory.mktemp("trino-logins")
    store = f"s3://sandur/{folder.name}"
    options = server_settings(seaweedfs_settings.s3)
    issuers = [Issuer(provider.issuer), Issuer(second_provider.issuer("acme"))]
    with secured_server(folder, "--store", store, issuers=issuers, **options) as server:
        address = Served(S3, server.process, seaweedfs_settings.s3)
        create_tables(server, **address.pyiceberg_properties)
        yield server, address


@pytest.fixture(scope="module")
def principal(served: tuple[SecuredServer, Served]) -> Login:
    return served[0].create_principal("trino", GROUP)


@pytest.fixture(params=["service principal", "program of a provider", "token of a provider"])
def oauth2(
    request: pytest.FixtureRequest,
    served: tuple[SecuredServer, Served],
    principal: Login,
    provider: OidcProvider,
    second_provider: MockOauth2,
) -> dict[str, str]:
    """The ways to log in.

    Trino sends its current token together with its secret. oidc-provider takes this for two logins and refuses it; the
    other provider does not.
    """
    ways = {
        "service principal": {"credential": ":".join(principal), "server-uri": served[0].token_endpoint},
        "program of a provider": {"credential": "etl:any", "server-uri": f"{second_provider.issuer('acme')}/token"},
        "token of a provider": {"token": provider.token()},
    }
    return ways[request.param]


@operation("Trino", "OAuth login", store=S3)
def test_trino_works_within_its_grants_and_is_refused_outside_them(
    oauth2: dict[str, str], served: tuple[SecuredServer, Served], tmp_path: Path
) -> None:
    _, address = served
    login = SECURED | {f"iceberg.rest-catalog.oauth2.{name}": value for name, value in oauth2.items()}
    try:
        with trino_with(tmp_path, _properties(address, login)) as trino:
            before = trino.sql("SELECT count(*) FROM sandur.sales.shared")[0][0]

            trino.sql("INSERT INTO sandur.sales.shared VALUES 2")

            assert trino.sql("SELECT count(*) FROM sandur.sales.shared") == [[before + 1]]
            assert trino.sql("SELECT number FROM sandur.sales.open") == [[1]]
            assert trino.sql("SHOW TABLES IN sandur.sales") == [["open"], ["shared"]]
            with pytest.raises(EngineError, match="MODIFY"):
                trino.sql("INSERT INTO sandur.sales.open VALUES 2")
            with pytest.raises(EngineError, match="does not exist"):
                trino.sql("SELECT * FROM sandur.sales.closed")
    except NotInstalled as reason:
        pytest.skip(str(reason))


@operation("Trino", "OAuth login", store=S3)
def test_trino_acts_for_its_users_if_it_may_impersonate_them(
    served: tuple[SecuredServer, Served], tmp_path: Path
) -> None:
    """Trino exchanges an unsigned token that names its user, with its own token as the actor."""
    server, address = served
    engine = server.create_principal("engine")
    server.grant("engine", ["USE CATALOG"], "catalog", "main")
    impersonation = {"changes": [{"principal": "engine", "add": ["IMPERSONATE"], "remove": []}]}
    server.administer("PATCH", "/api/sandur/v1/grants/metastore/metastore", impersonation)
    for name, groups in (("sandur", [GROUP]), ("bob", [])):
        server.administer("POST", PRINCIPALS, {"name": name, "kind": "user", "groups": groups})
    oauth2 = {"credential": ":".join(engine), "server-uri": server.token_endpoint}
    login = SECURED | {f"iceberg.rest-catalog.oauth2.{name}": value for name, value in oauth2.items()}
    login["iceberg.rest-catalog.session"] = "USER"
    try:
        with trino_with(tmp_path, _properties(address, login)) as trino:
            assert trino.sql("SHOW TABLES IN sandur.sales") == [["open"], ["shared"]]
            assert trino.sql("SELECT number FROM sandur.sales.open") == [[1]]
            with pytest.raises(EngineError, match="sandur may not do this: it needs MODIFY"):
                trino.sql("INSERT INTO sandur.sales.open VALUES 2")
            with pytest.raises(EngineError, match="does not exist"):
                trino.sql("SELECT number FROM sandur.sales.open", user="bob")
    except NotInstalled as reason:
        pytest.skip(str(reason))


def _properties(address: Served, login: Mapping[str, str]) -> str:
    return catalog_properties(address) + "".join(f"{name}={value}\n" for name, value in login.items())
