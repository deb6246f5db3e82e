"""The judge itself: it finds each kind of problem, and nothing else."""

import asyncio
import hashlib
import itertools
from dataclasses import replace

import httpx
import pytest

from sandur.catalog.identifiers import Identifier
from tests.chaos.clients import Diary, Seen, SentRequest
from tests.chaos.evidence import Evidence, History, Step
from tests.chaos.lossy_proxy import LOSES_EVERY, lossy_proxies
from tests.chaos.verdict import judge
from tests.servers.processes import LOOPBACK

KEY = "a key"
KEY_HASH = hashlib.sha256(KEY.encode()).hexdigest()


def sent(marker: str, kind: str = "snapshot", status: int = 200, **fields: object) -> SentRequest:
    made = SentRequest(marker, kind, KEY, is_exact=True, began=0.0, ended=1.0, status=status)
    return replace(made, **fields)  # type: ignore[arg-type] # Given by name.


def history(*markers: str, uuid: str = "u", **fields: object) -> History:
    """A live table; each metadata file was made by the request with that name."""
    steps = [Step(f"{uuid}/{place}", marker, frozenset({marker}), "") for place, marker in enumerate(markers)]
    made = History(uuid=uuid, is_live=True, dropped_by="", made_by=markers[0], steps=steps, is_whole=True)
    return replace(made, **fields)  # type: ignore[arg-type] # Given by name.


def pair_history(uuid: str, *pairs: str) -> History:
    steps = [Step(f"{uuid}/{place}", pair, frozenset({pair}), pair) for place, pair in enumerate(("", *pairs))]
    return replace(history("made", uuid=uuid), steps=steps)


def seen(location: str, *, began: float, ended: float, pair: str = "") -> Seen:
    return Seen("t", location.partition("/")[0], location, pair, began, ended)


def verdict(diary: Diary, *histories: History, names_found: dict[str, str] | None = None) -> list[str]:
    names = names_found if names_found is not None else {one.uuid: one.uuid for one in histories if one.is_live}
    evidence = Evidence(histories, {Identifier("main", ("ns",), name): uuid for name, uuid in names.items()}, [])
    return list(judge(diary, evidence))


def test_answers_that_agree_with_the_store_have_no_problem() -> None:
    diary = Diary(
        sent=[sent("made", "create"), sent("one"), sent("two", status=409), sent("gone", "drop", 204)],
        seen=[seen("u/0", began=0.1, ended=0.2), seen("u/1", began=2, ended=3)],
    )

    assert verdict(diary, history("made", "one"), history("x", uuid="d", is_live=False, dropped_by=KEY_HASH)) == []


@pytest.mark.parametrize(
    ("answered", "stored", "problem"),
    [
        (sent("one"), history("made"), "lost"),
        (sent("one"), history("made", "one", "other", "one"), "applied twice"),
        (sent("one", status=409), history("made", "one"), "refused and applied"),
        (sent("one", "transaction", 204), history("made", "one"), "lost"),
        (sent("one", "transaction", 409), history("made", "one"), "half of it"),
        (sent("one", "create"), history("made"), "no such table"),
        (sent("made", "create", 409), history("made"), "the table was made"),
        (sent("one", "drop", 204), history("made"), "0 tables were dropped"),
        (sent("one", "drop", 404), history("made", is_live=False, dropped_by=KEY_HASH), "1 tables were dropped"),
        (sent("made", "create"), history("made", is_whole=False), "no receipt"),
    ],
)
def test_a_contradiction_between_answer_and_store_is_found(
    answered: SentRequest, stored: History, problem: str
) -> None:
    assert any(problem in found for found in verdict(Diary(sent=[answered]), stored))


def test_a_request_without_an_answer_is_found() -> None:
    assert verdict(Diary(sent=[replace(sent("one"), status=None)]), history("made")) == [
        "snapshot one: never answered, after 0 tries"
    ]


def test_a_refusal_of_an_unrecognizable_retry_does_not_contradict_an_applied_first_try() -> None:
    answered = sent("one", "own", 409, key=None, is_exact=False, answers_lost=1)

    assert verdict(Diary(sent=[answered]), history("made", "one")) == []


