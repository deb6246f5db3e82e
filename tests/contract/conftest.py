"""The stores under test, each test on a folder or prefix of its own."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from sandur.clock import SystemClock
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import open_store
from tests.servers import azurite, gcs, seaweedfs

STORES: Final = ("memory", "local", "local-unsynced", "seaweedfs", "azurite", "gcs")
VERSIONS_ARE_HASHES: Final = ("seaweedfs",)
"""Where equal bytes have equal versions: the exception of S3, for which the bodies of cells are unique."""

SHARED_BETWEEN_PROCESSES: Final = ("local", "local-unsynced", "seaweedfs")


class Address(NamedTuple):
    """Where a store is and how to open it, from any process."""

    name: str
    url: str
    settings: Settings

    @property
    def is_local(self) -> bool:
        return self.name.startswith("local")

    def open(self) -> ObjectStore:
        return open_store(self.url, self.settings)


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Address:
    fresh = SystemClock().new_id()
    match name := str(request.param):
        case "memory":
            return Address(name, "memory:", Settings())
        case "local":
            return Address(name, str(tmp_path / "store"), Settings(fsync="always"))
        case "local-unsynced":
            return Address(name, (tmp_path / "store").as_uri(), Settings(fsync="never"))
        case "seaweedfs":
            settings = request.getfixturevalue("seaweedfs_settings")
            return Address(name, f"s3://{seaweedfs.BUCKET}/{fresh}", settings)
        case "azurite":
            settings = request.getfixturevalue("azurite_settings")
            return Address(name, f"az://{azurite.CONTAINER}/{fresh}", settings)
        case "gcs":
            settings = request.getfixturevalue("gcs_settings")
            return Address(name, f"gs://{gcs.BUCKET}/{fresh}", settings)
        case _:
            raise ValueError(f"store {name}: unknown")


@pytest.fixture
async def store(address: Address) -> AsyncIterator[ObjectStore]:
    opened = address.open()
    yield opened
    await opened.close()
