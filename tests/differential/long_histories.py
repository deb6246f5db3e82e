"""Tables with many snapshots, whose longest arrays stay bytes."""

from itertools import pairwise
from random import Random

from tests.differential.java_examples import LOCATION, creation
from tests.differential.older_forms import UNKNOWN_FIELD
from tests.differential.outcomes import JsonObject

SNAPSHOTS = 400
# Text that looks like JSON structure to a search over bytes.
ODD_TEXTS = ("]", "],", '"snapshots":[', '}],"statistics":[', '\\"]', "[[", "größer 🧊 ]", "\\", '"snapshot-log":[]')


def long_table(rng: Random, metadata: JsonObject, *, version: int, now_ms: int) -> JsonObject:
    """The metadata of a new table as it would be after hundreds of appends, with odd texts in some of them."""
    first_ms = now_ms - SNAPSHOTS * 1000
    odd = rng.random() < 0.5
    snapshots = [_snapshot(rng, number, version=version, first_ms=first_ms, odd=odd) for number in range(SNAPSHOTS)]
    for older, newer in pairwise(snapshots):
        newer["parent-snapshot-id"] = older["snapshot-id"]
    current = snapshots[-1]["snapshot-id"]
    result: JsonObject = {
        **metadata,
        "current-snapshot-id": current,
        "refs": {"main": {"snapshot-id": current, "type": "branch"}},
        "snapshots": snapshots,
        "snapshot-log": [{"timestamp-ms": s["timestamp-ms"], "snapshot-id": s["snapshot-id"]} for s in snapshots],
        "last-updated-ms": snapshots[-1]["timestamp-ms"],
    }
    if version > 1:
        result["last-sequence-number"] = SNAPSHOTS
    if version >= 3:
        result["next-row-id"] = SNAPSHOTS * 10
    if odd and rng.random() < 0.5:
        # A key of the same name, but not of the table.
        result = {UNKNOWN_FIELD: {"snapshots": ["x" * 40] * SNAPSHOTS}, **result}
    return dict(rng.sample(sorted(result.items()), k=len(result))) if rng.random() < 0.3 else result


def _snapshot(rng: Random, number: int, *, version: int, first_ms: int, odd: bool) -> JsonObject:
    snapshot_id = rng.randint(1, 2**63 - 1)
    snapshot: JsonObject = {"snapshot-id": snapshot_id, "timestamp-ms": first_ms + number * 1000}
    snapshot["summary"] = {"operation": "append", "added-records": "10", "total-records": str(10 * number)}
    if odd and rng.random() < 0.05:
        snapshot["summary"][rng.choice(ODD_TEXTS)] = rng.choice(ODD_TEXTS)
    if version == 1 and odd and rng.random() < 0.3:
        snapshot["manifests"] = [f"{LOCATION}/metadata/{snapshot_id}-m0.avro"]
    else:
        snapshot["manifest-list"] = f"{LOCATION}/metadata/snap-{snapshot_id}.avro"
    if version > 1:
        snapshot["sequence-number"] = number + 1
    if version >= 3:
        snapshot["first-row-id"], snapshot["added-rows"] = number * 10, 10
    return snapshot


def empty_table_request(version: int) -> JsonObject:
    return {"requirements": [{"type": "assert-create"}], "updates": creation(version)}
