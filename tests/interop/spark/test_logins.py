"""Spark logs in by every way it has, works within its grants, is refused outside them, and renews its tokens."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.interop.engines.conversation import Conversation, EngineError
from tests.interop.matrix import FOLDER, operation
from tests.interop.secured_lake import GROUP, create_tables
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST
from tests.interop.spark.spark_processes import SPARKS, catalog_of, running_spark
from tests.server.secured_server import Issuer, SecuredServer, secured_server
from tests.servers.oidc_provider import Client, OidcProvider

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

WAYS = ("service_principal", "token_of_the_server", "program_of_the_provider", "token_of_the_provider")
LOOKS_MAX, LOOK_SECONDS, PAUSE = 120, 0.5, threading.Event()
PROGRAMS = {
    "etl": Client(claims={"groups": [GROUP]}),
    "hasty": Client(claims={"groups": [GROUP]}, lifetime_seconds=10),
}


@pytest.fixture(scope="module")
def provider(running_oidc_provider: OidcProvider) -> OidcProvider:
    running_oidc_provider.reset()
    running_oidc_provider.configure(PROGRAMS)
    return running_oidc_provider


@pytest.fixture(scope="module")
def server(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    SPARKS.end()
    with secured_server(tmp_path_factory.mktemp("logins"), issuers=[Issuer(provider.issuer)]) as running:
        create_tables(running)
        yield running


@pytest.fixture(scope="module")
def spark(
    server: SecuredServer, provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Conversation]:
    served = Served(FOLDER, server.process)
    login = server.create_principal("spark", GROUP)
    # The provider has no token exchange, with which Iceberg renews tokens by default.
    at_provider = {"oauth2-server-uri": provider.token_endpoint, "token-exchange-enabled": "false"}
    secret = provider.secret("etl")
    catalogs = [
        catalog_of(served, name="service_principal", credential=":".join(login)),
        catalog_of(served, name="token_of_the_server", token=server.token(login)),
        catalog_of(served, name="program_of_the_provider", credential=f"etl:{secret}", properties=at_provider),
        catalog_of(served, name="token_of_the_provider", token=provider.token()),
        catalog_of(served, name="hasty", credential=f"hasty:{secret}", properties=at_provider),
        catalog_of(served, name="stranger", credential=f"{login.client_id}:wrong"),
    ]
    with running_spark(LATEST, tmp_path_factory.mktemp("spark-logins"), catalogs) as running:
        yield running


@pytest.mark.parametrize("way", WAYS)
@operation("Spark", "OAuth login", store=FOLDER)
def test_spark_works_within_its_grants(spark: Conversation, way: str) -> None:
    before = spark.sql(f"SELECT count(*) FROM {way}.sales.shared")[0][0]

    spark.sql(f"INSERT INTO {way}.sales.shared VALUES (2)")

    assert spark.sql(f"SELECT count(*) FROM {way}.sales.shared") == [[before + 1]]
    assert spark.sql(f"SELECT * FROM {way}.sales.open") == [[1]]


@pytest.mark.parametrize("way", WAYS)
@operation("Spark", "OAuth login", store=FOLDER)
def test_spark_is_refused_outside_its_grants(spark: Conversation, way: str) -> None:
    with pytest.raises(EngineError, match="MODIFY"):
        spark.sql(f"INSERT INTO {way}.sales.open VALUES (2)")
    with pytest.raises(EngineError, match="CREATE TABLE"):
        spark.sql(f"CREATE TABLE {way}.sales.new (number BIGINT)")
    with pytest.raises(EngineError, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {way}.sales.closed")
    assert sorted(row[1] for row in spark.sql(f"SHOW TABLES IN {way}.sales")) == ["open", "shared"]


def test_spark_renews_a_token_of_the_provider_by_logging_in_again(spark: Conversation, provider: OidcProvider) -> None:
    wait_for_renewals(spark, "hasty", lambda: provider.fetches().token)


def test_a_wrong_secret_is_refused_with_a_reason(spark: Conversation) -> None:
    with pytest.raises(EngineError, match=r"NotAuthorized.*invalid_client"):
        spark.sql("SHOW NAMESPACES IN stranger")


def test_spark_renews_a_token_of_the_server_by_exchanging_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    SPARKS.end()
    with secured_server(tmp_path_factory.mktemp("renewal"), token_lifetime="PT10S") as server:  # noqa: S106 - no secret
        create_tables(server)
        login = server.create_principal("spark", GROUP)
        catalog = catalog_of(Served(FOLDER, server.process), name="renewing", credential=":".join(login))

        with running_spark(LATEST, tmp_path_factory.mktemp("spark-renewal"), [catalog]) as spark:
            wait_for_renewals(
                spark, "renewing", lambda: server.process.log.count("route='/v1/oauth/tokens' status=200")
            )


def wait_for_renewals(spark: Conversation, catalog: str, count: Callable[[], int]) -> None:
    """Use the catalog until it has renewed its token twice, so that its first one has ended."""
    spark.sql(f"SHOW NAMESPACES IN {catalog}")
    before = count()
    for _ in range(LOOKS_MAX):
        spark.sql(f"SHOW NAMESPACES IN {catalog}")
        if count() >= before + 2:
            return
        PAUSE.wait(LOOK_SECONDS)
    raise AssertionError(f"{catalog} did not renew its token")
