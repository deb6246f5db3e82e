"""The work of clients on permanent tables: commits, transactions and reads."""

from typing import Final

from tests.chaos.clients import PAIR, Client, Json, SentRequest
from tests.chaos.world import ALL, LAST, LONG_LOG, MARKER, OWN, PAIRS, identifier_of, path_of

_SNAPSHOT_BITS: Final = 62


async def add_snapshot(client: Client) -> None:
    """Append as engines do; a retry is recognized by the snapshot, with or without a key."""
    table = client.chance.choice(ALL)
    marker = client.clock.new_id()
    body = _snapshot_commit(client, await _metadata_of(client, table), marker)
    is_keyed = client.chance.random() < 0.5
    await client.send("POST", path_of(table), body, kind="snapshot", marker=marker, is_keyed=is_keyed, is_exact=True)


async def set_last(client: Client) -> None:
    """Set a property that all clients set, without a requirement: only the key prevents a second application."""
    await commit_last(client, client.chance.choice(ALL))


async def commit_last(client: Client, table: str) -> SentRequest:
    marker = client.clock.new_id()
    body = {"requirements": [], "updates": [_setting({LAST: marker})]}
    sent, _ = await client.send("POST", path_of(table), body, kind="last", marker=marker, is_keyed=True)
    return sent


async def set_own(client: Client) -> None:
    """Set an own property without a requirement or a key: a second application changes nothing."""
    marker = client.clock.new_id()
    body = {"requirements": [], "updates": [_setting({OWN + marker: "set"})]}
    await client.send("POST", path_of(client.chance.choice(ALL)), body, kind="own", marker=marker)


async def add_column(client: Client) -> None:
    """Add a column without a key; a retry is recognized by its requirement."""
    table = client.chance.choice(LONG_LOG)
    marker = client.clock.new_id()
    metadata = await _metadata_of(client, table)
    fields = metadata["schemas"][-1]["fields"]
    schema_id, column_id = len(metadata["schemas"]), metadata["last-column-id"] + 1
    added = {"id": column_id, "name": f"column{column_id}", "type": "long", "required": False}
    schema = {"type": "struct", "schema-id": schema_id, "fields": [*fields, added]}
    body = {
        "requirements": [{"type": "assert-last-assigned-field-id", "last-assigned-field-id": column_id - 1}],
        "updates": [
            {"action": "add-schema", "schema": schema, "last-column-id": column_id},
            {"action": "set-current-schema", "schema-id": -1},
            _setting({LAST: marker}),
        ],
    }
    await client.send("POST", path_of(table), body, kind="column", marker=marker, is_exact=True)


async def change_pair(client: Client) -> None:
    """Change two tables in a transaction; a retry is recognized by the key or by the added snapshots."""
    pair = client.chance.choice(PAIRS)
    marker = client.clock.new_id()
    is_keyed = client.chance.random() < 0.6
    changes = []
    for table in client.chance.sample(pair, len(pair)):
        change: Json = {"requirements": [], "updates": [_setting({LAST: marker})]}
        if not is_keyed:
            change = _snapshot_commit(client, await _metadata_of(client, table), marker)
        change["updates"].append(_setting({PAIR: marker}))
        changes.append({"identifier": identifier_of(table), **change})
    body = {"table-changes": changes}
    path = "/v1/transactions/commit"
    await client.send("POST", path, body, kind="transaction", marker=marker, is_keyed=is_keyed, is_exact=True)


async def read_pair(client: Client) -> None:
    first, second = client.chance.sample(client.chance.choice(PAIRS), 2)
    earlier, later = await client.load(first), await client.load(second)
    assert earlier
    assert later
    client.diary.pairs.append((earlier[0], later[0]))


async def _metadata_of(client: Client, table: str) -> Json:
    loaded = await client.load(table)
    assert loaded is not None, table
    return loaded[1]


def _setting(properties: Json) -> Json:
    return {"action": "set-properties", "updates": properties}


def _snapshot_commit(client: Client, metadata: Json, marker: str) -> Json:
    parent = metadata.get("current-snapshot-id")
    parent = None if parent == -1 else parent
    snapshot_id = client.chance.getrandbits(_SNAPSHOT_BITS) + 1
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": max(client.clock.now_ms(), metadata["last-updated-ms"]),
        "manifest-list": f"{metadata['location']}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", MARKER: marker},
        "schema-id": 0,
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent
    return {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent},
        ],
        "updates": [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
            _setting({LAST: marker}),
        ],
    }
