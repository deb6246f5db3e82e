"""Containers at any depth: catalogs and namespaces, created and dropped (N4, N6).

A path such as `c.n` names a namespace in a catalog. All levels use one protocol: a container is created as `new`. It
exists if its parent, read after it, has the id that it was created for. A drop marks, looks and acts (G5).
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


class Container(NamedTuple):
    """A container that is created again has another id; `by` is its last writer."""

    state: Literal["new", "active", "dropping", "dropped"]
    id: str
    parent_id: str
    by: str


class Request(NamedTuple):
    verb: Literal["make", "drop", "load"]
    path: str


def container_cell(path: str) -> Cell[Container]:
    return Cell(f"container:{path}")


def parent_of(path: str) -> str:
    return path.rpartition(".")[0]


def load(path: str, rules: Rules) -> Step[str]:
    _, container = yield from get(container_cell(path))
    visible = yield from is_visible(path, container, rules)
    if visible == "unsure":
        return BUSY
    return OK if visible else NO_NAMESPACE


def is_visible(path: str, container: Container | None, rules: Rules) -> Step[bool | Unsure]:
    if container is None or container.state == "dropped":
        return False
    if container.state != "new" or "N4" not in rules:
        return True
    return (yield from call(confirm, parent_of(path), container.parent_id, rules))


def confirm(path: str, container_id: str, rules: Rules) -> Step[bool | Unsure]:
    """N4: after a child was written, whether its parent is the one it was created for. Cancels a drop of it (N6)."""
    if not path:
        return True
    for _ in range(TRIES_MAX + 1):
        version, container = yield from get(container_cell(path))
        visible = (
            container is not None and container.id == container_id and (yield from is_visible(path, container, rules))
        )
        if container is None or visible is False:
            return False
        if visible == "unsure" or container.state != "dropping":
            return visible
        if "N6" not in rules:
            return False
        back = yield from put(container_cell(path), container._replace(state="active", by="child"), version)
        if back.outcome == "ok":
            return True
    return "unsure"


def make(actor: str, path: str, rules: Rules) -> Step[str]:
    """Read the parent and the path, then write the record: the creation happens here if the parent exists."""
    parent_id = ""
    if parent_of(path):
        _, parent = yield from get(container_cell(parent_of(path)))
        visible = yield from is_visible(parent_of(path), parent, rules)
        if parent is None or not visible:
            return NO_NAMESPACE
        if visible == "unsure":
            return BUSY
        parent_id = parent.id
    version, found = yield from get(container_cell(path))
    visible = yield from is_visible(path, found, rules)
    if visible:
        return BUSY if visible == "unsure" else CONFLICT
    made = yield from put(container_cell(path), Container("new", actor, parent_id, actor), version)
    if made.outcome != "ok":
        return BUSY if made.outcome == "lost" else UNKNOWN
    return (yield from goto(confirm_created, actor, path, parent_id, made.version, rules))


def confirm_created(actor: str, path: str, parent_id: str, version: int, rules: Rules) -> Step[str]:
    """The container exists once its parent is confirmed; if the parent is gone, the container is removed again.

    If that swap is lost, another actor has seen the container and may have dropped it before its parent (N4 seen).
    """
    visible = (yield from call(confirm, parent_of(path), parent_id, rules)) if "N4" in rules else True
    if visible == "unsure":
        return BUSY
    ended = yield from put(
        container_cell(path), Container("active" if visible else "dropped", actor, parent_id, actor), version
    )
    if visible:
        return OK
    return NO_NAMESPACE if ended.outcome == "ok" or "N4 seen" not in rules else UNKNOWN


def drop(actor: str, path: str, rules: Rules, tries: int = 0) -> Step[str]:
    """Mark, look, act (G5)."""
    version, container = yield from get(container_cell(path))
    visible = yield from is_visible(path, container, rules)
    if container is None or not visible:
        return NO_NAMESPACE
    if visible == "unsure" or tries > TRIES_MAX:
        return BUSY
    marked = yield from put(container_cell(path), container._replace(state="dropping", by=f"{actor}{tries}"), version)
    if marked.outcome == "lost":
        return (yield from goto(drop, actor, path, rules, tries + 1))
    if marked.outcome == "unknown":
        return BUSY
    if (yield from call(has_child, path, container.id, rules)):
        back = yield from put(container_cell(path), container._replace(state="active", by=actor), marked.version)
        if back.outcome == "lost" and "N6 back" in rules:
            return (yield from goto(drop, actor, path, rules, tries + 1))
        return BUSY if back.outcome == "unknown" and "N6 back" in rules else NOT_EMPTY
    gone = yield from put(container_cell(path), Container("dropped", "", "", actor), marked.version)
    if gone.outcome == "lost":  # N6: the creator of a child has cancelled the drop.
        return (yield from goto(drop, actor, path, rules, tries + 1))
    if gone.outcome == "unknown":
        _, container = yield from get(container_cell(path))
        return OK if container and container.state == "dropped" and container.by == actor else UNKNOWN
    return OK


def has_child(path: str, container_id: str, rules: Rules) -> Step[bool]:
    """A `new` child counts if it was created for this container; its creator confirms the parent."""
    for key in (yield from listing(f"container:{path}.")):
        child_path = key.removeprefix("container:")
        if parent_of(child_path) != path:
            continue
        _, child = yield from get(container_cell(child_path))
        if child is None or child.state == "dropped":
            continue
        if child.state != "new" or child.parent_id == container_id or "N6 id" not in rules:
            return True
    return False


def specification(world: frozenset[str], request: Request) -> tuple[Result, frozenset[str]]:
    """The existing containers as one set."""
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
            return load(request.path, rules)
        case "make":
            return make(actor, request.path, rules)
        case "drop":
            return drop(actor, request.path, rules)


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    existing: Sequence[str] = ("c",),
    losable: int = 0,
    after: dict[int, tuple[int, ...]] | None = None,
) -> System:
    """`existing` are the containers at the start; request i starts after the requests `after[i]` have answered."""
    store = {
        container_cell(path).key: (1, Container("active", f"-{path}", f"-{parent_of(path)}", "-")) for path in existing
    }
    actors = [
        Actor(f"{request.verb}{index}", start, (f"{request.verb}{index}", request, rules), (after or {}).get(index, ()))
        for index, request in enumerate(requests)
    ]
    paths = sorted({*existing, *(request.path for request in requests)})

    def judge(moment: Moment) -> None:
        views = [(Request("load", path), run(moment.store, load(path, rules))[1]) for path in paths]
        if not is_linearizable(
            requests,
            moment.masks,
            moment.results,
            specification=specification,
            start=frozenset(existing),
            unsure=UNSURE,
            views=views,
        ):
            raise Violation(f"not linearizable: then there are {[view.path for view, seen in views if seen == OK]}")
        judge_progress(moment.store, views, rules)

    return System(store, actors, judge, losable=losable, keeps_order=True)


def judge_progress(store: Store, views: Sequence[tuple[Request, Result]], rules: Rules) -> None:
    """All actors stop here: an existing, empty container can be dropped, and a missing one can be created."""
    world = frozenset(view.path for view, seen in views if seen == OK)
    for view, seen in views:
        request = Request("drop" if seen == OK else "make", view.path)
        wanted, after = specification(world, request)
        later, answer = run(store, start("z", request, rules))
        if answer != wanted:
            raise Violation(f"{view.path} is stuck: to {request.verb} it says {answer}, not {wanted}")
        for other, _ in views:
            if run(later, load(other.path, rules))[1] != specification(after, other)[0]:
                raise Violation(f"{request.verb} {view.path} changed {other.path}")
