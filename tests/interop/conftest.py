"""Servers for real clients: one on a folder for most tests, one on a bucket for a pass over everything."""

import itertools
from collections.abc import Iterator

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from tests.server.process import ServerProcess, server_process

_numbers = itertools.count()


@pytest.fixture(scope="session")
def folder_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of two workers that deletes what it is told to purge at once."""
    folder = tmp_path_factory.mktemp("interop")
    hurried = {"purge_delay": "PT1S", "janitor_interval": "PT1S"}
    with server_process(folder, "--workers", "2", fsync="never", **hurried) as server:
        yield server


@pytest.fixture
def catalog(folder_server: ServerProcess) -> Iterator[RestCatalog]:
    opened = load_catalog("sandur", type="rest", uri=folder_server.url, warehouse="main")
    assert isinstance(opened, RestCatalog)
    yield opened
    opened.close()


@pytest.fixture
def namespace(catalog: RestCatalog) -> str:
    """A namespace of this test alone."""
    name = f"namespace_{next(_numbers)}"
    catalog.create_namespace(name)
    return name
