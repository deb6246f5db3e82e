"""Requests about names as actors. They must be explained by one map, and nothing may be stuck."""

from collections.abc import Sequence
from typing import Final, assert_never

from proof.answers import CONFLICT, EXPIRED, INVALID, NO_TABLE, NOT_EMPTY, OK, UNSURE
from proof.checker import Actor, Masks, Moment, System, Violation
from proof.linearizable import is_linearizable
from proof.names.create import Creation, create, create_ahead, create_staged, expire_stage, stage
from proof.names.drop import drop, drop_keyed
from proof.names.entries import Active, Namespace, Pointer, name_cell, namespace_cell, pointer_cell, space_of
from proof.names.keyed_rename import Renaming, rename_keyed
from proof.names.namespaces import drop_namespace, make_namespace
from proof.names.rename import rename
from proof.names.requests import (
    CollectRecord,
    Create,
    Drop,
    DropNamespace,
    ExpireStage,
    Load,
    MakeNamespace,
    Rename,
    Request,
    Stage,
    SweepPointer,
    Transact,
    World,
    identity,
    specification,
)
from proof.names.resolution import look
from proof.names.sweep import sweep_pointer
from proof.names.transaction import Transaction, collect_record, transact
from proof.rules import Rules, of
from proof.steps import Result, Step
from proof.store import Store, held, run

RULES: Final = of("N", "D", "R", "S1", "S2", "S3", "S4", "GC2", "T1", "T3", "T5", "T6", "T9")


def start(actor: str, request: Request, rules: Rules) -> Step[str]:  # noqa: C901 -- one flat match
    """The steps of one request."""
    match request:
        case Load(name):
            return look(name, rules)
        case Create(name, uuid, _, key, is_staged, is_ahead):
            attempt = Creation(actor, name, uuid, request.content, rules, key=key, is_staged=is_staged)
            begin = create_staged if is_staged else create_ahead if is_ahead else create
            return begin(attempt)
        case Stage(name, uuid):
            return stage(name, uuid)
        case ExpireStage(uuid):
            return expire_stage(uuid, rules)
        case Drop(name, key):
            return drop_keyed(name, key, rules) if key else drop(actor, name, rules)
        case Rename(old, new, key):
            return rename_keyed(Renaming(actor, old, new, key, rules)) if key else rename(actor, old, new, rules)
        case DropNamespace(space):
            return drop_namespace(actor, space, rules)
        case MakeNamespace(space):
            return make_namespace(actor, space)
        case Transact(transaction, creates):
            return transact(Transaction(actor, transaction, creates, rules))
        case CollectRecord(transaction):
            return collect_record(transaction, rules)
        case SweepPointer(name, uuid):
            return sweep_pointer(name, uuid, rules)
        case _:
            assert_never(request)


def names_in(requests: Sequence[Request]) -> set[str]:
    names: set[str] = set()
    for request in requests:
        match request:
            case Load(name) | Create(name) | Drop(name) | Stage(name):
                names.add(name)
            case Rename(old, new):
                names |= {old, new}
            case Transact(_, creates):
                names |= {name for name, _ in creates}
            case _:
                pass
    return names


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    tables: tuple[tuple[str, str], ...] = (("X.t", "u0"),),
    spaces: tuple[str, ...] = ("X",),
    losable: int = 0,
    after: dict[int, tuple[int, ...]] | None = None,
) -> System:
    """`tables` exist at the start; request i starts after the requests `after[i]` have answered."""
    store: dict[str, tuple[int, Namespace | Active | Pointer]] = {
        namespace_cell(space).key: (1, Namespace("active", "-", "-")) for space in spaces
    }
    for name, uuid in tables:
        store[name_cell(name).key] = (1, Active(uuid))
        store[pointer_cell(uuid).key] = (1, Pointer("live", uuid))
    labels = [f"{type(request).__name__.lower()}{index}" for index, request in enumerate(requests)]
    actors = [
        Actor(label, start, (label, request, rules), (after or {}).get(index, ()))
        for index, (label, request) in enumerate(zip(labels, requests, strict=True))
    ]
    uuids = frozenset(uuid for _, uuid in tables)
    world = World(frozenset(spaces), tuple(sorted(tables)), frozenset(), uuids)
    names = sorted(names_in(requests) | {name for name, _ in tables})

    def judge(moment: Moment) -> None:
        judge_replays(moment, requests)
        views = [(Load(name), run(moment.store, look(name, rules))[1]) for name in names]
        judge_history(moment, requests, world, views)
        judge_names(moment.store, views, rules)
        judge_namespaces(moment.store, views, rules)
        judge_retries(moment, requests, rules)

    return System(store, actors, judge, losable=losable, keeps_order=True)