def test_a_metadata_file_without_a_request_is_found() -> None:
    odd = history("made", "one")
    nothing = replace(odd.steps[1], markers=frozenset())

    [problem] = verdict(Diary(), replace(odd, steps=[odd.steps[0], nothing]))

    assert "traces of 0 requests" in problem


def test_two_tables_from_one_creation_are_found() -> None:
    [problem] = verdict(Diary(sent=[sent("made", "create")]), history("made"), history("made", uuid="v"))

    assert "there are 2 tables" in problem


@pytest.mark.parametrize(
    ("names_found", "found"),
    [({}, "under 0 names"), ({"a": "u", "b": "u"}, "under 2 names"), ({"a": "u", "b": "v"}, "not live")],
)
def test_tables_without_exactly_one_name_and_names_without_a_table_are_found(
    names_found: dict[str, str], found: str
) -> None:
    [problem] = verdict(Diary(), history("made"), names_found=names_found)

    assert found in problem


def test_a_read_older_than_an_acknowledged_commit_is_found() -> None:
    diary = Diary(sent=[sent("one", ended=1.0)], seen=[seen("u/0", began=1.5, ended=2.0)])

    [problem] = verdict(diary, history("made", "one"))

    assert "after snapshot one had shown number 1" in problem


def test_a_read_older_than_another_read_is_found() -> None:
    diary = Diary(seen=[seen("u/1", began=0.0, ended=1.0), seen("u/0", began=1.5, ended=2.0)])

    [problem] = verdict(diary, history("made", "one"))

    assert "after a load had shown number 1" in problem


def test_a_read_of_an_unknown_metadata_file_is_found() -> None:
    [problem] = verdict(Diary(seen=[seen("u/9", began=0, ended=1)]), history("made"))

    assert "never its head" in problem


def test_a_half_visible_transaction_is_found() -> None:
    left, right = pair_history("l", "one", "two"), pair_history("r", "one", "two")
    new = seen("l/2", began=0, ended=1, pair="two")
    answered = [sent(marker, "transaction", 204, ended=9.0) for marker in ("one", "two")]

    whole = Diary(sent=answered, pairs=[(new, seen("r/2", began=2, ended=3, pair="two"))])
    torn = Diary(sent=answered, pairs=[(new, seen("r/1", began=2, ended=3, pair="one"))])

    assert [problem for problem in verdict(whole, left, right) if "showed" in problem] == []
    assert [problem for problem in verdict(torn, left, right) if "showed" in problem] == [
        "t showed two, and t then still one"
    ]


def test_transactions_in_different_orders_on_two_tables_are_found() -> None:
    diary = Diary(pairs=[(seen("l/0", began=0, ended=1), seen("r/0", began=2, ended=3))])

    problems = verdict(diary, pair_history("l", "one", "two"), pair_history("r", "two", "one"))

    assert any("in another order" in problem for problem in problems)


def test_a_read_of_an_unknown_transaction_is_found() -> None:
    diary = Diary(pairs=[(seen("l/0", began=0, ended=1, pair="never"), seen("r/0", began=2, ended=3))])

    problems = verdict(diary, pair_history("l", "one"), pair_history("r", "one"))

    assert any("never was" in problem for problem in problems)


async def test_the_proxy_forwards_every_request_and_loses_every_fifth_answer() -> None:
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        bodies.append(await reader.readexactly(2))
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n" + bodies[-1])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    answered = []
    async with (
        server,
        lossy_proxies([server.sockets[0].getsockname()[1]]) as [proxy],
        httpx.AsyncClient(headers={"Connection": "close"}) as client,
    ):
        for number in range(10, 10 + 4 * LOSES_EVERY):
            try:
                answered.append((await client.post(proxy.url, content=str(number))).text)
            except httpx.TransportError:
                answered.append("lost")

    sent = [str(number) for number in range(10, 10 + 4 * LOSES_EVERY)]
    assert sorted(bodies) == [one.encode() for one in sent]
    assert answered == [
        "lost" if place % LOSES_EVERY == 0 else one for place, one in zip(itertools.count(1), sent, strict=False)
    ]
    assert proxy.lost == 4
