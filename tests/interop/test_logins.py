"""Real clients log in, work within their grants and are refused outside them, with errors that say why."""

from collections.abc import Iterator

import pytest
from pyiceberg.exceptions import RESTError

from tests.interop.clients import WAYS, Client, Identity, Way, logged_in, pyiceberg_with_token
from tests.interop.secured_lake import GROUP, create_tables
from tests.server.secured_server import Issuer, Login, SecuredServer, secured_server
from tests.servers.oidc_provider import Client as Program
from tests.servers.oidc_provider import OidcProvider


@pytest.fixture(scope="module")
def server(running_oidc_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    folder = tmp_path_factory.mktemp("logins")
    with secured_server(folder, issuers=[Issuer(running_oidc_provider.issuer)]) as running:
        create_tables(running)
        yield running


@pytest.fixture(scope="module")
def principal(server: SecuredServer) -> Login:
    return server.create_principal("loader", GROUP)


@pytest.fixture(params=["a service principal", "a program of the provider"])
def identity(request: pytest.FixtureRequest, server: SecuredServer, principal: Login, oidc: OidcProvider) -> Identity:
    if request.param == "a service principal":
        return Identity(server.token_endpoint, *principal, server.token(principal))
    oidc.configure({"etl": Program(claims={"groups": [GROUP]})})
    return Identity(oidc.token_endpoint, "etl", oidc.secret("etl"), oidc.token("etl"))


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def client(request: pytest.FixtureRequest, server: SecuredServer, identity: Identity) -> Iterator[Client]:
    way: Way = request.param
    with logged_in(way, server, identity) as opened:
        yield opened


def test_a_client_works_within_its_grants(client: Client) -> None:
    before = client.rows("shared")

    client.append("shared", 2)

    assert sorted(client.rows("shared")) == sorted([*before, 2])
    assert client.rows("open") == [1]


def test_a_client_is_refused_outside_its_grants(client: Client) -> None:
    with pytest.raises(Exception, match="MODIFY"):
        client.append("open", 2)
    with pytest.raises(Exception, match="CREATE TABLE"):
        client.create("new")
    with pytest.raises(Exception, match="does not exist"):
        client.rows("closed")
    assert client.tables() == ["open", "shared"]


@pytest.mark.parametrize("way", [way for way in WAYS if "token" not in way.__name__], ids=lambda way: way.__name__)
def test_a_wrong_secret_is_refused_with_a_reason(way: Way, server: SecuredServer, identity: Identity) -> None:
    wrong = identity._replace(client_secret="wrong")  # noqa: S106 - it is wrong

    with pytest.raises(Exception, match=r"(?i)invalid_client|401|unauthorized"), logged_in(way, server, wrong):
        pass


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_deleted_principal_is_refused_at_its_next_request(way: Way, server: SecuredServer) -> None:
    login = server.create_principal("leaver", GROUP)
    who = Identity(server.token_endpoint, *login, server.token(login))

    with logged_in(way, server, who) as client:
        assert client.rows("open") == [1]

        server.delete_principal("leaver")

        with pytest.raises(Exception, match=r"(?i)invalid_client|not authorized|revoked"):
            client.append("shared", 3)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_revoked_grant_ends_at_the_next_request(way: Way, server: SecuredServer, principal: Login) -> None:
    who = Identity(server.token_endpoint, *principal, server.token(principal))

    with logged_in(way, server, who) as client:
        client.append("shared", 3)

        server.revoke(GROUP, ["MODIFY"], "table", "main.sales.shared")

        try:
            with pytest.raises(Exception, match="MODIFY"):
                client.append("shared", 4)
        finally:
            server.grant(GROUP, ["MODIFY"], "table", "main.sales.shared")


def test_a_person_logs_in_at_the_provider_and_reads_with_pyiceberg(server: SecuredServer, oidc: OidcProvider) -> None:
    oidc.configure(people={"ann": {"groups": [GROUP]}, "bob": {"groups": []}})
    ann, bob = (Identity("", "", "", oidc.login(person).access_token) for person in ("ann", "bob"))

    with logged_in(pyiceberg_with_token, server, ann) as client:
        assert client.tables() == ["open", "shared"]
    with pytest.raises(RESTError, match="Warehouse does not exist"), logged_in(pyiceberg_with_token, server, bob):
        pass
