"""The stored properties of a Delta table: its configuration, and those derived from protocol, domains and commits."""

from collections.abc import Mapping
from typing import Final

import msgspec

from sandur.delta.protocol import FEATURE, SUPPORTED, Protocol
from sandur.errors import Invalid

READER_VERSION: Final = "delta.minReaderVersion"
WRITER_VERSION: Final = "delta.minWriterVersion"
CLUSTERING_COLUMNS: Final = "clusteringColumns"
ROW_ID_HIGH_WATER_MARK: Final = "delta.rowTracking.rowIdHighWaterMark"
LAST_UPDATE_VERSION: Final = "delta.lastUpdateVersion"
LAST_COMMIT_TIMESTAMP: Final = "delta.lastCommitTimestamp"

CLUSTERING: Final = "delta.clustering"
ROW_TRACKING: Final = "delta.rowTracking"
KEY_OF_DOMAIN: Final[Mapping[str, str]] = {CLUSTERING: CLUSTERING_COLUMNS, ROW_TRACKING: ROW_ID_HIGH_WATER_MARK}

# Derived properties, which are not part of the configuration in the log.
_DERIVED: Final = frozenset(
    {READER_VERSION, WRITER_VERSION, CLUSTERING_COLUMNS, ROW_ID_HIGH_WATER_MARK, LAST_UPDATE_VERSION}
    | {LAST_COMMIT_TIMESTAMP}
)


class Clustering(msgspec.Struct, frozen=True, rename="camel"):
    """The clustering columns; each is a path from the root of the schema."""

    clustering_columns: tuple[tuple[str, ...], ...]


class RowTracking(msgspec.Struct, frozen=True, rename="camel"):
    """The highest row id assigned so far."""

    row_id_high_water_mark: int


class Domains(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The supported domains of domain metadata; any other domain is refused."""

    clustering: Clustering | None = msgspec.field(default=None, name=CLUSTERING)
    row_tracking: RowTracking | None = msgspec.field(default=None, name=ROW_TRACKING)

    @property
    def names(self) -> tuple[str, ...]:
        present = ((CLUSTERING, self.clustering), (ROW_TRACKING, self.row_tracking))
        return tuple(name for name, value in present if value is not None)


def protocol_properties(protocol: Protocol) -> dict[str, str]:
    """The derived properties of a protocol."""
    features = (*(protocol.reader_features or ()), *(protocol.writer_features or ()))
    return {
        READER_VERSION: str(protocol.min_reader_version),
        WRITER_VERSION: str(protocol.min_writer_version),
        **{f"{FEATURE}{feature}": SUPPORTED for feature in features},
    }


def domain_properties(domains: Domains | None) -> dict[str, str]:
    """The derived properties of domain metadata."""
    derived: dict[str, str] = {}
    if domains and domains.clustering:
        derived[CLUSTERING_COLUMNS] = msgspec.json.encode(domains.clustering.clustering_columns).decode()
    if domains and domains.row_tracking:
        derived[ROW_ID_HIGH_WATER_MARK] = str(domains.row_tracking.row_id_high_water_mark)
    return derived


def commit_properties(version: int, timestamp_ms: int) -> dict[str, str]:
    """The derived properties of the commit that changed the metadata last."""
    return {LAST_UPDATE_VERSION: str(version), LAST_COMMIT_TIMESTAMP: str(timestamp_ms)}


def stored_properties(
    given: Mapping[str, str], protocol: Protocol, domains: Domains | None, timestamp_ms: int
) -> dict[str, str]:
    """The properties to store for a new table; a derived one replaces a given one with the same key."""
    return {
        **given,
        **protocol_properties(protocol),
        **domain_properties(domains),
        **commit_properties(0, timestamp_ms),
    }


def features_in(properties: Mapping[str, str]) -> set[str]:
    """The table features that the properties name; each is a writer feature."""
    return {key.removeprefix(FEATURE) for key in properties if key.startswith(FEATURE)}


def domains_in(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The domains whose derived properties are present."""
    return tuple(domain for domain, key in KEY_OF_DOMAIN.items() if key in properties)


def derived_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that are not part of the configuration."""
    return {key: value for key, value in properties.items() if key in _DERIVED or key.startswith(FEATURE)}


def number_property(properties: Mapping[str, str], key: str) -> int | None:
    """The number under a key; None if it is missing or not a number."""
    text = properties.get(key, "")
    return int(text) if text.isascii() and text.removeprefix("-").isdecimal() and len(text) < 20 else None  # noqa: PLR2004 - fits


def checked_domain(name: str) -> str:
    """The property key of a domain; raises Invalid for an unknown domain."""
    if name not in KEY_OF_DOMAIN:
        raise Invalid(f"unknown domain {name[:200]!r}; expected one of {', '.join(KEY_OF_DOMAIN)}")
    return KEY_OF_DOMAIN[name]
