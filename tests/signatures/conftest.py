"""Servers that sign, on a store in memory whose addresses are those of a bucket."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from sandur.storage.memory import MemoryStore
from tests.server.conftest import Catalogs
from tests.signatures.signing_server import SIGNING, SigningServer, set_up


@pytest.fixture
async def catalogs() -> AsyncIterator[Catalogs]:
    async with AsyncExitStack() as stack:
        yield Catalogs(stack)


@pytest.fixture
async def server(catalogs: Catalogs) -> SigningServer:
    return await set_up(await catalogs.open_with(SIGNING, MemoryStore()))
