"""Servers for real clients, one on a folder and one on a bucket, and the recorder of the engine matrix."""

from collections.abc import Generator, Iterator

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from sandur.settings import Settings
from tests.interop.matrix import FOLDER, RECORDER, S3, STORES
from tests.interop.server_address import Served, created_namespace, server_settings
from tests.server.process import ServerProcess, server_process

# A server that purges at once.
_HURRIED = {"purge_delay": "PT1S", "janitor_interval": "PT1S"}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "operation(engine, name, store=, cannot=): what the test shows an engine doing")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    RECORDER.note(item, report)
    return report


@pytest.fixture(scope="session")
def folder_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two workers on a fresh folder."""
    folder = tmp_path_factory.mktemp("interop")
    with server_process(folder, "--workers", "2", fsync="never", **_HURRIED) as server:
        yield server


@pytest.fixture(scope="session")
def bucket_server(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two workers on a fresh prefix of a real S3."""
    folder = tmp_path_factory.mktemp("interop-bucket")
    store = f"s3://sandur/{folder.name}"
    options = server_settings(seaweedfs_settings.s3)
    with server_process(folder, "--workers", "2", "--store", store, **options, **_HURRIED) as server:
        yield server


@pytest.fixture(scope="session", params=STORES)
def served(request: pytest.FixtureRequest) -> Served:
    """Each store in turn, with a running server on it."""
    if request.param == FOLDER:
        return Served(FOLDER, request.getfixturevalue("folder_server"))
    settings: Settings = request.getfixturevalue("seaweedfs_settings")
    return Served(S3, request.getfixturevalue("bucket_server"), settings.s3)


@pytest.fixture
def catalog(served: Served) -> Iterator[RestCatalog]:
    """A PyIceberg catalog on the store of the test."""
    opened = load_catalog("sandur", type="rest", uri=served.url, warehouse="main", **served.pyiceberg_properties)
    assert isinstance(opened, RestCatalog)
    yield opened
    opened.close()


@pytest.fixture
def namespace(served: Served) -> str:
    """A namespace that only this test uses, on the store of the test."""
    return created_namespace(served)


@pytest.fixture
def schema_name(namespace: str) -> str:
    """The namespace as an engine names it."""
    return namespace


@pytest.fixture(autouse=True)
def planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Polars plan with PyIceberg; it also does this, with a warning, if its own planner is not installed."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
