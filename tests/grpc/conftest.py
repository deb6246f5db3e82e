"""Servers for the tests of the gRPC services."""

from collections.abc import AsyncIterator

import pytest

from tests.grpc.direct import Direct, opened
from tests.server.conftest import _quiet

__all__ = ["_quiet"]


@pytest.fixture
async def direct() -> AsyncIterator[Direct]:
    """The services of a fresh catalog in memory."""
    found = await opened()
    yield found
    await found.close()
