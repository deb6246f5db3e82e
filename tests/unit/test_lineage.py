"""The fold of OpenLineage events: any order, division and copies give the same run; names and places are found."""

import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.lineage import events as lineage
from sandur.catalog.lineage.events import Facts, LineageRecord, facts_of, merge_facts, record_id
from sandur.catalog.lineage.runs import RunLineage, reference_of, run_of
from tests.fakes.openlineage import Json, dataset, dataset_event, input_field, job_event, run_event

SERVER = "http://catalog:8181/iceberg"
RAW = dataset("sales.raw", server=SERVER, location="s3a://lake/raw", version=1)
DAILY = dataset(
    "sales.daily",
    server=SERVER,
    location="s3a://lake/daily",
    columns={"total": {"inputFields": [input_field(RAW, "amount", subtype="AGGREGATION")]}},
)


def record(event: Json, **known: object) -> LineageRecord:
    body = json.dumps(event).encode()
    fields: dict[str, object] = {"received_ms": 1, "host": "catalog:8181", **known}
    principal_id = str(fields.get("principal_id", ""))
    return msgspec.convert({**fields, "id": record_id(principal_id, body), "event": msgspec.Raw(body)}, LineageRecord)


def facts(event: Json, **known: object) -> Facts:
    return facts_of(record(event, **known))[1]


def run(*events: Json, **known: object) -> RunLineage:
    return run_of(merge_facts([facts(event, **known) for event in events]), default_catalog="main")


EVENTS = [
    run_event(1, "START", 1, inputs=[RAW], outputs=[{**DAILY, "facets": {"version": {"datasetVersion": "7"}}}]),
    run_event(1, "RUNNING", 2, outputs=[DAILY], processing_engine={"name": "spark", "version": "4.1.4"}),
    run_event(1, "RUNNING", 2, outputs=[dataset("sales.other", location="s3://lake/other")]),
    run_event(1, "COMPLETE", 3, inputs=[{**RAW, "facets": {"version": {"datasetVersion": "2"}}}]),
    run_event(1, "COMPLETE", 4, outputs=[{**DAILY, "facets": {"version": {"datasetVersion": "8"}}}]),
    run_event(1, "RUNNING", 5, outputs=[{**DAILY, "facets": {"columnLineage": {"_deleted": True}}}]),
]


@given(st.lists(st.sampled_from(range(len(EVENTS))), max_size=20), st.integers(1, 5))
def test_events_in_any_order_division_and_with_copies_give_the_same_facts(copies: list[int], parts: int) -> None:
    order = [*copies, *range(len(EVENTS))]
    each = [facts(EVENTS[number]) for number in order]

    folded = merge_facts([merge_facts(each[part::parts]) for part in range(parts)])

    assert folded == merge_facts(facts(event) for event in EVENTS)


def test_too_many_facts_are_cut_in_the_same_way_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "FACTS_PER_RUN_MAX", 12)
    each = [facts(event) for event in EVENTS]

    found = [merge_facts(order) for order in itertools.permutations(each)]
    nested = merge_facts([merge_facts(each[:3]), merge_facts(each[3:])])

    assert all(one == found[0] for one in (*found, nested))
    assert len(found[0]) == 12


def test_an_output_has_the_version_of_its_end_and_an_input_that_of_the_start() -> None:
    found = run(*EVENTS)

    assert [port.version for port in found.inputs] == ["1"]
    assert {port.reference.name: port.version for port in found.outputs} == {
        "s3a://lake:daily": "8",
        "s3://lake:other": None,
    }
    assert (found.state, found.engine, found.parent_job) == ("COMPLETE", "spark 4.1.4", "etl:nightly")


def test_a_deleted_facet_is_gone_and_an_end_stays_an_end() -> None:
    before, after = run(*EVENTS[:5]), run(*EVENTS)

    assert [(edge.source_column, edge.target_column) for edge in before.columns] == [("amount", "total")]
    assert after.columns == []
    assert after.state == "COMPLETE"


def test_the_inputs_of_columns_get_the_names_of_the_inputs_of_the_run() -> None:
    (edge,) = run(*EVENTS[:2]).columns

    assert edge.source.keys[0] == "name main.sales.raw"


def test_events_of_two_principals_are_two_runs_and_only_the_pipeline_names_commits() -> None:
    commit = {"tableUuid": "u", "commitKey": "k"}
    event = run_event(1, "COMPLETE", 1, outputs=[dataset("a.b.c", location="s3://b/c", sandur_commit=commit)])
    keys = {facts_of(record(event, **known))[0] for known in ({}, {"principal_id": "p"}, {"is_own": True})}

    assert len(keys) == 3
    assert run(event).outputs[0].commit_key is None
    assert run(event, is_own=True).outputs[0].commit_key == "k"


def test_events_without_a_run_are_folded_by_job_and_by_dataset() -> None:
    of_job, of_dataset = job_event("nightly", [RAW], [DAILY]), dataset_event(DAILY)

    assert (run(of_job).run_id, run(of_job).job_name, len(run(of_job).inputs)) == ("", "nightly", 1)
    assert len(run(of_dataset).columns) == 1
    assert facts_of(record(of_job))[0] == facts_of(record({**of_job, "eventTime": "2027-01-01T00:00:00Z"}))[0]


@pytest.mark.parametrize(
    ("namespace", "name", "links", "warehouse", "expected"),
    [
        ("file", "/t/x", [[SERVER, "sales.raw"]], "main", ["name main.sales.raw", "place file:///t/x"]),
        ("file", "/t/x", [["http://other/iceberg", "sales.raw"]], "main", ["place file:///t/x"]),
        ("file", "/t/x", [[SERVER, "sales.raw"]], "s3://lake/wh", ["place file:///t/x"]),
        ("file", "/t/x", [[SERVER, "sales.raw"]], None, ["name main.sales.raw", "place file:///t/x"]),
        ("unitycatalog://catalog:8181", "main.sales.dt", [], None, ["name main.sales.dt"]),
        ("sandur", "main.sales.dt", [], None, ["name main.sales.dt"]),
        ("s3a://lake", "a/b", [], None, ["place s3://lake/a/b", "place s3://lake/a"]),
        ("s3n://lake", "/a/", [], None, ["place s3://lake/a"]),
        ("kafka", "topic", [], None, []),
    ],
)
def test_the_keys_of_a_dataset_are_its_names_first_and_then_its_places(
    namespace: str, name: str, links: list[list[str]], warehouse: str | None, expected: list[str]
) -> None:
    about = {"links": links, "warehouse": warehouse}

    found = reference_of((namespace, name), about, default_catalog="main", hosts=frozenset({"catalog:8181"}))  # type: ignore[arg-type] # JSON

    assert [key for key in found.keys if key != "place file:///t"] == expected


@pytest.mark.parametrize(("stated", "kept"), [(7, 7), (-1, None), (1 << 63, None), (10**30, None)])
def test_a_count_that_fits_no_column_is_ignored(stated: int, kept: int | None) -> None:
    output = {**dataset("t", location="s3://b/t"), "outputFacets": {"outputStatistics": {"rowCount": stated}}}

    assert run(run_event(1, "COMPLETE", 1, outputs=[output])).outputs[0].rows == kept


def test_a_facet_of_another_shape_is_ignored() -> None:
    broken = dataset("t", location="s3://b/t", version=1, symlinks=7, columnLineage={"fields": []}, catalog="x")

    found = run(run_event(1, "COMPLETE", 1, outputs=[broken], parent={"run": 1}))

    assert (found.outputs[0].version, found.columns, found.parent_run_id) == ("1", [], None)
