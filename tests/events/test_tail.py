"""`sandur tail` and `sandur subscription`, on a store and through a server."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from sandur.cli.events import StreamedEvent, parse_stream
from sandur.cli.main import app, exit_code
from sandur.clock import SystemClock
from sandur.errors import BadRequest, SandurError
from sandur.operations.containers.catalogs import ensure_default_catalog
from sandur.operations.lake import Lakes
from sandur.settings import Settings
from sandur.storage.locations import connect
from tests.events.deliveries import SEALING_KEY
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table


def _run(*arguments: str) -> str:
    """The output of a command that succeeds."""
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def _make_store(folder: Path) -> None:
    settings = Settings(store=str(folder), fsync="never")

    async def make() -> None:
        lakes = Lakes(settings, SystemClock(), connect(settings, SystemClock(), creates=True))
        try:
            await ensure_default_catalog(await lakes.start())
        finally:
            await lakes.close()

    asyncio.run(make())


def test_the_events_of_a_store_are_printed_without_a_server(tmp_path: Path) -> None:
    _make_store(tmp_path / "data")

    text = _run("tail", "--store", str(tmp_path / "data"), "--no-follow", "--since", "1h")
    lines = _run("tail", "--store", str(tmp_path / "data"), "--no-follow", "--json").splitlines()
    found = [json.loads(line) for line in lines]

    assert "catalog.created main" in text
    assert [one["type"] for one in found] == ["catalog.created"]
    assert _run("tail", "--store", str(tmp_path / "data"), "--no-follow", "--kind", "dropped") == ""


def test_a_bad_filter_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    _make_store(tmp_path / "data")

    with pytest.raises(BadRequest, match="Invalid kind") as raised:
        _run("tail", "--store", str(tmp_path / "data"), "--no-follow", "--kind", "nonsense")
    assert exit_code(raised.value) == 1


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("tail")
    with server_process(folder, fsync="never", sealing_keys=SEALING_KEY, deliveries="false") as server:
        yield server


def test_the_commands_of_subscriptions_work_through_a_server(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SANDUR_SERVER", served.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    made = json.loads(_run("subscription", "create", "https://example.org/hook", "--table", "main.a.t", "--json"))
    id_ = made["id"]
    assert made["secret"].startswith("whsec_")
    assert id_ in _run("subscription", "list")
    assert "main.a.t" in _run("subscription", "show", id_)
    _run("subscription", "pause", id_)
    assert json.loads(_run("subscription", "show", id_, "--json"))["state"] == "paused"
    _run("subscription", "resume", id_)
    assert "whsec_" in _run("subscription", "rotate", id_)
    _run("subscription", "replay", id_, "--from", "oldest")
    _run("subscription", "replay", id_, "--dead-letters")
    assert json.loads(_run("subscription", "dead-letters", id_, "--json")) == []
    _run("subscription", "delete", id_)
    with pytest.raises(SandurError) as raised:
        _run("subscription", "show", id_)
    assert exit_code(raised.value) == 3


def test_tail_through_a_server_prints_what_happened(
    served: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SANDUR_SERVER", served.url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    httpx.post(f"{served.url}/v1/namespaces", json={"namespace": ["ns"]}, timeout=30).raise_for_status()
    httpx.post(f"{served.url}/v1/namespaces/ns/tables", json=create_table("t"), timeout=30).raise_for_status()

    text = ""
    for _ in range(200):
        text = _run("tail", "--no-follow", "--namespace", "main.ns")
        if "table.committed" in text:
            break
    assert "table.committed main.ns.t create version 0" in text


async def test_a_stream_is_parsed_with_ids_and_data_of_several_lines() -> None:
    async def lines() -> AsyncIterator[str]:
        for line in ("retry: 1", "", "id: 1", "event: a", "data: {", "data: }", "", ": comment", "", "data:x", ""):
            yield line

    assert [one async for one in parse_stream(lines())] == [
        StreamedEvent("1", "a", "{\n}"),
        StreamedEvent("", "message", "x"),
    ]
