"""The recipes of `docs/engines.md` on S3, without keys, on a server as the page starts it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandur.settings import Settings
from tests.interop.engines.environments import NotInstalled, python_environment
from tests.interop.engines.recipes import run_bash_beside, s3_recipe
from tests.interop.matrix import S3, operation
from tests.interop.recipes import Recipe, recipes, runner_of
from tests.interop.server_address import server_settings
from tests.server.process import ServerProcess, server_process

# These run in seconds with what `make setup` installs; `make interop` runs the others.
QUICK = frozenset({"curl", "pyiceberg"})
HEAVY = frozenset({"duckdb", "polars", "daft", "datafusion", "ibis", "dbt", "flink", "iceberg-go", "iceberg-js"})
# Engines whose recipe is the only test without keys, with their names in the matrix.
ONLY_HERE = {"datafusion": "DataFusion", "ibis": "Ibis", "dbt": "dbt-duckdb", "iceberg-js": "iceberg-js"}
heavy = [pytest.mark.interop, pytest.mark.timeout(3_000)]


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of AWS in the environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def fresh_server(seaweedfs_sts: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("recipe")
    store = f"s3://sandur/{folder.name}"
    with server_process(folder, "--store", store, **server_settings(seaweedfs_sts.s3)) as server:
        yield server


def _marked(recipe: Recipe) -> object:
    noted = [operation(ONLY_HERE[recipe.name], "no keys", store=S3)] if recipe.name in ONLY_HERE else []
    return pytest.param(recipe, id=recipe.name, marks=[*noted, *([] if recipe.name in QUICK else heavy)])


@pytest.mark.parametrize("recipe", [_marked(recipe) for recipe in recipes() if recipe.name in QUICK | HEAVY])
def test_a_recipe_works_on_s3_as_it_is_printed(recipe: Recipe, fresh_server: ServerProcess, tmp_path: Path) -> None:
    printed = runner_of(recipe)(recipe.at(f"127.0.0.1:{fresh_server.port}"), tmp_path)

    assert printed.strip(), "a recipe prints something"


def test_every_recipe_that_needs_no_keys_is_on_the_page() -> None:
    assert {recipe.name for recipe in recipes()} >= QUICK | HEAVY


@pytest.mark.interop
@pytest.mark.timeout(3_000)
def test_the_recipe_of_spark_works(fresh_server: ServerProcess, seaweedfs_sts: Settings, tmp_path: Path) -> None:
    recipe = _on_s3("spark", fresh_server, seaweedfs_sts)

    assert "5" in runner_of(recipe)(recipe, tmp_path)


@pytest.mark.interop
@pytest.mark.timeout(3_000)
def test_the_recipe_of_clickhouse_works(fresh_server: ServerProcess, seaweedfs_sts: Settings, tmp_path: Path) -> None:
    try:
        interpreter = python_environment("chdb")
    except NotInstalled as reason:
        pytest.skip(f"chDB cannot be installed: {reason}")

    printed = run_bash_beside(interpreter, _on_s3("chdb", fresh_server, seaweedfs_sts), tmp_path)

    assert "DK" in printed
    assert "IS" not in printed


def _on_s3(name: str, server: ServerProcess, settings: Settings) -> Recipe:
    s3_address = settings.s3.endpoint.removeprefix("http://")
    return s3_recipe(name, address=f"127.0.0.1:{server.port}", s3_address=s3_address)
