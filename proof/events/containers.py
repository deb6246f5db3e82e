"""Events of records that one swap changes: catalogs, namespaces, grants, model versions.

A path such as `c.n` names a namespace in a catalog. A record carries its last event. A request returns where it
answers; what a server does behind the answer is `reconcile`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NOT_EMPTY, OK, REFUSED, SWEPT, UNKNOWN
from proof.checker import Actor, Moment, System, Violation
from proof.events.judgement import by_object, chain_of, events_of, judge_answers, judge_holes
from proof.events.records import TRIES_MAX, Claim, Event, Unsure, claim_cell, ensure, id_of, receipt_cell
from proof.rules import Rules, of
from proof.steps import ABSENT, Cell, Step, call, delete, get, goto, listing, put
from proof.store import Store, run

RULES: Final = of("E1", "E2 change", "E2 drop", "E2 reuse", "E2 janitor", "E2 known", "E3 new", "E3 replace") | of(
    "E4 mark", "E4 called off", "E7", "E8"
)


class Container(NamedTuple):
    """`value` is the last change, `mark` the drop in progress."""

    state: Literal["new", "active", "dropping", "dropped"]
    id: str
    parent_id: str = ""
    value: str = ""
    event: Event | None = None
    mark: str = ""


class Request(NamedTuple):
    """A retry has the same key."""

    verb: Literal["make", "change", "drop", "sweep", "reconcile"]
    path: str
    key: str = ""


def container_cell(path: str) -> Cell[Container]:
    return Cell(f"container:{path}")


def parent_of(path: str) -> str:
    return path.rpartition(".")[0]


def confirm(path: str, container_id: str) -> Step[bool | Unsure]:
    """Whether the parent is the one that a child was made for; cancels a drop of it (N4, N6)."""
    if not path:
        return True
    for _ in range(TRIES_MAX + 1):
        version, parent = yield from get(container_cell(path))
        if parent is None or parent.id != container_id:
            return False
        shown = yield from is_shown(path, parent)
        if shown is not True or parent.state != "dropping":
            return shown
        back = yield from put(container_cell(path), parent._replace(state="active", mark=""), version)
        if back.outcome == "ok":
            return True
    return "unsure"


def is_shown(path: str, container: Container | None) -> Step[bool | Unsure]:
    if container is None or container.state == "dropped":
        return False
    if container.state != "new":
        return True
    return (yield from call(confirm, parent_of(path), container.parent_id))


def look(path: str) -> Step[str]:
    """What a load shows: the id and the value."""
    _, container = yield from get(container_cell(path))
    shown = yield from is_shown(path, container)
    if container is None or shown is not True:
        return NO_NAMESPACE if shown is False else BUSY
    return f"{container.id}={container.value}"


class Attempt(NamedTuple):
    """One attempt of a request: the id of its event, who is recorded, and its key with the version of the claim."""

    actor: str
    path: str
    key: str = ""
    tries: int = 0
    claim: Claim | None = None
    claim_version: int = ABSENT

    @property
    def id(self) -> str:
        return f"{self.actor}.{self.tries}"

    @property
    def by(self) -> str:
        return self.key or self.actor


def begin_attempt(
    verb: Literal["make", "change", "drop"], actor: str, path: str, key: str, rules: Rules, tries: int = 0
) -> Step[str]:
    """Read the claim, look for proof that the request has happened, then try (C7, E7)."""
    attempt = Attempt(actor, path, key, tries)
    if tries > TRIES_MAX:
        return BUSY
    if key:
        version, claim = yield from get(claim_cell(key))
        attempt = attempt._replace(claim=claim, claim_version=version)
        if claim and claim[0] == "done":
            return claim[1]
    answer = yield from call({"make": make, "change": change, "drop": drop}[verb], attempt, rules)
    if answer == "again":
        return (yield from goto(begin_attempt, verb, actor, path, key, rules, tries + 1))
    return answer


def take_claim(attempt: Attempt, wanted: Claim) -> Step[int | None]:
    """The version of the claim from now on; None if another attempt has it. Without a key there is no claim to take."""
    if not attempt.key:
        return ABSENT
    taken = yield from put(claim_cell(attempt.key), wanted, attempt.claim_version)
    return taken.version if taken.outcome == "ok" else None


def tried_of(attempt: Attempt, rules: Rules) -> Claim:
    """The claim with this attempt. `claim[0]` is what a drop pins, empty otherwise."""
    before = attempt.claim if attempt.claim and "E7 all" in rules else ("",)
    return (*before, attempt.id)


def refuse(attempt: Attempt, answer: str) -> Step[str]:
    """The final answer of a key is kept in its claim."""
    taken = yield from take_claim(attempt, ("done", answer))
    return "again" if taken is None else answer


def has_happened(attempt: Attempt, container: Container | None, rules: Rules, *, is_there: bool) -> Step[bool]:
    """E7: the record, then the receipts of every event tried. The event of a `new` record counts once it is shown."""
    for tried in (attempt.claim or ())[1:]:
        is_own = container is not None and container.event is not None and container.event.id == tried
        if is_own and container is not None and (is_there or container.state == "dropped"):
            return True
        if "E7 once" in rules and (yield from get(receipt_cell(tried)))[1]:
            return True
    return False


def make(attempt: Attempt, rules: Rules) -> Step[str]:
    path, parent_id = attempt.path, ""
    if parent_of(path):
        _, parent = yield from get(container_cell(parent_of(path)))
        is_parent = yield from is_shown(parent_of(path), parent)
        if is_parent == "unsure":
            return BUSY
        parent_id = parent.id if parent and is_parent else "none"
    version, found = yield from get(container_cell(path))
    shown = yield from is_shown(path, found)
    if shown == "unsure":
        return BUSY
    if (yield from call(has_happened, attempt, found, rules, is_there=shown)):
        return OK
    if shown or parent_id == "none":
        return (yield from goto(refuse, attempt, CONFLICT if shown else NO_NAMESPACE))
    if (yield from take_claim(attempt, tried_of(attempt, rules))) is None:
        return "again"
    is_recorded = found is not None and (found.state == "dropped" or "E3 replace" not in rules)
    last = found.event if found and is_recorded and "E2 reuse" in rules else None
    if not (yield from call(ensure, last, rules)):
        return BUSY
    previous = "" if "E8" in rules or found is None else id_of(found.event)
    event = Event(attempt.id, "created", attempt.id, path, previous, attempt.by)
    if "E3 new" not in rules:
        yield from call(ensure, event, rules)
    return (yield from goto(write_new, path, Container("new", attempt.id, parent_id, "", event), version))


def write_new(path: str, wanted: Container, version: int) -> Step[str]:
    """The creation happens here, if its parent is confirmed afterwards (N4)."""
    answer = yield from put(container_cell(path), wanted, version)
    at = answer.version
    if answer.outcome == "lost":
        return "again"
    if answer.outcome == "unknown":
        at, found = yield from get(container_cell(path))
        if found != wanted:
            return UNKNOWN
    is_there = yield from call(confirm, parent_of(path), wanted.parent_id)
    if is_there is True:
        return OK
    if is_there == "unsure":
        return BUSY
    gone = yield from put(container_cell(path), Container("dropped", ""), at)
    if gone.outcome != "ok":
        return UNKNOWN
    # Under a key, the next attempt finds that the parent is gone, and keeps the answer.
    return "again" if wanted.event and wanted.event.by != wanted.id.rpartition(".")[0] else NO_NAMESPACE


def change(attempt: Attempt, rules: Rules) -> Step[str]:
    """A first level that is `new` becomes active; a drop in progress stays marked."""
    path = attempt.path
    version, found = yield from get(container_cell(path))
    shown = yield from is_shown(path, found)
    if shown == "unsure":
        return BUSY
    if (yield from call(has_happened, attempt, found, rules, is_there=shown)):
        return OK
    if found is None or not shown:
        return (yield from goto(refuse, attempt, NO_NAMESPACE))
    if (yield from take_claim(attempt, tried_of(attempt, rules))) is None:
        return "again"
    if "E2 change" in rules and not (yield from call(ensure, found.event, rules)):
        return BUSY
    event = Event(attempt.id, "changed", found.id, path, id_of(found.event), attempt.by)
    state = "active" if found.state == "new" else found.state
    wanted = found._replace(state=state, value=attempt.id, event=event)
    answer = yield from put(container_cell(path), wanted, version)
    if answer.outcome == "unknown":
        return OK if (yield from get(container_cell(path)))[1] == wanted else UNKNOWN
    return OK if answer.outcome == "ok" else "again"


def drop(attempt: Attempt, rules: Rules) -> Step[str]:
    """Mark, look for children, act. The receipt of the last event is ensured beside the look."""
    path = attempt.path
    version, found = yield from get(container_cell(path))
    shown = yield from is_shown(path, found)
    if shown == "unsure":
        return BUSY
    if (yield from call(has_happened, attempt, found, rules, is_there=shown)):
        return OK
    is_pinned = attempt.claim is None or (found is not None and attempt.claim[0] == found.id)
    if found is None or not shown or not is_pinned:
        return (yield from goto(refuse, attempt, NO_NAMESPACE))
    taken = yield from take_claim(attempt, (found.id, *tried_of(attempt, rules)[1:]))
    if taken is None:
        return "again"
    event = Event(attempt.id, "dropped", found.id, path, id_of(found.event), attempt.by)
    kept = found.event if "E4 mark" in rules else event
    marking = found._replace(state="dropping", mark=attempt.id, event=kept)
    marked = yield from put(container_cell(path), marking, version)
    if marked.outcome != "ok":
        return BUSY if marked.outcome == "unknown" else "again"
    if (yield from call(has_child, path, found.id)):
        active = found._replace(state="active", event=kept if "E4 called off" in rules else None)
        back = yield from put(container_cell(path), active, marked.version)
        if back.outcome != "ok":
            return BUSY if back.outcome == "unknown" else "again"
        return (yield from goto(refuse, attempt._replace(claim_version=taken), NOT_EMPTY))
    if "E2 drop" in rules and not (yield from call(ensure, found.event, rules)):
        return BUSY
    return (yield from goto(write_dropped, path, Container("dropped", "", event=event), marked.version))


def write_dropped(path: str, wanted: Container, version: int) -> Step[str]:
    answer = yield from put(container_cell(path), wanted, version)
    if answer.outcome == "unknown":
        return OK if (yield from get(container_cell(path)))[1] == wanted else UNKNOWN
    return OK if answer.outcome == "ok" else "again"


def has_child(path: str, container_id: str) -> Step[bool]:
    """Whether a container lies directly in this one. A `new` one of another parent does not count (N6)."""
    for key in (yield from listing(f"container:{path}.")):
        child_path = key.removeprefix("container:")
        _, child = yield from get(container_cell(child_path))
        if child is None or child.state == "dropped" or parent_of(child_path) != path:
            continue
        if child.state != "new" or child.parent_id == container_id:
            return True
    return False


def sweep(path: str, rules: Rules) -> Step[str]:
    """The janitor deletes a dropped record."""
    version, found = yield from get(container_cell(path))
    if found is None or found.state != "dropped":
        return SWEPT
    if "E2 janitor" not in rules or (yield from call(ensure, found.event, rules)):
        yield from delete(container_cell(path), version)
    return SWEPT


def reconcile(paths: tuple[str, ...], rules: Rules) -> Step[str]:
    for path in paths:
        _, found = yield from get(container_cell(path))
        shown = yield from is_shown(path, found)
        if found and (shown is True or found.state == "dropped"):
            yield from call(ensure, found.event, rules, "r")
    return SWEPT


def begin(actor: str, request: Request, paths: tuple[str, ...], rules: Rules) -> Step[str]:
    match request.verb:
        case "sweep":
            return sweep(request.path, rules)
        case "reconcile":
            return reconcile(paths, rules)
        case verb:
            return begin_attempt(verb, actor, request.path, request.key, rules)


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    existing: Sequence[str] = ("c",),
    losable: int = 0,
    after: Mapping[int, tuple[int, ...]] | None = None,
) -> System:
    """`existing` containers are there from the start, without the receipts of their creation."""
    store: dict[str, tuple[int, Container]] = {}
    for path in existing:
        event = Event(f"0{path}", "created", f"0{path}", path, "", "-")
        store[container_cell(path).key] = (1, Container("active", event.id, f"0{parent_of(path)}", "", event))
    paths = tuple(sorted({*existing, *(request.path for request in requests if request.path)}))
    labels = [f"{request.verb}{index}" for index, request in enumerate(requests)]
    actors = [
        Actor(label, begin, (label, request, paths, rules), (after or {}).get(index, ()))
        for index, (label, request) in enumerate(zip(labels, requests, strict=True))
    ]
    done = [
        (request.verb, "" if request.verb in ("sweep", "reconcile") else request.key or label)
        for label, request in zip(labels, requests, strict=True)
    ]

    def judge(moment: Moment) -> None:
        judge_holes(moment.store)
        later, _ = run(moment.store, reconcile(paths, rules))
        judge_chains(later, {path: run(later, look(path))[1] for path in paths})
        judge_answers(later, done, moment.results)
        for (verb, by), result in zip(done, moment.results, strict=True):
            same = {one for (_, other), one in zip(done, moment.results, strict=True) if other == by and by}
            if result == OK and same & REFUSED:
                raise Violation(f"answered ok to one attempt and refused another: {verb}")

    return System(store, actors, judge, losable=losable)


def judge_chains(store: Store, views: Mapping[str, str]) -> None:
    """Every object has one chain, and the chains lead to what loads show."""
    replayed: dict[str, str] = {}
    for identity, events in by_object(events_of(store)).items():
        state = None
        for event in chain_of(events):
            if (state is None) != (event.kind == "created") or state == "dropped":
                raise Violation(f"an impossible event: {event.kind}")
            value = "" if event.kind == "created" else event.id
            state = "dropped" if event.kind == "dropped" else f"{identity}={value}"
        if state and state != "dropped":
            if events[0].name in replayed:
                raise Violation("two objects under one name")
            replayed[events[0].name] = state
    seen = {path: view for path, view in views.items() if view != NO_NAMESPACE}
    if replayed != seen:
        raise Violation(f"the events show {replayed}, loads show {seen}")
