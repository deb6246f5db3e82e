"""Engines without any keys on S3: the server gives them temporary credentials, for one table at a time.

Every engine is logged in, with grants. It creates, writes and reads; the store refuses it the files of a neighbour, and
every write of a reader. `sales.trap` has a file of the neighbour: an engine that reads it follows that path with the
credential of the trap.
"""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from sandur.settings import S3Settings, Settings
from tests.interop.cross import ADDED_ROW, ROWS, Reader, Row, Writer, contributed_readers, contributed_writers
from tests.interop.cross_python import READERS, WRITERS
from tests.interop.duckdb_sessions import Duck
from tests.interop.keyless_lake import KeylessLake, keyless_lake
from tests.interop.matrix import S3, operation

ALL_READERS: Final = {reader.engine: reader for reader in (*READERS, *contributed_readers()) if S3 in reader.stores}
ALL_WRITERS: Final = {writer.engine: writer for writer in (*WRITERS, *contributed_writers()) if S3 in writer.stores}
REFUSED_BY_STORE: Final = r"(?is)403|access.?denied|forbidden|permission"
REFUSED: Final = rf"{REFUSED_BY_STORE}|MODIFY"

# Engines that take no credentials from a catalog.
NEEDS_KEYS: Final = {"Sail": "Sail 0.7.2 has no vended credentials; it reads keys from its environment"}
# Engines that write only to tables which another engine created: they need keys to create one.
NEEDS_KEYS_TO_CREATE: Final = frozenset({"chDB"})


@pytest.fixture(scope="module", autouse=True)
def no_keys() -> Iterator[None]:
    """An environment without anything of AWS, for this process and the engines that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def lake(seaweedfs_sts: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeylessLake]:
    with keyless_lake(tmp_path_factory.mktemp("keyless"), seaweedfs_sts.s3) as running:
        yield running


def engines(operation_name: str, *, writing: bool = False) -> pytest.MarkDecorator:
    """The mark of a test of every engine, or of every one that writes."""
    return pytest.mark.parametrize(
        "engine",
        [
            pytest.param(
                name,
                id=name,
                marks=[operation(name, operation_name, store=S3), *_heavy(reader)],
            )
            for name, reader in ALL_READERS.items()
            if name not in NEEDS_KEYS and (name in ALL_WRITERS or not writing)
        ],
    )


def _heavy(reader: Reader) -> list[pytest.MarkDecorator]:
    return [] if reader.is_quick else [pytest.mark.interop, pytest.mark.timeout(3_000)]


def in_order(rows: object) -> list[Row]:
    assert isinstance(rows, list)
    return sorted((tuple(row) for row in rows), key=lambda row: str(row[0]))


def secret_without_keys(s3: S3Settings) -> str:
    """Where DuckDB finds the files of other tables, as a client that is not known there."""
    address = s3.endpoint.removeprefix("http://")
    return f"CREATE SECRET (TYPE s3, ENDPOINT '{address}', URL_STYLE 'path', USE_SSL false, REGION '{s3.region}')"


@engines("no keys", writing=True)
def test_an_engine_creates_writes_and_reads(engine: str, lake: KeylessLake) -> None:
    creator: Writer = ALL_WRITERS["PyIceberg" if engine in NEEDS_KEYS_TO_CREATE else engine]
    name = engine.lower().replace("-", "_")

    creator.write(lake.writer, "work", name)
    ALL_WRITERS[engine].append(lake.writer, "work", name)

    assert in_order(ALL_READERS[engine].read(lake.writer, "work", name)) == [*ROWS, ADDED_ROW]


@pytest.mark.interop
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize(
    "engine",
    [pytest.param(name, marks=operation(name, "no keys", store=S3, cannot=why)) for name, why in NEEDS_KEYS.items()],
)
def test_an_engine_that_takes_no_credentials_needs_keys(engine: str, lake: KeylessLake) -> None:
    with pytest.raises(Exception, match=r"(?i)credential|IMDS"):
        list(ALL_READERS[engine].read(lake.reader, "sales", "prices"))


@engines("no keys: neighbour refused")
def test_the_store_refuses_the_files_of_a_neighbour(engine: str, lake: KeylessLake) -> None:
    if engine == "DuckDB":
        # It uses a credential only below the table, and would look for all other files at Amazon.
        Duck(lake.writer, "sales")(secret_without_keys(lake.s3))

    with pytest.raises(Exception, match=REFUSED_BY_STORE):
        list(ALL_READERS[engine].read(lake.writer, "sales", "trap"))


@engines("no keys: reader reads")
def test_a_reader_reads(engine: str, lake: KeylessLake) -> None:
    assert in_order(list(ALL_READERS[engine].read(lake.reader, "sales", "prices"))) == list(ROWS)


@engines("no keys: reader refused", writing=True)
def test_a_reader_cannot_write(engine: str, lake: KeylessLake) -> None:
    location = lake.location("sales.prices")
    before = lake.keys_below(location)

    with pytest.raises(Exception, match=REFUSED):
        ALL_WRITERS[engine].append(lake.reader, "sales", "prices")

    assert lake.keys_below(location) == before
