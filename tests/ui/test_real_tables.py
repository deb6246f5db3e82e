"""Pages of tables that engines have written: Iceberg by PyIceberg, Delta by delta-rs."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import deltalake
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, StructType

from tests.server.process import server_process
from tests.ui.browsers import fields_of
from tests.ui.html import Element, parse
from tests.ui.scene import EVIL
from tests.ui.test_every_page import check_safe

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "country": ["IS", "DK", "IS"]})
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "country", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "country"))
ICEBERG = "/ui/data/main/real/tables/orders"
DELTA = "/ui/data/main/real/tables/events"

_TRIES_MAX = 30
_UNAVAILABLE = 503


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with an Iceberg table of two snapshots, and a Delta table with a checkpoint."""
    folder = tmp_path_factory.mktemp("real")
    events = folder / "events"
    allowed = f"file://{folder}"
    with (
        server_process(folder, "--allow-location", allowed, fsync="never") as running,
        httpx.Client(base_url=running.url, timeout=60) as made,
    ):
        write_iceberg(running.url)
        write_delta(made, events)
        write_evil(running.url, made, folder / "evil")
        yield made


def write_iceberg(url: str) -> None:
    catalog = load_catalog("sandur", type="rest", uri=url, warehouse="main")
    catalog.create_namespace("real")
    table = catalog.create_table("real.orders", SCHEMA, partition_spec=SPEC)
    table.append(ROWS)
    table.append(ROWS)
    kinds = NestedField(1, "day", DateType()), NestedField(2, "place", StructType(NestedField(3, "city", StringType())))
    by_day = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "day"))
    days = catalog.create_table("real.days", Schema(*kinds), partition_spec=by_day)
    row = {"day": dt.date(2026, 1, 31), "place": {"city": "Reykjavík"}}
    days.append(pa.Table.from_pylist([row], schema=days.schema().as_arrow()))


def write_delta(client: httpx.Client, folder: Path) -> None:
    deltalake.write_deltalake(folder, ROWS, partition_by=["country"])
    deltalake.DeltaTable(folder).create_checkpoint()
    deltalake.write_deltalake(folder, ROWS, mode="append")
    deltalake.DeltaTable(folder).delete("country = 'DK'")
    register_delta(client, "events", folder)


def write_evil(url: str, client: httpx.Client, folder: Path) -> None:
    """Tables of both formats with markup in rows, partitions, and what engines say about their commits."""
    rows = pa.table({"id": pa.array([1], pa.int64()), "country": [EVIL]})
    table = load_catalog("sandur", type="rest", uri=url, warehouse="main").create_table(
        "real.evil", SCHEMA, partition_spec=SPEC
    )
    table.append(rows, snapshot_properties={"engine-name": EVIL, "operation-note": EVIL})
    deltalake.write_deltalake(folder, rows, partition_by=["country"])
    said = dict.fromkeys(("operation", "engineInfo", "userName", "clientVersion", "txnId"), EVIL)
    commit = {"commitInfo": {"timestamp": 1_767_225_600_000, "operationParameters": {EVIL: EVIL}, **said}}
    (folder / "_delta_log" / f"{1:020}.json").write_text(json.dumps(commit), encoding="utf-8")
    register_delta(client, "evil_delta", folder)


def register_delta(client: httpx.Client, name: str, folder: Path) -> None:
    columns = [
        {"name": "id", "type_text": "bigint", "type_name": "LONG", "type_json": '"long"', "position": 0},
        {
            "name": "country",
            "type_text": "string",
            "type_name": "STRING",
            "type_json": '"string"',
            "position": 1,
            "partition_index": 0,
        },
    ]
    body = {
        "catalog_name": "main",
        "schema_name": "real",
        "name": name,
        "table_type": "EXTERNAL",
        "data_source_format": "DELTA",
        "storage_location": f"file://{folder}",
        "columns": columns,
    }
    answer = client.post("/api/2.1/unity-catalog/tables", json=body)
    assert answer.status_code < 300, answer.text


def get(client: httpx.Client, path: str) -> Element:
    """The page. It gives up after ten seconds, which a busy machine may need: then it is opened again."""
    answer = client.get(path)
    for _ in range(_TRIES_MAX):
        if answer.status_code != _UNAVAILABLE:
            break
        answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return parse(answer.text)


def test_the_files_of_both_formats_are_counted_by_partition(client: httpx.Client) -> None:
    iceberg, delta = get(client, f"{ICEBERG}/files"), get(client, f"{DELTA}/files")

    assert [row[:2] + row[3:] for row in iceberg.rows()[:2]] == [["country=IS", "2", "4"], ["country=DK", "2", "2"]]
    assert len(iceberg.rows()) == 2 + 4
    assert [row[:2] + row[3:] for row in delta.rows()[:1]] == [["country=IS", "2", "4"]]
    assert len(delta.rows()) == 1 + 2
    for page in (iceberg, delta):
        assert list(page.every("svg", class_="plot"))


def test_days_and_nested_values_are_shown_as_people_read_them(client: httpx.Client) -> None:
    days = ICEBERG.replace("orders", "days")
    files, rows = get(client, f"{days}/files"), get(client, f"{days}/preview?run=true")

    assert files.rows()[0][0] == "day=2026-01-31"
    assert rows.rows() == [["2026-01-31", '{"city": "Reykjavík"}']]


