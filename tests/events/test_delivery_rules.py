"""Pure decisions about deliveries: retries, order, envelopes, signatures, and the addresses of receivers."""

import base64
import ipaddress
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandur.catalog.event_feed.events import Event, Position
from sandur.catalog.event_feed.subscriptions import (
    HOLD_MS,
    RETRIES_MS,
    RETRY_MAX_MS,
    Answered,
    Parked,
    Pending,
    choose,
    decide,
    retry_delay_ms,
)
from sandur.catalog.event_feed.webhooks import (
    checked_receiver,
    envelope,
    parse_networks,
    refusal_of,
    secret_text,
    signed_headers,
)
from sandur.catalog.identifiers import Identifier
from sandur.errors import BadRequest, Invalid

NOW_MS = 1_767_225_600_000


def _event(key: str, previous: str | None = None, **fields: object) -> Event:
    given: dict[str, object] = {
        "id": f"id of {key}",
        "kind": "committed",
        "object_type": "table",
        "object_id": "uuid",
        "commit_key": key,
        "previous": previous,
        "time_ms": NOW_MS,
        **fields,
    }
    return Event(**given)  # type: ignore[arg-type] # By name.


def _pending(key: str, previous: str | None = None, *, entry: int = 1, attempts: int = 0, due_ms: int = 0) -> Pending:
    parked = Parked(f"receipt of {key}", Position(entry), attempts=attempts, due_ms=due_ms)
    return Pending(_event(key, previous), parked)


def test_retries_wait_5_seconds_and_double_up_to_6_hours() -> None:
    waits = [retry_delay_ms(attempts, 0.5) for attempts in range(1, 30)]

    assert waits[:3] == [5_000, 10_000, 20_000]
    assert waits == sorted(waits)
    assert max(waits) == RETRY_MAX_MS


@given(st.integers(1, 100), st.floats(0, 0.999))
def test_jitter_stays_within_a_fifth(attempts: int, chance: float) -> None:
    plain = retry_delay_ms(attempts, 0.5)

    assert 0.79 * plain <= retry_delay_ms(attempts, chance) <= 1.21 * plain


def test_a_delivery_that_fails_for_three_days_becomes_a_dead_letter() -> None:
    now_ms = NOW_MS
    decided = decide(Parked("r", Position(1)), Answered(500), now_ms=now_ms, chance=0.5)
    while decided.verdict == "retry":
        now_ms = decided.parked.due_ms
        decided = decide(decided.parked, Answered(500), now_ms=now_ms, chance=0.5)

    assert decided.verdict == "dead"
    assert RETRIES_MS - RETRY_MAX_MS <= now_ms - NOW_MS <= RETRIES_MS
    assert decided.parked.attempts > 15


@pytest.mark.parametrize("status", [200, 202, 204, 299])
def test_every_2xx_is_a_delivery(status: int) -> None:
    assert decide(Parked("r", Position(1)), Answered(status), now_ms=NOW_MS, chance=0).verdict == "delivered"


@pytest.mark.parametrize("status", [0, 301, 400, 404, 429, 500, 503])
def test_everything_else_is_tried_again(status: int) -> None:
    assert decide(Parked("r", Position(1)), Answered(status), now_ms=NOW_MS, chance=0).verdict == "retry"


def test_a_receiver_that_is_gone_disables_the_subscription() -> None:
    assert decide(Parked("r", Position(1)), Answered(410), now_ms=NOW_MS, chance=0).verdict == "disable"


def test_retry_after_is_obeyed_but_bounded() -> None:
    def due_ms(retry_after_ms: int) -> int:
        answer = Answered(429, retry_after_ms=retry_after_ms)
        return decide(Parked("r", Position(1)), answer, now_ms=NOW_MS, chance=0.5).parked.due_ms - NOW_MS

    assert due_ms(0) == 5_000
    assert due_ms(1_000) == 5_000
    assert due_ms(120_000) == 120_000
    assert due_ms(10**12) == 24 * 3_600_000


def test_an_event_goes_after_its_predecessor_also_if_it_was_found_first() -> None:
    later, earlier = _pending("b", "a", entry=1), _pending("a", None, entry=2)

    assert choose([later, earlier], settled=(), missing={}, now_ms=NOW_MS).next == earlier
    assert choose([later], settled={"a"}, missing={}, now_ms=NOW_MS).next == later


