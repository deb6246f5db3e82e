"""No message makes the server fail: seeded nonsense for every method is refused in the protocol's own words."""

import random  # noqa: TID251 - seeded
from typing import Any, Final

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from sandur.server.grpc.routes import METHODS
from sandur.settings import GrpcSettings
from tests.grpc.direct import Aborted, Direct, opened
from tests.grpc.stubs import Problem, body, every_method
from tests.grpc.test_streams import make_events
from tests.server.requests import create_table, create_view, set_properties

SEED: Final = 21
MESSAGES: Final = 60
_DEFECTS: Final = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS"})
_TEXTS: Final = (
    "", "t", "ns", "main", "none", "\x00", "a\x1fb", "é", "🧊" * 80, "../..", "%2e%2e", "x" * 5_000, " ", "*", "1",
    "properties.a", "comment", "committed", "table", "00000000-0000-4000-8000-000000000000", "file:/etc/passwd", "s3://",
)  # fmt: skip
_BODIES: Final = (
    b"", b"{", b"null", b"[]", b"1", b"\xff\xfe", b"{}", b"[" * 5_000, b'{"name":"\\\\ud800"}', b'{"name":1e999}',
    b'{"table-changes":[{}]}', b'{"updates":[{"action":"nonsense"}],"requirements":[]}', b'{"filter":{"type":"eq"}}',
    body(create_table("t")), body(create_view("v")), body(set_properties(a="b")), b'{"name":"t","schema":null}',
)  # fmt: skip
_NUMBERS: Final = (0, 1, -1, 2**31 - 1, -(2**31), 7)
_ENTRIES_MAX: Final = 4


def nonsense(chance: random.Random, kind: type[Message]) -> Message:
    """A message whose fields have values of their types, and no further sense."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if chance.random() < 0.2:
            continue
        _fill(chance, message, field)
    return message


def _fill(chance: random.Random, message: Any, field: FieldDescriptor) -> None:
    name = field.name
    if field.message_type and field.message_type.GetOptions().map_entry:
        getattr(message, name).update({chance.choice(_TEXTS): chance.choice(_TEXTS) for _ in range(2)})
        return
    values = [_value(chance, message, field) for _ in range(chance.randrange(_ENTRIES_MAX) if field.is_repeated else 1)]
    if field.is_repeated:
        getattr(message, name).extend(values)
    elif field.message_type:
        getattr(message, name).CopyFrom(values[0])
    else:
        setattr(message, name, values[0])


def _value(chance: random.Random, message: Any, field: FieldDescriptor) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return chance.choice(_TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return chance.choice(_BODIES)
        case FieldDescriptor.TYPE_BOOL:
            return chance.random() < 0.5
        case FieldDescriptor.TYPE_ENUM:
            return chance.choice((0, 1, 2, 99))
        case FieldDescriptor.TYPE_MESSAGE:
            return nonsense(
                chance, type(getattr(message, field.name)) if not field.is_repeated else _entry(message, field)
            )
        case _:
            return chance.choice(_NUMBERS)


def _entry(message: Any, field: FieldDescriptor) -> type[Message]:
    found: type[Message] = type(getattr(type(message)(), field.name).add())
    return found


@pytest.fixture
async def populated() -> Any:
    direct = await opened(grpc=GrpcSettings(connection_age="PT0S"))
    await make_events(direct, count=1)
    yield direct
    await direct.close()


@pytest.mark.parametrize("method", every_method())
async def test_no_message_makes_a_method_fail(populated: Direct, method: str) -> None:
    chance = random.Random(f"{SEED} {method}")
    kind = METHODS[f"/sandur.v1.{method.replace('.', '/')}"].message

    for number in range(MESSAGES):
        sent: Message | bytes = nonsense(chance, kind)
        if number % 10 == 9:
            sent = chance.randbytes(chance.randrange(1, 200))
        key = (("idempotency-key", chance.choice(_TEXTS)),) if number % 7 == 0 else ()
        problem: Problem | None = None
        try:
            await populated.call(method, sent, *key)
        except Aborted as aborted:
            problem = aborted.problem
        if problem:
            assert problem.code not in _DEFECTS, (SEED, method, sent, problem)
            assert problem.reason
