"""The fields of all records by version, also those of the values within them.

A server of a major keeps the top-level fields that a later minor adds, and drops those within nested values (V2). So a
minor may add only top-level fields. `record-fields.json` has the fields of each version, and a test compares.

`python -m tests.compatibility.record_fields` writes the fields of a version that no release has written yet. It refuses
to change those of a released version: what it then needs is a new minor or a new major.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import msgspec

import sandur
from sandur.catalog.record_versions import NEWEST, Record

FILE: Final = Path(__file__).with_name("record-fields.json")
_NEEDS_SPARK: Final = ("sandur.pipeline", "sandur.spark")

Fields = Mapping[str, Sequence[str]]
"""The names of the fields by the name of their type, sorted."""


class VersionFields(NamedTuple):
    """The fields of one version: of the records themselves, and of all values within them."""

    records: Fields
    nested: Fields


def current_fields() -> VersionFields:
    """The fields of the records that this program defines; those of the pipeline are left out."""
    for module in pkgutil.walk_packages(sandur.__path__, "sandur."):
        if not module.name.startswith(_NEEDS_SPARK) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    records = [kind for kind in _subclasses(Record) if kind.__module__.startswith("sandur.")]
    records = [kind for kind in records if not kind.__module__.startswith(_NEEDS_SPARK)]
    nested = {kind for record in records for kind in _nested(record, set())}
    return VersionFields(_names(records), _names(sorted(nested - {*records}, key=_name)))


def recorded_fields() -> Mapping[str, VersionFields]:
    """The recorded fields by version, such as 2.0."""
    recorded = json.loads(FILE.read_text())
    return {version: VersionFields(**fields) for version, fields in recorded["versions"].items()}


def released_versions() -> Sequence[str]:
    """The versions that a release of Sandur writes: their fields are final."""
    found: list[str] = json.loads(FILE.read_text())["released"]
    return found


def added_to(before: Fields, after: Fields) -> Sequence[str]:
    """The fields that `before` lacks, of types that both have, and new types, as `Type.field`."""
    found = [f"{kind}.{name}" for kind, names in after.items() for name in names if name not in before.get(kind, ())]
    return sorted(found)


def _names(kinds: Sequence[type[msgspec.Struct]]) -> Fields:
    return {_name(kind): sorted(one.encode_name for one in msgspec.structs.fields(kind)) for kind in kinds}


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix('sandur.')}.{kind.__qualname__}"


def _subclasses(kind: type[Record]) -> list[type[Record]]:
    found = {one for direct in kind.__subclasses__() for one in (direct, *_subclasses(direct))}
    return sorted(found, key=_name)


def _nested(kind: type[msgspec.Struct], seen: set[Any]) -> Iterator[type[msgspec.Struct]]:
    """The structs within the values of a struct, at any depth."""
    for hint in get_type_hints(kind).values():
        for one in _structs(hint):
            if one not in seen:
                seen.add(one)
                yield one
                yield from _nested(one, seen)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for argument in get_args(hint):
        yield from _structs(argument)


def main() -> None:
    version, fields = str(NEWEST), current_fields()
    written = json.loads(FILE.read_text()) if FILE.exists() else {"released": [], "versions": {}}
    if version in written["released"]:
        sys.exit(f"version {version} is released: raise NEWEST in catalog/record_versions.py first")
    written["versions"][version] = fields._asdict()
    FILE.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
