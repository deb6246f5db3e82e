"""Tables that PyIceberg wrote, dropped with a purge: the janitors of two servers delete every file."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.server.process import ServerProcess, server_process

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
PARTITIONED = PartitionSpec(PartitionField(2, 1_000, IdentityTransform(), "text"))
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "text": ["a", "b c/d=é", None]})
TRIES_MAX = 1_200
TRY_SECONDS = 0.1


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("purging")
    hurry = {"purge_delay": "PT1S", "janitor_interval": "PT1S", "fsync": "never"}
    with server_process(folder, "--workers", "2", **hurry) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(server: ServerProcess) -> RestCatalog:
    opened = load_catalog("sandur", type="rest", uri=server.url, warehouse="main")
    assert isinstance(opened, RestCatalog)
    opened.create_namespace("a")
    return opened


def _files(location: str) -> list[Path]:
    # `Path.rglob` fails if a janitor deletes a folder meanwhile; `os.walk` continues.
    walked = os.walk(location.removeprefix("file:"))
    return sorted(Path(folder, name) for folder, _, names in walked for name in names)


def _are_gone(location: str) -> bool:
    """Whether the files of a table are deleted within the time of some janitor runs."""
    pause = threading.Event()
    for _ in range(TRIES_MAX):
        if not _files(location):
            return True
        pause.wait(TRY_SECONDS)
    return False


def test_every_file_of_a_purged_table_is_deleted_and_no_other(catalog: RestCatalog) -> None:
    tables = [catalog.create_table(("a", name), SCHEMA, partition_spec=PARTITIONED) for name in ("purged", "kept")]
    for table in tables:
        table.append(ROWS)
        table.append(ROWS)
        table.delete("id = 2")
        with table.transaction() as transaction:
            transaction.set_properties(k="v")
    purged, kept = (table.location() for table in tables)
    before = _files(kept)
    assert len(_files(purged)) > 15

    catalog.purge_table(("a", "purged"))

    assert _are_gone(purged)
    assert _files(kept) == before
    assert catalog.load_table(("a", "kept")).scan().to_arrow().num_rows == 4


def test_a_dropped_table_keeps_its_files_and_can_be_registered_again(catalog: RestCatalog) -> None:
    table = catalog.create_table(("a", "dropped"), SCHEMA)
    table.append(ROWS)
    catalog.create_table(("a", "witness"), SCHEMA)
    witness = catalog.load_table(("a", "witness")).location()
    before = _files(table.location())
    location = table.metadata_location

    catalog.drop_table(("a", "dropped"))
    catalog.purge_table(("a", "witness"))

    assert _are_gone(witness)  # The janitors have run.
    assert _files(table.location()) == before
    assert catalog.register_table(("a", "again"), location).scan().to_arrow().num_rows == 3


def test_the_metrics_count_the_work_of_the_janitors(catalog: RestCatalog, server: ServerProcess) -> None:
    table = catalog.create_table(("a", "counted"), SCHEMA)
    table.append(ROWS)
    catalog.purge_table(("a", "counted"))
    assert _are_gone(table.location())
    pause, numbers = threading.Event(), ""
    for _ in range(TRIES_MAX):
        numbers = httpx.get(f"{server.url}/metrics").text
        if 'sandur_janitor_objects_total{outcome="purge_files_removed"}' in numbers:
            break
        pause.wait(TRY_SECONDS)  # A worker exports its metrics every few seconds.

    assert 'sandur_janitor_objects_total{outcome="purge_files_removed"}' in numbers
    assert 'sandur_janitor_runs_total{result="done"}' in numbers
