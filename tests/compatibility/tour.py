"""One object of every kind through every API, the answers that show them, and a store as one file.

`python -m tests.compatibility.tour FILE` writes the store and the answers. `store-1.0.json` was written this way with
the source of the first release (7e526c9), before records had versions.
"""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore, list_all
from sandur.storage.memory import MemoryStore
from tests.server.conftest import with_plain_names
from tests.server.requests import create_table, create_view, set_properties
from tests.server.unity.client import CONTROL, UNITY, Unity
from tests.server.unity.delta_requests import T, add_commit, created, staged, update
from tests.server.unity.test_securables import FUNCTION

FIRST_RELEASE: Final = Path(__file__).with_name("store-1.0.json")
KEY: Final = "01890a5d-ac96-774b-bcce-b302099a8057"
NAMESPACES: Final = "/v1/main/namespaces"
KEYED_COMMIT: Final = set_properties(second="2")
USER: Final = "me@x.org"
_WHERE: Final = "catalog_name=main&schema_name=s"

Answers = Mapping[str, Sequence[Any]]
"""The status and the body of each GET, by its path."""

GETS: Final = (
    NAMESPACES,
    f"{NAMESPACES}/s",
    f"{NAMESPACES}/s/tables",
    f"{NAMESPACES}/s/tables/i",
    f"{NAMESPACES}/s/tables/staged",
    f"{NAMESPACES}/s/tables/dropped",
    f"{NAMESPACES}/s/tables/before",
    f"{NAMESPACES}/s/tables/after",
    f"{NAMESPACES}/s/views",
    f"{NAMESPACES}/s/views/v",
    f"{UNITY}/catalogs",
    f"{UNITY}/catalogs/other",
    f"{UNITY}/schemas?catalog_name=main",
    f"{UNITY}/tables?{_WHERE}",
    f"{UNITY}/tables/main.s.t",
    f"{UNITY}{T}",
    f"{UNITY}/volumes?{_WHERE}",
    f"{UNITY}/volumes/main.s.vol",
    f"{UNITY}/functions?{_WHERE}",
    f"{UNITY}/functions/main.s.f",
    f"{UNITY}/models?{_WHERE}",
    f"{UNITY}/models/main.s.m",
    f"{UNITY}/models/main.s.m/versions",
    f"{UNITY}/permissions/schema/main.s",
    f"{UNITY}/credentials",
    f"{UNITY}/external-locations",
    f"{UNITY}/metastore_summary",
    f"{CONTROL}/scim2/Users",
)


class KeptStore(MemoryStore):
    """Keeps its objects when a server closes it."""

    async def close(self) -> None:
        return None


class SavedStore(NamedTuple):
    """The objects of a store by key, and what a server answered about them."""

    objects: Mapping[str, str]
    answers: Answers

    async def restore(self) -> KeptStore:
        store = KeptStore()
        for key, text in self.objects.items():
            await store.put(key, text.encode(), expected=ABSENT)
        return store


def load(file: Path = FIRST_RELEASE) -> SavedStore:
    return SavedStore(**json.loads(file.read_text(encoding="utf-8")))


async def fill(client: httpx.AsyncClient) -> None:
    """Make one object of every kind, and leave some in the middle of their lives."""
    unity, control = Unity(client), Unity(client, CONTROL)
    for name in ("s", "empty"):
        await _sent(client, "POST", NAMESPACES, {"namespace": [name], "properties": {"of": name}})
    await _sent(client, "POST", NAMESPACES, {"namespace": ["s", "below"]})
    tables = f"{NAMESPACES}/s/tables"
    for name in ("i", "dropped", "before"):
        await _sent(client, "POST", tables, create_table(name))
    await _sent(client, "POST", f"{tables}/i", set_properties(first="1"))
    await _sent(client, "POST", f"{tables}/i", KEYED_COMMIT, {"Idempotency-Key": KEY})
    await _sent(client, "POST", tables, {**create_table("staged"), "stage-create": True})
    await _sent(client, "DELETE", f"{tables}/dropped?purgeRequested=true")
    names = {"source": {"namespace": ["s"], "name": "before"}, "destination": {"namespace": ["s"], "name": "after"}}
    await _sent(client, "POST", "/v1/main/tables/rename", names)
    await _sent(client, "POST", f"{NAMESPACES}/s/views", create_view("v"))
    await unity.made("/catalogs", {"name": "other", "comment": "words"})
    delta = await created(unity)
    await _sent(client, "POST", f"{UNITY}{T}", update(delta["metadata"]["table-uuid"], add_commit(1)))
    await staged(unity, "later")
    place = {"catalog_name": "main", "schema_name": "s"}
    await unity.made("/volumes", {**place, "name": "vol", "volume_type": "MANAGED"})
    await unity.made("/functions", {"function_info": FUNCTION})
    await unity.made("/models", {**place, "name": "m"})
    await unity.made("/models/versions", {**place, "model_name": "m", "source": "here"})
    await control.made("/scim2/Users", {"emails": [{"value": USER}]})
    grants = {"changes": [{"principal": USER, "add": ["USE SCHEMA"], "remove": []}]}
    assert (await unity.patch("/permissions/schema/main.s", grants)).status_code == 200
    await unity.made("/credentials", {"name": "k"})
    await unity.made("/external-locations", {"name": "l", "url": "s3://b/x", "credential_name": "k"})


async def _sent(
    client: httpx.AsyncClient, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> None:
    answer = await client.request(method, path, json=body, headers=headers)
    assert answer.is_success, f"{method} {path}: {answer.text}"


async def ask(client: httpx.AsyncClient) -> Answers:
    answers = {}
    for path in GETS:
        answer = await client.get(path)
        answers[path] = [answer.status_code, answer.json()]
    return answers


async def texts(store: ObjectStore) -> dict[str, str]:
    """The objects of a store by key."""
    found = {}
    for listed in await list_all(store, ""):
        stored = await store.get(listed.key)
        if stored:
            found[listed.key] = stored.data.decode()
    return found


async def _saved() -> SavedStore:
    store = KeptStore()
    app, catalog = build(Settings(store="memory:", janitors=False), store=store)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        await fill(client)
        answers = await ask(client)
    await catalog.close()
    return SavedStore(await texts(store), answers)


if __name__ == "__main__":
    saved = asyncio.run(_saved())
    Path(sys.argv[1]).write_text(json.dumps(saved._asdict(), indent=1) + "\n", encoding="utf-8")
