"""Fixtures of all tests: Hypothesis profiles, and servers that start once per run and only if needed."""

import logging
from collections.abc import Iterator
from typing import Final

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from sandur.settings import Settings
from tests.servers.azurite import azurite, why_azurite_is_missing
from tests.servers.gcs import gcs_double
from tests.servers.oidc_provider import OidcProvider, oidc_provider, why_oidc_provider_is_missing
from tests.servers.seaweedfs import seaweedfs, with_vending

# Examples are the same in every run and have no deadline, so that a failure can be reproduced.
# `pytest --hypothesis-profile=by-chance` uses random ones.
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
def seaweedfs_sts(seaweedfs_settings: Settings) -> Settings:
    """The same S3, with a role whose temporary credentials the catalog gives to its clients (`s3.access=vend`)."""
    return with_vending(seaweedfs_settings)


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


@pytest.fixture(scope="session")
def running_oidc_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcProvider]:
    """A real OpenID Connect provider."""
    if reason := why_oidc_provider_is_missing():
        pytest.skip(reason)
    with oidc_provider(tmp_path_factory.mktemp("oidc-provider")) as provider:
        yield provider


@pytest.fixture
def oidc(running_oidc_provider: OidcProvider) -> OidcProvider:
    """The same provider as it was after its start, whatever an earlier test did to it. Its newest keys stay."""
    running_oidc_provider.reset()
    return running_oidc_provider


@pytest.fixture(autouse=True)
def same_logging_for_every_test() -> Iterator[None]:
    """A server that a test starts in this process configures the log of the process."""
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**configuration)
    root.handlers[:] = handlers
    root.setLevel(level)


_SHARING_FOLDER: Final = "tests/pipeline/"
"""A folder whose tests share a session of Spark, which takes long to start."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that one process runs longest, so that the other process has work until the end."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SHARING_FOLDER))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Of two processes, run the tests of one file, or of a folder that shares something, in the same one."""
    return _BySharedFixtures(config, log)


class _BySharedFixtures(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        return _SHARING_FOLDER if nodeid.startswith(_SHARING_FOLDER) else nodeid.partition("::")[0]
