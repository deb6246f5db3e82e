"""Clients that never give up: what they asked for, what they were told, and what they saw, for the judge."""

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
"""The property that says which transaction changed a table last."""

TRIES_MAX: Final = 600
_WAIT_SECONDS_MAX: Final = 0.15
PATIENT_SECONDS: Final = 60.0
IMPATIENT_SECONDS: Final = 1.0
_UNFORESEEN: Final = "Something unexpected went wrong"


@dataclass
class Asked:
    """A request, sent until there was an answer.

    `is_exact`: a refusal holds for every time it was sent. Without a key that is so only where the server knows the
    request again by what it adds or asserts; otherwise the refusal may be that of a re-send whose first was applied.
    `status` is None when there never was an answer; `location` is the metadata file that the answer shows, if any.
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
        """Whether it is certain that nothing came of it."""
        is_4xx = self.status is not None and 400 <= self.status < 500
        return is_4xx and (self.is_exact or not self.answers_lost)


@dataclass(frozen=True)
class Seen:
    """What a load showed, and when it was asked for and answered. `pair`: the transaction that it saw the traces of."""

    table: str
    uuid: str
    location: str
    pair: str
    began: float
    ended: float


@dataclass
class Diary:
    """Everything that all clients know."""

    asked: list[Asked] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    pairs: list[tuple[Seen, Seen]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Client:
    """One client: it asks any of the servers, another one each time.

    If it is impatient, it comes back while its first try is still under way.
    """

    def __init__(
        self, urls: Sequence[str], http: httpx.AsyncClient, diary: Diary, seed: int, *, is_patient: bool = True
    ) -> None:
        self.chance = random.Random(seed)
        self.diary = diary
        self.clock = SystemClock()
        self._urls = urls
        self._http = http
        # Only the wait for an answer is cut short: giving up while a connection is being made can leave a socket open.
        self._timeout = httpx.Timeout(PATIENT_SECONDS, read=PATIENT_SECONDS if is_patient else IMPATIENT_SECONDS)

    async def ask(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        kind: str,
        marker: str = "",
        is_keyed: bool = False,
        is_exact: bool = False,
    ) -> tuple[Asked, Json]:
        """Ask until there is an answer that holds; with a key, always with the same one."""
        key = self.clock.new_id() if is_keyed else None
        asked = Asked(marker or self.clock.new_id(), kind, key, is_exact or is_keyed, began=_now())
        self.diary.asked.append(asked)
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
                asked.answers_lost += 1
            else:
                if answer.status_code < 500:
                    return asked, _noted(asked, answer)
                self._note_failure(asked, answer)
            await asyncio.sleep(self.chance.uniform(0, _WAIT_SECONDS_MAX))
        return asked, {}

    async def load(self, table: str) -> tuple[Seen, Json] | None:
        """The table `namespace/name` as it is now, and its metadata; None when there is none."""
        began = _now()
        namespace, name = table.split("/")
        asked, answer = await self.ask("GET", f"/v1/namespaces/{namespace}/tables/{name}", kind="load", is_exact=True)
        if not asked.is_done:
            return None
        metadata: Json = answer["metadata"]
        pair = metadata["properties"].get(PAIR, "")
        seen = Seen(table, metadata["table-uuid"], asked.location, pair, began, asked.ended)
        self.diary.seen.append(seen)
        return seen, metadata

    def _note_failure(self, asked: Asked, answer: httpx.Response) -> None:
        """5xx says nothing about what became of it: as if the answer had been lost."""
        asked.answers_lost += 1
        if _UNFORESEEN in answer.text:
            self.diary.wrong.append(f"{asked.kind} {asked.id}: {answer.text}")


def _noted(asked: Asked, answer: httpx.Response) -> Json:
    body: Json = msgspec.json.decode(answer.content) if answer.content else {}
    asked.ended = _now()
    asked.status = answer.status_code
    asked.location = body.get("metadata-location", "")
    asked.reason = body.get("error", {}).get("message", "")
    return body


def _now() -> float:
    return asyncio.get_running_loop().time()


def http_client(clients: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=2 * clients, max_keepalive_connections=0)
    return httpx.AsyncClient(limits=limits)
