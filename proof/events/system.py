"""The requests about names with events, and how they are judged: by their events, by undrop, or as a history."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from proof.answers import NO_TABLE, OK, REFUSED, SWEPT, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.events import janitors, rename, requests, undrop
from proof.events.index import INDEX, judge_index, mark_cell, update_entry
from proof.events.judgement import (
    judge_answers,
    judge_chains,
    judge_files,
    judge_holes,
    judge_orders,
    judge_undrops,
)
from proof.events.records import (
    Event,
    Name,
    Namespace,
    Pointer,
    files_cell,
    name_cell,
    order_cell,
    pointer_cell,
    receipt_cell,
    space_cell,
)
from proof.events.resolution import look
from proof.linearizable import is_linearizable
from proof.rules import Rules, of
from proof.steps import ABSENT, Result, Step, call, delete, put
from proof.store import Store, run

RULES: Final = of("E", "U") - of("E3 replace", "E4 mark", "E4 called off", "E7 all")
Verb = Literal[
    "look",
    "create",
    "change",
    "drop",
    "rename",
    "transact",
    "undrop",
    "purge",
    "take back",
    "collect",
    "sweep name",
    "sweep pointer",
    "drop namespace",
    "reconcile",
]
CHANGES: Final = frozenset(("create", "change", "drop", "rename", "transact", "undrop"))


class Request(NamedTuple):
    """A retry has the same `key`. A rename moves `name` to `to`; an undrop brings the table of `name` back as `to`."""

    verb: Verb
    name: str
    uuid: str = ""
    to: str = ""
    key: str = ""
    purges: bool = False
    is_indexed: bool = False


class World(NamedTuple):
    """The sequential catalog: the table of each name, the tables that can come back, the namespace."""

    tables: frozenset[tuple[str, str]]
    dropped: frozenset[str]
    has_space: bool = True


def begin(actor: str, request: Request, names: tuple[str, ...], rules: Rules) -> Step[str]:
    if request.is_indexed:
        return indexed(actor, request._replace(is_indexed=False), names, rules)
    if request.verb not in CHANGES:
        return begin_janitor(actor, request, names, rules)
    if request.key:
        return begin_keyed(actor, request, rules)
    name, uuid, to = request.name, request.uuid, request.to
    match request.verb:
        case "create":
            return requests.create(actor, name, uuid, rules)
        case "change":
            return requests.change(actor, name, rules)
        case "drop":
            return requests.drop(actor, name, request.purges, rules)
        case "rename":
            return rename.rename(actor, name, to, rules)
        case "transact":
            return requests.transact(actor, name, uuid, rules)
        case "undrop":
            return undrop.undrop(actor, uuid, name, to, rules)
        case _:
            raise ValueError(f"no step for {request.verb}")


def begin_keyed(actor: str, request: Request, rules: Rules) -> Step[str]:
    name, uuid, to, key = request.name, request.uuid, request.to, request.key
    match request.verb:
        case "create":
            return requests.create_keyed(actor, name, uuid, key, rules)
        case "drop":
            return requests.drop_keyed(actor, name, key, rules)
        case "rename":
            return rename.rename_keyed(actor, name, to, key, rules)
        case "undrop":
            return undrop.undrop_keyed(actor, uuid, name, to, key, rules)
        case _:
            raise ValueError(f"no keyed step for {request.verb}")


def indexed(actor: str, request: Request, names: tuple[str, ...], rules: Rules) -> Step[str]:
    """Mark the names, act, and update their entries. The mark of a request that is killed stays for a janitor (I1)."""
    changed = tuple(name for name in (request.name, request.to) if name)
    marked = yield from put(mark_cell(actor), changed, ABSENT)
    answer = yield from call(begin, actor, request, names, rules)
    is_right = True
    for name in changed:
        is_right = (yield from call(update_entry, name, rules)) and is_right
    if is_right and marked.outcome == "ok":
        yield from delete(mark_cell(actor), marked.version)
    return answer


def begin_janitor(actor: str, request: Request, names: tuple[str, ...], rules: Rules) -> Step[str]:
    name, uuid = request.name, request.uuid
    jobs: dict[str, Callable[[], Step[str]]] = {
        "look": lambda: look(name, rules),
        "purge": lambda: janitors.purge(uuid, name, rules),
        "take back": lambda: undrop.take_back(uuid, rules),
        "collect": lambda: janitors.collect_record(request.key, name, rules),
        "sweep name": lambda: janitors.sweep_name(name, rules),
        "sweep pointer": lambda: janitors.sweep_pointer(uuid, name, rules),
        "drop namespace": lambda: janitors.drop_space(actor, name, rules),
        "reconcile": lambda: janitors.reconcile(names, rules),
    }
    return jobs[request.verb]()


class Scene(NamedTuple):
    """The start: the store, its tables and dropped tables, and who runs."""

    store: Store
    actors: list[Actor]
    names: tuple[str, ...]
    tables: Mapping[str, str]
    dropped: Mapping[str, str]


def scene_of(
    wanted: Sequence[Request],
    rules: Rules,
    *,
    tables: Sequence[str] = ("X.t",),
    dropped: Sequence[str] = (),
    is_ordered: bool = False,
    after: Mapping[int, tuple[int, ...]] | None = None,
) -> Scene:
    """`tables` exist, `dropped` are dropped. Of both, only the receipt of a dropped table's creation is written."""
    uuids = {name: f"u{number}" for number, name in enumerate((*tables, *dropped))}
    store: dict[str, tuple[int, Name | Pointer | Namespace | Event | str | tuple[tuple[str, str], ...]]] = {
        space_cell("X").key: (1, Namespace("active", "-")),
    }
    if any(request.is_indexed for request in wanted):
        store[INDEX.key] = (1, tuple(sorted((name, uuids[name]) for name in tables)))
    for name, uuid in uuids.items():
        made = Event(f"c{uuid}", "created", uuid, name, "", "-")
        store[files_cell(uuid).key] = (1, "there")
        if name in dropped:
            gone = Event(f"d{uuid}", "dropped", uuid, name, made.id, "-")
            store[receipt_cell(made.id).key] = (1, made)
            store[name_cell(name).key] = (1, Name("dropped", uuid, event=gone))
            store[pointer_cell(uuid).key] = (1, Pointer("dropped", event=gone))
            if is_ordered:
                store[order_cell(uuid, gone.id).key] = (1, "ordered")
        else:
            store[name_cell(name).key] = (1, Name("active", uuid, event=made))
            store[pointer_cell(uuid).key] = (1, Pointer("live"))
    used = {name for request in wanted for name in (request.name, request.to) if name.startswith("X.")}
    names = tuple(sorted({*uuids, *used}))
    actors = [
        Actor(
            f"{request.verb}{index}",
            begin,
            (f"{request.verb}{index}", request, names, rules),
            (after or {}).get(index, ()),
        )
        for index, request in enumerate(wanted)
    ]
    return Scene(store, actors, names, {name: uuids[name] for name in tables}, {name: uuids[name] for name in dropped})


