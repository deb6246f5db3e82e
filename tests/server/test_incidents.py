"""Nothing fails in silence: work behind an answer and damaged objects are logged and counted."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, TypeVar

import httpx
import pytest
from structlog.testing import capture_logs

from sandur.errors import Unavailable
from sandur.storage.contract import list_all
from sandur.storage.memory import MemoryStore
from tests.fakes.wrapping_store import Call, WrappingStore
from tests.server.conftest import Catalogs
from tests.server.requests import create_table, set_properties

T = TypeVar("T")

Lines = Sequence[MutableMapping[str, Any]]


class PartlyFailing(WrappingStore):
    """Fails the calls that `failing` chooses, by the call and the writes before it, with `error`."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.failing: Callable[[Call, Sequence[str]], bool] = lambda *_: False
        self.written: list[str] = []
        self.error: Exception = Unavailable("the store is away")

    async def _around(self, call: Call, perform: Callable[[], Awaitable[T]]) -> T:
        if self.failing(call, self.written):
            raise self.error
        if call.is_write:
            self.written.append(call.key)
        return await perform()

    async def damage(self, part: str) -> str:
        """Replace the only object whose key has that part; returns the key."""
        (listed,) = [one for one in await list_all(self._inner, "") if part in one.key]
        await self._inner.put(listed.key, b"{broken", expected=listed.version)
        return listed.key


@pytest.fixture
def store() -> PartlyFailing:
    return PartlyFailing()


async def open_with_table(catalogs: Catalogs, store: PartlyFailing, **settings: object) -> httpx.AsyncClient:
    client = await catalogs.open(store, **settings)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    assert (await client.post("/v1/namespaces/ns/tables", json=create_table("t"))).status_code == 200
    await catalogs.settled()
    return client


def events(logs: Lines, event: str) -> Lines:
    return [line for line in logs if line["event"] == event]


async def metrics(client: httpx.AsyncClient) -> str:
    return (await client.get("/metrics")).text


async def settled(client: httpx.AsyncClient, text: str) -> str:
    """The metrics, once they have the text: work behind an answer ends after it."""
    page = ""
    for _ in range(1_000):
        page = await metrics(client)
        if text in page:
            break
    assert text in page
    return page


async def test_a_receipt_that_cannot_be_written_is_logged_and_counted(catalogs: Catalogs, store: PartlyFailing) -> None:
    client = await open_with_table(catalogs, store)
    await client.post("/v1/namespaces/ns/tables/t", json=set_properties(first="1"))

    with capture_logs() as logs:
        store.written.clear()
        store.failing = lambda call, before: "/events/" in call.key and any("pointers" in key for key in before)
        answer = await client.post("/v1/namespaces/ns/tables/t", json=set_properties(second="2"))
        counted = 'sandur_work_failures_total{reason="Unavailable",work="finish commit"} 1.0'
        await settled(client, counted)

    assert answer.status_code == 200
    (line,) = events(logs, "work failed")
    assert (line["log_level"], line["work"], line["operation"]) == ("warning", "finish commit", "updateTable")
    assert line["reason"] == "Unavailable: the store is away"


async def test_a_mistake_in_work_behind_the_answer_is_an_error_with_its_trace(
    catalogs: Catalogs, store: PartlyFailing
) -> None:
    client = await open_with_table(catalogs, store)

    with capture_logs() as logs:
        store.error = ZeroDivisionError("a mistake")
        store.failing = lambda call, _: call.name == "delete" and "/marks/" in call.key
        answer = await client.delete("/v1/namespaces/ns/tables/t")
        await settled(client, 'sandur_work_failures_total{reason="unexpected",work="finish drop"} 1.0')

    assert answer.status_code == 204
    (line,) = [line for line in events(logs, "work failed") if line["work"] == "finish drop"]
    assert line["log_level"] == "error"
    assert line["exc_info"] is store.error


async def test_a_claim_that_cannot_be_completed_is_logged(catalogs: Catalogs, store: PartlyFailing) -> None:
    client = await open_with_table(catalogs, store)

    with capture_logs() as logs:
        # The first write takes the claim, the second one completes it.
        store.failing = lambda call, before: "idempotency" in call.key and call.key in before
        answer = await client.post(
            "/v1/namespaces/ns/tables",
            json=create_table("u"),
            headers={"Idempotency-Key": "01890a5d-ac96-774b-bcce-b302099a8057"},
        )
        await settled(client, 'sandur_work_failures_total{reason="Unavailable",work="finish create"} 1.0')

    assert answer.status_code == 200
    assert [line["work"] for line in events(logs, "work failed")] == ["finish create"]


async def test_a_damaged_index_is_logged_by_its_key_and_rebuilt(catalogs: Catalogs, store: PartlyFailing) -> None:
    client = await open_with_table(catalogs, store)
    await client.get("/v1/namespaces/ns/tables")
    other = await catalogs.open(store)
    key = await store.damage("/index/tables/")

    with capture_logs() as logs:
        listed = await other.get("/v1/namespaces/ns/tables")
        await settled(other, 'uc_preview_index_rebuild_total{result="ok"} 1.0')

    assert [one["name"] for one in listed.json()["identifiers"]] == ["t"]
    assert {line["key"] for line in events(logs, "damaged object")} == {key}
    assert 'sandur_damaged_objects_total{area="index"}' in await metrics(other)


async def test_a_damaged_record_is_a_503_that_is_logged_by_its_key(catalogs: Catalogs, store: PartlyFailing) -> None:
    await open_with_table(catalogs, store)
    other = await catalogs.open(store)
    key = await store.damage("/iceberg_pointers/")

    with capture_logs() as logs:
        answers = [
            await other.get("/v1/namespaces/ns/tables/t"),
            await other.post("/v1/namespaces/ns/tables/t", json=set_properties(first="1")),
            await other.delete("/v1/namespaces/ns/tables/t"),
        ]

    assert [answer.status_code for answer in answers] == [503] * 3
    assert [line["key"] for line in events(logs, "damaged object")] == [key] * 3
    assert all(key in line["reason"] for line in events(logs, "request"))
    assert 'sandur_damaged_objects_total{area="iceberg_pointers"} 3.0' in await metrics(other)
