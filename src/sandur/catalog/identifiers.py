"""Names of catalogs, namespaces and tables: which are valid, and how full names are parsed.

A full name joins catalog, schema and name by dots. A schema is a namespace of one level. The schema name of a nested
namespace is its levels joined by dots, so that Unity clients can reach the namespaces of Iceberg clients.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from sandur.errors import BadRequest, Invalid

Kind = Literal["table", "view", "volume", "function", "model"]
Format = Literal["iceberg", "delta", "unity"]
"""`unity`: volumes, functions and models, which only Unity Catalog's API has."""

LEVELS_MAX: Final = 16
NAME_BYTES_MAX: Final = 255
NAMESPACE_BYTES_MAX: Final = 400

_SEPARATOR: Final = "\x1f"

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_@-]{1,255}\Z")
_QUOTED_CHARS_MAX: Final = 300
_PART: Final = re.compile(r"(?:`((?:[^`]|``)+)`|([^.`]+))(?=\.|\Z)")
_QUOTED_PART: Final = frozenset(".`")


class Namespace(NamedTuple):
    """A namespace of a catalog, by its levels."""

    catalog: str
    levels: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.levels)

    @property
    def parent(self) -> "Namespace | None":
        """The namespace above; None for one of the first level."""
        return Namespace(self.catalog, self.levels[:-1]) if len(self.levels) > 1 else None


class Identifier(NamedTuple):
    """A table, a view or anything else with a name in a namespace; a name is unique across all kinds."""

    catalog: str
    levels: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((*self.levels, self.name))

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.catalog, self.levels)


def is_uuid(text: str) -> bool:
    return _UUID.match(text) is not None


def checked_uuid(what: str, text: str) -> str:
    """The id of an object in lower case; raises Invalid if it is not a UUID."""
    if not _UUID.match(text):
        raise Invalid(f"Invalid {what} {text[:_QUOTED_CHARS_MAX]!r}: expected a UUID")
    return text.lower()


def checked_catalog(name: str) -> str:
    """The name itself; raises Invalid if it is not a valid catalog name."""
    _check("catalog name", name)
    return name


def checked_namespace(namespace: Namespace) -> Namespace:
    """The namespace itself; raises Invalid if it is not a valid namespace."""
    if not namespace.levels:
        raise Invalid("Invalid namespace: it has no levels")
    if len(namespace.levels) > LEVELS_MAX:
        raise Invalid(f"Invalid namespace: {len(namespace.levels)} levels, at most {LEVELS_MAX} are allowed")
    for level in namespace.levels:
        _check("namespace level", level)
    size = sum(len(level.encode()) for level in namespace.levels)
    if size > NAMESPACE_BYTES_MAX:
        raise Invalid(f"Invalid namespace: its levels have {size} bytes, at most {NAMESPACE_BYTES_MAX} are allowed")
    return namespace


def checked_identifier(identifier: Identifier) -> Identifier:
    """The identifier itself; raises Invalid if it is not a valid identifier."""
    checked_namespace(identifier.namespace)
    _check("name", identifier.name)
    return identifier


def _check(what: str, text: str) -> None:
    if not text:
        raise Invalid(f"Invalid {what}: it is empty")
    if _SEPARATOR in text or "\x00" in text:
        raise Invalid(f"Invalid {what} {text!r}: it contains a separator (0x1F) or a zero byte")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Invalid(f"Invalid {what} {text!r}: it is not Unicode text: {error.reason}") from None
    if size > NAME_BYTES_MAX:
        raise Invalid(f"Invalid {what} {text[:40]!r}…: {size} bytes, at most {NAME_BYTES_MAX} are allowed")


def checked_new_name(what: str, name: str) -> str:
    """The name itself; raises Invalid if it is not allowed for a new entity."""
    if not _NEW_NAME.match(name):
        raise Invalid(
            f"Invalid {what} name {name[:_QUOTED_CHARS_MAX]!r}: expected 1 to 255 of letters, digits, _, - and @"
        )
    return name


def namespace_from_parts(catalog: str, schema: str) -> Namespace:
    """The namespace of a schema name; raises BadRequest if a part is empty."""
    levels = tuple(schema.split("."))
    if not catalog or not all(levels):
        raise BadRequest(f"Invalid schema name {f'{catalog}.{schema}'[:_QUOTED_CHARS_MAX]!r}")
    return Namespace(catalog, levels)


def identifier_from_parts(catalog: str, schema: str, name: str) -> Identifier:
    """The identifier of three names; raises BadRequest if one is malformed."""
    if not name or "." in name:
        raise BadRequest(f"Invalid name {name[:_QUOTED_CHARS_MAX]!r}: it is empty or contains a dot")
    return Identifier(*namespace_from_parts(catalog, schema), name)


def parse_schema_name(full_name: str) -> Namespace:
    """Parse the full name of a schema; raises BadRequest if it is malformed."""
    parts = _parts(full_name, "catalog.schema")
    return Namespace(parts[0], tuple(parts[1:]))


def parse_full_name(full_name: str) -> Identifier:
    """Parse a full name; raises BadRequest if it is malformed."""
    parts = _parts(full_name, "catalog.schema.name")
    return Identifier(parts[0], tuple(parts[1:-1]), parts[-1])


def parse_path(text: str) -> tuple[str, ...]:
    """The parts of a name that a person types: joined by dots, a part with a dot or a backtick in backticks.

    Raises BadRequest if a part is empty or a quote is not closed.
    """
    parts: list[str] = []
    position = 0
    while True:
        found = _PART.match(text, position)
        if found is None or not (found[1] or found[2]):
            raise BadRequest(
                f"Invalid name {text[:_QUOTED_CHARS_MAX]!r}: expected parts such as catalog.namespace.name; put a part "
                "that contains a dot in backticks"
            )
        parts.append(found[2] if found[1] is None else found[1].replace("``", "`"))
        position = found.end()
        if position == len(text):
            return tuple(parts)
        position += 1


def path_text(parts: Sequence[str]) -> str:
    """The parts as `parse_path` reads them."""
    return ".".join(f"`{part.replace('`', '``')}`" if set(part) & _QUOTED_PART else part for part in parts)


def full_name_of(thing: Identifier | Namespace) -> str:
    return f"{thing.catalog}.{thing}"


def has_full_name(name: str) -> bool:
    """Whether a full name can contain it: a name with a dot would be parsed as two."""
    return "." not in name


def _parts(full_name: str, form: str) -> Sequence[str]:
    parts = full_name.split(".")
    if len(parts) < len(form.split(".")) or not all(parts):
        raise BadRequest(f"Invalid full name {full_name[:_QUOTED_CHARS_MAX]!r}: expected {form}")
    return parts
