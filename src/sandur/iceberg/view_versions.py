"""View versions: what makes two of them the same, their SQL dialects, and what may be in a new one."""

from collections.abc import Mapping

import msgspec

from sandur.errors import Invalid
from sandur.iceberg.raw_json import shortened
from sandur.iceberg.updates import ViewRepresentation, ViewVersion

SQL = "sql"


def is_sql(representation: ViewRepresentation) -> bool:
    return representation.type.lower() == SQL


def dialects_of(version: ViewVersion) -> frozenset[str]:
    """The SQL dialects in which a version is written, in lower case: case does not tell dialects apart."""
    return frozenset(
        representation.dialect.lower()
        for representation in version.representations
        if is_sql(representation) and representation.dialect is not None
    )


def same_version(left: ViewVersion, right: ViewVersion) -> bool:
    """Whether two versions define the view alike, whatever their ids and the moments at which they were made."""
    return _definition(left) == _definition(right)


def _definition(
    version: ViewVersion,
) -> tuple[Mapping[str, str], tuple[ViewRepresentation, ...], str | None, tuple[str, ...], int]:
    return (
        version.summary,
        version.representations,
        version.default_catalog,
        version.default_namespace,
        version.schema_id,
    )


def checked_version(version: ViewVersion) -> ViewVersion:
    """The version in canonical spelling, refused with `Invalid` if its representations break a rule."""
    seen: set[str] = set()
    for representation in version.representations:
        dialect = _checked_dialect(representation)
        if dialect in seen:
            raise Invalid(f"Invalid view version: Cannot add multiple queries for dialect {shortened(dialect)}")
        seen.add(dialect)
    return with_canonical_representations(version)


def with_canonical_representations(version: ViewVersion) -> ViewVersion:
    spelled = tuple(
        msgspec.structs.replace(representation, type=SQL) if is_sql(representation) else representation
        for representation in version.representations
    )
    return msgspec.structs.replace(version, representations=spelled)


def _checked_dialect(representation: ViewRepresentation) -> str:
    # Other kinds have fields that nobody here knows; storing such a representation without them would corrupt it.
    if not is_sql(representation):
        raise Invalid(
            f"Invalid view version: Cannot serialize unsupported view representation: {shortened(representation.type)}"
        )
    if representation.sql is None:
        raise Invalid("Invalid view version: Cannot parse missing string: sql")
    if representation.dialect is None:
        raise Invalid("Invalid view version: Cannot parse missing string: dialect")
    return representation.dialect.lower()
