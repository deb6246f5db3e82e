"""The plan of a CREATE TABLE: filtered properties, required features, the first commit in the form of Kernel."""

import json
from collections.abc import Mapping

import pytest

from sandur.delta.create_plan import (
    CreatePlan,
    PartitionTransform,
    TableDefinition,
    first_commit_body,
    parse_columns,
    plan_table,
)
from sandur.delta.protocol import REQUIRED_PROPERTIES, REQUIRED_WRITER_FEATURES, check_contract
from sandur.errors import Invalid

FIELDS = parse_columns("id BIGINT NOT NULL, part STRING, at TIMESTAMP")


def plan(
    properties: Mapping[str, str] | None = None,
    *,
    catalog: bool = False,
    columns: str | None = None,
    **more: object,
) -> CreatePlan:
    fields = parse_columns(columns) if columns else FIELDS
    wanted = TableDefinition(fields=fields, properties=properties or {}, **more)  # type: ignore[arg-type] # Given by name.
    return plan_table(wanted, location="s3://b/t/", table_id="id-1", committer="catalog" if catalog else "path")


def actions(made: CreatePlan) -> list[dict[str, dict[str, object]]]:
    lines = first_commit_body(made, engine="Sandur/1", now_ms=7, transaction_id="tx").splitlines()
    return [json.loads(line) for line in lines]


def test_a_plain_table_has_the_oldest_protocol_and_no_files() -> None:
    info, metadata, protocol = actions(plan(partitioning=[PartitionTransform("identity", "part")], comment="c"))

    assert info["commitInfo"] == {
        "timestamp": 7,
        "engineInfo": "Sandur/1",
        "operation": "CREATE TABLE",
        "operationParameters": {"partitionBy": '["part"]'},
        "isBlindAppend": False,
        "txnId": "tx",
        "operationMetrics": {},
    }
    assert metadata["metaData"]["partitionColumns"] == ["part"]
    assert metadata["metaData"]["description"] == "c"
    assert json.loads(str(metadata["metaData"]["schemaString"]))["fields"][0]["name"] == "id"
    assert protocol == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def test_a_managed_table_has_the_required_features_and_properties() -> None:
    made = plan(catalog=True)

    check_contract(made.protocol, (), made.properties, waives_deletion_vectors=False)
    info, metadata, protocol = actions(made)
    assert info["commitInfo"]["inCommitTimestamp"] == 7
    assert metadata["metaData"]["configuration"] == {**REQUIRED_PROPERTIES, "io.unitycatalog.tableId": "id-1"}
    assert set(REQUIRED_WRITER_FEATURES) <= set(protocol["protocol"]["writerFeatures"])  # type: ignore[call-overload] # JSON


def test_properties_that_describe_the_table_are_not_stored_as_configuration() -> None:
    described = dict.fromkeys(
        ("location", "provider", "owner", "external", "is_managed_location", "path", "option.path", "comment"), "x"
    )
    made = plan(
        {
            **described,
            "io.unitycatalog.tableId": "x",
            "ucTableId": "x",
            "delta.feature.deletionVectors": "supported",
            "k": "v",
        }
    )

    assert made.properties == {"k": "v"}
    assert made.protocol.reader_features == ("deletionVectors",)


@pytest.mark.parametrize("key", ["delta.minReaderVersion", "delta.minWriterVersion", "delta.ignoreProtocolDefaults"])
def test_protocol_version_numbers_are_refused(key: str) -> None:
    with pytest.raises(Invalid, match=key):
        plan({key: "3"})


@pytest.mark.parametrize(
    ("properties", "features"),
    [
        ({"delta.enableChangeDataFeed": "true"}, {"changeDataFeed"}),
        ({"delta.enableChangeDataFeed": "false"}, set()),
        ({"delta.enableRowTracking": "true"}, {"rowTracking", "domainMetadata"}),
        ({"delta.enableDeletionVectors": "TRUE"}, {"deletionVectors"}),
        ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
        ({"delta.feature.catalogManaged": "supported"}, {"catalogManaged", "inCommitTimestamp"}),
    ],
)
def test_properties_enable_their_features(properties: dict[str, str], features: set[str]) -> None:
    found = set(plan(properties).protocol.writer_features or ())

    assert found - {"appendOnly", "invariants"} == features


def test_types_at_any_depth_enable_their_features() -> None:
    made = plan(columns="a ARRAY<STRUCT<x: TIMESTAMP_NTZ>>, v VARIANT")

    assert set(made.protocol.reader_features or ()) == {"timestampNtz", "variantType"}
    assert made.protocol.min_reader_version == 3


def test_a_clustered_table_has_a_clustering_domain() -> None:
    *_, domain = actions(plan(clustering=["id"]))

    assert domain["domainMetadata"]["domain"] == "delta.clustering"
    assert json.loads(str(domain["domainMetadata"]["configuration"])) == {"clusteringColumns": [["id"]]}


@pytest.mark.parametrize(
    "definition",
    [
        {"partitioning": [PartitionTransform("bucket", "id")]},
        {"partitioning": [PartitionTransform("years", "at")]},
        {"partitioning": [PartitionTransform("identity", "no_such")]},
        {"partitioning": [PartitionTransform("identity", "a.b")]},
        {"partitioning": [PartitionTransform("identity", name) for name in ("id", "part", "at")]},
        {"partitioning": [PartitionTransform("identity", "part")], "clustering": ["id"]},
        {"clustering": ["no_such"]},
        {"properties": {"delta.feature.no_such": "supported"}},
        {"properties": {"delta.feature.deletionVectors": "perhaps"}},
        {"properties": {"delta.columnMapping.mode": "name"}},
    ],
)
def test_an_invalid_definition_is_refused(definition: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        plan(**definition)  # type: ignore[arg-type] # Given by name.


def test_a_managed_table_refuses_properties_that_contradict_its_contract() -> None:
    with pytest.raises(Invalid, match="enableDeletionVectors"):
        plan({"delta.enableDeletionVectors": "false"}, catalog=True)
