"""The requests about names, and their specification: the catalog as one map."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, assert_never

from proof.answers import CONFLICT, NO_NAMESPACE, NO_TABLE, NOT_EMPTY, OK, SWEPT
from proof.names.entries import space_of
from proof.steps import Result


@dataclass(frozen=True)
class Load:
    name: str


@dataclass(frozen=True)
class Create:
    """A `request` that is listed twice is a retry. A plain creation chooses its uuid; a staged one sends it."""

    name: str
    uuid: str
    request: str = ""
    key: str | None = None
    is_staged: bool = False
    is_ahead: bool = False

    @property
    def content(self) -> str:
        return self.request or self.uuid


@dataclass(frozen=True)
class Stage:
    name: str
    uuid: str


@dataclass(frozen=True)
class ExpireStage:
    uuid: str


@dataclass(frozen=True)
class Drop:
    name: str
    key: str | None = None


@dataclass(frozen=True)
class Rename:
    old: str
    new: str
    key: str | None = None


@dataclass(frozen=True)
class DropNamespace:
    space: str


@dataclass(frozen=True)
class MakeNamespace:
    space: str


@dataclass(frozen=True)
class Transact:
    """A transaction that creates (name, uuid) pairs; an id that is listed twice is a retry."""

    id: str
    creates: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class CollectRecord:
    transaction: str


@dataclass(frozen=True)
class SweepPointer:
    name: str
    uuid: str


Request: TypeAlias = (
    Load
    | Create
    | Stage
    | ExpireStage
    | Drop
    | Rename
    | DropNamespace
    | MakeNamespace
    | Transact
    | CollectRecord
    | SweepPointer
)


class World(NamedTuple):
    """Namespaces, tables as (name, content), the answers that a replay repeats, and all uuids that were used."""

    spaces: frozenset[str]
    tables: tuple[tuple[str, str], ...]
    said: frozenset[tuple[str, str]]
    used: frozenset[str]


def identity(request: Request) -> str | None:
    """The part that all attempts of one request share; None if a second attempt is another request."""
    match request:
        case Create(key=None, is_staged=True):
            return f"request {request.content}"
        case Create(key=str()) | Drop(key=str()) | Rename(key=str()):
            return f"key {request.key}"
        case Transact():
            return f"transaction {request.id}"
        case _:
            return None


def specification(world: World, request: Request) -> tuple[Result, World]:
    """The catalog as one map; a request that is sent again gets the same answer and changes nothing."""
    said = dict(world.said)
    known = identity(request)
    if known in said:
        return said[known], world
    answer, after = apply(world, request)
    # Without a key only a success is recognised later (C9).
    if known and (answer == OK or not known.startswith("request")):
        after = after._replace(said=after.said | {(known, answer)})
    return answer, after


def apply(world: World, request: Request) -> tuple[str, World]:  # noqa: C901 -- one flat match
    tables = dict(world.tables)
    match request:
        case Load(name):
            return tables.get(name, NO_TABLE), world
        case Create(name, uuid):
            return created(world, ((name, uuid, request.content),))
        case Transact(_, creates):
            return created(world, tuple((name, uuid, uuid) for name, uuid in creates))
        case Drop(name):
            return (OK if tables.pop(name, None) else NO_TABLE), with_tables(world, tables)
        case Rename(old, new):
            return renamed(world, old, new)
        case Stage(name):
            return (OK if space_of(name) in world.spaces else NO_NAMESPACE), world
        case DropNamespace(space) if space in world.spaces:
            if any(space_of(name) == space for name in tables):
                return NOT_EMPTY, world
            return OK, world._replace(spaces=world.spaces - {space})
        case DropNamespace():
            return NO_NAMESPACE, world
        case MakeNamespace(space):
            return (CONFLICT, world) if space in world.spaces else (OK, world._replace(spaces=world.spaces | {space}))
        case ExpireStage() | CollectRecord() | SweepPointer():
            return SWEPT, world
        case _:
            assert_never(request)


def created(world: World, creates: tuple[tuple[str, str, str], ...]) -> tuple[str, World]:
    tables = dict(world.tables)
    for name, uuid, _ in creates:
        if space_of(name) not in world.spaces:
            return NO_NAMESPACE, world
        if name in tables or uuid in world.used:
            return CONFLICT, world
    tables |= {name: content for name, _, content in creates}
    used = world.used | {uuid for _, uuid, _ in creates}
    return OK, with_tables(world, tables)._replace(used=used)


def renamed(world: World, old: str, new: str) -> tuple[str, World]:
    tables = dict(world.tables)
    if space_of(new) not in world.spaces:
        return NO_NAMESPACE, world
    if old not in tables:
        return NO_TABLE, world
    if new in tables:
        return CONFLICT, world
    tables[new] = tables.pop(old)
    return OK, with_tables(world, tables)


def with_tables(world: World, tables: dict[str, str]) -> World:
    return world._replace(tables=tuple(sorted(tables.items())))
