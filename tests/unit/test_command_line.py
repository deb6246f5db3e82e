"""The command line starts fast and reports an error in one line."""

import getpass
import json
import subprocess
import sys
from pathlib import Path

HEAVY = (
    "pyspark",
    "pyarrow",
    "obstore",
    "httpx",
    "pyiceberg",
    "pandas",
    "numpy",
    "starlette",
    "uvicorn",
    "duckdb",
    "rich",
)
# Help takes 0.15 s of CPU with 10 modules of our own and 162 in all. Their number does not depend on the machine.
OWN_MODULES_MAX = 14
MODULES_MAX = 250


def sandur(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_help_does_not_import_large_packages() -> None:
    script = f"""
import sys
from sandur.cli.main import app
try:
    app(["--help"])
except SystemExit:
    pass
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
print(sum(name.partition(".")[0] == "sandur" for name in sys.modules), len(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    heavy, counts = done.stderr.splitlines()
    own, every = map(int, counts.split())
    assert heavy == "[]"
    assert (own <= OWN_MODULES_MAX, every <= MODULES_MAX) == (True, True), counts
    assert "Usage" in done.stdout


def test_a_process_that_only_watches_its_workers_does_not_import_the_server() -> None:
    unused = ("uvicorn", "httpx", "jinja2", "jwt", "cryptography", "numpy", "pyarrow", "obstore", "sandur.server.app")
    script = f"""
import sys
import sandur.cli.serve
print([name for name in {unused} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"


def test_an_invalid_setting_prints_one_line_and_exits_with_code_1(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text("prot = 1")

    done = sandur("settings", "--config", str(file))

    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        f"sandur: setting prot in file {file}: no such setting; did you mean port?"
    ]


def test_the_probe_checks_a_folder(tmp_path: Path) -> None:
    done = sandur("probe", "--store", str(tmp_path / "store"), "--json")

    assert done.returncode == 0, done.stderr
    assert "a version never returns" in json.loads(done.stdout)["proven"]


def test_settings_hide_secrets(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text('[s3]\nsecret_access_key = "hush"\n')

    done = sandur("settings", "--config", str(file), "--json")

    assert json.loads(done.stdout)["s3.secret_access_key"] == "(hidden)"
    assert "hush" not in done.stdout


def test_a_catalog_is_created_and_listed(tmp_path: Path) -> None:
    store = str(tmp_path / "store")

    made = sandur("catalog", "create", "lake", "--store", store, "--json")
    again = sandur("catalog", "create", "lake", "--store", store)
    listed = sandur("catalog", "list", "--store", store, "--json")

    assert json.loads(made.stdout)["root"] == f"file://{store}/tables/default/default/lake"
    assert (again.returncode, again.stderr.strip()) == (5, "sandur: Catalog already exists: lake")
    assert [catalog["name"] for catalog in json.loads(listed.stdout)] == ["lake", "main"]


def test_a_catalog_outside_the_allowed_locations_is_refused(tmp_path: Path) -> None:
    done = sandur("catalog", "create", "lake", "--root", "s3://elsewhere/lake", "--store", str(tmp_path / "store"))

    assert done.returncode == 1
    assert "s3://elsewhere/lake" in done.stderr
    assert "setting allowed_locations, or pass it with --allow-location" in done.stderr


def test_a_catalog_is_created_at_an_allowed_root(tmp_path: Path) -> None:
    store, root = str(tmp_path / "store"), f"file://{tmp_path}/elsewhere"

    made = sandur("catalog", "create", "lake", "--root", root, "--allow-location", root, "--store", store)
    listed = sandur("catalog", "list", "--store", store, "--json")

    assert made.returncode == 0, made.stderr
    assert f"--allow-location {root}" in made.stdout
    assert {catalog["name"]: catalog["root"] for catalog in json.loads(listed.stdout)}["lake"] == root


def test_the_settings_of_the_shared_secret_are_refused_with_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text('token = "hush"')

    refused = sandur("settings", "--config", str(file))

    assert refused.returncode == 1
    assert "the shared secret has been replaced by principals" in refused.stderr
    assert "docs/operating.md" in refused.stderr


def test_a_change_on_the_store_names_its_user(tmp_path: Path) -> None:
    store = tmp_path / "store"
    sandur("catalog", "create", "mine", "--store", str(store))
    sandur("catalog", "create", "hers", "--as", "ann", "--store", str(store))

    catalogs = store / "tenant=default/workspace=default/_catalog/catalogs"
    created_by = {path.stem: json.loads(path.read_bytes()).get("created_by") for path in catalogs.glob("*.json")}
    assert (created_by["mine"], created_by["hers"]) == (getpass.getuser(), "ann")


def test_an_administrator_gets_a_new_secret_on_the_store_itself(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    sandur("catalog", "create", "lake", "--store", store)

    first = json.loads(sandur("admin", "recover", "--store", store, "--json").stdout)
    second = json.loads(sandur("admin", "recover", "--store", store, "--json").stdout)
    missing = sandur("admin", "recover", "--store", str(tmp_path / "elsewhere"))

    assert first["client_id"] == second["client_id"] == "admin"
    assert len({first["client_secret"], second["client_secret"]}) == 2
    assert missing.returncode == 1
