"""dbt-duckdb against a server on a folder and on a bucket: seeds, tables and incremental models."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.interop.engines.environments import NotInstalled, install_duckdb_extensions, python_environment
from tests.interop.engines.registry import VERSIONS
from tests.interop.matrix import RECORDER, ROOT, operation
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

PAGE = ROOT / "docs" / "engines" / "dbt.md"
PROJECT = Path(__file__).parent / "dbt_project"


@dataclass(frozen=True)
class Project:
    """A copy of the project, for one namespace."""

    folder: Path
    dbt: Path
    environment: dict[str, str]

    def build(self, **variables: object) -> str:
        """Run all seeds and models; the output of dbt, which names what failed."""
        command = [str(self.dbt), "build", "--profiles-dir", ".", "--vars", json.dumps(variables)]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=280, check=False
        )
        return f"{done.returncode}\n{done.stdout}"


@pytest.fixture
def project(served: Served, schema_name: str, tmp_path: Path) -> Project:
    try:
        interpreter = python_environment("dbt")
    except NotInstalled as reason:
        pytest.skip(f"dbt cannot be installed: {reason}")
    RECORDER.version("dbt-duckdb", VERSIONS["dbt-duckdb"])
    folder = Path(shutil.copytree(PROJECT, tmp_path / "shop"))
    install_duckdb_extensions(interpreter, tmp_path)
    environment = {**os.environ, "HOME": str(tmp_path), "SHOP_URI": served.url, "SHOP_SCHEMA": schema_name}
    if served.s3 is not None:
        environment |= {
            "SHOP_S3_ENDPOINT": served.s3.endpoint.removeprefix("http://"),
            "SHOP_S3_REGION": served.s3.region,
            "SHOP_S3_ACCESS_KEY_ID": served.s3.access_key_id,
            "SHOP_S3_SECRET_ACCESS_KEY": served.s3.secret_access_key,
        }
    return Project(folder, interpreter.with_name("dbt"), environment)


def rows_of(catalog: RestCatalog, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in catalog.load_table(name).scan().to_arrow().to_pylist())


@operation("dbt-duckdb", "dbt: seed")
@operation("dbt-duckdb", "dbt: table")
@operation("dbt-duckdb", "dbt: incremental")
def test_a_project_is_built_and_built_again(project: Project, catalog: RestCatalog, schema_name: str) -> None:
    first = project.build()
    before = {name: rows_of(catalog, f"{schema_name}.{name}") for name in ("countries", "orders", "billed")}
    second = project.build(is_later=True)
    after = {name: rows_of(catalog, f"{schema_name}.{name}") for name in ("countries", "orders", "billed")}

    assert first.startswith("0\n"), first
    assert second.startswith("0\n"), second
    countries = [("DK", "Denmark"), ("FO", "Faroe Islands"), ("IS", "Iceland")]
    assert before["countries"] == after["countries"] == countries
    assert [row[:2] for row in before["orders"]] == [(1, "IS"), (2, "DK")]
    assert [row[:2] for row in after["orders"]] == [(1, "IS"), (2, "FO"), (3, "IS")]
    assert before["billed"] == [(1, "Iceland", 10.5), (2, "Denmark", 20.0)]
    assert after["billed"] == [(1, "Iceland", 10.5), (2, "Faroe Islands", 21.0), (3, "Iceland", 5.0)]


def test_a_table_keeps_its_history_when_it_is_built_again(
    project: Project, catalog: RestCatalog, schema_name: str
) -> None:
    project.build()
    first = catalog.load_table(f"{schema_name}.orders")
    project.build(is_later=True)
    second = catalog.load_table(f"{schema_name}.orders")

    assert second.metadata.table_uuid == first.metadata.table_uuid
    assert first.current_snapshot() in second.snapshots()


@operation(
    "dbt-duckdb",
    "dbt: table without the macro",
    cannot="dbt renames a table inside a transaction, which DuckDB's extension refuses",
)
def test_tables_need_the_macro_of_the_recipe(project: Project) -> None:
    (project.folder / "macros" / "table.sql").unlink()

    output = project.build()

    assert "was modified already, can't be renamed" in output


def test_the_macro_is_the_one_of_the_recipe() -> None:
    assert (PROJECT / "macros" / "table.sql").read_text(encoding="utf-8") in PAGE.read_text(encoding="utf-8")
