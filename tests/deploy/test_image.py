"""The image: built from the wheel as a release does, run as user 10001 with a read-only root, and healthy.

Needs root, buildah, podman, runc and mmdebstrap; no registry of images and no daemon.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from checks.release import build_image, pinned, write_constraints
from tests.deploy.test_wheel import UV, run, wheel

__all__ = ["wheel"]  # The fixture.

NEEDED: Final = ("buildah", "podman", "runc", "mmdebstrap")
MISSING: Final = [name for name in NEEDED if shutil.which(name) is None]
BASE: Final = "localhost/sandur-test-base"
IMAGE: Final = "localhost/sandur-test:1"
COMPILED: Final = """
import importlib.util, pathlib, sandur
files = [*pathlib.Path(sandur.__file__).parent.rglob("*.py")]
assert len(files) > 400
names = [pathlib.Path(importlib.util.cache_from_source(file)) for file in files]
print([str(name) for name in names if not name.exists() or name.read_bytes()[4:8] == bytes(4)])
"""
"""Prints the modules whose compiled form is missing, or is valid only for one time of the source."""
LIMITS: Final = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1_200),
    pytest.mark.skipif(bool(MISSING) or os.getuid() != 0, reason=f"needs root, and {', '.join(NEEDED)}"),
]


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("image")
    base = folder / "base.tar"
    packages = "python3,python3-venv,ca-certificates"
    run("mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", base)
    run("podman", "import", base, BASE)
    constraints = write_constraints(folder / "constraints.txt")
    # Packages are resolved outside, because the build of an isolated machine has no network: pip gets them as files.
    packages_folder = folder / "packages"
    run(
        *(UV, "run", "--no-project", "--with", "pip", "--python", sys.executable, "python", "-m", "pip", "download"),
        *("--quiet", "--python-version", "3.11", "--only-binary", ":all:", "-d", packages_folder),
        *("--constraint", constraints, f"{wheel}[planning]"),
    )
    options = [*pinned(constraints), "--isolation", "chroot", "--volume", f"{packages_folder}:/packages:ro"]
    options += ["--build-arg", f"BASE={BASE}"]
    options += ["--build-arg", "EXTRAS=planning", "--build-arg", "PIP_ARGS=--no-index --find-links=/packages"]
    released = Path(shutil.copy(wheel, folder))
    archive, built = released.with_name("sandur-test-1.image.tar"), []
    for _ in range(2):
        assert build_image(released, IMAGE, "1700000000", options) == f"image: {archive.name}"
        built.append(hashlib.sha256(archive.read_bytes()).hexdigest())
        run("podman", "rmi", "--force", IMAGE)
    assert built[0] == built[1]  # The same sources and the same base give the same image.
    run("podman", "load", "--input", archive)
    yield IMAGE
    run("podman", "rmi", "--force", IMAGE, BASE)


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_the_image_serves_as_a_user_without_rights_on_a_read_only_root(image: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 10001, 10001)
    name, port = f"sandur-test-{os.getpid()}", free_port()
    address = f"http://127.0.0.1:{port}"
    settings = {"SANDUR_HOST": "127.0.0.1", "SANDUR_PORT": str(port)}
    command = [
        *("podman", "--runtime", "runc", "run", "--rm", "--name", name, "--network", "host", "--read-only", *LIMITS),
        *("--cap-drop", "all", "--tmpfs", "/tmp", "-v", f"{data}:/data"),  # noqa: S108 - within the container
        *(part for pair in settings.items() for part in ("-e", "=".join(pair))),
        image,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            deadline = time.monotonic() + 120
            answer = None
            while answer is None and process.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(httpx.TransportError):
                    answer = httpx.get(f"{address}/readyz", timeout=10)
            assert answer is not None, process.stdout.read() if process.stdout else ""
            assert answer.json() == {"status": "ready"}
            assert httpx.get(f"{address}/ui", timeout=60, follow_redirects=True).status_code == 200
            assert httpx.post(f"{address}/v1/namespaces", json={"namespace": ["ns"]}, timeout=60).status_code == 200
            inside = ("podman", "--runtime", "runc", "exec", name)
            assert run(*inside, "id", "-u").strip() == "10001"
            assert run(*inside, "id", "-un").strip() == "sandur"  # Java fails for a user without a name.
            assert run(*inside, "python3", "-c", COMPILED).strip() == "[]"
            refused = subprocess.run([*inside, "touch", "/opt/x"], capture_output=True, timeout=60, check=False)
            assert refused.returncode != 0
            run("podman", "--runtime", "runc", "healthcheck", "run", name)
        finally:
            # Without systemd, podman cannot remove the timer of the health check, and says so.
            subprocess.run([shutil.which("podman") or "", "stop", "-t", "30", name], capture_output=True, check=False)
    assert any(data.iterdir())
