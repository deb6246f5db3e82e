"""Splitting a large metadata document into its fields without reading through its longest arrays."""

from sandur.errors import BadRequest
from sandur.splicing import JsonBytes, decode_object

# Below this size an array is read faster than it is carved out.
CARVED_BYTES_MIN = 16 * 1024

# The arrays that grow with every commit.
_LONG_ARRAYS = ("snapshots", "snapshot-log")
_MARK = b'"carved out"'


def split_document(data: bytes, what: str, *, carved_bytes_min: int = CARVED_BYTES_MIN) -> dict[str, JsonBytes]:
    """The fields of a JSON object; what lies inside its long arrays is not read. Raises `BadRequest`.

    `data` is taken to be valid JSON. A long array is cut out from its opening bracket to the next closing one, a mark
    is put in its place, and the rest is decoded. That the rest is valid proves the cut: had the closing bracket been
    inside a string, the rest would have an odd number of quotes; had it closed an inner array, the rest would have
    closing brackets left over. Whenever the proof fails, the whole document is decoded instead.
    """
    cuts = _cuts(data, carved_bytes_min)
    if not cuts:
        return dict(decode_object(data, what))
    try:
        fields: dict[str, JsonBytes] = dict(decode_object(_reduced(data, cuts), what))
    except BadRequest:
        return dict(decode_object(data, what))
    if any(bytes(memoryview(fields.get(name, b""))) != b"[" + _MARK + b"]" for _, _, name in cuts):
        return dict(decode_object(data, what))
    view = memoryview(data)
    return fields | {name: view[start : end + 1] for start, end, name in cuts}


def _cuts(data: bytes, carved_bytes_min: int) -> list[tuple[int, int, str]]:
    """For each long array the positions of its brackets, in the order of the document."""
    cuts: list[tuple[int, int, str]] = []
    if len(data) < carved_bytes_min:
        return cuts
    position = 0
    for name in _LONG_ARRAYS:
        key = b'"%s":[' % name.encode()
        # Each search begins behind the array before: looking through that one would cost more than is gained.
        found = data.find(key, position)
        start = found + len(key) - 1
        end = data.find(b"]", start)
        if found >= 0 and end - start >= carved_bytes_min:
            cuts.append((start, end, name))
            position = end
    return cuts


def _reduced(data: bytes, cuts: list[tuple[int, int, str]]) -> bytes:
    pieces = []
    position = 0
    for start, end, _ in cuts:
        pieces += [data[position : start + 1], _MARK]
        position = end
    return b"".join([*pieces, data[position:]])
