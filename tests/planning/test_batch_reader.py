"""The batch reader returns the arrays that were encoded."""

import random  # noqa: TID251 - seeded

import numpy as np
import pytest

from sandur.avro.batch_reader import PADDING, BatchReader, Fields, Items, Numbers, Spans, Unreadable
from tests.planning.odd_manifests import number, varint

PAIRS = {
    "type": "array",
    "items": {"type": "record", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "long"}]},
}
BOUNDS = {
    "type": "array",
    "items": {"type": "record", "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}]},
}
LONGS = {"type": "array", "items": "long"}

Elements = list[tuple[int, int]] | list[tuple[int, bytes]] | list[int]


def encoded(elements: Elements, *, blocks: int = 1, is_sized: bool = False) -> bytes:
    """An array in a number of blocks, with or without their sizes."""
    parts = [elements[place::blocks] for place in range(blocks)] if blocks > 1 else [elements]
    found = b""
    for part in parts:
        body = b"".join(encoded_element(element) for element in part)
        if part:
            found += (varint(-len(part)) + varint(len(body)) if is_sized else varint(len(part))) + body
    return found + b"\x00"


def encoded_element(element: int | tuple[int, int] | tuple[int, bytes]) -> bytes:
    if isinstance(element, int):
        return varint(element)
    key, value = element
    return varint(key) + (varint(value) if isinstance(value, int) else varint(len(value)) + value)


def read_back(schema: object, arrays: list[bytes]) -> list[list[object]]:
    """The elements of every array, in order."""
    data = b"".join(arrays)
    starts = np.cumsum([0, *map(len, arrays)])
    read, after = BatchReader(data + PADDING).read(schema, starts[:-1])
    assert after.tolist() == starts[1:].tolist()
    assert isinstance(read, Items)
    found: list[list[object]] = [[] for _ in arrays]
    for rows, step in read.steps:
        for place, row in enumerate(rows.tolist()):
            found[row].append(element_of(data, step, place))
    return found


def element_of(data: bytes, step: object, place: int) -> object:
    match step:
        case Numbers(values=values):
            return int(values[place if len(values) > 1 else 0])
        case Spans(starts=starts, lengths=lengths):
            return data[starts[place] : starts[place] + lengths[place]]
        case Fields(fields=fields):
            return element_of(data, fields["key"], place), element_of(data, fields["value"], place)
        case _:
            raise AssertionError(step)


@pytest.mark.parametrize("seed", range(30))
def test_arrays_of_a_few_layouts_are_read_back(seed: int) -> None:
    chance = random.Random(seed)
    layouts = [[chance.randrange(1, 10) for _ in range(chance.randrange(1, 6))] for _ in range(chance.randrange(1, 7))]
    written = [
        [(key * 100 - 50, number(chance, width)) for key, width in enumerate(chance.choice(layouts))]
        for _ in range(chance.choice([1, 15, 16, 300]))
    ]
    assert read_back(PAIRS, [encoded(one) for one in written]) == written
    assert read_back(LONGS, [encoded([value for _, value in one]) for one in written]) == [
        [value for _, value in one] for one in written
    ]


@pytest.mark.parametrize("seed", range(30))
def test_arrays_of_bytes_are_read_back(seed: int) -> None:
    chance = random.Random(seed)
    layouts = [[chance.choice([0, 1, 8, 16, 200]) for _ in range(3)] for _ in range(chance.randrange(1, 5))]
    written = [[(key, chance.randbytes(size)) for key, size in enumerate(chance.choice(layouts))] for _ in range(200)]
    assert read_back(BOUNDS, [encoded(one) for one in written]) == written


def test_arrays_in_several_blocks_and_empty_arrays_are_read_with_the_others() -> None:
    elements = [(1, 5), (2, -7), (3, 100)]
    others = [encoded(elements, blocks=2), encoded(elements, is_sized=True), encoded([])]
    written = [others[place % 7] if place % 7 < 3 else encoded(elements) for place in range(100)]

    found = read_back(PAIRS, written)

    assert [sorted(one, key=str) for one in found] == [[] if place % 7 == 2 else elements for place in range(100)]


def test_arrays_with_different_keys_at_one_position_are_read() -> None:
    written = [[(1 if place % 2 else 2, 7), (3, 8)] for place in range(100)]

    assert read_back(PAIRS, [encoded(one) for one in written]) == written


@pytest.mark.parametrize("seed", range(60))
def test_damaged_arrays_are_refused_or_read_without_a_crash(seed: int) -> None:
    chance = random.Random(seed)
    arrays = b"".join(encoded([(1, chance.randrange(1000)), (2, 5)]) for _ in range(40))
    data = bytearray(arrays)
    for _ in range(3):
        data[chance.randrange(len(data))] = chance.randrange(256)
    at = np.sort(np.array([chance.randrange(len(data) + 5) for _ in range(40)], dtype=np.int64))

    for schema in (PAIRS, BOUNDS, LONGS):
        try:
            read, _ = BatchReader(bytes(data) + PADDING).read(schema, at)
        except Unreadable as error:
            assert str(error)  # noqa: PT017 - either is right
        else:
            assert isinstance(read, Items)
            assert sum(len(rows) for rows, _ in read.steps) >= 0


def test_an_unknown_branch_of_a_union_is_refused() -> None:
    data = varint(0) + varint(1) + varint(7) + varint(2) + varint(7)

    with pytest.raises(Unreadable, match="does not have the chosen type"):
        BatchReader(data + PADDING).read(["null", "long"], np.array([0, 1, 3]))


def test_a_count_whose_negation_overflows_is_refused() -> None:
    data = encoded([1, 2, 3]) + varint(-(1 << 63)) + varint(0) + b"\x00"

    with pytest.raises(Unreadable, match="too long"):
        BatchReader(data + PADDING).read(LONGS, np.array([0, 5]))


def of_any_width(count: int) -> list[list[tuple[int, int]]]:
    chance = random.Random(1)
    return [[(key, number(chance, chance.randrange(1, 5))) for key in range(9)] for _ in range(count)]


def test_a_number_with_too_many_bytes_is_refused() -> None:
    arrays = [encoded(one) for one in of_any_width(300)]
    arrays[200] = arrays[200][:-2] + b"\x80" * 10 + b"\x01\x00"

    with pytest.raises(Unreadable, match="too many bytes"):
        read_back(PAIRS, arrays)
