"""How the recipes of the heavy engines are run: each in the environment of its engine."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.interop.engines.environments import (
    NotInstalled,
    cargo_program,
    go_program,
    install_duckdb_extensions,
    node_modules,
    python_environment,
)
from tests.interop.engines.flink import flink_environment, flink_interpreter
from tests.interop.recipes import DEFAULT_ADDRESS, PAGES, Recipe, Runner, run_command

T = TypeVar("T")

DEFAULT_S3_ADDRESS: Final = "127.0.0.1:8333"

_ON_S3: Final = re.compile(
    r"^<!-- recipe on S3: (?P<name>[\w-]+) -->\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def s3_recipe(name: str, *, address: str, s3_address: str) -> Recipe:
    """A recipe for a server on S3, with both addresses in their places."""
    for match in _ON_S3.finditer("\n".join(page.read_text(encoding="utf-8") for page in PAGES)):
        if match["name"] == name:
            text = match["text"].replace(DEFAULT_ADDRESS, address).replace(DEFAULT_S3_ADDRESS, s3_address)
            return Recipe(name, match["language"], text)
    raise ValueError(f"docs/engines: no recipe on S3 is called {name}")


def run_bash_beside(interpreter: Path, recipe: Recipe, folder: Path) -> str:
    """Run a shell recipe that means the engine's own Python when it says `python`."""
    script = folder / "recipe.sh"
    script.write_text(recipe.text, encoding="utf-8")
    lines = f'export PATH="{interpreter.parent}:$PATH"; source {script}'
    return run_command(["bash", "-euo", "pipefail", "-c", lines], folder)


def _in_environment(engine: str, interpreter: Callable[[], Path], **environment: str) -> Runner:
    def run(recipe: Recipe, folder: Path) -> str:
        script = folder / "recipe.py"
        script.write_text(recipe.text, encoding="utf-8")
        return run_command([str(_had(engine, interpreter)), str(script)], folder, environment)

    return run


def _run_ibis(recipe: Recipe, folder: Path) -> str:
    install_duckdb_extensions(_had("Ibis", lambda: python_environment("ibis")), folder)
    return _in_environment("Ibis", lambda: python_environment("ibis"), HOME=str(folder))(recipe, folder)


def _run_dbt(recipe: Recipe, folder: Path) -> str:
    interpreter = _had("dbt", lambda: python_environment("dbt"))
    install_duckdb_extensions(interpreter, folder)
    home = Recipe(recipe.name, recipe.language, f'export HOME="{folder}"\n{recipe.text}')
    return run_bash_beside(interpreter, home, folder)


def _run_flink(recipe: Recipe, folder: Path) -> str:
    return _in_environment("Flink", flink_interpreter, **_had("Flink", flink_environment))(recipe, folder)


def _run_iceberg_js(recipe: Recipe, folder: Path) -> str:
    home = _had("iceberg-js", lambda: node_modules("iceberg-js"))
    (folder / "node_modules").symlink_to(home / "node_modules")
    script = folder / "recipe.mjs"
    script.write_text(recipe.text, encoding="utf-8")
    return run_command([shutil.which("node") or "node", str(script)], folder)


def _run_iceberg_go(recipe: Recipe, folder: Path) -> str:
    _had("iceberg-go", lambda: go_program("iceberg_go"))  # Everything that it needs is compiled then.
    for name in ("go.mod", "go.sum"):
        shutil.copy(Path(__file__).parent / "iceberg_go" / name, folder)
    (folder / "main.go").write_text(recipe.text, encoding="utf-8")
    return run_command([shutil.which("go") or "go", "run", "."], folder)


def _run_iceberg_rust(recipe: Recipe, folder: Path) -> str:
    """With the crates of the program that the tests talk to, which are compiled then."""
    program = _had("iceberg-rust", lambda: cargo_program("iceberg_rust"))
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(program.with_name("sources") / name, folder)
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(recipe.text, encoding="utf-8")
    command = [
        shutil.which("cargo") or "cargo",
        "run",
        "--quiet",
        "--locked",
        "--target-dir",
        str(program.with_name("target")),
    ]
    return run_command(command, folder)


def _had(engine: str, get: Callable[[], T]) -> T:
    try:
        return get()
    except NotInstalled as reason:
        pytest.skip(f"{engine} cannot be installed: {reason}")


RUNNERS: Final[dict[str, Runner]] = {
    "daft": _in_environment("Daft", lambda: python_environment("daft")),
    "datafusion": _in_environment("DataFusion", lambda: python_environment("datafusion")),
    "sail": _in_environment("Sail", lambda: python_environment("sail")),
    "ibis": _run_ibis,
    "dbt": _run_dbt,
    "dlt": _in_environment("dlt", lambda: python_environment("dlt")),
    "flink": _run_flink,
    "iceberg-js": _run_iceberg_js,
    "iceberg-go": _run_iceberg_go,
    "iceberg-rust": _run_iceberg_rust,
}
