"""Tables with commits, and the events of the statements that made them, as Spark sends them."""

import json
from typing import Any, Final

import msgspec

from sandur.catalog.lineage.events import LineageRecord, record_id
from sandur.operations.lineage.ingest import write_batch
from sandur.operations.tables.commit import commit_table
from tests.fakes.openlineage import Json, dataset, input_field, run_event
from tests.operations.requests import append
from tests.pipeline.world import World, identifier_of

HOST: Final = "catalog.example.org:8181"
SERVER: Final = f"http://{HOST}/iceberg"
RAW, UPDATES, DAILY, CTAS = 101, 102, 103, 104
MERGED: Final = 201
SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "amount", "type": "double", "required": False},
    ],
}


def make_tables(world: World) -> None:
    """The tables, each with a snapshot."""
    for name, snapshot_id in (("raw", RAW), ("updates", UPDATES), ("daily", DAILY), ("ctas", CTAS)):
        world.make(name, schema=SCHEMA)
        world.wait(commit_table(world.lake, identifier_of(name), append(snapshot_id), world.request()))
    world.wait(commit_table(world.lake, identifier_of("raw"), append(MERGED, RAW), world.request()))
    world.set_property("raw", "later")  # The snapshot stays, so this commit is not the one that made it.


def statements(locations: dict[str, str]) -> list[Json]:
    """A CTAS with its inner run and its result, a MERGE, an INSERT OVERWRITE, and one that failed."""

    def table(name: str, version: object = None, **facets: Any) -> Json:
        return dataset(f"sales.{name}", server=SERVER, location=locations[name], version=version, **facets)

    raw, updates = table("raw"), table("updates")
    nowhere = dataset("sales.ctas", server=SERVER)
    columns = {
        "id": {"inputFields": [input_field(raw, "id")]},
        "amount": {"inputFields": [input_field(raw, "amount", subtype="AGGREGATION")]},
    }
    touched = [input_field(raw, "id", "INDIRECT", "FILTER")]
    identities = {name: {"inputFields": [input_field(raw, name)]} for name in ("id", "amount")}
    joined = [input_field(raw, "id", "INDIRECT", "JOIN"), input_field(updates, "id", "INDIRECT", "JOIN")]
    made = table("ctas", CTAS, columns=columns)
    merged = table("raw", MERGED, columns=identities, touched=joined)
    before, after = table("raw", RAW), table("raw", MERGED)
    overwritten = table("daily", DAILY, columns=columns, touched=touched)
    ctas, inner, merge = "atomic_create_table_as_select.sales_ctas", "append_data.lake_sales_ctas", "replace_data.raw"
    return [
        run_event(1, "START", 1, job=ctas, inputs=[before]),
        run_event(2, "START", 2, job=inner, inputs=[before], outputs=[{**nowhere, "facets": {**nowhere["facets"]}}]),
        run_event(2, "RUNNING", 3, job=inner, outputs=[nowhere]),
        run_event(2, "COMPLETE", 4, job=inner, inputs=[before], outputs=[table("ctas", CTAS, columns=columns)]),
        run_event(1, "COMPLETE", 5, job=ctas, inputs=[before], outputs=[made]),
        run_event(3, "COMPLETE", 6, job="command_result", inputs=[before], outputs=[table("ctas", CTAS)]),
        run_event(4, "START", 7, job=merge, inputs=[table("updates", UPDATES), before], outputs=[table("raw")]),
        run_event(4, "COMPLETE", 8, job=merge, inputs=[table("updates", UPDATES), after], outputs=[merged]),
        run_event(5, "START", 9, job="overwrite.daily", inputs=[after], outputs=[table("daily")]),
        run_event(5, "COMPLETE", 10, job="overwrite.daily", inputs=[after], outputs=[overwritten]),
        run_event(6, "START", 11, job="broken", inputs=[updates], outputs=[table("daily")]),
        run_event(6, "FAIL", 12, job="broken", inputs=[updates], outputs=[table("daily")]),
    ]


def store_events(world: World, events: list[Json], **sender: Any) -> None:
    """Store events as a server does, in one object."""
    known = {"host": HOST, "is_trusted": True, "received_ms": world.lake.clock.now_ms(), **sender}
    encoded = [json.dumps(event).encode() for event in events]
    records = [
        LineageRecord(id=record_id(known.get("principal_id", ""), event), event=msgspec.Raw(event), **known)
        for event in encoded
    ]
    world.wait(write_batch(world.lake, records))
