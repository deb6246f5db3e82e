"""The page of maintenance: requests, the next run, what runs did, and what they saved."""

import httpx

from sandur.catalog.maintenance.health import Operation
from sandur.catalog.maintenance.records import (
    Measure,
    OperationRecord,
    OperationResult,
    RunEnd,
    RunPlan,
    State,
    ended_record,
)
from sandur.operations.maintenance.runs import RunRecords
from sandur.storage.memory import MemoryStore
from tests.operations.lakes import make_lake
from tests.server.conftest import Catalogs
from tests.ui.html import Element, parse
from tests.ui.scene import LEVEL, TABLE, make_scene

PAGE = "/ui/maintenance"


def record(run: str, number: int, operation: Operation = "compaction", **fields: object) -> OperationRecord:
    return OperationRecord(
        run=run,
        number=number,
        uuid="u",
        catalog="main",
        namespace="sales",
        name=f"t{number}",
        format="iceberg",
        operation=operation,
        **fields,  # type: ignore[arg-type] # Whatever a test sets.
    )


async def open_page(client: httpx.AsyncClient) -> Element:
    answer = await client.get(PAGE)
    assert answer.status_code == 200, answer.text
    return parse(answer.text)


def states(page: Element) -> list[str]:
    return [one.text for one in page.every("span", class_="badge")]


async def test_without_runs_the_page_says_how_to_start(catalogs: Catalogs) -> None:
    page = await open_page(await catalogs.open(MemoryStore()))

    assert "No run has changed a table yet." in page.text
    assert "Nothing is published yet" in page.text
    assert "None is open." in page.text


async def test_a_run_shows_what_is_planned_runs_and_ended_with_reasons(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store)
    records = RunRecords(make_lake(store), "1")
    planned = tuple(record("1", number) for number in range(5))
    await records.write_plan(RunPlan(run="1", started_ms=1, operations=planned))
    await records.begin(record("1", 0, state="running", started_ms=1_000))
    ends: tuple[State, ...] = ("failed", "conflict", "done")
    for number, state in enumerate(ends, 1):
        begun = record("1", number, state="running", started_ms=1_000 * number)
        await records.begin(begun)
        before, after = Measure(files=9, bytes=2_000), Measure(files=1, bytes=1_000)
        result = OperationResult(state=state, reason=f"why {state}", before=before, after=after)
        await records.end(ended_record(begun, result, now_ms=9_000))

    page = await open_page(client)

    assert sorted(states(page)) == ["conflict", "done", "failed", "planned", "running"]
    assert {"why failed", "why conflict"} <= {row[-1] for row in page.rows()}
    assert "9 → 1 files, 2.0 kB → 1.0 kB" in page.text


async def test_what_runs_saved_left_and_skip_is_shown(catalogs: Catalogs) -> None:
    store = MemoryStore()
    client = await catalogs.open(store)
    await make_scene(client, store)
    name = f"main.{LEVEL}.{TABLE}"
    records = RunRecords(make_lake(store), "2")
    await records.write_end(RunEnd(run="2", ended_ms=5_000, saved_bytes=7_000_000))

    page = await open_page(client)

    assert "7.0 MB" in page.text
    assert next(page.every("svg")).attributes["aria-label"] == "Storage saved a day, 2.0 MB on 1 days"
    assert [row for row in page.rows() if row[-1] == "its policy only reports (mode = report)"]
    assert sorted(states(page)) == ["done", "failed", "requested"]
    assert {row[1] for row in page.rows() if row[2] == "compaction" and len(row) > 5} == {name}
