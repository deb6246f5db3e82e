"""Every engine on a server that requires a token: with the token the catalog opens, without it nothing is readable."""

import dataclasses
from collections.abc import Iterator

import pytest

from sandur.settings import Settings
from tests.interop.cross import ROWS, Reader, Writer
from tests.interop.cross_python import READERS as PYTHON_READERS
from tests.interop.cross_python import WRITERS as PYTHON_WRITERS
from tests.interop.engines.conversation import EngineError
from tests.interop.engines.cross import READERS, WRITERS
from tests.interop.engines.registry import opened
from tests.interop.matrix import FOLDER, S3, operation
from tests.interop.server_address import Served, created_namespace, server_settings
from tests.server.logins import ADMIN_SECRET, created_api_key
from tests.server.process import server_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

REFUSED = r"(?i)401|not.?authori[sz]ed|unauthori[sz]ed|bearer|authorization"

PYICEBERG, POLARS = PYTHON_WRITERS[0], PYTHON_WRITERS[2]
ALL_READERS = {reader.engine: reader for reader in (PYTHON_READERS[2], *READERS)}
ALL_WRITERS = {writer.engine: writer for writer in (POLARS, *WRITERS)}


@pytest.fixture(scope="module")
def folder_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("secured")
    with server_process(folder, authentication="on", admin_secret=ADMIN_SECRET, fsync="never") as server:
        yield Served(FOLDER, server, token=created_api_key(server.url))


@pytest.fixture(scope="module")
def bucket_secured(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("secured-bucket")
    options = server_settings(seaweedfs_settings.s3)
    store = f"s3://sandur/{folder.name}"
    with server_process(folder, "--store", store, authentication="on", admin_secret=ADMIN_SECRET, **options) as server:
        yield Served(S3, server, seaweedfs_settings.s3, created_api_key(server.url))


@pytest.fixture
def secured(reader: Reader, request: pytest.FixtureRequest) -> Served:
    """A server with the kind of store that the engine reaches."""
    found: Served = request.getfixturevalue("folder_secured" if FOLDER in reader.stores else "bucket_secured")
    return found


each_engine = pytest.mark.parametrize(
    "reader",
    [
        pytest.param(
            reader,
            id=reader.engine,
            marks=operation(reader.engine, "bearer token", store=FOLDER if FOLDER in reader.stores else S3),
        )
        for reader in ALL_READERS.values()
    ],
)


@each_engine
def test_who_shows_a_token_writes_and_reads(reader: Reader, secured: Served) -> None:
    """An engine that only reads has its table written by PyIceberg."""
    namespace = created_namespace(secured)
    writer: Writer = ALL_WRITERS.get(reader.engine, PYICEBERG)

    writer.write(secured, namespace, "t")

    found = reader.read(secured, namespace, "t")
    assert sorted((tuple(row) for row in found), key=lambda row: str(row[0])) == list(ROWS)


@each_engine
def test_who_shows_none_is_refused(reader: Reader, secured: Served) -> None:
    namespace = created_namespace(secured)
    PYICEBERG.write(secured, namespace, "t")

    with pytest.raises(Exception, match=REFUSED):
        list(reader.read(dataclasses.replace(secured, token=""), namespace, "t"))


@operation("iceberg-js", "bearer token", store=FOLDER)
def test_iceberg_js_shows_a_token(folder_secured: Served) -> None:
    namespace = created_namespace(folder_secured)
    call: dict[str, object] = {"call": "listNamespaces", "with": []}

    listed = opened("iceberg-js", folder_secured).ask(**call)

    assert {"namespace": [namespace]} in listed
    with pytest.raises(EngineError, match=REFUSED):
        opened("iceberg-js", dataclasses.replace(folder_secured, token="")).ask(**call)
