"""Delta tables that Iceberg clients read, too: what a client must say about the metadata it wrote for them."""

from collections.abc import Mapping
from typing import Final

from sandur.delta.requests import Uniform
from sandur.errors import Invalid

_FORMATS: Final = "delta.universalFormat.enabledFormats"
_FIRST_VERSIONS: Final = frozenset({0, 1})


def shows_iceberg(properties: Mapping[str, str]) -> bool:
    return "iceberg" in {name.strip().lower() for name in properties.get(_FORMATS, "").split(",")}


def check_uniform(
    properties: Mapping[str, str], uniform: Uniform | None, *, location: str, version: int | None
) -> None:
    """The block is there exactly when the properties ask for it, and speaks of this table; `version` None: it is new.

    `location` has no slash at its end.
    """
    if shows_iceberg(properties) != (uniform is not None):
        state = "is missing" if uniform is None else "is not allowed"
        raise Invalid(f"uniform {state}: {_FORMATS} is {properties.get(_FORMATS)!r}")
    if uniform is None:
        return
    iceberg = uniform.iceberg
    if not iceberg.metadata_location.startswith(f"{location}/"):
        raise Invalid(f"uniform: metadata-location {iceberg.metadata_location} is not below {location}")
    if iceberg.converted_delta_timestamp <= 0:
        raise Invalid("uniform: converted-delta-timestamp must be greater than 0")
    converted = iceberg.converted_delta_version
    if version is None:
        if converted not in _FIRST_VERSIONS or iceberg.base_converted_delta_version is not None:
            raise Invalid("uniform: a new table has converted-delta-version 0 or 1 and no base version")
    elif converted != version:
        raise Invalid(f"uniform: converted-delta-version {converted} is not the commit's version {version}")
