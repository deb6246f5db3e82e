"""The tables that all clients work on."""

from collections.abc import Mapping
from typing import Final

from tests.chaos.clients import Client, Json

SHORT_LOG: Final = ("hot/short0", "hot/short1")
LONG_LOG: Final = ("hot/long0", "hot/long1")
PAIRS: Final = (("hot/left0", "hot/right0"), ("hot/left1", "hot/right1"))
ALL: Final = (*SHORT_LOG, *LONG_LOG, *PAIRS[0], *PAIRS[1])

NAMESPACES: Final = ("hot", "here", "there")
SHARED: Final = tuple(f"{namespace}/shared{number}" for namespace in ("here", "there") for number in range(3))

# With a log of one entry, only the receipt proves a commit after two later ones.
_SHORT: Final = {"write.metadata.previous-versions-max": "1"}
_LONG: Final = {"write.metadata.previous-versions-max": "1000"}

MADE_BY: Final = "made-by"
"""The property that says which request created a table."""

LAST: Final = "last"
"""The property that says which request changed a table last; each sets it, unless it would not be known again then."""

OWN: Final = "own."
"""What the name of a property begins with that only one request ever sets."""

MARKER: Final = "request"
"""What says in the summary of a snapshot which request added it."""

SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}


def path_of(table: str) -> str:
    namespace, name = table.split("/")
    return f"/v1/namespaces/{namespace}/tables/{name}"


def identifier_of(table: str) -> Json:
    namespace, name = table.split("/")
    return {"namespace": [namespace], "name": name}


def creation(table: str, marker: str, properties: Mapping[str, str] | None = None) -> Json:
    return {"name": table.split("/")[1], "schema": SCHEMA, "properties": {**(properties or {}), MADE_BY: marker}}


async def make_world(client: Client) -> None:
    for namespace in NAMESPACES:
        sent, _ = await client.send(
            "POST", "/v1/namespaces", {"namespace": [namespace]}, kind="namespace", is_keyed=True
        )
        assert sent.is_done, sent
    for table in ALL:
        marker = client.clock.new_id()
        body = creation(table, marker, _SHORT if table in SHORT_LOG else _LONG)
        sent, _ = await client.send(
            "POST", "/v1/namespaces/hot/tables", body, kind="create", marker=marker, is_keyed=True
        )
        assert sent.is_done, sent
