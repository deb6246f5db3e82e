"""Which table features a Delta table needs, by its properties and its columns, and the protocol they make."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from sandur.delta.contract import FEATURE, SUPPORTED, Protocol
from sandur.errors import Invalid


class Feature(NamedTuple):
    """A table feature: whether readers must know it, and what comes with it."""

    for_readers: bool
    needs: tuple[str, ...] = ()


FEATURES: Final[Mapping[str, Feature]] = {
    "appendOnly": Feature(for_readers=False),
    "invariants": Feature(for_readers=False),
    "checkConstraints": Feature(for_readers=False),
    "changeDataFeed": Feature(for_readers=False),
    "generatedColumns": Feature(for_readers=False),
    "identityColumns": Feature(for_readers=False),
    "allowColumnDefaults": Feature(for_readers=False),
    "inCommitTimestamp": Feature(for_readers=False),
    "domainMetadata": Feature(for_readers=False),
    "rowTracking": Feature(for_readers=False, needs=("domainMetadata",)),
    "clustering": Feature(for_readers=False, needs=("domainMetadata",)),
    "icebergCompatV1": Feature(for_readers=False, needs=("columnMapping",)),
    "icebergCompatV2": Feature(for_readers=False, needs=("columnMapping",)),
    "icebergCompatV3": Feature(for_readers=False, needs=("columnMapping", "rowTracking")),
    "columnMapping": Feature(for_readers=True),
    "deletionVectors": Feature(for_readers=True),
    "timestampNtz": Feature(for_readers=True),
    "typeWidening": Feature(for_readers=True),
    "v2Checkpoint": Feature(for_readers=True),
    "vacuumProtocolCheck": Feature(for_readers=True),
    "variantType": Feature(for_readers=True),
    "variantShredding": Feature(for_readers=True, needs=("variantType",)),
    "catalogManaged": Feature(for_readers=True, needs=("inCommitTimestamp",)),
}

# Property, the value that asks for it (None: any but `none` and `false`), and the feature.
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

# What every table of the older protocol 1/2 has without saying so.
_IMPLIED: Final = ("appendOnly", "invariants")
_OLDEST: Final = Protocol(min_reader_version=1, min_writer_version=2)


def needed_features(properties: Mapping[str, str], fields: Iterable[Mapping[str, object]]) -> set[str]:
    """What properties and types ask for, and what comes with it; Invalid for a feature that nobody knows."""
    wanted = {key.removeprefix(FEATURE) for key in properties if key.startswith(FEATURE)}
    for key in properties:
        if key.startswith(FEATURE) and properties[key] not in {SUPPORTED, "enabled"}:
            raise Invalid(f"property {key}={properties[key]}: expected {SUPPORTED}")
    for key, value, feature in _BY_PROPERTY:
        found = properties.get(key, "").lower()
        if (value is None and found not in _OFF) or (value is not None and found == value):
            wanted.add(feature)
    wanted |= {_BY_TYPE[name] for field in fields for name in _names_in(field.get("type")) if name in _BY_TYPE}
    if unknown := sorted(wanted - FEATURES.keys()):
        raise Invalid(f"unknown table feature: {', '.join(unknown)}")
    return _with_needs(wanted)


def protocol_of(features: Iterable[str]) -> Protocol:
    """The smallest protocol that has these features."""
    wanted = set(features)
    if not wanted - set(_IMPLIED):
        return _OLDEST
    every = sorted(wanted | set(_IMPLIED))
    readers = tuple(feature for feature in every if FEATURES[feature].for_readers)
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
        new = set(FEATURES[waiting.pop()].needs) - found
        found |= new
        waiting += new
    return found


def _names_in(kind: object) -> Iterator[str]:
    """Every name of a type, at whatever depth."""
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, dict):
        for part in ("elementType", "keyType", "valueType"):
            yield from _names_in(kind.get(part))
        for field in kind.get("fields") or ():
            yield from _names_in(field.get("type"))
