"""What holds other things, at any depth: a catalog its namespaces, a namespace its own, made and dropped (N4, N6).

A path such as `c.n` names a namespace in a catalog. One protocol serves all levels: a home is born `new`, exists if its
parent, read after it, has the id that it was made for, and is dropped by mark, look, act.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NOT_EMPTY, OK, UNKNOWN, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.linearizable import is_linearizable
from proof.rules import Rules, of
from proof.steps import Cell, Result, Step, call, get, goto, listing, put
from proof.store import Store, run

TRIES_MAX: Final = 2
RULES: Final = of("N4", "N6")
Unsure: TypeAlias = Literal["unsure"]


class Home(NamedTuple):
    """A home made again has another id; `by` is who wrote it last."""

    state: Literal["new", "active", "dropping", "dropped"]
    id: str
    parent_id: str
    by: str


class Request(NamedTuple):
    verb: Literal["make", "drop", "load"]
    path: str


def home_cell(path: str) -> Cell[Home]:
    return Cell(f"home:{path}")


def parent_of(path: str) -> str:
    return path.rpartition(".")[0]


def look(path: str, rules: Rules) -> Step[str]:
    _, home = yield from get(home_cell(path))
    shown = yield from is_shown(path, home, rules)
    if shown == "unsure":
        return BUSY
    return OK if shown else NO_NAMESPACE


def is_shown(path: str, home: Home | None, rules: Rules) -> Step[bool | Unsure]:
    if home is None or home.state == "dropped":
        return False
    if home.state != "new" or "N4" not in rules:
        return True
    return (yield from call(confirm, parent_of(path), home.parent_id, rules))


def confirm(path: str, home_id: str, rules: Rules) -> Step[bool | Unsure]:
    """N4, after a child was written: is its home the one it was made for? Calls a drop of it off (N6)."""
    if not path:
        return True
    for _ in range(TRIES_MAX + 1):
        version, home = yield from get(home_cell(path))
        shown = home is not None and home.id == home_id and (yield from is_shown(path, home, rules))
        if home is None or shown is False:
            return False
        if shown == "unsure" or home.state != "dropping":
            return shown
        if "N6" not in rules:
            return False
        back = yield from put(home_cell(path), home._replace(state="active", by="child"), version)
        if back.outcome == "ok":
            return True
    return "unsure"


def make(actor: str, path: str, rules: Rules) -> Step[str]:
    """The parent and the path, then the record: it happens here, subject to its parent."""
    parent_id = ""
    if parent_of(path):
        _, parent = yield from get(home_cell(parent_of(path)))
        shown = yield from is_shown(parent_of(path), parent, rules)
        if parent is None or not shown:
            return NO_NAMESPACE
        if shown == "unsure":
            return BUSY
        parent_id = parent.id
    version, found = yield from get(home_cell(path))
    shown = yield from is_shown(path, found, rules)
    if shown:
        return BUSY if shown == "unsure" else CONFLICT
    made = yield from put(home_cell(path), Home("new", actor, parent_id, actor), version)
    if made.outcome != "ok":
        return BUSY if made.outcome == "lost" else UNKNOWN
    return (yield from goto(settle_made, actor, path, parent_id, made.version, rules))


def settle_made(actor: str, path: str, parent_id: str, version: int, rules: Rules) -> Step[str]:
    """It counts once its parent is seen to be there; if that is gone, it is taken away again.

    When that is lost somebody saw it, and may have dropped it before its parent (N4 seen).
    """
    shown = (yield from call(confirm, parent_of(path), parent_id, rules)) if "N4" in rules else True
    if shown == "unsure":
        return BUSY
    ended = yield from put(home_cell(path), Home("active" if shown else "dropped", actor, parent_id, actor), version)
    if shown:
        return OK
    return NO_NAMESPACE if ended.outcome == "ok" or "N4 seen" not in rules else UNKNOWN


def drop(actor: str, path: str, rules: Rules, tries: int = 0) -> Step[str]:
    """Mark, look, act."""
    version, home = yield from get(home_cell(path))
    shown = yield from is_shown(path, home, rules)
    if home is None or not shown:
        return NO_NAMESPACE
    if shown == "unsure" or tries > TRIES_MAX:
        return BUSY
    marked = yield from put(home_cell(path), home._replace(state="dropping", by=f"{actor}{tries}"), version)
    if marked.outcome == "lost":
        return (yield from goto(drop, actor, path, rules, tries + 1))
    if marked.outcome == "unknown":
        return BUSY
    if (yield from call(has_child, path, home.id, rules)):
        back = yield from put(home_cell(path), home._replace(state="active", by=actor), marked.version)
        if back.outcome == "lost" and "N6 back" in rules:
            return (yield from goto(drop, actor, path, rules, tries + 1))
        return BUSY if back.outcome == "unknown" and "N6 back" in rules else NOT_EMPTY
    gone = yield from put(home_cell(path), Home("dropped", "", "", actor), marked.version)
    if gone.outcome == "lost":  # N6: somebody has a child to show.
        return (yield from goto(drop, actor, path, rules, tries + 1))
    if gone.outcome == "unknown":
        _, home = yield from get(home_cell(path))
        return OK if home and home.state == "dropped" and home.by == actor else UNKNOWN
    return OK


def has_child(path: str, home_id: str, rules: Rules) -> Step[bool]:
    """A `new` child counts if it was made for this home, without asking: its maker will."""
    for key in (yield from listing(f"home:{path}.")):
        child_path = key.removeprefix("home:")
        if parent_of(child_path) != path:
            continue
        _, child = yield from get(home_cell(child_path))
        if child is None or child.state == "dropped":
            continue
        if child.state != "new" or child.parent_id == home_id or "N6 id" not in rules:
            return True
    return False


def specification(world: frozenset[str], request: Request) -> tuple[Result, frozenset[str]]:
    """The homes that are there, as one set."""
    path = request.path
    match request.verb:
        case "load":
            return (OK if path in world else NO_NAMESPACE), world
        case "make":
            if parent_of(path) and parent_of(path) not in world:
                return NO_NAMESPACE, world
            return (CONFLICT, world) if path in world else (OK, world | {path})
        case "drop":
            if path not in world:
                return NO_NAMESPACE, world
            is_empty = all(parent_of(other) != path for other in world)
            return (OK, world - {path}) if is_empty else (NOT_EMPTY, world)


def start(actor: str, request: Request, rules: Rules) -> Step[str]:
    match request.verb:
        case "load":
            return look(request.path, rules)
        case "make":
            return make(actor, request.path, rules)
        case "drop":
            return drop(actor, request.path, rules)


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    homes: Sequence[str] = ("c",),
    losable: int = 0,
    after: dict[int, tuple[int, ...]] | None = None,
) -> System:
    """`homes` are there from the start; request i begins after those with the indexes `after[i]` have answered."""
    store = {home_cell(path).key: (1, Home("active", f"-{path}", f"-{parent_of(path)}", "-")) for path in homes}
    actors = [
        Actor(f"{request.verb}{index}", start, (f"{request.verb}{index}", request, rules), (after or {}).get(index, ()))
        for index, request in enumerate(requests)
    ]
    paths = sorted({*homes, *(request.path for request in requests)})

    def judge(moment: Moment) -> None:
        views = [(Request("load", path), run(moment.store, look(path, rules))[1]) for path in paths]
        if not is_linearizable(
            requests,
            moment.masks,
            moment.results,
            specification=specification,
            start=frozenset(homes),
            unsure=UNSURE,
            views=views,
        ):
            raise Violation(f"not linearizable: then there are {[load.path for load, seen in views if seen == OK]}")
        judge_nothing_is_stuck(moment.store, views, rules)

    return System(store, actors, judge, losable=losable, keeps_order=True)


def judge_nothing_is_stuck(store: Store, views: Sequence[tuple[Request, Result]], rules: Rules) -> None:
    """Everybody stops here: what is there can be dropped if it is empty, and what is not can be made."""
    world = frozenset(load.path for load, seen in views if seen == OK)
    for load, seen in views:
        request = Request("drop" if seen == OK else "make", load.path)
        wanted, after = specification(world, request)
        later, answer = run(store, start("z", request, rules))
        if answer != wanted:
            raise Violation(f"{load.path} is stuck: to {request.verb} it says {answer}, not {wanted}")
        for other, _ in views:
            if run(later, look(other.path, rules))[1] != specification(after, other)[0]:
                raise Violation(f"{request.verb} {load.path} changed {other.path}")
