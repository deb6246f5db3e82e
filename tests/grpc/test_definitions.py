"""The definitions: their code is current, they keep to the rules of buf, and old clients still understand them."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from checks.grpc_code import DEFINITIONS, GENERATED, generate
from sandur.server.grpc.routes import METHODS, SERVICES

ROOT: Final = Path(__file__).parent.parent.parent
RELEASED: Final = Path(__file__).parent / "released.binpb"
"""The definitions of the last release: `buf build --exclude-source-info -o tests/grpc/released.binpb` writes them."""


def _buf(*arguments: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).parent / "buf"
    if not program.exists():
        pytest.skip("buf is not installed: there is no wheel for this platform")
    return subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_generated_code_is_current(tmp_path: Path) -> None:
    assert generate(tmp_path) == 0

    for pattern in GENERATED:
        made = {path.name: path.read_text() for path in (tmp_path / "sandur" / "v1").glob(pattern)}
        kept = {path.name: path.read_text() for path in DEFINITIONS.glob(pattern)}
        assert made == kept, "run: make grpc-code"


def test_the_definitions_keep_to_the_rules_of_buf() -> None:
    linted = _buf("lint")

    assert linted.returncode == 0, linted.stdout


def test_clients_of_the_released_definitions_still_understand_the_server() -> None:
    compared = _buf("breaking", "--against", str(RELEASED))

    assert compared.returncode == 0, compared.stdout


def test_a_change_that_breaks_clients_is_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    shutil.copytree(DEFINITIONS, tmp_path / "src" / "sandur" / "v1")
    changed = tmp_path / "src" / "sandur" / "v1" / "tables.proto"
    changed.write_text(changed.read_text().replace("bytes metadata = 3;", "bytes metadata = 30;"))

    compared = _buf("breaking", "--against", str(RELEASED), folder=tmp_path)

    assert compared.returncode != 0
    assert "metadata" in compared.stdout


def test_every_released_service_is_served() -> None:
    released = FileDescriptorSet.FromString(RELEASED.read_bytes())
    services = [(file.package, service) for file in released.file for service in file.service]

    assert {f"{package}.{service.name}" for package, service in services} <= set(SERVICES)
    paths = {f"/{package}.{service.name}/{method.name}" for package, service in services for method in service.method}
    assert paths <= set(METHODS)
