"""What an actor may do: the storage calls, the choices and the jumps that it yields, and the answers it gets."""

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

T = TypeVar("T", bound=Hashable)
R = TypeVar("R")
P = ParamSpec("P")

ABSENT = 0
Outcome: TypeAlias = Literal["ok", "lost", "unknown"]
Result: TypeAlias = str | int | tuple["Result", ...]


@dataclass(frozen=True)
class Cell(Generic[T]):
    """The address of one object, with the type of what is kept there."""

    key: str


class Get(NamedTuple):
    key: str


class Keys(NamedTuple):
    prefix: str


class Put(NamedTuple):
    key: str
    value: Hashable
    expected: int


class Delete(NamedTuple):
    key: str
    expected: int


class Choose(NamedTuple):
    branches: int


class Together(NamedTuple):
    parts: tuple["Call", ...]


class Goto(NamedTuple):
    actor: Callable[..., "Step[Result]"]
    arguments: tuple[Hashable, ...]


class Done(NamedTuple):
    result: Result


class Read(NamedTuple):
    version: int
    value: Hashable


class Write(NamedTuple):
    """`version` is the object's version after an ok put, otherwise ABSENT."""

    outcome: Outcome
    version: int


class Listing(NamedTuple):
    keys: tuple[str, ...]


Call: TypeAlias = Get | Keys | Put | Delete
Operation: TypeAlias = Call | Choose | Together | Goto | Done
Single: TypeAlias = Read | Write | Listing
Answer: TypeAlias = Single | int | tuple[Single, ...] | None
Step: TypeAlias = Generator[Operation, Answer, R]

# The casts below state what a generator's type cannot: which answer belongs to which call. `perform` keeps to it.


def get(cell: Cell[T]) -> Step[tuple[int, T | None]]:
    """The version and the value; (ABSENT, None) when nothing is there."""
    answer = yield Get(cell.key)
    version, value = cast("tuple[int, T | None]", answer)
    return version, value


def read(cell: Cell[T]) -> Step[tuple[int, T]]:
    """The version and the value of an object that is always there."""
    version, value = yield from get(cell)
    if value is None:
        raise AssertionError(f"{cell.key} is always there, found nothing")
    return version, value


def listing(prefix: str) -> Step[tuple[str, ...]]:
    answer = yield Keys(prefix)
    return cast("Listing", answer).keys


def put(cell: Cell[T], value: T, expected: int) -> Step[Write]:
    answer = yield Put(cell.key, value, expected)
    return cast("Write", answer)


def delete(cell: Cell[T], expected: int) -> Step[Write]:
    answer = yield Delete(cell.key, expected)
    return cast("Write", answer)


def put_call(cell: Cell[T], value: T, expected: int) -> Put:
    """A put for `together`."""
    return Put(cell.key, value, expected)


def together(*calls: Put) -> Step[tuple[Write, ...]]:
    """Writes of one round: they take effect one by one, in any order."""
    answers = yield Together(calls)
    return cast("tuple[Write, ...]", answers)


def choose(branches: int) -> Step[int]:
    """A branch that depends on something outside the model, such as a clock; all are explored."""
    answer = yield Choose(branches)
    return cast("int", answer)


def passed() -> Step[bool]:
    """Has a timeout passed? It may at any moment, so both are explored; an actor alone finds that it has."""
    return (yield from choose(2)) == 1


def goto(actor: Callable[P, Step[R]], *args: P.args, **kwargs: P.kwargs) -> Step[R]:
    """Continue as another actor and forget everything but its arguments, which keeps the state space small.

    Only an actor itself may do this, as `return (yield from goto(...))`; never a step that an actor waits for.
    """
    if kwargs:
        raise TypeError(f"a jump to {actor} takes arguments by position, found {sorted(kwargs)}")
    yield Goto(cast("Callable[..., Step[Result]]", actor), cast("tuple[Hashable, ...]", args))
    raise AssertionError("the checker does not come back from a jump")
