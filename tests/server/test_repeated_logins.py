"""Logins that are repeated: a secret that matched is not hashed again for a while, and ends when it is removed."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from sandur.clock import SystemClock
from tests.server.conftest import Catalogs
from tests.server.logins import PRINCIPALS, SECURED, TOKENS, bearer


class MovedClock(SystemClock):
    """The time of the system, and what a test adds to it."""

    def __init__(self) -> None:
        self.added_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.added_ms


@dataclass
class Logins:
    """A server, its administrator, and the hashes that it computes."""

    client: httpx.AsyncClient
    clock: MovedClock
    admin: dict[str, str] = field(default_factory=dict)
    hashed: list[int] = field(default_factory=list)

    async def log_in(self, name: str, secret: str) -> tuple[int, int]:
        """The status of a login, and how many hashes it took."""
        before = len(self.hashed)
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        answer = await self.client.post(TOKENS, data=form)
        return answer.status_code, len(self.hashed) - before

    async def administer(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = await self.client.request(method, f"{PRINCIPALS}{path}", json=body, headers=self.admin)
        assert answer.is_success, answer.text
        return dict(answer.json()) if answer.content else {}


@pytest.fixture
async def logins(catalogs: Catalogs, monkeypatch: pytest.MonkeyPatch) -> Logins:
    clock = MovedClock()
    made = Logins(await catalogs.open_with(SECURED, clock=clock), clock)
    made.admin = await bearer(made.client)
    scrypt = hashlib.scrypt

    def counted(*given: Any, **named: Any) -> bytes:
        made.hashed.append(1)
        return scrypt(*given, **named)

    monkeypatch.setattr(hashlib, "scrypt", counted)
    return made


async def test_a_secret_is_hashed_once_for_many_logins_and_again_after_some_minutes(logins: Logins) -> None:
    secret = (await logins.administer("POST", "", {"name": "trino"}))["client_secret"]

    assert [await logins.log_in("trino", secret) for _ in range(3)] == [(200, 1), (200, 0), (200, 0)]
    logins.clock.added_ms = 301_000
    assert await logins.log_in("trino", secret) == (200, 1)


async def test_a_wrong_secret_is_hashed_every_time(logins: Logins) -> None:
    secret = (await logins.administer("POST", "", {"name": "trino"}))["client_secret"]
    await logins.log_in("trino", secret)

    assert [await logins.log_in("trino", f"{secret}x") for _ in range(2)] == [(401, 1), (401, 1)]
    assert await logins.log_in("unknown", secret) == (401, 1)


async def test_a_removed_secret_fails_at_once_and_the_other_one_works(logins: Logins) -> None:
    first = (await logins.administer("POST", "", {"name": "trino"}))["client_secret"]
    second = (await logins.administer("POST", "/trino/secrets"))["client_secret"]
    for secret in (first, second):
        assert (await logins.log_in("trino", secret))[0] == 200
    listed = (await logins.administer("GET", "/trino/secrets"))["secrets"]
    oldest = min(listed, key=lambda one: one["created_at"])

    await logins.administer("DELETE", f"/trino/secrets/{oldest['id']}")

    assert (await logins.log_in("trino", first))[0] == 401
    assert await logins.log_in("trino", second) == (200, 0)


async def test_a_disabled_principal_and_one_that_was_made_again_are_refused_at_once(logins: Logins) -> None:
    secret = (await logins.administer("POST", "", {"name": "trino"}))["client_secret"]
    assert (await logins.log_in("trino", secret))[0] == 200

    await logins.administer("PATCH", "/trino", {"disabled": True})
    assert (await logins.log_in("trino", secret))[0] == 401
    await logins.administer("DELETE", "/trino")
    assert (await logins.log_in("trino", secret))[0] == 401
    await logins.administer("POST", "", {"name": "trino"})
    assert (await logins.log_in("trino", secret))[0] == 401


async def test_the_secret_of_one_principal_is_not_that_of_another(logins: Logins) -> None:
    secrets = [(await logins.administer("POST", "", {"name": name}))["client_secret"] for name in ("ann", "bob")]
    for name, secret in zip(("ann", "bob"), secrets, strict=True):
        assert (await logins.log_in(name, secret))[0] == 200

    assert (await logins.log_in("bob", secrets[0]))[0] == 401
    assert (await logins.log_in("ann", secrets[1]))[0] == 401
