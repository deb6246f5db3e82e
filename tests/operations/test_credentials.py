"""Storage credentials: issued once for a scope, cached for half of their life, and never a guess when STS fails."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from sandur.catalog.credentials.profiles import StorageCredential
from sandur.errors import ServiceRefused, Unavailable, Unsupported
from sandur.operations.counters import CREDENTIALS, Counters
from sandur.operations.credentials.vend import PAUSE_MS, CredentialCache, vend
from sandur.operations.lake import Lake
from tests.fakes.fixed_clock import FixedClock
from tests.fakes.sts import FakeSts, fake_sts
from tests.operations.lakes import make_lake

OWN = "s3://bucket/lake"
TABLE = f"{OWN}/main/orders"
HOUR_MS = 3_600_000


@pytest.fixture
async def sts() -> AsyncIterator[FakeSts]:
    async with fake_sts(FixedClock()) as server:
        yield server


def lake_of(sts: FakeSts, **settings: object) -> Lake:
    s3 = {
        "access": "vend",
        "role_arn": "arn:aws:iam::role/R",
        "endpoint": sts.url,
        "region": "eu-west-1",
        "access_key_id": "own-key",
        "secret_access_key": "own-secret",
        **settings,
    }
    return make_lake(clock=sts.clock, own=OWN, s3=s3)


async def vended(lake: Lake, *locations: str, writes: bool = False) -> StorageCredential:
    credential = await vend(lake, locations or (TABLE,), writes=writes)
    assert credential is not None
    return credential


def counted(lake: Lake, result: str) -> int:
    return lake.feature(Counters).times(CREDENTIALS, result)


async def test_a_credential_is_issued_for_exactly_the_locations_of_a_table(sts: FakeSts) -> None:
    credential = await vended(lake_of(sts), TABLE, f"{OWN}/data/orders", writes=True)

    (form,) = sts.forms
    (objects, lists, *_) = json.loads(form["Policy"])["Statement"]
    assert objects["Resource"] == [f"arn:aws:s3:::bucket/lake/{path}/*" for path in ("data/orders", "main/orders")]
    assert lists["Condition"] == {"StringLike": {"s3:prefix": ["lake/data/orders/*", "lake/main/orders/*"]}}
    assert (form["RoleArn"], form["DurationSeconds"]) == ("arn:aws:iam::role/R", "3600")
    assert credential.expires_ms == sts.clock.now_ms() + HOUR_MS
    assert credential.session_token == "issued-token-1"  # noqa: S105 - of the double


async def test_a_credential_is_handed_out_again_until_half_of_its_life_is_over(sts: FakeSts) -> None:
    lake, clock = lake_of(sts), sts.clock
    assert isinstance(clock, FixedClock)

    first = await vended(lake)
    clock.advance(HOUR_MS // 2)
    second = await vended(lake)
    clock.advance(1)
    third = await vended(lake)

    assert first is second
    assert third.access_key_id != first.access_key_id
    assert len(sts.forms) == 2
    assert (counted(lake, "s3 issued"), counted(lake, "s3 cached")) == (2, 1)


async def test_readers_and_writers_have_different_credentials(sts: FakeSts) -> None:
    lake = lake_of(sts)

    reading, writing = await vended(lake), await vended(lake, writes=True)

    assert reading.access_key_id != writing.access_key_id
    assert "PutObject" not in sts.forms[0]["Policy"]


async def test_requests_at_once_for_one_scope_share_one_issue(sts: FakeSts) -> None:
    lake = lake_of(sts)
    sts.may_answer.clear()

    waiting = [asyncio.create_task(vended(lake)) for _ in range(10)]
    await sts.is_asked.wait()
    waiting[0].cancel()
    sts.may_answer.set()
    found = await asyncio.gather(*waiting[1:])

    assert len(sts.forms) == 1
    assert len({credential.access_key_id for credential in found}) == 1


async def test_a_failure_is_retried_and_then_reported(sts: FakeSts) -> None:
    lake = lake_of(sts)
    sts.fails_with = [(503, "ServiceUnavailable"), (400, "Throttling")]

    await vended(lake)

    assert len(sts.forms) == 3
    assert counted(lake, "s3 issued") == 1


async def test_an_issuer_that_fails_is_left_alone_for_a_while(sts: FakeSts) -> None:
    lake, clock = lake_of(sts), sts.clock
    assert isinstance(clock, FixedClock)
    sts.fails_with = [(500, "InternalFailure")] * 4

    with pytest.raises(Unavailable, match="500 InternalFailure"):
        await vended(lake)
    with pytest.raises(Unavailable, match="failed a moment ago"):
        await vended(lake, f"{OWN}/main/other")
    clock.advance(PAUSE_MS)
    await vended(lake)

    assert len(sts.forms) == 5
    assert counted(lake, "s3 failed") == 1


async def test_a_refusal_is_not_retried_and_says_no_more_than_its_code(sts: FakeSts) -> None:
    lake = lake_of(sts)
    sts.fails_with = [(403, "AccessDenied")]

    with pytest.raises(ServiceRefused, match="403 AccessDenied") as refused:
        await vended(lake)

    assert len(sts.forms) == 1
    assert "secret detail" not in str(refused.value)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "<Credentials/>",
        "not xml <",
        "<Credentials><AccessKeyId>a</AccessKeyId></Credentials>",
        '<!DOCTYPE x [<!ENTITY e "eeee">]><Credentials><AccessKeyId>&e;</AccessKeyId></Credentials>',
    ],
)
async def test_an_answer_that_is_not_a_whole_credential_counts_as_a_failure(sts: FakeSts, answer: str) -> None:
    sts.answer = answer

    with pytest.raises(Unavailable, match="without a complete credential"):
        await vended(lake_of(sts))


async def test_an_issuer_that_is_not_there_is_unavailable(sts: FakeSts) -> None:
    with pytest.raises(Unavailable, match="does not answer"):
        await vended(lake_of(sts, sts_endpoint="http://127.0.0.1:1"))


async def test_new_secrets_of_the_server_never_get_a_credential_of_the_old_ones(sts: FakeSts) -> None:
    lake = lake_of(sts)
    before = await vended(lake)
    profile, scope = before.profile, before.scope

    rotated = replace(profile, secret_access_key="rotated")  # noqa: S106 - of the double
    after = await lake.feature(CredentialCache).credential(rotated, scope)

    assert before.access_key_id != after.access_key_id


@pytest.mark.parametrize("access", ["none", "sign"])
async def test_no_credential_is_issued_unless_the_settings_say_so(sts: FakeSts, access: str) -> None:
    assert await vend(lake_of(sts, access=access), (TABLE,), writes=False) is None
    assert sts.forms == []


async def test_a_location_outside_of_every_root_gets_no_credential(sts: FakeSts) -> None:
    assert await vend(lake_of(sts), ("s3://bucket/elsewhere",), writes=False) is None


async def test_locations_with_different_profiles_do_not_share_a_credential(sts: FakeSts) -> None:
    with pytest.raises(Unsupported):
        await vend(lake_of(sts), (TABLE, "file:///tmp/table"), writes=False)


async def test_static_keys_are_given_only_by_explicit_setting(sts: FakeSts) -> None:
    credential = await vended(lake_of(sts, access="static"))

    assert (credential.access_key_id, credential.secret_access_key) == ("own-key", "own-secret")
    assert credential.expires_ms == 0
    assert sts.forms == []


async def test_no_secret_is_in_a_log_or_in_the_text_of_a_value(
    sts: FakeSts, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)

    credential = await vended(lake_of(sts, session_token="own-token"))  # noqa: S106 - of the double

    seen = caplog.text + "".join(capsys.readouterr()) + repr(credential) + str(credential.profile)
    for secret in ("own-secret", "own-token", "issued-secret-1", "issued-token-1"):
        assert secret not in seen
