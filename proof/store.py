"""An object store that can only compare and swap one object, and an actor that runs on it alone."""

from collections.abc import Hashable, Mapping
from typing import TypeAlias, TypeVar, cast

from proof.steps import (
    ABSENT,
    Answer,
    Call,
    Cell,
    Choose,
    Delete,
    Done,
    Get,
    Goto,
    Keys,
    Listing,
    Put,
    Read,
    Single,
    Step,
    Together,
    Write,
)

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")

# A deleted object keeps its counter with the value None, because versions never come back.
Store: TypeAlias = Mapping[str, tuple[int, Hashable]]


def held(store: Store, cell: Cell[T]) -> T | None:
    """What is kept in the cell, or None when nothing is there."""
    return cast("T | None", store.get(cell.key, (ABSENT, None))[1])  # Only typed cells write there.


def kept(store: Store, cell: Cell[T]) -> T:
    """What is kept in a cell that is always there."""
    value = held(store, cell)
    if value is None:
        raise AssertionError(f"{cell.key} is always there, found nothing")
    return value


def present(store: Store, prefix: str) -> dict[str, Hashable]:
    return {key: value for key, (_, value) in store.items() if value is not None and key.startswith(prefix)}


def perform(store: Store, call: Call) -> tuple[Single, Store]:
    """Perform one storage call: its answer and the store after it, the very same when nothing changed."""
    match call:
        case Get(key):
            version, value = store.get(key, (ABSENT, None))
            return Read(version if value is not None else ABSENT, value), store
        case Keys(prefix):
            return Listing(tuple(sorted(present(store, prefix)))), store
        case Put(key, value, expected):
            version, old = store.get(key, (ABSENT, None))
            if (version if old is not None else ABSENT) != expected:
                return Write("lost", ABSENT), store
            return Write("ok", version + 1), {**store, key: (version + 1, value)}
        case Delete(key, expected):
            version, old = store.get(key, (ABSENT, None))
            if old is None or version != expected:
                return Write("lost", ABSENT), store
            return Write("ok", ABSENT), {**store, key: (version + 1, None)}


def run(store: Store, actor: Step[R]) -> tuple[Store, R]:
    """Run one actor alone, to its end, without faults; whatever may time out has timed out."""
    answer: Answer = None
    try:
        while True:
            match actor.send(answer):
                case Goto(other, arguments):
                    # `goto` gives the jump the type of the actor that jumps.
                    actor, answer = cast("Step[R]", other(*arguments)), None
                case Choose(branches):
                    answer = branches - 1
                case Together(parts):
                    answers = []
                    for part in parts:
                        single, store = perform(store, part)
                        answers.append(single)
                    answer = tuple(answers)
                case Done():
                    raise AssertionError("an actor ends by returning")
                case call:
                    answer, store = perform(store, call)
    except StopIteration as stop:
        result: R = stop.value
        return store, result
