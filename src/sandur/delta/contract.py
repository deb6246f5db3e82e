"""What a managed Delta table must and should be: asked of clients when they stage one, checked when they create it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from sandur.errors import Invalid

TABLE_ID: Final = "io.unitycatalog.tableId"
FEATURE: Final = "delta.feature."
CATALOG_MANAGED: Final = "catalogManaged"
SUPPORTED: Final = "supported"

READER_VERSION: Final = 3
WRITER_VERSION: Final = 7

REQUIRED_READER_FEATURES: Final = ("catalogManaged", "v2Checkpoint", "vacuumProtocolCheck", "deletionVectors")
REQUIRED_WRITER_FEATURES: Final = (*REQUIRED_READER_FEATURES, "inCommitTimestamp")
REQUIRED_PROPERTIES: Final[Mapping[str, str]] = {
    "delta.enableDeletionVectors": "true",
    "delta.checkpointPolicy": "v2",
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "true",
}

SUGGESTED_READER_FEATURES: Final = ("columnMapping",)
SUGGESTED_WRITER_FEATURES: Final = ("columnMapping", "domainMetadata", "rowTracking")
SUGGESTED_PROPERTIES: Final[Mapping[str, str | None]] = {
    "delta.columnMapping.mode": "name",
    "delta.columnMapping.maxColumnId": None,
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": None,
    "delta.rowTracking.materializedRowCommitVersionColumnName": None,
    "delta.randomizeFilePrefixes": "true",
    "delta.parquet.compression.codec": "zstd",
}
"""None: the engine finds a value."""

_DELETION_VECTORS: Final = "deletionVectors"
_ENABLE_DELETION_VECTORS: Final = "delta.enableDeletionVectors"
_ICEBERG_COMPATIBLE: Final = "delta.enableIcebergCompatV2"

DOMAIN_FEATURES: Final[Mapping[str, str]] = {"delta.clustering": "clustering", "delta.rowTracking": "rowTracking"}
"""The writer feature that each domain of domain metadata needs."""


class Protocol(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The protocol of a Delta table as clients send it."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


def required_properties(table_id: str) -> dict[str, str]:
    return {**REQUIRED_PROPERTIES, TABLE_ID: table_id}


def check_contract(
    protocol: Protocol, domains: Collection[str], properties: Mapping[str, str], *, waives_deletion_vectors: bool
) -> None:
    """Invalid, with the first rule that is broken, unless the table may be a managed one.

    Deletion vectors may be missing, if the server says so, from tables that Iceberg clients read as version 2.
    """
    is_waived = waives_deletion_vectors and properties.get(_ICEBERG_COMPATIBLE) == "true"
    readers, writers = protocol.reader_features or (), protocol.writer_features or ()
    _check_versions(protocol)
    for feature in readers:
        if feature not in writers:
            raise Invalid(f"feature {feature} is in reader-features but not in writer-features")
    _check_features("reader", REQUIRED_READER_FEATURES, readers, is_waived=is_waived)
    _check_features("writer", REQUIRED_WRITER_FEATURES, writers, is_waived=is_waived)
    check_domains(domains, writers)
    for key, value in REQUIRED_PROPERTIES.items():
        if key == _ENABLE_DELETION_VECTORS and is_waived:
            continue
        if properties.get(key) != value:
            raise Invalid(f"a managed table needs the property {key}={value}, found {properties.get(key)}")


def check_domains(domains: Collection[str], writer_features: Collection[str]) -> None:
    """Every domain needs its feature."""
    for domain in domains:
        if (feature := DOMAIN_FEATURES.get(domain)) and feature not in writer_features:
            raise Invalid(f"domain-metadata {domain} requires the writer feature {feature}")


def check_table_id(properties: Mapping[str, str], table_id: str) -> None:
    """The properties must name the table itself."""
    found = properties.get(TABLE_ID)
    if found is None:
        raise Invalid(f"the properties do not contain {TABLE_ID}")
    if found != table_id:
        raise Invalid(f"the property {TABLE_ID} is {found}, the table's id is {table_id}")


def _check_versions(protocol: Protocol) -> None:
    if protocol.min_reader_version < READER_VERSION:
        raise Invalid(f"a managed table needs min-reader-version {READER_VERSION}, found {protocol.min_reader_version}")
    if protocol.min_writer_version < WRITER_VERSION:
        raise Invalid(f"a managed table needs min-writer-version {WRITER_VERSION}, found {protocol.min_writer_version}")


def _check_features(side: str, required: Sequence[str], found: Collection[str], *, is_waived: bool) -> None:
    for feature in required:
        if feature not in found and not (is_waived and feature == _DELETION_VECTORS):
            raise Invalid(f"a managed table needs the {side} feature {feature}")