def test_an_unknown_predecessor_is_looked_for_and_then_waited_for_15_minutes() -> None:
    late = _pending("b", "a")

    assert choose([late], settled=(), missing={}, now_ms=NOW_MS).unknown == late
    held = choose([late], settled=(), missing={"b": NOW_MS}, now_ms=NOW_MS + HOLD_MS - 1)
    assert (held.next, held.due_ms) == (None, NOW_MS + HOLD_MS)
    released = choose([late], settled=(), missing={"b": NOW_MS}, now_ms=NOW_MS + HOLD_MS)
    assert (released.next, released.is_gap) == (late, True)


def test_a_failed_event_blocks_what_follows_in_its_object() -> None:
    failed, other = _pending("a", None, attempts=1, due_ms=NOW_MS + 5_000), _pending("x", None, entry=2)

    waiting = choose([failed, other], settled=(), missing={}, now_ms=NOW_MS)
    assert (waiting.next, waiting.due_ms) == (None, NOW_MS + 5_000)
    assert choose([failed, other], settled=(), missing={}, now_ms=NOW_MS + 5_000).next == failed


def test_a_retry_of_an_event_with_a_gap_says_so_again_unless_its_predecessor_was_found() -> None:
    tried, found = _pending("b", "a", attempts=1, due_ms=NOW_MS), _pending("a", None, entry=2)

    again = choose([tried], settled=(), missing={"b": NOW_MS}, now_ms=NOW_MS)
    assert (again.next, again.is_gap) == (tried, True)
    assert choose([tried], settled=(), missing={}, now_ms=NOW_MS).unknown == tried
    assert choose([tried, found], settled=(), missing={}, now_ms=NOW_MS).next == found
    after = choose([tried], settled={"a"}, missing={}, now_ms=NOW_MS)
    assert (after.next, after.is_gap) == (tried, False)


def test_the_envelope_is_a_cloud_event() -> None:
    event = _event(
        "key", "before", identifier=Identifier("main", ("a", "b"), "t"), version=7, snapshot_id=(1 << 62) + 1, id="e-1"
    )

    found = json.loads(envelope(event, is_gap=True))

    data = found.pop("data")
    assert found == {
        "specversion": "1.0",
        "id": "e-1",
        "source": "/catalogs/main",
        "type": "io.sandur.table.committed.v1",
        "subject": "uuid",
        "time": "2026-01-01T00:00:00.000Z",
        "datacontenttype": "application/json",
        "sequence": "7",
        "previous": "before",
        "gap": True,
    }
    assert (data["namespace"], data["name"], data["snapshot_id"]) == (["a", "b"], "t", (1 << 62) + 1)


def test_signatures_are_those_of_standard_webhooks() -> None:
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'

    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body, [secret])

    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    two = signed_headers("m", 1, body, [b"new" * 8, b"old" * 8])["webhook-signature"].split(" ")
    assert len(set(two)) == 2
    assert secret_text(secret) == "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104 - refused
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",
    ],
)
def test_an_address_that_is_not_public_is_refused_in_every_notation(address: str) -> None:
    host = f"[{address}]" if ":" in address else address

    with pytest.raises(Invalid, match="not public"):
        checked_receiver(f"https://{host}/hook", ())


def test_a_public_address_needs_https_and_a_private_one_a_setting() -> None:
    allowed = parse_networks(("127.0.0.0/8", "10.1.0.0/16", "fd00::/8"))
    private = checked_receiver("http://10.1.2.3:8080/x?y=1", allowed)

    assert (private.host, private.port, private.path, str(private)) == (
        "10.1.2.3",
        8080,
        "/x?y=1",
        "http://10.1.2.3:8080",
    )
    assert not refusal_of(ipaddress.ip_address("1.1.1.1"), checked_receiver("https://example.org", ()), ())
    with pytest.raises(Invalid, match="not public"):
        checked_receiver("http://10.2.0.1/", allowed)
    with pytest.raises(Invalid, match="needs https"):
        checked_receiver("http://1.1.1.1/", allowed)
    with pytest.raises(Invalid, match="needs https"):
        checked_receiver("http://example.org/", ())
    with pytest.raises(BadRequest, match="delivery_addresses"):
        parse_networks(("nonsense",))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "https://",
        "https://user:secret@example.org/",
        "https://example.org/#part",
        "https://example.org:99999/",
        "https://exa mple.org/",
        "https://example.org/\n",
        "https://[::1/",
        "https://example.org/" + "x" * 2_000,
        "file:///etc/passwd",
    ],
)
def test_a_url_that_is_no_receiver_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="Invalid URL"):
        checked_receiver(url, ())
