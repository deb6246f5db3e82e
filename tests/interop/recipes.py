"""Find and run the recipes of `docs/engines.md` and `docs/engines/`, unchanged except for the address of the server.

A recipe is a fenced block below `<!-- recipe: NAME -->`, or `<!-- login: NAME -->` for a server with authentication.
Python and shell run by themselves; other languages, and engines that need an environment of their own, have a runner of
that name in `RUNNERS`, or in `RUNNERS` of the module `recipes` of one of the packages in `CONTRIBUTORS`.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from demo.duckdb_sessions import EXTENSIONS, extension_file
from tests.interop.matrix import ROOT

PAGES: Final = (ROOT / "docs" / "engines.md", *sorted((ROOT / "docs" / "engines").glob("*.md")))
# The default address of a server: the only text that is replaced.
DEFAULT_ADDRESS: Final = "127.0.0.1:8181"
SECONDS_MAX: Final = 280
CONTRIBUTORS: Final = ("tests.interop.spark", "tests.interop.engines")

_BLOCK: Final = r" (?P<name>[\w.-]+) -->\n+```(?P<language>\w+)\n(?P<text>.*?)^```$"


@dataclass(frozen=True)
class Recipe:
    """A block of the page."""

    name: str
    language: str
    text: str

    def at(self, address: str) -> "Recipe":
        """The recipe for a server that listens at `host:port`."""
        return Recipe(self.name, self.language, self.text.replace(DEFAULT_ADDRESS, address))


# Runs a recipe in an empty folder and returns its output; raises if it fails.
Runner = Callable[[Recipe, Path], str]


def recipes(*pages: Path, mark: str = "recipe") -> list[Recipe]:
    """Every block of the pages with this mark; ValueError for a mark without a block, or a name that occurs twice."""
    found: list[Recipe] = []
    marked = f"^<!-- {mark}:"
    for page in pages or PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = list(re.finditer(marked + _BLOCK, text, re.MULTILINE | re.DOTALL))
        if len(blocks) != len(re.findall(marked, text, re.MULTILINE)):
            raise ValueError(f"{page.name}: a recipe is marked where no fenced block follows")
        found += [Recipe(match["name"], match["language"], match["text"]) for match in blocks]
        if len({recipe.name for recipe in found}) != len(found):
            raise ValueError(f"{page.name}: two recipes have the same name")
    return found


def runner_of(recipe: Recipe) -> Runner:
    runners: dict[str, Runner] = {**RUNNERS}
    for package in CONTRIBUTORS:
        runners |= _contributed(package)
    if recipe.name in runners:
        return runners[recipe.name]
    if recipe.language in _BY_LANGUAGE:
        return _BY_LANGUAGE[recipe.language]
    raise ValueError(f"recipe {recipe.name}: nothing here runs {recipe.language}")


def run_command(
    command: list[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    seconds_max: float = SECONDS_MAX,
) -> str:
    """What the command printed; PATH is that of an activated environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{command[0]}: ended with {done.returncode}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
        )
    return done.stdout


def _python(recipe: Recipe, folder: Path) -> str:
    return run_command([sys.executable, _written(recipe, folder, "recipe.py")], folder)


def _bash(recipe: Recipe, folder: Path) -> str:
    return run_command(["bash", "-euo", "pipefail", _written(recipe, folder, "recipe.sh")], folder)


def run_duckdb(recipe: Recipe, folder: Path) -> str:
    """Run statements in DuckDB; its extensions come from packages, so that INSTALL downloads nothing."""
    with duckdb.connect(config={"extension_directory": str(folder)}) as opened:
        for name in (*EXTENSIONS, "delta", "unity_catalog"):
            opened.execute(f"INSTALL '{extension_file(name)}'")
        for statement in opened.extract_statements(recipe.text):
            opened.execute(statement)
        return str(opened.fetchall())


def _written(recipe: Recipe, folder: Path, name: str) -> str:
    path = folder / name
    path.write_text(recipe.text, encoding="utf-8")
    return str(path)


def _contributed(package: str) -> dict[str, Runner]:
    if importlib.util.find_spec(package) is None or importlib.util.find_spec(f"{package}.recipes") is None:
        return {}
    found: dict[str, Runner] = importlib.import_module(f"{package}.recipes").RUNNERS
    return found


_BY_LANGUAGE: Final[dict[str, Runner]] = {"python": _python, "bash": _bash}
RUNNERS: Final[dict[str, Runner]] = {"duckdb": run_duckdb}
