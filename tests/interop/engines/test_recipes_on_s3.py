"""The recipes of `docs/engines.md` that want tables on S3, on a server as the page starts it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandur.settings import Settings
from tests.interop.engines.environments import NotInstalled, python_environment
from tests.interop.engines.recipes import run_bash_beside, s3_recipe
from tests.interop.server_address import server_settings
from tests.server.process import ServerProcess, server_process

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]


@pytest.fixture
def fresh_server(seaweedfs_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("recipe")
    with server_process(folder, "--store", "s3://sandur/catalog", **server_settings(seaweedfs_settings.s3)) as server:
        yield server


def test_the_recipe_of_clickhouse_works(
    fresh_server: ServerProcess, seaweedfs_settings: Settings, tmp_path: Path
) -> None:
    try:
        interpreter = python_environment("chdb")
    except NotInstalled as reason:
        pytest.skip(f"chDB cannot be installed: {reason}")
    s3_address = seaweedfs_settings.s3.endpoint.removeprefix("http://")
    recipe = s3_recipe("chdb", address=f"127.0.0.1:{fresh_server.port}", s3_address=s3_address)

    printed = run_bash_beside(interpreter, recipe, tmp_path)

    assert "DK" in printed
    assert "IS" not in printed
