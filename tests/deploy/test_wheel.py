"""The wheel in a fresh environment: the command, the server, its pages and one commit, without numpy and pyarrow."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

REPOSITORY: Final = Path(__file__).parent.parent.parent
UV: Final = Path(sys.executable).with_name("uv")

pytestmark = pytest.mark.slow


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", folder, REPOSITORY)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of an environment with the wheel and no extra."""
    folder = tmp_path_factory.mktemp("environment")
    run(UV, "venv", "--python", sys.executable, folder)
    run(UV, "pip", "install", "--python", folder / "bin" / "python", wheel)
    return folder / "bin"


@pytest.fixture(scope="module")
def address(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    store = tmp_path_factory.mktemp("store")
    command = [str(installed / "sandur"), "serve", "--store", str(store), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        ready = next((line for line in process.stdout if line.startswith("Sandur is ready at ")), "")
        try:
            yield ready.split()[-1]
        finally:
            process.terminate()


def test_a_base_install_has_no_numpy_and_no_pyarrow_and_stays_slim(installed: Path) -> None:
    packages = run(UV, "pip", "list", "--python", installed / "python")
    size_mib = int(run("du", "-sm", installed.parent).split()[0])

    assert "numpy" not in packages
    assert "pyarrow" not in packages
    assert size_mib < 180


def test_every_extra_of_the_wheel_can_be_resolved(wheel: Path) -> None:
    for extra in ("gcs", "grpc", "otel", "planning", "preview", "spark"):
        run(UV, "pip", "install", "--dry-run", "--python", sys.executable, f"{wheel}[{extra}]")


def test_a_base_install_serves_the_pages_and_a_commit(address: str) -> None:
    for page in ("/readyz", "/ui", "/ui/data/main", "/metrics"):
        assert httpx.get(address + page, timeout=60, follow_redirects=True).status_code == 200, page
    catalog = RestCatalog("base", uri=address)
    catalog.create_namespace("ns")

    table = catalog.create_table("ns.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2, 3]}))

    assert catalog.load_table("ns.t").scan().to_arrow().num_rows == 3
    for page in ("ns", "ns/tables/t", "ns/tables/t/snapshots", "ns/tables/t/timeline", "ns/tables/t/health"):
        assert httpx.get(f"{address}/ui/data/main/{page}", timeout=60).status_code == 200, page
    assert httpx.get(f"{address}/ui/activity", timeout=60).status_code == 200


def test_a_base_install_does_not_offer_scan_planning_and_says_what_is_missing(address: str) -> None:
    endpoints = httpx.get(f"{address}/v1/config", timeout=60).json()["endpoints"]
    refused = httpx.post(f"{address}/v1/namespaces/ns/tables/t/plan", json={}, timeout=60)

    assert not [one for one in endpoints if "/plan" in one or "/tasks" in one]
    assert refused.status_code == 501
    assert "pip install 'sandur[planning]'" in refused.json()["error"]["message"]
