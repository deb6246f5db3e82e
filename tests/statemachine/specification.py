"""A sequential model of the catalog, and the check that it explains a concurrent history."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, assert_never

OK: Final = "ok"
MISSING: Final = "NotFound"
TAKEN: Final = "AlreadyExists"
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


Operation: TypeAlias = Create | Load | Commit | Drop | Rename | Transact


class World(NamedTuple):
    """The table of each name, and the labels of each table. Dropped tables stay."""

    names: frozenset[tuple[str, str]] = frozenset()
    shown: frozenset[tuple[str, frozenset[str]]] = frozenset()

    def at(self, name: str) -> str | None:
        return dict(self.names).get(name)

    def named(self, name: str, table: str | None) -> "World":
        kept = {pair for pair in self.names if pair[0] != name}
        return self._replace(names=frozenset(kept | ({(name, table)} if table else set())))

    def shows(self, table: str) -> frozenset[str]:
        return dict(self.shown)[table]

    def showing(self, table: str, labels: frozenset[str]) -> "World":
        kept = {pair for pair in self.shown if pair[0] != table}
        return self._replace(shown=frozenset(kept | {(table, labels)}))


class Recorded(NamedTuple):
    """An operation with the moments of its request and its answer, and the answer."""

    operation: Operation
    began: float
    ended: float
    result: Result


Tables: TypeAlias = tuple[str, ...]
Outcome: TypeAlias = tuple[Result | None, Tables, World]
"""The answer, or None when the operation has only looked its tables up; which those are; the world after it."""


def first_step(world: World, operation: Operation) -> Iterator[Outcome]:
    """The possible results of an operation at one moment. Loads and commits first resolve the name."""
    match operation:
        case Create(name, label):
            if world.at(name):
                yield TAKEN, (), world
            else:
                yield OK, (), world.named(name, label).showing(label, frozenset({label}))
        case Drop(name):
            yield (OK, (), world.named(name, None)) if world.at(name) else (MISSING, (), world)
        case Rename(name, to):
            table = world.at(name)
            if table is None:
                yield MISSING, (), world
            elif world.at(to):
                yield TAKEN, (), world
            else:
                yield OK, (), world.named(name, None).named(to, table)
        case Load(name) | Commit(name):
            yield from _look_up(world, (name,))
        case Transact(names):
            yield from _look_up(world, names)
        case _:
            assert_never(operation)


def _look_up(world: World, names: Iterable[str]) -> Iterator[Outcome]:
    tables = [world.at(name) for name in names]
    if None in tables:
        yield MISSING, (), world
    else:
        yield None, tuple(table for table in tables if table), world


def second_step(world: World, operation: Operation, tables: Tables) -> Iterator[Outcome]:
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
