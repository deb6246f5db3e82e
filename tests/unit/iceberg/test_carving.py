"""Splitting large documents: the result is always that of reading the document in full."""

import json

import pytest

from sandur.errors import BadRequest
from sandur.iceberg.carving import CARVED_BYTES_MIN, split_document
from sandur.splicing import decode_object

FILLER = {"text": "x" * 100}
LONG = [FILLER] * (CARVED_BYTES_MIN // 50)


def compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def split(data: bytes) -> dict[str, bytes]:
    return {name: bytes(memoryview(value)) for name, value in split_document(data, "document").items()}


def read_in_full(data: bytes) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in decode_object(data, "document").items()}


@pytest.mark.parametrize(
    "document",
    [
        {"a": 1, "snapshots": LONG, "statistics": [1], "snapshot-log": LONG, "z": {"y": []}},
        {"snapshot-log": LONG, "snapshots": LONG},
        {"snapshots": [{"manifests": ["a"]}, *LONG]},
        {"snapshots": [*LONG, {"manifests": ["a"]}]},
        {"snapshots": [*LONG, {"summary": "a ] b"}, *LONG], "z": 1},
        {"snapshots": [*LONG, {"summary": 'quoted \\" ],"x":[ '}], "z": 1},
        {"snapshots": [*LONG, {"],": ":1,", ",": "]}"}], "z": 1},
        {"snapshots": [*LONG, {"x": [1], "statistics": [2]}, *LONG], "statistics": []},
        {"snapshots": [*LONG, {"x": [1], "snapshot-log": LONG}], "snapshot-log": LONG},
        {"u": {"snapshots": LONG}, "snapshots": []},
        {"u": {"snapshots": LONG}, "snapshots": LONG},
        {"u": '"snapshots":[', "snapshots": LONG},
        {"u": ['"snapshots":[ ]'], "snapshots": LONG, "snapshot-log": []},
        {"snapshots": [["a"], *LONG]},
        {"snapshots": [], "snapshot-log": LONG},
        {"other": LONG},
    ],
)
def test_it_reads_what_a_full_reading_reads(document: object) -> None:
    data = compact(document)

    assert split(data) == read_in_full(data)


def test_the_long_arrays_are_not_read() -> None:
    data = compact({"snapshots": LONG, "z": 1}).replace(b'{"text"', b"{broken", 1)

    assert split(data)["z"] == b"1"


@pytest.mark.parametrize("end", [b"", b"]", b"]}}", b'],"z":}', b'],"z":1'])
def test_a_document_that_is_malformed_around_them_is_one_clear_error(end: bytes) -> None:
    data = b'{"snapshots":[' + b",".join([compact(FILLER)] * len(LONG)) + end

    with pytest.raises(BadRequest, match="malformed"):
        split_document(data, "document")
