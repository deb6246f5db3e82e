"""Clients of Unity Catalog send tokens of the server or of an identity provider, and do what their grants allow."""

from collections.abc import AsyncIterator, Iterator

import pytest
import unitycatalog.client as uc
from unitycatalog.client.exceptions import ForbiddenException, NotFoundException, UnauthorizedException

from tests.interop.secured_lake import GROUP, create_tables
from tests.server.secured_server import Issuer, SecuredServer, secured_server
from tests.server.unity.client import UNITY
from tests.servers.oidc_provider import Client, OidcProvider


@pytest.fixture(scope="module")
def server(running_oidc_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("unity-logins")
    with secured_server(folder, issuers=[Issuer(running_oidc_provider.issuer)]) as running:
        create_tables(running)
        yield running


@pytest.fixture(scope="module")
def own_token(server: SecuredServer) -> str:
    return server.token(server.create_principal("loader", GROUP))


@pytest.fixture(params=["of the server", "of the provider"])
def token(request: pytest.FixtureRequest, own_token: str, oidc: OidcProvider) -> str:
    oidc.configure({"etl": Client(claims={"groups": [GROUP]})})
    return own_token if request.param == "of the server" else oidc.token()


@pytest.fixture
async def unity(server: SecuredServer, token: str) -> AsyncIterator[uc.ApiClient]:
    async with uc.ApiClient(uc.Configuration(host=f"{server.url}{UNITY}")) as opened:
        opened.set_default_header("Authorization", f"Bearer {token}")
        yield opened


async def test_a_client_of_unity_catalog_works_within_its_grants(unity: uc.ApiClient) -> None:
    listed = await uc.TablesApi(unity).list_tables("main", "sales")
    loaded = await uc.TablesApi(unity).get_table("main.sales.open")

    assert [table.name for table in listed.tables or []] == ["open", "shared"]
    assert loaded.name == "open"


async def test_a_client_of_unity_catalog_is_refused_outside_its_grants(unity: uc.ApiClient) -> None:
    with pytest.raises(ForbiddenException, match="CREATE SCHEMA"):
        await uc.SchemasApi(unity).create_schema(uc.CreateSchema(name="mine", catalog_name="main"))
    with pytest.raises(NotFoundException, match="does not exist"):
        await uc.TablesApi(unity).get_table("main.sales.closed")
    change = uc.PermissionsChange(principal=GROUP, add=[uc.Privilege.MODIFY], remove=[])
    with pytest.raises(ForbiddenException, match="MANAGE"):
        await uc.GrantsApi(unity).update(
            uc.SecurableType.TABLE, "main.sales.open", uc.UpdatePermissions(changes=[change])
        )


async def test_a_client_without_a_token_is_asked_for_one(server: SecuredServer) -> None:
    async with uc.ApiClient(uc.Configuration(host=f"{server.url}{UNITY}")) as stranger:
        with pytest.raises(UnauthorizedException, match="token"):
            await uc.CatalogsApi(stranger).list_catalogs()
