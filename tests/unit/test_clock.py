"""The clock: ids follow their standard."""

import uuid

from sandur.clock import SystemClock, uuid_v7


def test_a_new_id_is_a_uuid_of_version_7_and_carries_the_time() -> None:
    parsed = uuid.UUID(uuid_v7(1_700_000_000_123, (1 << 80) - 1))

    assert parsed.version == 7
    assert parsed.variant == uuid.RFC_4122
    assert parsed.int >> 80 == 1_700_000_000_123


def test_a_new_uuid_is_random_except_for_its_version() -> None:
    clock = SystemClock()
    parsed = [uuid.UUID(clock.new_uuid()) for _ in range(500)]

    assert {one.version for one in parsed} == {4}
    assert {one.variant for one in parsed} == {uuid.RFC_4122}
    for bit in set(range(128)) - {62, 63, 76, 77, 78, 79}:
        assert {one.int >> bit & 1 for one in parsed} == {0, 1}, bit


def test_ids_never_repeat() -> None:
    clock = SystemClock()

    assert len({clock.new_id() for _ in range(10_000)}) == 10_000
    assert len({clock.new_uuid() for _ in range(10_000)}) == 10_000
