"""Clients that retry until they get an answer, and record their requests, answers and loads for the judge."""

import asyncio
import random  # noqa: TID251 - seeded, and the seed is printed
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import msgspec

from sandur.clock import SystemClock

Json = dict[str, Any]

PAIR: Final = "pair"
"""The property that names the last transaction that changed a table."""

TRIES_MAX: Final = 600
_WAIT_SECONDS_MAX: Final = 0.15
PATIENT_SECONDS: Final = 60.0
IMPATIENT_SECONDS: Final = 1.0
_UNFORESEEN: Final = "Something unexpected went wrong"


@dataclass
class SentRequest:
    """A request that was sent until it got an answer.

    `is_exact`: a refusal means that no attempt was applied. Without a key this is true only if the server
    recognizes the request by what it adds or asserts; otherwise a retry may be refused although the first attempt was
    applied.
    `status` is None if there was no answer; `location` is the metadata file in the answer, if any.
    """

    id: str
    kind: str
    key: str | None
    is_exact: bool
    began: float
    ended: float = 0.0
    status: int | None = None
    location: str = ""
    reason: str = ""
    answers_lost: int = 0

    @property
    def is_done(self) -> bool:
        return self.status is not None and self.status < 300

    @property
    def is_refused(self) -> bool:
        """Whether it was certainly not applied."""
        is_4xx = self.status is not None and 400 <= self.status < 500
        return is_4xx and (self.is_exact or not self.answers_lost)


@dataclass(frozen=True)
class Seen:
    """The result of a load, with the times of request and answer. `pair`: the last transaction that it saw."""

    table: str
    uuid: str
    location: str
    pair: str
    began: float
    ended: float


@dataclass
class Diary:
    """Everything that all clients recorded."""

    sent: list[SentRequest] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    pairs: list[tuple[Seen, Seen]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Client:
    """One client; it sends each attempt to a random server.

    If it is impatient, it retries while its first attempt is still in progress.
    """

    def __init__(
        self, urls: Sequence[str], http: httpx.AsyncClient, diary: Diary, seed: int, *, is_patient: bool = True
    ) -> None:
        self.chance = random.Random(seed)
        self.diary = diary
        self.clock = SystemClock()
        self._urls = urls
        self._http = http
        # Only the read timeout is short: a timeout during the connect can leave a socket open.
        self._timeout = httpx.Timeout(PATIENT_SECONDS, read=PATIENT_SECONDS if is_patient else IMPATIENT_SECONDS)

    async def send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        kind: str,
        marker: str = "",
        is_keyed: bool = False,
        is_exact: bool = False,
    ) -> tuple[SentRequest, Json]:
        """Send until there is a definite answer; with a key, always with the same one."""
        key = self.clock.new_id() if is_keyed else None
        sent = SentRequest(marker or self.clock.new_id(), kind, key, is_exact or is_keyed, began=_now())
        self.diary.sent.append(sent)
        headers = {
            "Connection": "close",
            "Content-Type": "application/json",
            **({"Idempotency-Key": key} if key else {}),
        }
        content = msgspec.json.encode(body) if body is not None else None
        for _ in range(TRIES_MAX):
            url = self.chance.choice(self._urls) + path
            try:
                answer = await self._http.request(method, url, content=content, headers=headers, timeout=self._timeout)
            except httpx.TransportError:
                sent.answers_lost += 1
            else:
                if answer.status_code < 500:
                    return sent, _record_answer(sent, answer)
                self._record_failure(sent, answer)
            await asyncio.sleep(self.chance.uniform(0, _WAIT_SECONDS_MAX))
        return sent, {}

    async def load(self, table: str) -> tuple[Seen, Json] | None:
        """The current state of the table `namespace/name`, and its metadata; None if it does not exist."""
        began = _now()
        namespace, name = table.split("/")
        sent, answer = await self.send("GET", f"/v1/namespaces/{namespace}/tables/{name}", kind="load", is_exact=True)
        if not sent.is_done:
            return None
        metadata: Json = answer["metadata"]
        pair = metadata["properties"].get(PAIR, "")
        seen = Seen(table, metadata["table-uuid"], sent.location, pair, began, sent.ended)
        self.diary.seen.append(seen)
        return seen, metadata

    def _record_failure(self, sent: SentRequest, answer: httpx.Response) -> None:
        """A 5xx says nothing about the outcome, so it counts as a lost answer."""
        sent.answers_lost += 1
        if _UNFORESEEN in answer.text:
            self.diary.wrong.append(f"{sent.kind} {sent.id}: {answer.text}")


def _record_answer(sent: SentRequest, answer: httpx.Response) -> Json:
    body: Json = msgspec.json.decode(answer.content) if answer.content else {}
    sent.ended = _now()
    sent.status = answer.status_code
    sent.location = body.get("metadata-location", "")
    sent.reason = body.get("error", {}).get("message", "")
    return body


def _now() -> float:
    return asyncio.get_running_loop().time()


def http_client(clients: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=2 * clients, max_keepalive_connections=0)
    return httpx.AsyncClient(limits=limits)
