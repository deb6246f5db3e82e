"""The step of the demo with authentication: one person may read a table, another may not; the audit trail has both."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import ForbiddenError

from demo.output import WIDTH, print_output, say, show_rows, show_statement, step
from demo.server import running_server

SALARIES: Final = pa.table({"name": ["Ann", "Bob"], "amount": [4_200, 3_900]})
PERMISSIONS: Final = "/api/2.1/unity-catalog/permissions"
SECONDS_MAX: Final = 60


def restrict_access(number: int, folder: Path) -> None:
    """Start a second server, with authentication, and log in to it as two people."""
    with step(number, "Authentication and grants: Ann may read, Bob may not. The audit trail has both."):
        store, secret = folder / "secured", os.urandom(16).hex()
        with running_server(store, SANDUR_AUTHENTICATION="on", SANDUR_ADMIN_SECRET=secret) as url:
            admin = _log_in(url, "admin", secret)
            admin.create_namespace("hr")
            admin.create_table("hr.salaries", schema=SALARIES.schema).append(SALARIES)
            with httpx.Client(base_url=url, headers=_bearer(url, secret), timeout=SECONDS_MAX) as client:
                ann, bob = (_create_principal(client, name) for name in ("ann", "bob"))
                _grant(client, "catalog/main", "staff", "USE CATALOG", "SELECT")
                _grant(client, "schema/main.hr", "ann", "USE SCHEMA")
            _read(_log_in(url, "ann", ann), _log_in(url, "bob", bob))
        _show_audit(store)  # A server that stops writes its last records.


def _log_in(url: str, name: str, secret: str) -> Catalog:
    return load_catalog(name, type="rest", uri=url, warehouse="main", credential=f"{name}:{secret}")


def _bearer(url: str, secret: str) -> dict[str, str]:
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": secret}
    answer = httpx.post(f"{url}/v1/oauth/tokens", data=form, timeout=SECONDS_MAX)
    return {"Authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"}


def _create_principal(client: httpx.Client, name: str) -> str:
    """Create a principal in the group `staff`; returns its secret."""
    body = {"name": name, "groups": ["staff"]}
    show_statement("admin", f"POST /api/sandur/v1/principals {body}")
    return str(client.post("/api/sandur/v1/principals", json=body).raise_for_status().json()["client_secret"])


def _grant(client: httpx.Client, securable: str, principal: str, *privileges: str) -> None:
    body = {"changes": [{"principal": principal, "add": privileges}]}
    client.patch(f"{PERMISSIONS}/{securable}", json=body).raise_for_status()
    show_statement("admin", f"PATCH …/permissions/{securable}: {', '.join(privileges)} to {principal}")


def _read(ann: Catalog, bob: Catalog) -> None:
    show_statement("ann", "load_table('hr.salaries').scan()")
    show_rows("", ann.load_table("hr.salaries").scan().to_arrow())
    show_statement("bob", "load_table('hr.salaries').scan()")
    try:
        bob.load_table("hr.salaries").scan().to_arrow()
    except ForbiddenError as refusal:
        say(f"[red]{refusal}[/]")
    else:
        raise SystemExit("demo: Bob was not refused")


def _show_audit(store: Path) -> None:
    command = ["audit", "--store", str(store), "--operation", "loadTable"]
    show_statement("shell", f"sandur {' '.join(command)}")
    printed = subprocess.run(
        [Path(sys.executable).with_name("sandur"), *command],
        env={**os.environ, "COLUMNS": str(WIDTH)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    for line in printed.stdout.splitlines():
        print_output(line)
