"""`sandur plan` and the conditions that people write for it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sandur.cli.main import app
from sandur.cli.plan import identifier_of, show_plan
from sandur.errors import BadRequest
from sandur.iceberg.expressions.text import filter_of_text
from tests.planning.serving import Fleet, made_table


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("id = 5", {"type": "eq", "term": "id", "value": 5}),
        ("s.inner >= -1.5", {"type": "gt-eq", "term": "s.inner", "value": -1.5}),
        ("name <> 'it''s'", {"type": "not-eq", "term": "name", "value": "it's"}),
        ('"odd name" is not null', {"type": "not-null", "term": "odd name"}),
        ("`odd.name` IS NAN", {"type": "is-nan", "term": "odd.name"}),
        ("id not in (1, 2)", {"type": "not-in", "term": "id", "values": [1, 2]}),
        ("name like 'ab%'", {"type": "starts-with", "term": "name", "value": "ab"}),
        ("flag = true", {"type": "eq", "term": "flag", "value": True}),
        ("true", True),
        (
            "a = 1 or b = 2 and not c = 3",
            {
                "type": "or",
                "left": {"type": "eq", "term": "a", "value": 1},
                "right": {
                    "type": "and",
                    "left": {"type": "eq", "term": "b", "value": 2},
                    "right": {"type": "not", "child": {"type": "eq", "term": "c", "value": 3}},
                },
            },
        ),
        ("(a = 1)", {"type": "eq", "term": "a", "value": 1}),
    ],
)
def test_a_condition_is_read_as_sql_reads_it(text: str, meant: Any) -> None:
    assert filter_of_text(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id",
        "id =",
        "= 5",
        "id = 5 5",
        "(id = 5",
        "id like '%a'",
        "id like 5",
        "id is 5",
        "id in ()",
        "id ~ 5",
        "(" * 500,
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="filter"):
        filter_of_text(text)


def test_a_table_is_named_with_or_without_its_catalog() -> None:
    assert identifier_of("ns.t", "main") == ("main", ("ns",), "t")
    assert identifier_of("lake.a.b.t", "main") == ("lake", ("a", "b"), "t")
    with pytest.raises(BadRequest):
        identifier_of("t", "main")


def test_the_command_shows_what_is_read_and_what_is_left_out(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    asyncio.run(_furnished(fleet))
    told = ["plan", "a.t", "--store", str(tmp_path), "--filter", "id >= 90"]

    as_json = CliRunner().invoke(app, [*told, "--json"])
    shown = CliRunner().invoke(app, told)

    assert as_json.exit_code == 0, as_json.output
    found = json.loads(as_json.output)
    assert found["files"] == {"read": 10, "total": 100}
    assert found["manifests"] == {"read": 2, "total": 2}
    assert found["size_bytes"]["read"] == 10_000
    assert "90.0%" in shown.output
    assert "━" in shown.output


def test_a_filter_is_shown_as_it_was_written(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    asyncio.run(_furnished(fleet))
    wanted = "name = '[/bold]' or name = '[red]'"

    shown = CliRunner().invoke(app, ["plan", "a.t", "--store", str(tmp_path), "--filter", wanted])

    assert shown.exit_code == 0, shown.output
    assert wanted in shown.output


@pytest.mark.parametrize("wanted", ["name = '\udcff'", '{"type": "eq", "term": "name", "value": "\udcff"}', "{"])
def test_a_filter_that_is_no_text_or_no_json_is_refused(tmp_path: Path, wanted: str) -> None:
    fleet = Fleet(tmp_path)
    asyncio.run(_furnished(fleet))

    with pytest.raises(BadRequest, match="filter"):
        show_plan("a.t", filter_text=wanted, snapshot_id=None, store=str(tmp_path), config=None, as_json=True)


@pytest.mark.parametrize("said", ["3", "9" * 5_000, "-1", "many", ""])
def test_a_total_that_cannot_be_is_not_known(tmp_path: Path, said: str) -> None:
    fleet = Fleet(tmp_path)
    table = made_table(fleet.table_folder, 50, 50)
    table.snapshots[0]["summary"]["total-records"] = said
    asyncio.run(fleet.furnish(table))
    told = ["plan", "a.t", "--store", str(tmp_path)]

    as_json = CliRunner().invoke(app, [*told, "--json"])
    shown = CliRunner().invoke(app, told)

    assert json.loads(as_json.output)["rows"] == {"read": 100, "total": None}
    assert shown.exit_code == 0
    assert "not known" in shown.output


async def _furnished(fleet: Fleet) -> None:
    await fleet.furnish(made_table(fleet.table_folder, 50, 50))
