"""One server for all tests of the browser, and a browser for each."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from tests.browser.chromium import chromium, why_chromium_is_missing
from tests.browser.place import Place, place_in


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if reason := why_chromium_is_missing():
        pytest.skip(reason)
    with place_in(tmp_path_factory.mktemp("browser")) as filled:
        yield filled


@pytest.fixture
async def browser(place: Place) -> AsyncIterator[Browser]:
    del place  # It is skipped where no browser is.
    async with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Pictures of all pages, for people to look at."""
    folder = Path(__file__).parents[2] / ".pictures"
    folder.mkdir(exist_ok=True)
    return folder
