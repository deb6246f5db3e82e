"""The parts of authentication and authorization one by one: storage rounds, tokens and decisions, in this process."""

import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

import httpx
from msgspec.structs import replace

from bench.measurement import Step, timed_side_by_side
from bench.population import CALLER, populate
from sandur.catalog.identifiers import Identifier
from sandur.catalog.security import privileges
from sandur.catalog.security.manifest import Authority, Caller
from sandur.operations.access import Security
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import name_chain
from sandur.operations.tables.names import name_not_found, resolve_name
from sandur.server.authentication.authenticator import Authenticator
from sandur.server.http import HttpRequest
from sandur.server.metric_families import STORAGE_ROUNDS
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.logins import PRINCIPALS, SECURED, bearer
from tests.server.requests import create_table, set_properties

BAD_TOKENS: Final = 10_000
_TABLE: Final = "/v1/namespaces/bench/tables/t"
_ROUNDS: Final = 10
_AUDIT: Final = "/audit/"
_UNAUTHORIZED: Final = 401
_WARM_CALLS: Final = 5
_COUNTED_CALLS: Final = 20
_BASE32: Final = str.maketrans("0189", "abcd")


class Secured:
    """A server in this process, on a store in memory that counts calls and rounds."""

    def __init__(self, settings: Settings) -> None:
        self.store = SpyStore(MemoryStore())
        self.app, self.catalog = build(settings, store=self.store)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://localhost")
        self.is_on = settings.authentication == "on"

    @property
    def lake(self) -> Lake:
        return self.catalog.lakes.lake("default", "default")

    async def start(self, stack: AsyncExitStack) -> None:
        """Create a table, with authentication as the caller of the population."""
        await self.catalog.start()
        stack.push_async_callback(self.catalog.close)
        await stack.enter_async_context(self.client)
        if self.is_on:
            self.client.headers.update(await bearer(self.client))
        await self.post("/v1/namespaces", {"namespace": ["bench"]})
        if self.is_on:
            await populate(self.lake, "bench")
            made = await self.post(f"{PRINCIPALS}/{CALLER}/secrets", {})
            self.client.headers.update(await bearer(self.client, CALLER, made["client_secret"]))
        await self.post("/v1/namespaces/bench/tables", create_table("t"))

    async def post(self, path: str, body: object) -> dict[str, str]:
        answer = await self.client.post(path, json=body)
        return dict(answer.raise_for_status().json())

    async def load(self) -> object:
        return (await self.client.get(_TABLE)).raise_for_status()

    async def commit(self) -> object:
        return await self.post(_TABLE, set_properties(k=str(time.monotonic_ns())))

    async def rounds(self, operation: str, step: Step) -> float:
        """The storage rounds of one call, when everything is warm, as the server counts them."""
        for _ in range(_WARM_CALLS):
            await step()
        before = await self._counted(operation)
        for _ in range(_COUNTED_CALLS):
            await step()
        after = await self._counted(operation)
        return round((after[0] - before[0]) / (after[1] - before[1]), 2)

    async def _counted(self, operation: str) -> tuple[float, float]:
        """The sum of the rounds of an operation so far, and the number of calls."""
        text = (await self.client.get("/metrics")).raise_for_status().text
        found = [
            re.search(rf'^{STORAGE_ROUNDS.name}_{part}\{{operation="{operation}"\}} (\S+)', text, re.MULTILINE)
            for part in ("sum", "count")
        ]
        if not all(found):
            raise RuntimeError(f"the metrics do not contain the rounds of {operation}")
        total, calls = (float(one[1]) for one in found if one)
        return total, calls


async def measure_checks(calls: int) -> Mapping[str, object]:
    """Everything that is measured in this process."""
    async with AsyncExitStack() as stack:
        on = Secured(replace(SECURED, janitors=False))
        both = {"off": Secured(replace(SECURED, janitors=False, authentication="off")), "on": on}
        for server in both.values():
            await server.start(stack)
        rounds = {
            operation: {state: await server.rounds(operation, getattr(server, step)) for state, server in both.items()}
            for operation, step in (("loadTable", "load"), ("updateTable", "commit"))
        }
        return {
            "storage rounds": rounds,
            "bad tokens": await _bad_tokens(on),
            "µs": {**await _token_costs(on, calls), **await _decision_costs(on.lake, calls)},
        }