def test_the_version_of_an_external_table_is_in_its_log(client: httpx.Client) -> None:
    external, iceberg = get(client, DELTA), get(client, ICEBERG)

    facts = [[one.text for one in page.one("dl", class_="facts").every("dt")] for page in (external, iceberg)]
    assert facts[0] == ["Changed"]
    assert facts[1] == ["Rows", "Size", "Data files", "Delete files", "Version", "Changed"]
    assert "The newest version, its rows and its files are in the log" in external.text


def test_snapshots_and_versions_have_plots_and_a_graph(client: httpx.Client) -> None:
    iceberg, delta = get(client, f"{ICEBERG}/snapshots"), get(client, f"{DELTA}/snapshots")

    assert len(list(iceberg.every("circle"))) == 2
    labels = [svg.attributes["aria-label"] for svg in iceberg.every("svg")]
    assert any(label.startswith("Rows over time: from 3") for label in labels)
    assert [row[0] for row in delta.rows()] == ["2", "1", "0"]
    assert any("Bytes over time" in svg.attributes["aria-label"] for svg in delta.every("svg"))


def test_the_timeline_shows_each_version_with_who_made_it(client: httpx.Client) -> None:
    iceberg, delta = get(client, f"{ICEBERG}/timeline?at=1"), get(client, f"{DELTA}/timeline")

    versions = [row for row in iceberg.rows() if len(row) == 11]
    assert [row[0] for row in versions] == ["2", "1", "0"]
    assert versions[0][4:6] == ["append", "+3"]
    assert iceberg.one("section", id="version").one("h2").text == "Version 1"
    slider = iceberg.one("input", id="at").attributes
    assert (slider["min"], slider["max"], slider["value"]) == ("0", "2", "1")
    assert [row[4] for row in delta.rows() if len(row) == 11] == ["delete", "write", "write"]


def test_any_two_versions_are_compared_with_their_files(client: httpx.Client) -> None:
    page = get(client, f"{ICEBERG}/diff?from=1&to=2&files=true")
    back = get(client, f"{ICEBERG}/diff?from=2&to=1&files=true")
    delta = get(client, f"{DELTA}/diff?from=0&to=1")

    assert ["changed", "rows", "3", "6"] in page.rows()
    headings = [heading.text for heading in page.every("h3")]
    assert headings == ["Added: 2", "Removed: 0"]
    assert [heading.text for heading in back.every("h3")] == ["Added: 0", "Removed: 2"]
    assert ["changed", "files", "", "2 added"] in delta.rows()
    assert not [cell for row in delta.rows() for cell in row if cell.startswith(("-", "+"))]


@pytest.mark.parametrize("name", ["evil", "evil_delta"])
def test_what_engines_write_is_always_text(client: httpx.Client, name: str) -> None:
    """Rows, partitions, operations and engines with markup: a page shows them, and no element is made of them."""
    table, shown = f"/ui/data/main/real/tables/{name}", ""
    parts = ("", "/snapshots", "/timeline", "/versions/1", "/diff?from=0&to=1", "/files", "/preview?run=true")
    own = [f"{table}/diff?from=0&to=1&files=true", f"/ui/actions/restore/main/real/{name}"]
    if name == "evil_delta":
        own = [f"/ui/actions/restore-delta/main/real/{name}"]
    for path in (*(f"{table}{part}" for part in parts), *own):
        page = get(client, path)
        check_safe(page)
        assert not list(page.every("img", src="x"))
        shown += page.text

    assert shown.count(EVIL) >= 3


def test_rows_are_shown_when_they_are_wanted(client: httpx.Client) -> None:
    before = get(client, f"{ICEBERG}/preview")
    after = get(client, f"{ICEBERG}/preview?run=true&limit=2")

    assert not before.rows()
    assert before.one("section", class_="part").attributes["data-part"].endswith("only=rows")
    assert len(after.rows()) == 2
    heads = [one.text for one in after.every("th")]
    assert heads[0] == "id bigint"
    assert "Column(" not in "".join(heads)


def post_fields(page: Element) -> dict[str, str]:
    return fields_of([one for one in page.every("form") if one.attributes.get("method") == "post"][-1])


def test_a_delta_table_is_restored_to_a_version(client: httpx.Client) -> None:
    path = "/ui/actions/restore-delta/main/real/events"
    assert path in get(client, DELTA).links()
    origin = str(client.base_url)

    def send(page: Element, **values: str) -> httpx.Response:
        return client.post(path, data={**post_fields(page), **values}, headers={"Origin": origin})

    preview, other = send(get(client, path), version="0"), send(get(client, path), version="1")
    done = send(parse(preview.text), step="apply")
    again = send(parse(other.text), step="apply")
    nothing = send(get(client, path), version="77")

    assert "version 0 again, as a new version" in preview.text
    assert "sandur rollback main.real.events --to 0" in preview.text
    assert (done.status_code, again.status_code, nothing.status_code) == (303, 409, 400)
    assert [row[0] for row in get(client, f"{DELTA}/snapshots").rows()] == ["3", "2", "1", "0"]
