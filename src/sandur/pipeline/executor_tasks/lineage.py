"""Executor tasks of the job `lineage`: merge the facts of runs, and derive rows from them."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from sandur.catalog.lineage.events import Facts, merge_facts
from sandur.catalog.lineage.runs import Port, Reference, RunLineage, name_key, place_key, run_of
from sandur.errors import SandurError
from sandur.operations.delta.versions import newest_in_log
from sandur.operations.lake import Lake
from sandur.pipeline.sources.range_reader import Row, shaped_batch
from sandur.pipeline.tables import LINEAGE_STATES, shape
from sandur.pipeline.tasks import ArrowTask, Batches

EDGES_PER_RUN_MAX: Final = 10_000
"""A run with more pairs of inputs and outputs is cut: its first inputs by name count."""
RUNS_AT_ONCE: Final = 500

DERIVED: Final = shape(
    "lineage_derived",
    """
    kind string, run_key string, run_id string, job_namespace string, job_name string, state string, started_ms long,
    last_ms long, parent_run_id string, parent_job string, error string, engine string, principal string,
    principal_id string, is_trusted boolean, is_own boolean, ref_id string, ref_name string, ref_keys_json string,
    role string, version string, rows long, size_bytes long, uuid string, commit_key string, target_ref_id string,
    source_column string, target_column string, type string, subtype string, masking boolean
    """,
    key="run_key",
)
"""The rows of a run: itself (`run`), its datasets (`port`), its columns (`column`), and the references in them (`ref`).

A `column` has its source in `ref_id`.
"""

TABLE_KEYS: Final = shape("table_keys", "key string, table_uuid string, full_name string, rank int", key="key")
"""The keys under which a table may be named, and its full name."""

NEWEST_VERSION: Final = "uuid string, newest long"
"""`newest` is null if the table is not an external Delta table, or its log cannot be read."""

_facts: Final = msgspec.json.Decoder(dict[str, tuple[str, Any]])


def _decoded(facts_json: str) -> Facts:
    return _facts.decode(facts_json)


def _encoded(facts: Facts) -> str:
    """The same text for the same facts."""
    return msgspec.json.encode(facts, order="deterministic").decode()


def merge_states(batches: Batches) -> Iterator[Any]:
    """`run_key`, `received_ms` and the parts of a run become its state."""
    for batch in batches:
        rows = [
            {
                "run_key": row["run_key"],
                "received_at": row["received_ms"],
                "facts_json": _encoded(merge_facts(map(_decoded, row["parts"]))),
            }
            for row in batch.to_pylist()
        ]
        yield shaped_batch(LINEAGE_STATES, rows)


def derive_task(default_catalog: str, hosts: Sequence[str]) -> ArrowTask:
    """A task that derives the rows of runs from their states."""

    def run(batches: Batches) -> Iterator[Any]:
        for batch in batches:
            rows: list[Row] = []
            for state in batch.to_pylist():
                found = run_of(_decoded(state["facts_json"]), default_catalog=default_catalog, hosts=hosts)
                rows += _rows_of(state["run_key"], found)
                if len(rows) >= RUNS_AT_ONCE:
                    yield shaped_batch(DERIVED, rows)
                    rows = []
            yield shaped_batch(DERIVED, rows)

    return run


def _rows_of(run_key: str, run: RunLineage) -> Sequence[Row]:
    about: Row = {name: value for name, value in run._asdict().items() if name not in {"inputs", "outputs", "columns"}}
    outputs = sorted(run.outputs, key=lambda port: port.reference.name)[:EDGES_PER_RUN_MAX]
    inputs = sorted(run.inputs, key=lambda port: port.reference.name)[: EDGES_PER_RUN_MAX // max(len(outputs), 1)]
    references: dict[str, Reference] = {}

    def ref_id(reference: Reference) -> str:
        found = hashlib.md5(msgspec.json.encode(reference), usedforsecurity=False).hexdigest()
        references[found] = reference
        return found

    def port(role: str, one: Port) -> Row:
        known = {name: value for name, value in one._asdict().items() if name != "reference"}
        return {**about, **known, "kind": "port", "run_key": run_key, "role": role, "ref_id": ref_id(one.reference)}

    rows: list[Row] = [{**about, "kind": "run", "run_key": run_key}]
    rows += [port("input", one) for one in inputs]
    rows += [port("output", one) for one in outputs]
    rows += [
        {
            "kind": "column",
            "run_key": run_key,
            "ref_id": ref_id(edge.source),
            "target_ref_id": ref_id(edge.target),
            **{name: value for name, value in edge._asdict().items() if name not in {"source", "target"}},
        }
        for edge in run.columns
    ]
    rows += [
        {"kind": "ref", "ref_id": id_, "ref_name": one.name, "ref_keys_json": msgspec.json.encode(one.keys).decode()}
        for id_, one in references.items()
    ]
    return rows


def key_tables(batches: Batches) -> Iterator[Any]:
    """Tables with `catalog`, `namespace`, `name`, `table_uuid`, `location` and `rank` become their keys."""
    for batch in batches:
        rows: list[Mapping[str, object]] = []
        for table in batch.to_pylist():
            full_name = f"{table['catalog']}.{table['namespace']}.{table['name']}"
            named = {"table_uuid": table["table_uuid"], "full_name": full_name, "rank": table["rank"]}
            rows.append({**named, "key": name_key(full_name)})
            if table["location"]:
                rows.append({**named, "key": place_key(table["location"])})
        yield shaped_batch(TABLE_KEYS, rows)


async def newest_external_version(lake: Lake, row: Mapping[str, Any]) -> Sequence[object]:
    """The newest version in the log of an external Delta table, as a row of NEWEST_VERSION.

    A log that cannot be read proves nothing: the lineage stays declared, and the next run tries again.
    """
    try:
        found = await lake.delta_table(row["uuid"]).read()
        if found is None or found.value.table_type != "EXTERNAL" or found.value.data_source_format != "DELTA":
            return row["uuid"], None
        newest = await newest_in_log(lake, found.value.location, at_least=-1)
    except SandurError:
        return row["uuid"], None
    return row["uuid"], newest
