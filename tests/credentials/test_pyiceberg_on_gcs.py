"""PyIceberg on Google Cloud Storage without keys: it has only the tokens of the catalog, each for one table."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from sandur.clock import SystemClock
from tests.server.process import server_process
from tests.servers.gcs import BUCKET, TOKEN, gcs_process

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    """A catalog of a server whose root is a bucket of the double, and that gives out tokens."""
    folder = tmp_path_factory.mktemp("gcs")
    (folder / "double").mkdir()
    with gcs_process(folder / "double") as settings:
        gcs = settings.gcs
        with server_process(
            folder,
            "--store",
            f"gs://{BUCKET}/lake",
            gcs_endpoint=gcs.endpoint,
            gcs_bearer_token=TOKEN,
            gcs_sts_endpoint=gcs.sts_endpoint,
            gcs_access="vend",
        ) as server:
            opened = load_catalog("sandur", type="rest", uri=server.url, warehouse="main")
            assert isinstance(opened, RestCatalog)
            opened.create_namespace("sales")
            yield opened
            opened.close()
            assert TOKEN not in server.log


def made(catalog: Catalog, name: str) -> Table:
    table = catalog.create_table(f"sales.{name}", ROWS.schema)
    table.append(ROWS)
    return table


def read(io: FileIO, location: str) -> bytes:
    with io.new_input(location).open() as file:
        return file.read()


def test_a_client_without_keys_writes_and_reads_its_table(catalog: RestCatalog) -> None:
    made(catalog, "orders").append(ROWS)

    found = catalog.load_table("sales.orders")

    assert found.scan().to_arrow().num_rows == 6
    assert found.io.properties["gcs.oauth2.token"] != TOKEN


def test_a_token_is_refreshed_as_java_does_it(catalog: RestCatalog) -> None:
    """Java follows the endpoint in the properties, and wants exactly one entry, with a token and its expiry."""
    made(catalog, "refreshed")
    table = catalog.load_table("sales.refreshed")
    endpoint = table.config["gcs.oauth2.refresh-credentials-endpoint"]

    answer = httpx.get(f"{catalog.uri.rstrip('/')}/{endpoint.lstrip('/')}").raise_for_status().json()

    [entry] = answer["storage-credentials"]
    assert table.location().startswith(entry["prefix"])
    assert entry["config"]["gcs.oauth2.token"] != TOKEN
    assert int(entry["config"]["gcs.oauth2.token-expires-at"]) > SystemClock().now_ms()


def test_the_token_of_one_table_opens_no_other(catalog: RestCatalog) -> None:
    one, other = made(catalog, "one"), made(catalog, "other")

    assert read(one.io, one.metadata_location)
    with pytest.raises(PermissionError):
        read(one.io, other.metadata_location)
    with pytest.raises(PermissionError), one.io.new_output(f"{other.location()}/data/x").create() as file:
        file.write(b"x")
    with pytest.raises(PermissionError):
        one.io.delete(other.metadata_location)


def test_the_token_of_a_table_opens_no_sibling_whose_name_begins_alike(catalog: RestCatalog, tmp_path: Path) -> None:
    table = made(catalog, "alike")

    with (
        pytest.raises(PermissionError),
        table.io.new_output(f"{table.location()}-x/{tmp_path.name}").create() as file,
    ):
        file.write(b"x")
