"""The first start with authentication, in processes of its own: the secret of `admin` is printed once, and works."""

import json
import subprocess
import sys
from pathlib import Path

import httpx

from tests.server.logins import ADMIN_SECRET, TOKENS
from tests.server.process import ServerProcess, server_process

PRINTED = "The principal admin was created. Its secret, which is not shown again: "


def logs_in(server: ServerProcess, secret: str) -> bool:
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": secret}
    return httpx.post(f"{server.url}{TOKENS}", data=form, timeout=60).status_code == 200


def secrets_of(server: ServerProcess) -> list[str]:
    return [line.removeprefix(PRINTED) for line in server.printed if line.startswith(PRINTED)]


def test_a_generated_secret_is_printed_once_by_several_workers_and_recovered_on_the_store(tmp_path: Path) -> None:
    with server_process(tmp_path, "--workers", "2", authentication="on", fsync="never") as server:
        (secret,) = secrets_of(server)
        assert logs_in(server, secret)
        assert secret not in server.log

    with server_process(tmp_path, authentication="on", fsync="never") as server:
        assert secrets_of(server) == []
        assert logs_in(server, secret)
        command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "admin", "recover", "--json"]
        done = subprocess.run(
            [*command, "--store", str(tmp_path / "data")], capture_output=True, text=True, check=True, timeout=120
        )
        recovered = json.loads(done.stdout)["client_secret"]
        assert (logs_in(server, secret), logs_in(server, recovered)) == (False, True)


def test_a_given_secret_is_not_printed(tmp_path: Path) -> None:
    with server_process(tmp_path, authentication="on", admin_secret=ADMIN_SECRET, fsync="never") as server:
        assert logs_in(server, ADMIN_SECRET)

        assert not [line for line in server.printed if ADMIN_SECRET in line]
        assert ADMIN_SECRET not in server.log
