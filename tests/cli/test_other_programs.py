"""The login of a profile serves other programs: Spark sessions, scripts, and the search of the audit trail."""

import asyncio
from urllib.parse import quote

import httpx
import pytest

from sandur.spark import Connection, session_options
from tests.cli.commands import User
from tests.server.process import ServerProcess


def test_a_script_gets_the_token_of_a_profile(admin: User, secured: ServerProcess) -> None:
    token = admin.run("profile", "token").out.strip()

    me = httpx.get(f"{secured.url}/api/sandur/v1/me", headers={"Authorization": f"Bearer {token}"}, timeout=60)
    assert me.json()["name"] == "admin"
    assert admin.run("profile", "token", "--json").json == {"server": secured.url, "token": token}
    admin.run("logout")
    refused = admin.run("profile", "token")
    assert (refused.code, "not logged in" in refused.err) == (4, True)


def test_options_of_spark_have_the_server_and_the_token_of_a_profile(admin: User, secured: ServerProcess) -> None:
    token = admin.run("profile", "token").out.strip()

    options = admin.run("spark-config", "--profile", "default", "--json", "--spark", "4.1").json
    elsewhere = admin.run("spark-config", "--profile", "default", "--uri", "http://127.0.0.1:9", "--json").json
    shown = admin.run("spark-config", "--profile", "default").out

    assert (options["spark.sql.catalog.sandur.uri"], options["spark.sql.catalog.sandur.token"]) == (secured.url, token)
    assert "spark.sql.catalog.sandur.token" not in elsewhere
    assert token not in shown
    assert admin.run("spark-config", "--profile", "missing").code == 3


def test_a_spark_session_connects_by_a_profile(
    admin: User, secured: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(admin.home))

    connection = Connection.of_profile("default", warehouse="main")

    options = session_options(connection)
    assert (connection.uri, connection.warehouse) == (secured.url, "main")
    assert options["spark.sql.catalog.sandur.token"] == admin.credentials()["default"]["access_token"]


async def test_a_notebook_has_an_event_loop_already(admin: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(admin.home))

    assert asyncio.get_running_loop().is_running()
    assert Connection.of_profile().token == admin.credentials()["default"]["access_token"]


def test_the_audit_trail_is_searched_as_the_person_of_a_profile(admin: User, secured: ServerProcess) -> None:
    """Records are written in batches, so the answer may be empty here."""
    by_profile = admin.run("audit", "--profile", "default", "-o", "json")
    by_address = admin.run("audit", "--uri", secured.url, "-o", "json")
    stranger = User(admin.home / "elsewhere").run("audit", "--uri", secured.url)

    assert [done.code for done in (by_profile, by_address)] == [0, 0], by_profile.err + by_address.err
    assert (stranger.code, "needs a login" in stranger.err) == (4, True)


def test_a_name_in_the_audit_trail_neither_hides_records_nor_reaches_the_terminal(
    admin: User, secured: ServerProcess
) -> None:
    """Anyone who may send a request chooses a name that the trail records: markup, or what controls a terminal."""
    token = admin.run("profile", "token").out.strip()
    for name in ("[/oops]", "\x1b[2Jgone"):
        path = f"{secured.url}/v1/main/namespaces/odd/tables/{quote(name, safe='')}"
        assert httpx.get(path, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code == 404

    audit = ("audit", "--profile", "default", "--operation", "loadTable")
    found = admin.run(*audit)
    for _ in range(1_000):  # Records are written in batches, a second after the first one.
        if found.code or found.out.count("odd.") == 2:
            break
        found = admin.run(*audit)

    assert found.code == 0, found.err
    lines = [line.split("\t") for line in found.out.splitlines()]
    assert [line[3] for line in lines if "odd." in line[3]] == ["main.odd.[/oops]", "main.odd.\\x1b[2Jgone"]
    assert [line[5] for line in lines if "odd." in line[3]] == ["404", "404"]
