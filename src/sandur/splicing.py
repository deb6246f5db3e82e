"""JSON kept as bytes: decompression, decoding with one kind of error, and arrays that grow without being parsed."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Annotated, Final, TypeVar, cast, overload

import msgspec

from sandur.decompression import uncompressed_bytes_max
from sandur.errors import BadRequest, Incomplete, Invalid

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

JsonBytes = bytes | memoryview | msgspec.Raw

_WHITE_SPACE = frozenset(b" \t\r\n")
_ARRAY_START, _ARRAY_END = b"[]"
_MESSAGE_CHARS_MAX = 300
_TAIL_BYTES = 4096

INT32_MAX = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

encode = msgspec.json.Encoder().encode

_GZIP_START = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
# msgspec says only in the text of an error that a required field is absent, or null.
_INCOMPLETE = ("Object missing required field", "got `null`")

NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoder raises for bytes or a text that is not JSON, or not of the wanted form, or nested too deeply."""


def count_in(text: str | None) -> int | None:
    """A number in a text that a client wrote; None if it is anything but digits, or has more than 64 bits."""
    is_number = text and text.isascii() and text.isdecimal() and len(text) <= len(str(INT64_MAX))
    number = int(text) if text and is_number else None
    return number if number is None or number <= INT64_MAX else None


def malformed_error(what: str, error: Exception) -> BadRequest:
    """The error for malformed JSON, for every way in which the decoder fails."""
    if isinstance(error, RecursionError):
        return BadRequest(f"{what} is malformed: nested too deeply")
    if isinstance(error, UnicodeError):
        return BadRequest(f"{what} is malformed: not valid UTF-8")
    text = str(error).removeprefix("JSON is malformed: ")
    kind = Incomplete if any(sign in text for sign in _INCOMPLETE) else BadRequest
    return kind(f"{what} is malformed: {shorten(text)}")


def shorten(text: str) -> str:
    """`text`, cut to a length that keeps an error message readable."""
    return text if len(text) <= _MESSAGE_CHARS_MAX else text[:_MESSAGE_CHARS_MAX] + "…"


_decoders: dict[object, msgspec.json.Decoder[object]] = {}


def _decode(data: JsonBytes, wanted: type[T]) -> T:
    decoder = _decoders.get(wanted)
    if decoder is None:
        decoder = _decoders[wanted] = msgspec.json.Decoder(wanted)
    return cast("T", decoder.decode(data))  # The decoder was made for this type.


def decode(data: JsonBytes, wanted: type[T], what: str) -> T:
    """Decode `data` as a value of type `wanted`; raises `BadRequest` that names `what`."""
    try:
        return _decode(data, wanted)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise malformed_error(what, error) from error


def check_utf8(data: bytes, what: str) -> None:
    """Raise `BadRequest` for invalid UTF-8, which the decoder does not detect in fields that stay bytes."""
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeError as error:
        raise malformed_error(what, error) from error


def decode_body(data: bytes, wanted: type[T], what: str) -> T:
    """Like `decode`, for bytes from outside: also raises `BadRequest` for invalid UTF-8 in fields that stay bytes."""
    check_utf8(data, what)
    return decode(data, wanted, what)


