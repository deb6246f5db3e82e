"""Every recipe of `docs/engines.md` works on a fresh server, unchanged except for the address."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.recipes import DEFAULT_ADDRESS, Recipe, recipes, runner_of
from tests.server.process import ServerProcess, server_process

# These run in seconds with what `make setup` installs; `make interop` runs the others.
QUICK = frozenset({"curl", "pyiceberg", "duckdb", "unitycatalog-client"})


def _marked(recipe: Recipe) -> object:
    marks = [] if recipe.name in QUICK else [pytest.mark.interop, pytest.mark.timeout(3_000)]
    return pytest.param(recipe, id=recipe.name, marks=marks)


@pytest.fixture
def fresh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A fresh server for each recipe."""
    with server_process(tmp_path_factory.mktemp("recipe"), fsync="never") as server:
        yield server


@pytest.mark.parametrize("recipe", [_marked(recipe) for recipe in recipes()])
def test_a_recipe_works_as_it_is_printed(recipe: Recipe, fresh_server: ServerProcess, tmp_path: Path) -> None:
    printed = runner_of(recipe)(recipe.at(f"127.0.0.1:{fresh_server.port}"), tmp_path)

    assert printed.strip(), "a recipe prints something"


def test_every_quick_recipe_is_on_the_page() -> None:
    assert {recipe.name for recipe in recipes()} >= QUICK


def test_only_the_address_is_replaced() -> None:
    recipe = Recipe("r", "bash", f"curl http://{DEFAULT_ADDRESS}/v1/config # 127.0.0.1 main")

    assert recipe.at("h:1").text == "curl http://h:1/v1/config # 127.0.0.1 main"


@pytest.mark.parametrize(
    "text",
    [
        "<!-- recipe: a -->\n\nno block\n",
        "<!-- recipe: a -->\n```bash\ntrue\n```\n\n<!-- recipe: a -->\n```bash\nfalse\n```\n",
    ],
)
def test_a_page_whose_recipes_would_not_run_is_refused(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=r"page\.md"):
        recipes(page)