async def _bad_tokens(server: Secured) -> Mapping[str, int]:
    """Send tokens that are not valid, of every sort, and count the storage calls of their requests."""
    own = server.client.headers["Authorization"].removeprefix("Bearer ")
    head, claims, signature = own.split(".")
    sorts: Sequence[Callable[[str], str]] = (
        lambda noise: f"{head}.{claims}.{noise}{signature[len(noise) :]}",
        lambda noise: f"{head}.{noise}{claims}.{signature}",
        lambda noise: f"sdr_{noise[:26].translate(_BASE32)}_{noise[:43].ljust(43, 'x')}",
        lambda noise: noise,
    )
    await server.catalog.audit.flush()
    server.store.reset()
    for number in range(BAD_TOKENS):
        noise = os.urandom(24).hex()
        headers = {"Authorization": f"Bearer {sorts[number % len(sorts)](noise)}"}
        answer = await server.client.get(_TABLE, headers=headers)
        if answer.status_code != _UNAUTHORIZED:
            raise RuntimeError(f"a bad token was answered with {answer.status_code}")
    calls = [call for call in server.store.calls if _AUDIT not in call.key]
    return {"sent": BAD_TOKENS, "storage calls": len(calls)}


async def _token_costs(server: Secured, calls: int) -> Mapping[str, float]:
    """The verification of a token that was seen before, of one that was not, and of an API key; the median in µs."""
    key = (await server.post(f"{PRINCIPALS}/{CALLER}/api-keys", {}))["api_key"]
    await server.load()  # The manifest that has the key is the last one that was read.
    authenticator = server.catalog.authenticator
    token = server.client.headers["Authorization"].encode()
    issued = iter([_issued(server, authenticator) for _ in range(_ROUNDS * calls)])

    def identify(header: bytes) -> Awaitable[object]:
        request = HttpRequest("GET", _TABLE.encode(), b"", {b"authorization": header}, b"", "")
        return authenticator.identify(request, needs_token=True)

    steps: Mapping[str, Step] = {
        "token, remembered": lambda: identify(token),
        "token, new": lambda: identify(next(issued)),
        "API key": lambda: identify(f"Bearer {key}".encode()),
    }
    return await _medians(steps, calls)


def _issued(server: Secured, authenticator: Authenticator) -> bytes:
    principal = _authority(server.lake).principal_named(CALLER)
    if principal is None:
        raise RuntimeError(f"{CALLER} does not exist")
    caller = Caller(principal.id, principal.name, token_epoch=principal.token_epoch)
    return f"Bearer {authenticator.issue(caller, 'default', 'default').text}".encode()


async def _decision_costs(lake: Lake, calls: int) -> Mapping[str, float]:
    """One decision about a table in a namespace: computed, and remembered; the median in µs."""
    authority, identifier = _authority(lake), Identifier("main", ("bench",), "t")
    found = await resolve_name(lake, identifier)
    principal = authority.principal_named(CALLER)
    if found is None or principal is None:
        raise RuntimeError(f"{identifier} or {CALLER} does not exist")
    chain = await name_chain(lake, authority, found, missing=name_not_found(identifier, "table"))
    caller = Caller(principal.id, principal.name, token_epoch=principal.token_epoch)

    async def decide() -> object:
        return authority.decide(caller, chain, privileges.READ_TABLE)

    async def remember() -> object:
        return authority.decision(caller, chain, privileges.READ_TABLE)

    return await _medians({"decision, computed": decide, "decision, remembered": remember}, calls)


def _authority(lake: Lake) -> Authority:
    authority = lake.feature(Security).last
    if authority is None:
        raise RuntimeError("the grants were not read")
    return authority


async def _medians(steps: Mapping[str, Step], calls: int) -> Mapping[str, float]:
    found = await timed_side_by_side(steps, rounds=_ROUNDS, batch=calls)
    return {name: timing.median_us for name, timing in found.items()}
