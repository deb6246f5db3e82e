"""A real Open Policy Agent refuses requests that the catalog would allow, by the policy of docs/security.md."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.interop.engines.environments import NotInstalled, go_tool
from tests.interop.matrix import ROOT
from tests.server.process import server_process
from tests.servers.processes import LOOPBACK, free_ports, running

pytestmark = pytest.mark.interop


def printed_policy() -> str:
    """The policy that the documentation shows."""
    found = re.search(r"```rego\n(.*?)```", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def opa(tmp_path: Path) -> Iterator[str]:
    """The address of a decision of a real Open Policy Agent."""
    try:
        program = go_tool("opa")
    except NotInstalled as reason:
        pytest.skip(str(reason))
    policy = tmp_path / "policy.rego"
    policy.write_text(printed_policy(), encoding="utf-8")
    address = f"{LOOPBACK}:{free_ports(1)[0]}"
    command = [str(program), "run", "--server", "--addr", address, str(policy)]
    with running(command, answers=f"http://{address}/health", folder=tmp_path):
        yield f"http://{address}/v1/data/sandur/allow"


def test_the_policy_of_the_documentation_decides(opa: str, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    with server_process(folder, fsync="never", opa_url=opa) as server, httpx.Client(base_url=server.url) as client:
        created = client.post("/v1/namespaces", json={"namespace": ["sales"]})
        loaded = client.get("/v1/namespaces/sales")
        dropped = client.delete("/v1/namespaces/sales")
        config = client.get("/v1/config")

    assert (created.status_code, loaded.status_code, config.status_code) == (200, 200, 200)
    assert dropped.status_code == 403
    assert dropped.json()["error"]["message"].endswith("nothing is dropped by hand")
