"""Protocol and table features: what a managed Delta table must have, and what properties and columns require."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from sandur.errors import Invalid

TABLE_ID: Final = "io.unitycatalog.tableId"
FEATURE: Final = "delta.feature."
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

# No column mapping, which the reference server suggests: some writers ignore it, and their rows are NULL (L6).
SUGGESTED_READER_FEATURES: Final[tuple[str, ...]] = ()
SUGGESTED_WRITER_FEATURES: Final = ("domainMetadata", "rowTracking")
SUGGESTED_PROPERTIES: Final[Mapping[str, str | None]] = {
    "delta.enableRowTracking": "true",
    "delta.rowTracking.materializedRowIdColumnName": None,
    "delta.rowTracking.materializedRowCommitVersionColumnName": None,
    "delta.randomizeFilePrefixes": "true",
    "delta.parquet.compression.codec": "zstd",
}
"""None: the engine chooses a value."""

_DELETION_VECTORS: Final = "deletionVectors"
_ENABLE_DELETION_VECTORS: Final = "delta.enableDeletionVectors"
_ICEBERG_COMPATIBLE: Final = "delta.enableIcebergCompatV2"

DOMAIN_FEATURES: Final[Mapping[str, str]] = {"delta.clustering": "clustering", "delta.rowTracking": "rowTracking"}
"""The writer feature that each domain of domain metadata requires."""

# Property, the value that requires the feature (None: any but `none` and `false`), and the feature.
_BY_PROPERTY: Final = (
    ("delta.appendOnly", "true", "appendOnly"),
    ("delta.enableChangeDataFeed", "true", "changeDataFeed"),
    ("delta.enableInCommitTimestamps", "true", "inCommitTimestamp"),
    ("delta.enableRowTracking", "true", "rowTracking"),
    ("delta.enableDeletionVectors", "true", "deletionVectors"),
    ("delta.enableTypeWidening", "true", "typeWidening"),
    ("delta.checkpointPolicy", "v2", "v2Checkpoint"),
    ("delta.columnMapping.mode", None, "columnMapping"),
    ("delta.enableIcebergCompatV2", "true", "icebergCompatV2"),
    ("delta.enableIcebergCompatV3", "true", "icebergCompatV3"),
    ("delta.enableVariantShredding", "true", "variantShredding"),
)
_BY_TYPE: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_OFF: Final = frozenset({"", "none", "false"})

# Every table of the older protocol 1/2 has these implicitly.
_IMPLIED: Final = ("appendOnly", "invariants")


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
    """Raise Invalid for the first rule of managed tables that is broken.

    With `waives_deletion_vectors`, a table that Iceberg clients read as version 2 does not need deletion vectors.
    """
    is_waived = waives_deletion_vectors and properties.get(_ICEBERG_COMPATIBLE) == "true"
    readers, writers = protocol.reader_features or (), protocol.writer_features or ()
    for side, needed, found in (
        ("reader", READER_VERSION, protocol.min_reader_version),
        ("writer", WRITER_VERSION, protocol.min_writer_version),
    ):
        if found < needed:
            raise Invalid(f"a managed table needs min-{side}-version {needed}, found {found}")
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
    """Raise Invalid if the feature of a domain is missing."""
    for domain in domains:
        if (feature := DOMAIN_FEATURES.get(domain)) and feature not in writer_features:
            raise Invalid(f"domain-metadata {domain} requires the writer feature {feature}")


def check_table_id(properties: Mapping[str, str], table_id: str) -> None:
    """Raise Invalid unless the properties contain the id of the table."""
    found = properties.get(TABLE_ID)
    if found is None:
        raise Invalid(f"the properties do not contain {TABLE_ID}")
    if found != table_id:
        raise Invalid(f"the property {TABLE_ID} is {found}, the table's id is {table_id}")


def _check_features(side: str, required: Sequence[str], found: Collection[str], *, is_waived: bool) -> None:
    for feature in required:
        if feature not in found and not (is_waived and feature == _DELETION_VECTORS):
            raise Invalid(f"a managed table needs the {side} feature {feature}")


READER_FEATURES: Final = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
    | {"variantType", "variantShredding", "catalogManaged"}
)
FEATURES: Final = READER_FEATURES | {
    *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"),
    *("allowColumnDefaults", "inCommitTimestamp", "domainMetadata", "rowTracking", "clustering"),
    *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3"),
}
_NEEDS: Final[Mapping[str, frozenset[str]]] = {
    "rowTracking": frozenset({"domainMetadata"}),
    "clustering": frozenset({"domainMetadata"}),
    "icebergCompatV1": frozenset({"columnMapping"}),
    "icebergCompatV2": frozenset({"columnMapping"}),
    "icebergCompatV3": frozenset({"columnMapping", "rowTracking"}),
    "variantShredding": frozenset({"variantType"}),
    "catalogManaged": frozenset({"inCommitTimestamp"}),
}
"""The features that a feature requires."""

_OLDEST: Final = Protocol(min_reader_version=1, min_writer_version=2)


def required_features(properties: Mapping[str, str], fields: Iterable[Mapping[str, object]]) -> set[str]:
    """The features that properties and types require, and those that these require; Invalid for an unknown one."""
    named = {key.removeprefix(FEATURE): value for key, value in properties.items() if key.startswith(FEATURE)}
    for feature, value in named.items():
        if value not in {SUPPORTED, "enabled"}:
            raise Invalid(f"property {FEATURE}{feature}={value}: expected {SUPPORTED}")
    lower = {key: value.lower() for key, value in properties.items() if value.lower() not in _OFF}
    enabled = {feature for key, value, feature in _BY_PROPERTY if key in lower and value in {None, lower[key]}}
    typed = {_BY_TYPE[name] for field in fields for name in _names_in(field.get("type")) if name in _BY_TYPE}
    features = named.keys() | enabled | typed
    if unknown := sorted(features - FEATURES):
        raise Invalid(f"unknown table feature: {', '.join(unknown)}")
    return _with_needs(features)


def protocol_of(features: Iterable[str]) -> Protocol:
    """The smallest protocol that supports these features."""
    wanted = set(features)
    if not wanted - set(_IMPLIED):
        return _OLDEST
    every = sorted(wanted | set(_IMPLIED))
    readers = tuple(feature for feature in every if feature in READER_FEATURES)
    return Protocol(
        min_reader_version=3 if readers else 1,
        min_writer_version=7,
        reader_features=readers or None,
        writer_features=tuple(every),
    )


def _with_needs(wanted: set[str]) -> set[str]:
    found = set(wanted)
    waiting = list(wanted)
    while waiting:
        new = _NEEDS.get(waiting.pop(), frozenset()) - found
        found |= new
        waiting += new
    return found


def _names_in(kind: object) -> Iterator[str]:
    """Every type name in a type, at any depth."""
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, dict):
        for part in ("elementType", "keyType", "valueType"):
            yield from _names_in(kind.get(part))
        for field in kind.get("fields") or ():
            yield from _names_in(field.get("type"))
