"""V2: a minor adds only top-level fields, because older servers of its major drop what is new within nested values."""

import itertools
from typing import Final

import msgspec
import pytest

from sandur.catalog.record_versions import FIRST, NEWEST, FormatVersion, Record
from sandur.storage.record_form import decode_record, encode_record
from tests.compatibility.record_fields import (
    Fields,
    VersionFields,
    added_to,
    current_fields,
    recorded_fields,
    released_versions,
)

HELP: Final = (
    "A server of the same major that does not know a field keeps it only at the top level of a record. A new field "
    "within a nested value needs a new major, and every new top-level field a new minor (decision 20). As long as this "
    "version is not released: python -m tests.compatibility.record_fields"
)


def check_minor(before: VersionFields, after: VersionFields) -> None:
    """Assert that a later minor of a major adds nothing within nested values, and removes nothing."""
    assert not added_to(before.nested, after.nested), HELP
    assert not added_to(after.nested, before.nested), HELP
    assert not added_to(after.records, before.records), HELP


def test_the_fields_of_this_version_are_the_recorded_ones() -> None:
    assert current_fields() == recorded_fields()[str(NEWEST)], HELP


def test_a_minor_adds_nothing_within_nested_values() -> None:
    recorded = recorded_fields()
    versions = sorted(FormatVersion(*map(int, version.split("."))) for version in recorded)

    for before, after in itertools.pairwise(versions):
        if before.major == after.major:
            check_minor(recorded[str(before)], recorded[str(after)])
    assert set(released_versions()) <= {*recorded, str(FIRST)}


def test_a_field_that_a_minor_adds_within_a_nested_value_is_refused() -> None:
    before = VersionFields({"Pointer": ["head", "uuid"]}, {"Head": ["location"]})

    check_minor(before, before._replace(records={"Pointer": ["head", "uuid", "more"], "Later": ["id"]}))
    changes: list[Fields] = [{"Head": ["location", "more"]}, {"Head": ["location"], "Later": ["id"]}, {"Head": []}]
    for nested in changes:
        with pytest.raises(AssertionError, match="new major"):
            check_minor(before, before._replace(nested=nested))
    with pytest.raises(AssertionError, match="new major"):
        check_minor(before, before._replace(records={"Pointer": ["head"]}))


class _Inner(msgspec.Struct, frozen=True):
    known: int = 0


class _Outer(Record, frozen=True, kw_only=True):
    inner: _Inner = _Inner()


def test_an_older_server_keeps_a_later_field_of_the_record_and_drops_one_within_a_value() -> None:
    later = {"v": NEWEST.major, "m": NEWEST.minor + 1, "event_id": ["e"], "inner": {"known": 1, "new": 2}, "more": 3}

    rewritten = encode_record(decode_record("key", msgspec.json.encode(later), _Outer))

    assert msgspec.json.decode(rewritten) == {**later, "inner": {"known": 1}}
