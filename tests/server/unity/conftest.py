"""The Unity Catalog API of a server in this process."""

import httpx
import pytest

from tests.server.unity.client import CONTROL, Unity


@pytest.fixture
def unity(client: httpx.AsyncClient) -> Unity:
    return Unity(client)


@pytest.fixture
def control(client: httpx.AsyncClient) -> Unity:
    return Unity(client, CONTROL)


@pytest.fixture
async def schema(unity: Unity) -> str:
    """The schema main.s."""
    await unity.made("/schemas", {"catalog_name": "main", "name": "s"})
    return "main.s"