def said_by(moment: Moment, requests: Sequence[Request], known: str) -> set[Result | None]:
    pairs = zip(requests, moment.results, strict=True)
    return {result for request, result in pairs if identity(request) == known and result not in UNSURE}


def judge_replays(moment: Moment, requests: Sequence[Request]) -> None:
    for known in {identity(request) for request in requests}:
        if known and not known.startswith("request") and len(said_by(moment, requests, known)) > 1:
            raise Violation("two attempts of one request answer differently")


def judge_history(moment: Moment, requests: Sequence[Request], world: World, views: list[tuple[Load, str]]) -> None:
    shown = [content for _, content in views if content != NO_TABLE]
    if len(set(shown)) < len(shown):
        raise Violation("one table under two names")
    # A stage that is over and a request that makes no sense did nothing, whatever the order.
    unsure = UNSURE | {EXPIRED, INVALID}
    if not is_linearizable(
        requests,
        since_first_attempt(requests, moment.masks),
        moment.results,
        specification=specification,
        start=world,
        unsure=unsure,
        views=views,
    ):
        seen = ", ".join(f"{load.name}={content}" for load, content in views)
        raise Violation(f"not linearizable: then loads show {seen}")


def since_first_attempt(requests: Sequence[Request], masks: Masks) -> Masks:
    """A request starts with its first attempt."""
    began: dict[str, int] = {}
    for request, mask in zip(requests, masks, strict=True):
        known = identity(request)
        if known and mask is not None:
            began[known] = began.get(known, mask) & mask
    pairs = zip(requests, masks, strict=True)
    return tuple(mask if mask is None else began.get(identity(request) or "", mask) for request, mask in pairs)


def judge_names(store: Store, views: list[tuple[Load, str]], rules: Rules) -> None:
    """All actors stop here: every name without a table must be free, and every table must be droppable."""
    for load, content in views:
        name = load.name
        if held(store, namespace_cell(space_of(name))) is None:
            continue
        later, answer = run(store, start("z", Create(name, "uz"), rules))
        if answer != (OK if content == NO_TABLE else CONFLICT):
            raise Violation(f"name stuck: a load says {content}, a create says {answer}")
        if answer == OK and run(later, look(name, rules))[1] != "uz":
            raise Violation("created and not there")
        others = [view for view in views if view[0] != load]
        if any(run(later, look(other.name, rules))[1] != seen for other, seen in others):
            raise Violation("creating one name changed another")
        if content != NO_TABLE:
            later, answer = run(store, drop("z", name, rules))
            if answer != OK or run(later, look(name, rules))[1] != NO_TABLE:
                raise Violation(f"drop of a live name answers {answer}")


def judge_namespaces(store: Store, views: list[tuple[Load, str]], rules: Rules) -> None:
    """A namespace without a table can be dropped, one with a table cannot."""
    for space in {space_of(load.name) for load, _ in views}:
        if held(store, namespace_cell(space)) is None:
            continue
        is_empty = all(content == NO_TABLE for load, content in views if space_of(load.name) == space)
        _, answer = run(store, drop_namespace("z", space, rules))
        if answer != (OK if is_empty else NOT_EMPTY):
            raise Violation(f"namespace stuck: it is {'' if is_empty else 'not '}empty, dropping it says {answer}")


def judge_retries(moment: Moment, requests: Sequence[Request], rules: Rules) -> None:
    """A retry gets a definite answer, and the same one as before."""
    collected = {request.transaction for request in requests if isinstance(request, CollectRecord)}
    for request in set(requests):
        known = identity(request)
        if known is None or (isinstance(request, Transact) and request.id in collected):
            continue  # A record is collected only after the lifetime of its key (T9).
        _, answer = run(moment.store, start("z", request, rules))
        if answer in UNSURE:
            raise Violation(f"a retry of {type(request).__name__.lower()} is stuck at {answer}")
        said = said_by(moment, requests, known)
        if known.startswith("request"):
            said &= {OK}
        if said - {answer}:
            raise Violation(f"a replay answers {answer} after {sorted(map(str, said))}")
