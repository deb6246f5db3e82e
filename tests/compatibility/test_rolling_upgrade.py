"""A rolling upgrade with the real first release: its server and the present one change one folder side by side."""

import contextlib
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.compatibility.tour import NAMESPACES
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, set_properties
from tests.unit.test_command_line import sandur

FIRST_RELEASE: Final = "7e526c9"
REPOSITORY: Final = Path(__file__).parents[2]
TABLE: Final = f"{NAMESPACES}/s/tables/t"
ROUNDS: Final = 3


@pytest.fixture
def first_source(tmp_path: Path) -> Path:
    """The source of the first release, from the history of this repository."""
    command = ["git", "-C", str(REPOSITORY), "archive", FIRST_RELEASE, "src"]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip("the history with the first release is not here")
    folder = tmp_path / "first"
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


@pytest.fixture
def first(first_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server of the first release."""
    place = tmp_path / "first-server"
    place.mkdir()
    with contextlib.ExitStack() as servers:
        with monkeypatch.context() as patched:  # Only for this server.
            patched.setenv("PYTHONPATH", str(first_source))
            running = servers.enter_context(
                server_process(place, "--store", str(tmp_path / "store"), fsync="never", janitors="false")
            )
        yield running


def _properties(server: ServerProcess) -> dict[str, str]:
    answer = httpx.get(f"{server.url}{TABLE}", timeout=60)
    assert answer.status_code == 200, answer.text
    properties: dict[str, str] = answer.json()["metadata"]["properties"]
    return properties


@pytest.mark.slow
def test_servers_of_two_releases_share_a_store_until_the_upgrade(first: ServerProcess, tmp_path: Path) -> None:
    store, place = str(tmp_path / "store"), tmp_path / "present-server"
    place.mkdir()
    with server_process(place, "--store", store, fsync="never", janitors="false") as present:
        for server, path, body in (
            (first, NAMESPACES, {"namespace": ["s"]}),
            (first, f"{NAMESPACES}/s/tables", create_table("t")),
            (present, f"{NAMESPACES}/s/tables", create_table("u")),
        ):
            assert httpx.post(f"{server.url}{path}", json=body, timeout=60).status_code == 200
        for number in range(ROUNDS):
            for name, server in (("first", first), ("present", present)):
                sent = httpx.post(f"{server.url}{TABLE}", json=set_properties(**{f"{name}{number}": "1"}), timeout=60)
                assert sent.status_code == 200, sent.text
        both = {f"{name}{number}" for name in ("first", "present") for number in range(ROUNDS)}
        assert both <= set(_properties(first))
        assert both <= set(_properties(present))

        assert first.end() == 0
        upgraded = sandur("upgrade", "--store", store, "--no-dry-run")
        after = httpx.post(f"{present.url}{TABLE}", json=set_properties(after="1"), timeout=60)

        assert upgraded.returncode == 0, upgraded.stderr
        assert after.status_code == 200, after.text
        assert both | {"after"} <= set(_properties(present))
    verified = sandur("verify", "--store", store)
    assert verified.returncode == 0, verified.stdout
