"""Lists of objects to delete: the body of S3's DeleteObjects, read so strictly that no service reads another list."""

import re
from collections.abc import Sequence
from typing import Final

from sandur.errors import Forbidden

KEYS_MAX: Final = 1_000
BODY_CHARS_MAX: Final = 2 << 20

_SPACE: Final = r"[ \t\n]*"
_BEGINNING: Final = re.compile(
    rf"(?:<\?xml version=[\"']1\.0[\"'](?: encoding=[\"'](?i:utf-8)[\"'])?\?>)?{_SPACE}"
    rf"<Delete(?: xmlns=[\"']http://s3\.amazonaws\.com/doc/2006-03-01/[\"'])?>{_SPACE}"
)
# `[^<&]` leaves no room for markup in a key; `_TEXT` decodes the references.
_OBJECT: Final = re.compile(
    rf"<Object>{_SPACE}<Key>((?:[^<&\x00-\x1f]|&[a-z#0-9A-Fx]+;)+)</Key>{_SPACE}</Object>{_SPACE}"
)
_QUIET: Final = re.compile(rf"<Quiet>(?:true|false)</Quiet>{_SPACE}")
_END: Final = re.compile(rf"</Delete>{_SPACE}")
_REFERENCE: Final = re.compile(r"&(?:(lt|gt|amp|quot|apos)|#([0-9]{1,7})|#x([0-9A-Fa-f]{1,6}));")
_NAMED: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ELEMENT: Final = re.compile(r"<([A-Za-z!?/\[-]{1,40})")
_CODE_POINT_MAX: Final = 0x10FFFF


def deleted_keys(body: str) -> Sequence[str]:
    """The keys that a list names; Forbidden unless it consists of objects with a key each, and nothing else.

    Comments, entities, CDATA, attributes and `VersionId` are refused: services could read them in different ways.
    """
    try:
        body.encode()
    except UnicodeEncodeError:
        raise refusal("the list of objects to delete contains half of a character") from None
    if len(body) > BODY_CHARS_MAX:
        raise refusal(f"the list of objects to delete has more than {BODY_CHARS_MAX} characters")
    beginning = _BEGINNING.match(body)
    if beginning is None:
        raise refusal("the body of POST ?delete does not begin with the element Delete")
    keys: list[str] = []
    place = _skip_quiet(body, beginning.end())
    while found := _OBJECT.match(body, place):
        keys.append(_text(found[1]))
        if len(keys) > KEYS_MAX:
            raise refusal(f"the list of objects to delete has more than {KEYS_MAX} keys")
        place = found.end()
    if keys and place != beginning.end():
        place = _skip_quiet(body, place)
    if not _END.fullmatch(body, place):
        raise refusal(f"the list of objects to delete contains {_unexpected(body, place)}")
    if not keys:
        raise refusal("the list of objects to delete is empty")
    return keys


def refusal(found: str) -> Forbidden:
    """The error for a request that is not signed, with what was found in it."""
    return Forbidden(f"The request is not signed: {found}")


def _skip_quiet(body: str, place: int) -> int:
    found = _QUIET.match(body, place)
    return found.end() if found else place


def _unexpected(body: str, place: int) -> str:
    """What stands where an object was expected; the element inside it that is not allowed, if there is one."""
    rest = body[place : place + 10_000]
    if "VersionId" in rest.partition("</Object>")[0]:
        return "a VersionId, which reaches older versions"
    found = _ELEMENT.match(rest)
    name = found[1] if found else ""
    return f"{name} in a form that is not allowed" if name else "text that is not allowed"


def _text(raw: str) -> str:
    """The text of a key, with its references decoded."""
    if "&" not in raw:
        return raw
    text = _REFERENCE.sub(_decoded, raw)
    if _REFERENCE.sub("", raw).count("&"):
        raise refusal("a key of the list of objects to delete contains an unknown reference")
    return text


def _decoded(found: re.Match[str]) -> str:
    if found[1]:
        return _NAMED[found[1]]
    number = int(found[2]) if found[2] else int(found[3], 16)
    if number > _CODE_POINT_MAX or 0xD800 <= number <= 0xDFFF:  # noqa: PLR2004 - surrogates are not characters
        raise refusal("a key of the list of objects to delete contains a reference to no character")
    return chr(number)
