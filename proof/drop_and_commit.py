"""A drop and commits that resolved the name earlier. The drop swaps the name (D3), then the pointer (D4)."""

from typing import Final, NamedTuple

from proof.answers import BUSY, NO_TABLE, OK, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.linearizable import is_linearizable
from proof.steps import Cell, Result, Step, goto, put, read
from proof.store import run

TRIES_MAX: Final = 2
DROP_TRIES_MAX: Final = 4


class Pointer(NamedTuple):
    is_dropped: bool
    applied: tuple[str, ...]


NAME: Final = Cell[str]("name:t")
POINTER: Final = Cell[Pointer]("pointer")


def load() -> Step[Result]:
    _, name = yield from read(NAME)
    if name != "active":
        return NO_TABLE
    _, pointer = yield from read(POINTER)
    return NO_TABLE if pointer.is_dropped else pointer.applied


def commit(actor: str, tries: int) -> Step[str]:
    """Resolve the name once, and swap the pointer later."""
    _, name = yield from read(NAME)
    if name != "active":
        return NO_TABLE
    version, pointer = yield from read(POINTER)
    if pointer.is_dropped:
        return NO_TABLE
    answer = yield from put(POINTER, pointer._replace(applied=(*pointer.applied, actor)), version)
    if answer.outcome == "ok":
        return OK
    if answer.outcome == "unknown" or tries == TRIES_MAX:
        _, pointer = yield from read(POINTER)
        return OK if actor in pointer.applied else BUSY
    return (yield from goto(commit, actor, tries + 1))


def drop_name_first() -> Step[str]:
    version, name = yield from read(NAME)
    if name != "active":
        return NO_TABLE
    answer = yield from put(NAME, "dropped", version)  # D3: the drop happens here.
    if answer.outcome != "ok":
        return NO_TABLE if answer.outcome == "lost" else BUSY
    return OK if (yield from drop_pointer()) is not None else BUSY


def drop_pointer_first() -> Step[str]:
    version, name = yield from read(NAME)
    if name != "active":
        return NO_TABLE
    was_mine = yield from drop_pointer()
    if was_mine is None:
        return BUSY
    if not was_mine:
        return NO_TABLE
    yield from put(NAME, "dropped", version)
    return OK


def drop_pointer() -> Step[bool | None]:
    """D4: True if this actor dropped it, False if another one did, None if the outcome is unknown."""
    for _ in range(DROP_TRIES_MAX):
        version, pointer = yield from read(POINTER)
        if pointer.is_dropped:
            return False
        answer = yield from put(POINTER, pointer._replace(is_dropped=True), version)
        if answer.outcome == "ok":
            return True
    return None


def specification(state: Result, request: tuple[str, str]) -> tuple[Result, Result]:
    """A table is the tuple of its applied commits, or NO_TABLE."""
    kind, actor = request
    if kind == "load" or not isinstance(state, tuple):
        return state, state
    return (OK, NO_TABLE) if kind == "drop" else (OK, (*state, actor))


def system(*, commits: int = 2, drops: int = 1, loads: int = 2, is_name_first: bool = True, losable: int = 0) -> System:
    """Actors that commit, drop and load; the loads run one after the other."""
    drop = drop_name_first if is_name_first else drop_pointer_first
    actors = [Actor(f"commit{number}", commit, (f"commit{number}", 0)) for number in range(commits)]
    actors += [Actor(f"drop{number}", drop, ()) for number in range(drops)]
    first = len(actors)
    actors += [
        Actor(f"load{number}", load, (), after=(first + number - 1,) if number else ()) for number in range(loads)
    ]
    empty: Result = ()
    requests = [(actor.name.rstrip("0123456789"), actor.name) for actor in actors]

    def judge(moment: Moment) -> None:
        view = run(moment.store, load())[1]
        if not is_linearizable(
            requests,
            moment.masks,
            moment.results,
            specification=specification,
            start=empty,
            unsure=UNSURE,
            views=[(("load", "z"), view)],
        ):
            raise Violation(f"not linearizable: then the table is {view}")

    start = Pointer(is_dropped=False, applied=())
    return System({NAME.key: (1, "active"), POINTER.key: (1, start)}, actors, judge, losable=losable, keeps_order=True)
