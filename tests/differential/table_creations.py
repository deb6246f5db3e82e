"""Random requests to create a table, with the column ids that clients make up."""

from copy import deepcopy
from random import Random

from tests.differential import table_updates as updates
from tests.differential.outcomes import Json, JsonObject
from tests.differential.schemas import FieldIds, broken_schema, random_schema

WRONG = 0.1


def table_creation(rng: Random) -> JsonObject:
    """A create request: any schema, numbered from 0, 1 or anywhere, with a spec, an order and properties."""
    version = rng.choice((1, 2, 2, 3, 4))
    draft = updates.empty_draft(rng, version=version, now_ms=0)
    draft.ids = FieldIds(rng.choice((-1, 0, 0, 40)))
    draft.current_schema = random_schema(rng, version=version, ids=draft.ids, columns_max=6)
    _renumber(rng, draft.current_schema)
    request: JsonObject = {
        "name": "table",
        "location": rng.choice(("s3://warehouse/db/table", "s3://warehouse/db/table/", "s3://warehouse")),
        "schema": deepcopy(draft.current_schema),
        "properties": _properties(rng, version),
    }
    if rng.random() < 0.7:
        request["partition-spec"] = updates.add_spec(rng, draft)["spec"]
    if rng.random() < 0.6:
        request["write-order"] = updates.add_sort_order(rng, draft)["sort-order"]
    if rng.random() < WRONG:
        request["schema"] = broken_schema(rng, request["schema"], ids=draft.ids)
    return request


def _renumber(rng: Random, schema: JsonObject) -> None:
    """Sometimes swaps the ids of top-level columns: ids need not be in the order of the columns."""
    if rng.random() < 0.3:
        simple = [field for field in schema["fields"] if isinstance(field["type"], str)]
        ids = [field["id"] for field in simple]
        rng.shuffle(ids)
        for field, field_id in zip(simple, ids, strict=True):
            field["id"] = field_id
        schema.pop("identifier-field-ids", None)


def _properties(rng: Random, version: int) -> dict[str, Json]:
    properties: dict[str, Json] = {}
    if version != 2 or rng.random() < 0.3:
        properties["format-version"] = str(version)
    if rng.random() < 0.4:
        key, value = rng.choice(
            (
                ("owner", "ann"),
                ("uuid", "not stored"),
                ("current-snapshot-id", "5"),
                ("write.parquet.compression-codec", "snappy"),
                ("write.metadata.metrics.column.id", "counts"),
                ("write.metadata.metrics.column.nowhere", "counts"),
                ("commit.retry.num-retries", rng.choice(("4", "-1", "x"))),
                ("commit.retry.total-timeout-ms", rng.choice(("4", "-1"))),
                ("encryption.key-id", "k"),
                ("encryption.data-key-length", "16"),
                ("format-version", rng.choice(("0", "5", "9", "two"))),
            )
        )
        properties[key] = value
    return properties
