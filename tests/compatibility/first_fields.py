"""The fields of the records of the first release, which emulate a server of it: what it reads, keeps and drops.

`python -m tests.compatibility.first_fields FILE` writes them. `fields-1.0.json` was written this way with the source of
the first release (7e526c9). A clone may lack that source. Its servers ignored fields that they did not know, needed
those without a default, and wrote only those that they knew.
"""

import json
import sys
from pathlib import Path
from typing import Final

import msgspec

from sandur.catalog.credentials.registry import StorageRegistry
from sandur.catalog.location_claims import LocationClaim
from sandur.catalog.records import (
    Catalog,
    Claim,
    DeltaStage,
    DeltaTable,
    ModelVersion,
    NameRecord,
    NamespaceRecord,
    Pointer,
    PurgeOrder,
    Securable,
    Stage,
    Transaction,
)
from sandur.catalog.security.manifest import SecurityManifest

FIRST_RELEASE: Final = Path(__file__).with_name("fields-1.0.json")

_KINDS: Final[dict[str, type[msgspec.Struct]]] = {
    "/_catalog/catalogs/": Catalog,
    "/_catalog/namespaces/": NamespaceRecord,
    "/_catalog/names/": NameRecord,
    "/_catalog/iceberg_pointers/": Pointer,
    "/_catalog/delta_tables/": DeltaTable,
    "/_catalog/securables/": Securable,
    "/_catalog/model_versions/": ModelVersion,
    "/_catalog/iceberg_idempotency/": Claim,
    "/_catalog/idempotency/": Claim,
    "/_catalog/iceberg_transactions/": Transaction,
    "/_catalog/iceberg_staged/": Stage,
    "/_catalog/delta_staged/": DeltaStage,
    "/_catalog/operational/purge/": PurgeOrder,
    "/_catalog/security/manifest": SecurityManifest,
    "/_catalog/unity/storage": StorageRegistry,
    "_shared/locations/": LocationClaim,
}
"""A part of the key of each kind of records."""


class KnownFields(msgspec.Struct, frozen=True):
    """The fields of one kind of records, and those without a default."""

    fields: frozenset[str]
    required: frozenset[str]


class FirstRelease:
    """A server of the first release, as far as it reads and rewrites records."""

    def __init__(self) -> None:
        text = FIRST_RELEASE.read_bytes()
        self._known = msgspec.json.decode(text, type=dict[str, KnownFields])

    def rewritten(self, key: str, text: str) -> str | None:
        """The record after a change by the first release: without what it does not know. None for other objects.

        Raises ValueError if it cannot decode the record.
        """
        known = next((known for part, known in self._known.items() if part in key), None)
        if known is None:
            return None
        record = json.loads(text)
        if not isinstance(record["event_id"], str) or not known.required <= record.keys():
            raise ValueError(f"{key}: the first release cannot decode it")
        return json.dumps({name: value for name, value in record.items() if name in known.fields})


def _described(kind: type[msgspec.Struct]) -> dict[str, list[str]]:
    fields = msgspec.structs.fields(kind)
    required = sorted(field.encode_name for field in fields if field.required)
    return {"fields": sorted(field.encode_name for field in fields), "required": required}


if __name__ == "__main__":
    made = {part: _described(kind) for part, kind in _KINDS.items()}
    Path(sys.argv[1]).write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
