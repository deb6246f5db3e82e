"""Requests and files that try to exhaust something: one short error, quickly."""

import json
from collections.abc import Callable

import pytest

from sandur.errors import BadRequest
from sandur.iceberg.validation import decode_foreign_view_metadata
from sandur.iceberg.view_commit import create_view_metadata, decode_create_view, decode_view_commit, next_view_metadata
from sandur.iceberg.view_metadata import ViewMetadata
from tests.unit.iceberg.views import (
    LOCATION,
    NOW_MS,
    VIEW_UUID,
    add_schema,
    add_version,
    after,
    column,
    committed,
    creation,
    document,
    query,
    set_current,
    version,
    view,
)

MESSAGE_CHARS_MAX = 1000
COLUMNS_MANY = 100_000
LONG_TEXT = "x" * 1_000_000


def deep_schema(depth: int) -> str:
    """A schema with lists in lists, built without recursion."""
    opened = "".join(
        f'{{"type":"list","element-id":{level + 2},"element-required":false,"element":' for level in range(depth)
    )
    field = f'{{"id":1,"name":"a","required":false,"type":{opened}"long"{"}" * depth}}}'
    return f'{{"type":"struct","schema-id":0,"fields":[{field}]}}'


def created_with(schema_text: str) -> ViewMetadata:
    body = f'{{"name":"v","schema":{schema_text},"view-version":{json.dumps(version(1))}}}'.encode()
    return create_view_metadata(decode_create_view(body), location=LOCATION, view_uuid=VIEW_UUID, now_ms=NOW_MS)


def committed_with(schema_text: str) -> ViewMetadata:
    parsed = decode_view_commit(f'{{"updates":[{{"action":"add-schema","schema":{schema_text}}}]}}'.encode())
    return next_view_metadata(view(), parsed.requirements, parsed.updates, now_ms=NOW_MS)


def read_with(schema_text: str) -> ViewMetadata:
    text = json.dumps(document(schemas="here")).replace('"here"', f"[{schema_text}]")
    return decode_foreign_view_metadata(text.encode())


WAYS = (created_with, committed_with, read_with)


@pytest.mark.parametrize("depth", [101, 900, 5000, 100_000])
@pytest.mark.parametrize("attempt", WAYS)
def test_deep_nesting_is_refused(attempt: Callable[[str], ViewMetadata], depth: int) -> None:
    with pytest.raises(BadRequest, match=r"nested (too deeply|more than 100 levels deep)"):
        attempt(deep_schema(depth))


@pytest.mark.parametrize("attempt", WAYS)
def test_moderate_nesting_is_accepted(attempt: Callable[[str], ViewMetadata]) -> None:
    assert attempt(deep_schema(50)).schemas


@pytest.mark.timeout(30)
def test_a_view_may_have_very_many_columns() -> None:
    columns = [column(at, f"c{at}") for at in range(1, COLUMNS_MANY + 1)]

    fields = after(None, *creation()[:3], add_schema(*columns), add_version(1, schema_id=-1), set_current(-1))

    assert len(fields["schemas"][0]["fields"]) == COLUMNS_MANY


@pytest.mark.parametrize(
    "updates",
    [
        [add_version(3, query(LONG_TEXT), query(LONG_TEXT))],
        [add_version(3, query(LONG_TEXT)), set_current(3)],
        [add_version(3, {"type": LONG_TEXT})],
        [{"action": "assign-uuid", "uuid": LONG_TEXT}],
        [{"action": "set-properties", "updates": {"version.history.num-entries": LONG_TEXT}}],
        [{"action": LONG_TEXT}],
        [{"action": "set-current-view-version", "view-version-id": LONG_TEXT}],
    ],
)
def test_a_refusal_of_a_long_request_is_short(updates: list[dict[str, object]]) -> None:
    with pytest.raises(BadRequest) as refused:
        committed(view(), *updates)

    assert len(str(refused.value)) <= MESSAGE_CHARS_MAX


@pytest.mark.timeout(30)
def test_a_file_with_very_many_versions_is_refused_shortly_or_cut_to_its_limit() -> None:
    many = [version(number) for number in range(1, 20_001)]

    with pytest.raises(BadRequest) as refused:
        decode_foreign_view_metadata(json.dumps(document(*many, **{"current-version-id": 0})).encode())

    assert len(str(refused.value)) <= MESSAGE_CHARS_MAX
    assert len(after(view(*many), add_version(20_001), set_current(-1))["versions"]) == 10
