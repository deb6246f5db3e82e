"""Page tokens: opaque to clients, made of the last key of a page, and valid for one list only."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from sandur.errors import BadRequest

T = TypeVar("T")

PAGE_SIZE_DEFAULT: Final = 1_000
PAGE_SIZE_MAX: Final = 10_000

_FORM: Final = 1
_HASH_LENGTH: Final = 16


class Page(NamedTuple, Generic[T]):
    """A part of a list. Without `next_token` it is the last part."""

    entries: Sequence[T]
    next_token: str | None = None


class _Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    form: int
    list: str
    last: str


def encode_page_token(what: Iterable[str], last: str) -> str:
    """The token of the page of list `what` that starts after the key `last`."""
    body = msgspec.json.encode(_Token(_FORM, _hash(what), last))
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def decode_page_token(token: str, what: Iterable[str]) -> str:
    """The last key of the previous page; raises BadRequest if the token is malformed or belongs to another list."""
    try:
        body = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        found = msgspec.json.decode(body, type=_Token)
    except (ValueError, msgspec.DecodeError):
        raise BadRequest(f"Invalid page token: {token[:100]!r}") from None
    if found.form != _FORM or found.list != _hash(what):
        raise BadRequest(f"Invalid page token: {token[:100]!r} does not belong to this list")
    return found.last


def checked_page_size(page_size: int | None) -> int:
    """The bounded page size, or the default; raises BadRequest for a size below 1."""
    if page_size is None:
        return PAGE_SIZE_DEFAULT
    if page_size < 1:
        raise BadRequest(f"Invalid page size: {page_size}, expected at least 1")
    return min(page_size, PAGE_SIZE_MAX)


def _hash(what: Iterable[str]) -> str:
    """Each text is prefixed by its length, so that different lists have different hashes."""
    prefixed = "".join(f"{len(text)}:{text}" for text in what)
    return hashlib.sha256(prefixed.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
