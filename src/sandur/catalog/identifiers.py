"""What things are called: catalogs, namespaces and names, and which texts may be a name."""

from typing import Final, Literal, NamedTuple

from sandur.errors import Invalid

Kind = Literal["table", "view", "volume", "function", "model"]
Format = Literal["iceberg", "delta", "unity"]
"""`unity`: what only Unity Catalog's API knows: volumes, functions and models."""

LEVELS_MAX: Final = 16
NAME_BYTES_MAX: Final = 255
NAMESPACE_BYTES_MAX: Final = 400

_SEPARATOR: Final = "\x1f"


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
    """A table, view or anything else that has a name in a namespace; all kinds share one name space."""

    catalog: str
    levels: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join((*self.levels, self.name))

    @property
    def namespace(self) -> Namespace:
        return Namespace(self.catalog, self.levels)


def checked_catalog(name: str) -> str:
    """The name itself, or Invalid with the reason why no catalog may be called so."""
    _check("catalog name", name)
    return name


def checked_namespace(namespace: Namespace) -> Namespace:
    """The namespace itself, or Invalid with the reason why nothing may be called so."""
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
    """The identifier itself, or Invalid with the reason why nothing may be called so."""
    checked_namespace(identifier.namespace)
    _check("name", identifier.name)
    return identifier


def _check(what: str, text: str) -> None:
    if not text:
        raise Invalid(f"Invalid {what}: it is empty")
    if _SEPARATOR in text or "\x00" in text:
        raise Invalid(f"Invalid {what} {text!r}: it holds a separator (0x1F) or a zero byte")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Invalid(f"Invalid {what} {text!r}: it is not Unicode text: {error.reason}") from None
    if size > NAME_BYTES_MAX:
        raise Invalid(f"Invalid {what} {text[:40]!r}…: {size} bytes, at most {NAME_BYTES_MAX} are allowed")
