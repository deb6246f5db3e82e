"""Names of catalogs and namespaces that were renamed, and the keys below which their contents lie.

The key of a container is its first name. A rename exchanges the keys of its two names, so every name has exactly one
key, and every key one name. Only names whose key differs are listed (decision 23).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Place, Scope
from sandur.catalog.location_claims import Holder, LocationClaim
from sandur.catalog.record_versions import Record
from sandur.catalog.records import (
    Catalog,
    DeltaStage,
    DeltaTable,
    NameRecord,
    Pointer,
    PurgeOrder,
    Securable,
    Stage,
    Transaction,
)

Path = tuple[str, ...]
"""A catalog and the levels of a namespace in it."""

R = TypeVar("R", bound=Record)
T = TypeVar("T", Identifier, Namespace, Scope)

ALIASES_MAX: Final = 10_000


class Alias(msgspec.Struct, frozen=True, array_like=True):
    """A container whose key is not its name: the keys of its parents, its name, and its own key."""

    parent: Path
    name: str
    key: str


class Aliases:
    """The names and keys of one workspace at one moment. `renames` grows with every rename."""

    __slots__ = ("_keys", "_names", "listed", "renames")

    def __init__(self, listed: Sequence[Alias] = (), renames: int = 0) -> None:
        self.listed: Final = tuple(listed)
        self.renames: Final = renames
        self._keys: Final[Mapping[tuple[Path, str], str]] = {(one.parent, one.name): one.key for one in listed}
        self._names: Final[Mapping[tuple[Path, str], str]] = {(one.parent, one.key): one.name for one in listed}

    def __bool__(self) -> bool:
        """Whether a name differs from its key."""
        return bool(self._keys)

    def key_path(self, path: Path) -> Path:
        """The keys of a container and its parents, by their names."""
        keys: Path = ()
        for name in path:
            keys = (*keys, self._keys.get((keys, name), name))
        return keys

    def name_path(self, path: Path) -> Path:
        """The names of a container and its parents, by their keys."""
        return tuple(self._names.get((path[:depth], key), key) for depth, key in enumerate(path))

    def keys_of(self, thing: T) -> T:
        """The same thing by the keys of its containers."""
        catalog, *levels = self.key_path((thing.catalog, *thing.levels))
        return thing._replace(catalog=catalog, levels=tuple(levels))

    def names_of(self, thing: T) -> T:
        """The same thing by the names of its containers."""
        catalog, *levels = self.name_path((thing.catalog, *thing.levels))
        return thing._replace(catalog=catalog, levels=tuple(levels))

    def place_by_keys(self, place: Place) -> Place:
        """The position of an entry in a list index, which knows only keys."""
        scope = self.scope_by_keys(place.scope)
        if scope.collection == "tables":
            return Place(scope, place.name)
        parent = (scope.catalog, *scope.levels) if scope.collection == "schemas" else ()
        return Place(scope, self._keys.get((parent, place.name), place.name))

    def scope_by_keys(self, scope: Scope) -> Scope:
        return scope if scope.collection == "catalogs" else self.keys_of(scope)

    def child_name(self, scope: Scope, key: str) -> str:
        """The name of a catalog or namespace in a list, by the keys of its parents and its own."""
        parent = (scope.catalog, *scope.levels) if scope.collection == "schemas" else ()
        return self._names.get((parent, key), key)

    def exchanged(self, parent: Path, one: str, other: str) -> "Aliases":
        """The aliases after a rename of a container in a parent, which is given by its keys."""
        keys = {**self._keys}
        of_one, of_other = keys.get((parent, one), one), keys.get((parent, other), other)
        keys[parent, one], keys[parent, other] = of_other, of_one
        listed = [Alias(above, name, key) for (above, name), key in sorted(keys.items()) if name != key]
        return Aliases(listed, self.renames + 1)


NO_ALIASES: Final = Aliases()

_IDENTIFIERS: Final[Mapping[type[Record], tuple[str, ...]]] = {
    NameRecord: ("other",),
    Pointer: ("made_for", "dropped_as"),
    DeltaTable: ("made_for", "dropped_as"),
    Securable: ("made_for", "dropped_as"),
    DeltaStage: ("identifier",),
    Stage: ("identifier",),
    PurgeOrder: ("identifier",),
}
"""The fields of records that say where something lies. Events keep the names of their time."""


def record_by_names(record: R, aliases: Aliases, workspace: tuple[str, str]) -> R:
    """A stored record with the names of containers in place of their keys."""
    return _translated(record, aliases.names_of, lambda catalog: aliases.name_path((catalog,))[0], workspace)


def record_by_keys(record: R, aliases: Aliases, workspace: tuple[str, str]) -> R:
    """A record as it is stored: with the keys of containers in place of their names."""
    return _translated(record, aliases.keys_of, lambda catalog: aliases.key_path((catalog,))[0], workspace)


def _translated(
    record: R, place: Callable[[Identifier], Identifier], catalog: Callable[[str], str], workspace: tuple[str, str]
) -> R:
    fields: dict[str, Any] = {}
    match record:
        case Catalog():
            fields["name"] = catalog(record.name)
        case Transaction():
            fields["participants"] = tuple(
                replace(one, identifier=place(one.identifier)) for one in record.participants
            )
        case LocationClaim():
            fields["holders"] = tuple(_translated_holder(one, place, catalog, workspace) for one in record.holders)
        case _:
            for field in _IDENTIFIERS.get(type(record), ()):
                value = getattr(record, field)
                if value is not None:
                    fields[field] = place(value)
    return replace(record, **fields) if fields else record


def _translated_holder(
    holder: Holder, place: Callable[[Identifier], Identifier], catalog: Callable[[str], str], workspace: tuple[str, str]
) -> Holder:
    """Claims belong to no workspace: those of other workspaces have other names."""
    owner = holder.owner
    if holder.workspace != workspace:
        return holder
    if owner.identifier:
        return replace(holder, owner=replace(owner, identifier=place(owner.identifier)))
    return replace(holder, owner=replace(owner, name=catalog(owner.name))) if owner.record == "catalog" else holder
