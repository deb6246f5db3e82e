"""Properties and lists as people type them in a form, and what a change of them is."""

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace, path_text
from sandur.errors import BadRequest, Conflict
from sandur.server.ui.actions.steps import Change, Field, Sent, Unchanged

PROPERTIES_HINT: Final = "One line for each: key = value. A line that you remove removes the property."
_LINES_MAX: Final = 1_000
_SEPARATORS: Final = re.compile(r"[,\s]+")


def parse_properties(text: str) -> dict[str, str]:
    """Lines of the form `key = value`; BadRequest names the first one that is none."""
    found: dict[str, str] = {}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > _LINES_MAX:
        raise BadRequest(f"{len(lines)} lines: at most {_LINES_MAX} are allowed")
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise BadRequest(f"Invalid line {line[:80]!r}: expected key = value")
        if key.strip() in found:
            raise BadRequest(f"{key.strip()[:80]!r} is there twice")
        found[key.strip()] = value.strip()
    return found


def properties_text(properties: Mapping[str, str]) -> str:
    return "\n".join(f"{key} = {value}" for key, value in sorted(properties.items()))


def editable(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that a line can hold; others stay as they are."""
    return {key: value for key, value in properties.items() if parse_or_none(key, value)}


def parse_or_none(key: str, value: str) -> bool:
    plain = value == value.strip() and len(value.splitlines()) <= 1 and len(key.splitlines()) == 1
    return plain and key == key.strip() and "=" not in key


def split_list(text: str) -> tuple[str, ...]:
    return tuple(part for part in _SEPARATORS.split(text) if part)


def digest_of(value: object) -> str:
    """A short name for a state, so that a form can tell whether it has changed since."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


def check_base(sent: Mapping[str, str], now: str, what: str) -> None:
    """Raise Conflict if the state is another one than the form was made from."""
    if sent.get("base", now) != now:
        raise Conflict(f"{what} changed after this form was opened. This is what it is now.")


def property_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    keys = sorted({*before, *after})
    return tuple(
        Change(key, before.get(key, ""), after.get(key, "")) for key in keys if before.get(key) != after.get(key)
    )


def property_fields(properties: Mapping[str, str], sent: Sent) -> tuple[Field, ...]:
    """The form of properties as they are now, or as they were sent."""
    now = editable(properties)
    text = sent.get("properties", properties_text(now))
    return (
        Field(name="properties", label="Properties", kind="area", value=text, hint=PROPERTIES_HINT),
        Field(name="base", label="", kind="hidden", value=digest_of(now)),
    )


def command_text(*words: str) -> str:
    """A command to copy. Others choose the names in it, so a shell must take each word as it is."""
    return shlex.join(("sandur", *words))


def typed_name(thing: Identifier | Namespace) -> str:
    """A full name as the command line reads it."""
    name = (thing.name,) if isinstance(thing, Identifier) else ()
    return path_text((thing.catalog, *thing.levels, *name))


def sent_properties(properties: Mapping[str, str], sent: Sent) -> tuple[tuple[Change, ...], dict[str, str]]:
    """What a form changes, and the properties after it. Conflict if they are not those that the form was made from."""
    before = editable(properties)
    after = parse_properties(sent.get("properties", ""))
    changes = property_changes(before, after)
    if not changes:
        raise Unchanged("Nothing changes: the properties are already like this.")
    check_base(sent, digest_of(before), "The properties")
    return changes, after
