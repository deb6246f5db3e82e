"""A sequential model of the catalog, and the check that it explains a concurrent history."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, assert_never

OK: Final = "ok"
MISSING: Final = "NotFound"
TAKEN: Final = "AlreadyExists"
NOT_EMPTY: Final = "NotEmpty"
UNSURE: Final = ("Busy", "OutcomeUnknown", "died")
"""Answers that do not say whether it happened."""

Result: TypeAlias = str | frozenset[str]


@dataclass(frozen=True)
class Create:
    """`label` identifies the new table."""

    name: str
    label: str


@dataclass(frozen=True)
class Load:
    name: str


@dataclass(frozen=True)
class Commit:
    """Adds `label` to the table, without a requirement."""

    name: str
    label: str


@dataclass(frozen=True)
class Drop:
    name: str


@dataclass(frozen=True)
class Rename:
    name: str
    to: str


@dataclass(frozen=True)
class Transact:
    """Adds `label` to all of the tables, or to none."""

    names: tuple[str, ...]
    label: str


@dataclass(frozen=True)
class Undrop:
    """Brings back what was dropped last under the name, if the name was not used again since."""

    name: str


@dataclass(frozen=True)
class CreateNamespace:
    """Creates the one namespace that contains all names."""


@dataclass(frozen=True)
class DropNamespace:
    """Drops the namespace, if no table is in it."""


Operation: TypeAlias = Create | Load | Commit | Drop | Rename | Transact
NamespaceOperation: TypeAlias = CreateNamespace | DropNamespace
CatalogOperation: TypeAlias = Operation | Undrop | NamespaceOperation


class World(NamedTuple):
    """The table of each name, and the labels of each table. Dropped tables stay.

    `dropped` has the table that each name had last, unless the name was used again. `is_open`: the namespace exists.
    `forgets`: records of dropped names are removed at any time, so that nothing may be left to bring back.
    """

    names: frozenset[tuple[str, str]] = frozenset()
    shown: frozenset[tuple[str, frozenset[str]]] = frozenset()
    dropped: frozenset[tuple[str, str]] = frozenset()
    is_open: bool = True
    forgets: bool = False

    def at(self, name: str) -> str | None:
        return dict(self.names).get(name)

    def named(self, name: str, table: str | None) -> "World":
        kept = {pair for pair in self.names if pair[0] != name}
        dropped = frozenset(pair for pair in self.dropped if pair[0] != name)
        return self._replace(names=frozenset(kept | ({(name, table)} if table else set())), dropped=dropped)

    def without(self, name: str) -> "World":
        """The world after a drop."""
        table = self.at(name)
        after = self.named(name, None)
        return after._replace(dropped=after.dropped | {(name, table)}) if table else after

    def shows(self, table: str) -> frozenset[str]:
        return dict(self.shown)[table]

    def showing(self, table: str, labels: frozenset[str]) -> "World":
        kept = {pair for pair in self.shown if pair[0] != table}
        return self._replace(shown=frozenset(kept | {(table, labels)}))


class Recorded(NamedTuple):
    """An operation with the moments of its request and its answer, and the answer."""

    operation: CatalogOperation
    began: float
    ended: float
    result: Result


Tables: TypeAlias = tuple[str, ...]
Outcome: TypeAlias = tuple[Result | None, Tables, World]
"""The answer, or None when the operation has only looked its tables up; which those are; the world after it."""


def first_step(world: World, operation: CatalogOperation) -> Iterator[Outcome]:
    """The possible results of an operation at one moment. Loads and commits first resolve the name."""
    match operation:
        case Create():
            yield _create(world, operation)
        case Drop(name):
            yield (OK, (), world.without(name)) if world.at(name) else (MISSING, (), world)
        case Rename():
            yield _rename(world, operation)
        case Load(name) | Commit(name):
            yield from _look_up(world, (name,))
        case Transact(names):
            yield from _look_up(world, names)
        case Undrop(name):
            yield from _bring_back(world, name)
        case CreateNamespace() | DropNamespace():
            yield from _change_namespace(world, operation)
        case _:
            assert_never(operation)


def _create(world: World, operation: Create) -> Outcome:
    name, label = operation.name, operation.label
    if not world.is_open:
        return MISSING, (), world
    if world.at(name):
        return TAKEN, (), world
    return OK, (), world.named(name, label).showing(label, frozenset({label}))


def _rename(world: World, operation: Rename) -> Outcome:
    table = world.at(operation.name)
    if table is None:
        return MISSING, (), world
    if world.at(operation.to):
        return TAKEN, (), world
    return OK, (), world.named(operation.name, None).named(operation.to, table)


def _bring_back(world: World, name: str) -> Iterator[Outcome]:
    table = dict(world.dropped).get(name)
    if world.at(name):
        yield TAKEN, (), world
    if table is None or not world.is_open or world.forgets:
        yield MISSING, (), world
    if table and world.is_open:
        yield OK, (), world.named(name, table)


def _change_namespace(world: World, operation: NamespaceOperation) -> Iterator[Outcome]:
    if isinstance(operation, CreateNamespace):
        yield (TAKEN, (), world) if world.is_open else (OK, (), world._replace(is_open=True))
    elif not world.is_open:
        yield MISSING, (), world
    elif world.names:
        yield NOT_EMPTY, (), world
    else:
        yield OK, (), world._replace(is_open=False)


def _look_up(world: World, names: Iterable[str]) -> Iterator[Outcome]:
    tables = [world.at(name) for name in names]
    if None in tables:
        yield MISSING, (), world
    else:
        yield None, tuple(table for table in tables if table), world


def second_step(world: World, operation: CatalogOperation, tables: Tables) -> Iterator[Outcome]:
    """The second moment of an operation that has resolved its tables. A table dropped since may be seen or not."""
    living = {table for _, table in world.names}
    if not living.issuperset(tables):
        yield MISSING, (), world
    match operation:
        case Load():
            yield world.shows(tables[0]), (), world
        case Commit(label=label) | Transact(label=label):
            after = world
            for table in tables:
                after = after.showing(table, after.shows(table) | {label})
            yield OK, (), after
        case _:
            raise AssertionError(f"{operation} is done at once")


DONE: Final = "done"
State: TypeAlias = Tables | str | None
"""How far an operation is: not begun (None), looked up (its tables), or done."""


class _Progress(NamedTuple):
    at: tuple[State, ...]
    world: World

    def moved(self, index: int, to: State, world: World) -> "_Progress":
        return _Progress((*self.at[:index], to, *self.at[index + 1 :]), world)


def explanations(history: Sequence[Recorded], worlds: Iterable[World]) -> set[World]:
    """The worlds in which a history may have ended; empty if no order of its operations explains every answer.

    An operation happens between its request and its answer. One with an unknown outcome may have happened or not.
    """
    earlier = [[other for other, one in enumerate(history) if one.ended < recorded.began] for recorded in history]
    found: set[World] = set()
    seen: set[_Progress] = set()
    left = [_Progress((None,) * len(history), world) for world in worlds]
    while left:
        progress = left.pop()
        if progress in seen:
            continue
        seen.add(progress)
        is_over = [state == DONE or history[index].result in UNSURE for index, state in enumerate(progress.at)]
        if all(is_over):
            found.add(progress.world)
        for index, recorded in enumerate(history):
            if progress.at[index] != DONE and all(is_over[other] for other in earlier[index]):
                left.extend(_steps(progress, index, recorded))
    return found


def _steps(progress: _Progress, index: int, recorded: Recorded) -> Iterator[_Progress]:
    tables = progress.at[index]
    if isinstance(tables, tuple):
        outcomes = second_step(progress.world, recorded.operation, tables)
    else:
        outcomes = first_step(progress.world, recorded.operation)
    for result, looked_up, world in outcomes:
        if result is None:
            yield progress.moved(index, looked_up, world)
        elif recorded.result in UNSURE or result == recorded.result:
            yield progress.moved(index, DONE, world)