def decode_fields(data: JsonBytes, what: str) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object that are not null; the values stay bytes."""
    fields = decode(data, dict[str, msgspec.Raw], what)
    return {name: value for name, value in fields.items() if bytes(memoryview(value)[:4]) != b"null"}


def next_id(used: Iterable[int], *, start: int) -> int:
    """The smallest id above all used ones, at least `start`; raises `Invalid` if no id is left."""
    following = max(start, 1 + max(used, default=start - 1))
    if following > INT32_MAX:
        raise Invalid(f"Cannot assign an id: {INT32_MAX} is the last one and is in use")
    return following


@dataclass(frozen=True, eq=False)
class JsonArray(Sequence[T]):
    """A JSON array of `T`: the bytes as they were read, followed by appended values.

    `raw` is a valid JSON array. `source`, if given, contains `raw`: a text that is not in `source` is not in `raw`.
    Nothing is decoded before an item is read.
    """

    raw: JsonBytes
    item_type: type[T]
    appended: tuple[T, ...] = ()
    source: bytes | None = None
    # Decoded values of the stored bytes, shared by all arrays that grew from one.
    memory: dict[object, object] = field(default_factory=dict, repr=False)

    @cached_property
    def items(self) -> tuple[T, ...]:
        return (*decode(self.raw, list[self.item_type], self._what), *self.appended)  # type: ignore[name-defined] # A type made at run time.

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.items[index]

    @property
    def _what(self) -> str:
        return f"array of {self.item_type.__name__}"

    @cached_property
    def is_empty(self) -> bool:
        return not self.appended and _is_empty(memoryview(self.raw))

    def with_appended(self, item: T) -> "JsonArray[T]":
        grown = replace(self, appended=(*self.appended, item))
        if "items" in self.__dict__:
            grown.__dict__["items"] = (*self.items, item)
        return grown

    def encoded(self, *, more_than: int = 0) -> "JsonArray[T]":
        """The same array with its appended values encoded into `raw`, if there are more than `more_than` of them.

        A value that a commit appends is then encoded once, and not again by every later commit.
        """
        if len(self.appended) <= more_than:
            return self
        raw = b"".join(self.chunks())
        return JsonArray(raw=raw, item_type=self.item_type, source=raw)

    def project_stored(self, item_type: type["V"]) -> "tuple[V, ...]":
        """The stored items with only the fields of `item_type`: cheaper than `items`, and decoded once."""
        if item_type not in self.memory:
            self.memory[item_type] = tuple(decode(self.raw, list[item_type], self._what))  # type: ignore[valid-type] # A type made at run time.
        return cast("tuple[V, ...]", self.memory[item_type])  # Stored under this type.

    def project(self, item_type: type["V"]) -> "tuple[V, ...]":
        """All items with only the fields of `item_type`."""
        added = (msgspec.convert(msgspec.to_builtins(item), item_type) for item in self.appended)
        return (*self.project_stored(item_type), *added)

    def elements(self) -> list[msgspec.Raw]:
        """The bytes of every stored element, without the appended values."""
        return decode(self.raw, list[msgspec.Raw], self._what)

    def keep(self, is_kept: Sequence[bool]) -> "JsonArray[T]":
        """The array with only the items whose flag is true, or the array itself; stored items keep their bytes."""
        if all(is_kept):
            return self
        stored = self.elements()
        kept = compress(stored, is_kept)
        appended = compress(self.appended, is_kept[len(stored) :])
        return JsonArray(raw=join_array(kept), item_type=self.item_type, appended=tuple(appended))

    def last(self) -> T | None:
        """The last item; None if the array is empty."""
        if self.appended:
            return self.appended[-1]
        if self.is_empty:
            return None
        # If the text after the last brace is one complete item, it is the last item: if that brace were inside a string
        # or a nested object, a quote or a brace would be left over.
        tail_start = max(0, len(memoryview(self.raw)) - _TAIL_BYTES)
        tail = bytes(memoryview(self.raw)[tail_start:])
        start, end = tail.rfind(b"{"), tail.rfind(b"]")
        if start >= 0:
            try:
                return _decode(tail[start:end], self.item_type)
            except (msgspec.DecodeError, RecursionError, UnicodeError):
                pass
        return self.items[-1]

    def may_contain(self, text: bytes) -> bool:
        """False only if `text` does not occur in the stored bytes; appended values are not searched."""
        return text in (self.source if self.source is not None else bytes(memoryview(self.raw)))

    def chunks(self) -> list[bytes | memoryview]:
        """The bytes of the array, in chunks to concatenate."""
        stored = memoryview(self.raw)
        if not self.appended:
            return [stored]
        added = encode(self.appended)
        return [added] if _is_empty(stored) else [_without_end(stored), b",", memoryview(added)[1:]]


V = TypeVar("V")


def _is_empty(array: memoryview) -> bool:
    at = 1
    while array[at] in _WHITE_SPACE:
        at += 1
    return array[at] == _ARRAY_END


def _without_end(array: memoryview) -> memoryview:
    end = len(array) - 1
    while array[end] != _ARRAY_END:
        end -= 1
    return array[:end]


def join_array(elements: Iterable[JsonBytes]) -> bytes:
    return b"[" + b",".join(bytes(memoryview(element)) for element in elements) + b"]"


def empty_array(item_type: type[T]) -> JsonArray[T]:
    return JsonArray(raw=b"[]", item_type=item_type)


def json_array(data: JsonBytes | None, item_type: type[T], what: str, *, source: bytes | None = None) -> JsonArray[T]:
    """`data` as an array; None means empty. Raises `BadRequest` if it is not an array."""
    if data is None:
        return empty_array(item_type)
    if memoryview(data)[0] != _ARRAY_START:
        raise BadRequest(f"{what} is not an array: {shorten(bytes(memoryview(data)[:100]).decode(errors='replace'))}")
    return JsonArray(raw=data, item_type=item_type, source=source)


def join_object(fields: Iterable[tuple[str, JsonBytes]]) -> bytes:
    return b"{" + b",".join(encode(name) + b":" + bytes(memoryview(value)) for name, value in fields) + b"}"


def decompress(data: bytes, what: str) -> bytes:
    """`data`, decompressed if it is in gzip format; raises `BadRequest` that names `what`, also if it is too large."""
    if not data.startswith(_GZIP_START):
        return data
    parts: list[bytes] = []
    size, size_max = 0, uncompressed_bytes_max(len(data))
    while data:  # A gzip file may consist of several members, one after the other.
        member = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        try:
            parts.append(member.decompress(data, size_max - size + 1))
        except zlib.error as error:
            raise BadRequest(f"{what} is malformed: {error}") from error
        size += len(parts[-1])
        if size > size_max:
            raise BadRequest(f"{what} is malformed: larger than {size_max} bytes when uncompressed")
        if not member.eof:
            raise BadRequest(f"{what} is malformed: the compressed data ends too early")
        data = member.unused_data
    return b"".join(parts)