def system(
    wanted: Sequence[Request],
    rules: Rules = RULES,
    *,
    tables: Sequence[str] = ("X.t",),
    dropped: Sequence[str] = (),
    is_ordered: bool = False,
    losable: int = 0,
    after: Mapping[int, tuple[int, ...]] | None = None,
) -> System:
    """Requests that are judged by their events, and by what an undrop and a purge do then."""
    scene = scene_of(wanted, rules, tables=tables, dropped=dropped, is_ordered=is_ordered, after=after)
    done = [
        (request.verb, (request.key or actor.name) if request.verb in CHANGES else "")
        for request, actor in zip(wanted, scene.actors, strict=True)
    ]
    uuids = (*scene.tables.values(), *scene.dropped.values())
    every = tuple(sorted({*uuids, *(request.uuid for request in wanted if request.uuid)}))
    has_changes = any(request.verb == "change" for request in wanted)

    def judge(moment: Moment) -> None:
        judge_holes(moment.store)
        later, _ = run(moment.store, janitors.reconcile(scene.names, rules))
        if has_changes:
            later, _ = run(later, janitors.reconcile_content(every, rules))
        views = {name: run(later, look(name, rules))[1] for name in scene.names}
        judge_chains(later, views)
        judge_answers(later, done, moment.results)
        judge_files(later, views)
        if INDEX.key in moment.store:
            judge_index(later, views, rules)
        for uuid in uuids:
            if uuid not in views.values():
                judge_undrops(later, views, uuid, rules)
                judge_orders(moment.store, later, uuid, rules)

    return System(scene.store, scene.actors, judge, losable=losable)


def history(
    wanted: Sequence[Request],
    rules: Rules = RULES,
    *,
    tables: Sequence[str] = ("X.t",),
    dropped: Sequence[str] = (),
    is_ordered: bool = False,
    losable: int = 0,
    after: Mapping[int, tuple[int, ...]] | None = None,
) -> System:
    """Requests whose answers must fit one sequential map, in an order that keeps real time."""
    scene = scene_of(wanted, rules, tables=tables, dropped=dropped, is_ordered=is_ordered, after=after)
    start = World(frozenset(scene.tables.items()), frozenset(scene.dropped.values()))

    def judge(moment: Moment) -> None:
        results = tuple(
            "refused" if result in REFUSED and request.verb != "look" else result
            for request, result in zip(wanted, moment.results, strict=True)
        )
        views = [(Request("look", name), run(moment.store, look(name, rules))[1]) for name in scene.names]
        if not is_linearizable(
            wanted,
            moment.masks,
            results,
            specification=specification,
            start=start,
            unsure=UNSURE | {SWEPT},
            views=views,
        ):
            shown = ", ".join(f"{request.name}={seen}" for request, seen in views)
            raise Violation(f"not linearizable: then loads show {shown}")

    return System(scene.store, scene.actors, judge, losable=losable, keeps_order=True)


def specification(world: World, request: Request) -> tuple[Result, World]:
    """The answer of the sequential catalog, and the catalog after the request."""
    tables, name, uuid = dict(world.tables), request.name, request.uuid
    match request.verb:
        case "look":
            return tables.get(name, NO_TABLE), world
        case "create" | "transact" if world.has_space and name not in tables:
            return OK, world._replace(tables=world.tables | {(name, uuid)})
        case "drop" if name in tables:
            gone = tables[name]
            return OK, world._replace(tables=world.tables - {(name, gone)}, dropped=world.dropped | {gone})
        case "rename" if world.has_space and name in tables and request.to not in tables:
            moved = world.tables - {(name, tables[name])} | {(request.to, tables[name])}
            return OK, world._replace(tables=moved)
        case "undrop" if world.has_space and uuid in world.dropped and request.to not in tables:
            return OK, world._replace(tables=world.tables | {(request.to, uuid)}, dropped=world.dropped - {uuid})
        case "drop namespace" if world.has_space and not tables:
            return OK, world._replace(has_space=False)
        case "change" if name in tables:
            return OK, world
        case "purge" | "sweep pointer":
            return SWEPT, world._replace(dropped=world.dropped - {uuid})
        case "create" | "transact" | "drop" | "rename" | "undrop" | "drop namespace" | "change":
            return "refused", world
    return SWEPT, world
