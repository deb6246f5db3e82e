"""A client in Go, with stubs that are generated from the definitions of the gRPC services."""

import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest
from grpc_tools import protoc

from checks.grpc_code import DEFINITIONS, SOURCE
from tests.grpc.stubs import grpc_address
from tests.interop.engines.environments import NotInstalled, go_tool, installed, run
from tests.server.process import server_process
from tests.server.secured_server import secured_server

pytestmark = pytest.mark.interop

CLIENT: Final = Path(__file__).parent / "grpc_go"
PACKAGE: Final = "sandur.test/grpc_go/v1"


@pytest.fixture(scope="module")
def program() -> Path:
    """The client, built against the definitions as they are now."""
    definitions = sorted(DEFINITIONS.glob("*.proto"))

    def install(home: Path) -> None:
        source = home / "source"
        shutil.copytree(CLIENT, source)
        mapped = [f"M{path.relative_to(SOURCE)}={PACKAGE}" for path in definitions]
        options = [f"-I{SOURCE}", f"-I{files('grpc_tools') / '_proto'}"]
        for plugin, flag in (("protoc-gen-go", "go"), ("protoc-gen-go-grpc", "go-grpc")):
            options += [f"--plugin={plugin}={go_tool(plugin)}", f"--{flag}_out={source}"]
            options += [f"--{flag}_opt={one}" for one in ("module=sandur.test/grpc_go", *mapped)]
        assert protoc.main(["protoc", *options, *map(str, definitions)]) == 0
        go = shutil.which("go")
        if go is None:
            raise NotInstalled("go is not installed")
        run([go, "build", "-o", home / "program", "."], folder=source)

    try:
        return installed("grpc_go", [*CLIENT.iterdir(), *definitions], install) / "program"
    except NotInstalled as error:
        pytest.skip(str(error))


def _run(program: Path, address: str, token: str) -> Any:
    done = subprocess.run([program, address, token], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _check(found: Any) -> None:
    assert found["properties"]["from"] == "go"
    assert len(found["uuid"]) == 36
    assert (found["conflict"], found["reason"]) == ("Aborted", "sandur/CONFLICT")
    assert found["missing"] == "NotFound"
    assert found["hurried"] == "DeadlineExceeded"
    assert found["tasks"] == 1
    assert set(found["events"]) == {"table.created", "table.committed"}


def test_a_client_in_go_changes_tables_and_reads_events(program: Path, tmp_path: Path) -> None:
    with server_process(tmp_path, "--grpc-port", "0", "--workers", "2", fsync="never") as process:
        _check(_run(program, grpc_address(process.printed), ""))


def test_a_client_in_go_sends_its_token(program: Path, tmp_path: Path) -> None:
    with secured_server(tmp_path, "--grpc-port", "0") as server:
        server.grant("admin", ["SELECT", "MODIFY"], "metastore", "metastore")
        _check(_run(program, grpc_address(server.process.printed), server.admin_token))
