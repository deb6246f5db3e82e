"""Names as Unity Catalog spells them: which are good for something new, and how full names are taken apart.

A full name joins catalog, schema and name by dots. A schema is a namespace of one level; a namespace of several is
known by its levels joined by dots, so that what Iceberg clients nested can be reached, too.
"""

import re
from collections.abc import Sequence
from typing import Final

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import BadRequest, Invalid

_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_@-]{1,255}\Z")
_SHOWN_CHARS_MAX: Final = 300
_LEVELS_MIN: Final = 2
_PARTS_MIN: Final = 3


def checked_new_name(what: str, name: str) -> str:
    """The name itself; Invalid when nothing new may be called so."""
    if not _NEW_NAME.match(name):
        raise Invalid(
            f"Invalid {what} name {name[:_SHOWN_CHARS_MAX]!r}: expected 1 to 255 of letters, digits, _, - and @"
        )
    return name


def named_schema(catalog: str, schema: str) -> Namespace:
    """The namespace that a schema's name stands for."""
    levels = tuple(schema.split("."))
    if not catalog or not all(levels):
        raise BadRequest(f"Invalid schema name {f'{catalog}.{schema}'[:_SHOWN_CHARS_MAX]!r}")
    return Namespace(catalog, levels)


def named(catalog: str, schema: str, name: str) -> Identifier:
    """What the three names stand for."""
    if not name or "." in name:
        raise BadRequest(f"Invalid name {name[:_SHOWN_CHARS_MAX]!r}: it is empty or holds a dot")
    return Identifier(*named_schema(catalog, schema), name)


def schema_of(full_name: str) -> Namespace:
    """The namespace that the full name of a schema stands for; BadRequest when it is none."""
    parts = _parts(full_name, _LEVELS_MIN, "catalog.schema")
    return Namespace(parts[0], tuple(parts[1:]))


def identifier_of(full_name: str) -> Identifier:
    """What a full name stands for; BadRequest when it is none."""
    parts = _parts(full_name, _PARTS_MIN, "catalog.schema.name")
    return Identifier(parts[0], tuple(parts[1:-1]), parts[-1])


def full_name_of(thing: Identifier | Namespace) -> str:
    return f"{thing.catalog}.{thing}"


def is_reachable(name: str) -> bool:
    """Whether full names can name it: one with a dot in it would be read as several."""
    return "." not in name


def _parts(full_name: str, parts_min: int, form: str) -> Sequence[str]:
    parts = full_name.split(".")
    if len(parts) < parts_min or not all(parts):
        raise BadRequest(f"Invalid full name {full_name[:_SHOWN_CHARS_MAX]!r}: expected {form}")
    return parts
