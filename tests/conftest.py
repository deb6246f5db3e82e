"""For every test: how examples are made up, and the servers, each started once per run and only when asked for."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from sandur.settings import Settings
from tests.servers.azurite import azurite, why_azurite_is_missing
from tests.servers.gcs import gcs_double
from tests.servers.seaweedfs import seaweedfs

# The same code is tried with the same examples, however slow the machine is: a run that fails does so again.
# `pytest --hypothesis-profile=by-chance` tries others.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("by-chance", settings.get_profile("repeatable"), derandomize=False)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def seaweedfs_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A real S3, with the bucket `sandur`."""
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as settings:
        yield settings


@pytest.fixture(scope="session")
def azurite_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A real Azure Blob Storage emulator, with the container `sandur`."""
    if reason := why_azurite_is_missing():
        pytest.skip(reason)
    with azurite(tmp_path_factory.mktemp("azurite")) as settings:
        yield settings


@pytest.fixture(scope="session")
def gcs_settings() -> Iterator[Settings]:
    """A double of Google Cloud Storage, with the bucket `sandur`."""
    with gcs_double() as settings:
        yield settings
