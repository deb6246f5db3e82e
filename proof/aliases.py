"""Renames of catalogs and schemas: three layers between the name of a container and the keys in it.

`EXCHANGE` is built; decision 23 compares the layers. A directory is one object per parent. It says which key each
container has, and children lie below that key, which never changes. So a rename is one swap of a directory.

`SPARSE` is the smaller layer: keys are the first names of containers, and one object lists only those that were
renamed. `EXCHANGE` is the smallest: a rename exchanges the keys of its two names. So every name always has exactly one
key, no key is ever new, and a container is always created at the key of its name.

Five rules can be left out. `verify` (X1): a warm load reads the directory, too. `guard` (X2): a reader looks at the
directory again after it has read the name. `fence` (X3): in the layers without a directory, a rename marks the key of
its new name before it swaps. Of `EXCHANGE` alone (X4): `bump`, a creation at a marked key first swaps the aliases, so
that the rename loses; `look`, a creation looks at the aliases again after it has read the record that it replaces.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, CONFLICT, NO_NAMESPACE, NO_TABLE, NOT_EMPTY, OK, REFUSED, UNKNOWN, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.linearizable import is_linearizable
from proof.steps import ABSENT, Cell, Result, Step, call, get, get_together, goto, listing, put
from proof.store import run

TRIES_MAX: Final = 2
DIRECTORY, SPARSE, EXCHANGE = "directory", "sparse", "exchange"
RULES: Final = frozenset(("verify", "guard", "fence", "bump", "look"))
Rules: TypeAlias = frozenset[str]


class Object(NamedTuple):
    """The value of any object here.

    A directory or a list of aliases has `entries`: name and key, an empty key for a name that was renamed away. A
    container has a state and its children's key as `uuid`; a name has a table and its home; a pointer has a state.
    """

    state: str = ""
    uuid: str = ""
    home: str = ""
    entries: tuple[tuple[str, str], ...] = ()


class Request(NamedTuple):
    """`name` is a container, or a table in one: `n`, `n.t`. A rename gives a container the name `to`."""

    verb: Literal["load", "create", "drop", "make", "remove", "rename"]
    name: str
    to: str = ""
    uuid: str = ""
    is_cold: bool = False


class Known(NamedTuple):
    """What a server remembers of an object."""

    key: str
    version: int
    value: Object


def directory_cell(key: str = "") -> Cell[Object]:
    return Cell(f"directory:{key}")


def container_cell(key: str) -> Cell[Object]:
    return Cell(f"container:{key}")


def name_cell(key: str, table: str) -> Cell[Object]:
    return Cell(f"name:{key}/{table}")


def pointer_cell(uuid: str) -> Cell[Object]:
    return Cell(f"pointer:{uuid}")


def key_in(directory: Object | None, name: str, layout: str) -> str | None:
    """The key of a container; None if no container has the name. Without a directory, the key is mostly the name."""
    entries = dict(directory.entries) if directory else {}
    return entries.get(name, None if layout == DIRECTORY else name) or None


def with_entry(directory: Object | None, *changes: tuple[str, str]) -> Object:
    entries = {**(dict(directory.entries) if directory else {}), **dict(changes)}
    return Object(entries=tuple(sorted(entries.items())))


def exchanged(directory: Object | None, one: str, other: str) -> Object:
    """The aliases after a rename. A name whose key equals it needs no entry."""
    keys = {name: key_in(directory, name, EXCHANGE) or name for name in (one, other)}
    wanted = with_entry(directory, (one, keys[other]), (other, keys[one]))
    return wanted._replace(entries=tuple((name, key) for name, key in wanted.entries if name != key))


def is_there(container: Object | None) -> bool:
    return container is not None and container.state in ("active", "dropping")


# Requests about tables.


def load(name: str, layout: str, rules: Rules, memory: tuple[Known, ...] = ()) -> Step[str]:
    """A warm load reads everything that it remembers in one round. If nothing changed, all of it held at its start."""
    if "verify" not in rules:
        memory = tuple(known for known in memory if known.key != directory_cell().key)
    if memory:
        answers = yield from get_together([Cell[Object](known.key) for known in memory])
        if all(version == known.version for (version, _), known in zip(answers, memory, strict=True)):
            return memory[-1].key.removeprefix("pointer:")
    return (yield from goto(load_cold, name, layout, rules))


def load_cold(name: str, layout: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The directory, the container and the name; then the directory and the name again, beside the pointer."""
    container, _, table = name.partition(".")
    at, directory = yield from get(directory_cell())
    key = key_in(directory, container, layout)
    if key is None:
        return NO_NAMESPACE
    seen, entry = yield from get(name_cell(key, table))
    uuid = entry.uuid if entry else ""
    (again, _), (same, _), (_, pointer), (_, home) = yield from get_together(
        (directory_cell(), name_cell(key, table), pointer_cell(uuid), container_cell(key))
    )
    if "guard" in rules and (again, same) != (at, seen):
        return BUSY if tries == TRIES_MAX else (yield from goto(load_cold, name, layout, rules, tries + 1))
    if entry is None or entry.state not in ("new", "active"):
        return NO_TABLE if is_there(home) else NO_NAMESPACE
    if entry.state == "new" and not is_there(home):
        return NO_NAMESPACE
    return uuid if pointer and pointer.state == "live" else NO_TABLE


def create(actor: str, name: str, uuid: str, layout: str, tries: int = 0) -> Step[str]:
    """N1 to N5 below the key of the container. It acts on the container that had the name when it was resolved."""
    container, _, table = name.partition(".")
    _, directory = yield from get(directory_cell())
    key = key_in(directory, container, layout)
    if key is None:
        return NO_NAMESPACE
    (_, home), (version, entry) = yield from get_together((container_cell(key), name_cell(key, table)))
    if not is_there(home):
        return NO_NAMESPACE
    if entry and entry.state in ("new", "active"):
        return CONFLICT
    yield from put(pointer_cell(uuid), Object("live"), ABSENT)
    written = yield from put(name_cell(key, table), Object("new", uuid, key), version)
    if written.outcome != "ok":
        if written.outcome == "unknown" or tries == TRIES_MAX:
            return UNKNOWN
        return (yield from goto(create, actor, name, uuid, layout, tries + 1))
    if (yield from call(confirm, key)):
        return OK
    freed = yield from put(name_cell(key, table), Object("free", uuid), written.version)
    return NO_NAMESPACE if freed.outcome == "ok" else UNKNOWN


def confirm(key: str) -> Step[bool]:
    """N4, N6: the container exists; a drop of it is cancelled."""
    for _ in range(TRIES_MAX + 1):
        version, home = yield from get(container_cell(key))
        if home is None or home.state != "dropping":
            return is_there(home)
        back = yield from put(container_cell(key), home._replace(state="active"), version)
        if back.outcome == "ok":
            return True
    return False


def drop(name: str, layout: str, tries: int = 0) -> Step[str]:
    container, _, table = name.partition(".")
    _, directory = yield from get(directory_cell())
    key = key_in(directory, container, layout)
    if key is None:
        return NO_NAMESPACE
    version, entry = yield from get(name_cell(key, table))
    if entry is None or entry.state not in ("new", "active"):
        return NO_TABLE
    if entry.state == "new" and not (yield from call(confirm, key)):
        return NO_NAMESPACE
    answer = yield from put(name_cell(key, table), Object("dropped", entry.uuid), version)
    if answer.outcome == "lost" and tries < TRIES_MAX:
        return (yield from goto(drop, name, layout, tries + 1))
    return OK if answer.outcome == "ok" else UNKNOWN


# Requests about containers.


def make(actor: str, name: str, layout: str, rules: Rules, tries: int = 0) -> Step[str]:
    """Create a container: its record, then its entry. In the sparse layer, a name without an entry is its own key."""
    if layout == EXCHANGE:
        return (yield from goto(make_at_its_key, name, rules))
    version, directory = yield from get(directory_cell())
    key = key_in(directory, name, layout)
    if key is not None:
        at, found = yield from get(container_cell(key))
        if is_there(found):
            return CONFLICT
        if layout == SPARSE and found is None:
            return (yield from goto(make_in_place, name, key, at, version))
    fresh = f"{actor}.{tries}"
    made = yield from put(container_cell(fresh), Object("active"), ABSENT)
    if made.outcome != "ok":
        return UNKNOWN
    # It happens here: one swap decides between all changes of names in this parent.
    answer = yield from put(directory_cell(), with_entry(directory, (name, fresh)), version)
    if answer.outcome == "lost" and tries < TRIES_MAX:
        return (yield from goto(make, actor, name, layout, rules, tries + 1))
    return OK if answer.outcome == "ok" else UNKNOWN


def make_at_its_key(name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """The record at the key of the name. A mark of a rename there is overcome by a swap of the aliases."""
    if tries > TRIES_MAX:
        return BUSY
    version, aliases = yield from get(directory_cell())
    key = key_in(aliases, name, EXCHANGE) or name
    at, found = yield from get(container_cell(key))
    if "look" in rules and (yield from get(directory_cell()))[0] != version:
        return (yield from goto(make_at_its_key, name, rules, tries + 1))
    if is_there(found):
        return CONFLICT
    if found and found.state == "fenced" and "bump" in rules:
        bumped = yield from put(directory_cell(), aliases or Object(), version)
        if bumped.outcome != "ok":
            return (yield from goto(make_at_its_key, name, rules, tries + 1))
    made = yield from put(container_cell(key), Object("active"), at)
    if made.outcome == "lost":
        return (yield from goto(make_at_its_key, name, rules, tries + 1))
    return OK if made.outcome == "ok" else UNKNOWN


def make_in_place(name: str, key: str, at: int, version: int) -> Step[str]:
    """As today: the record alone, at the key that its name gives; then whether the name still leads there."""
    made = yield from put(container_cell(key), Object("active"), at)
    if made.outcome != "ok":
        return BUSY
    again, directory = yield from get(directory_cell())
    if again == version or key_in(directory, name, SPARSE) == key:
        return OK
    gone = yield from put(container_cell(key), Object("dropped"), made.version)
    return CONFLICT if gone.outcome == "ok" else UNKNOWN


def rename(old: str, new: str, layout: str, rules: Rules, tries: int = 0) -> Step[str]:
    """One swap of the directory. In the sparse layer, the key of the new name is occupied first."""
    if layout == EXCHANGE:
        return (yield from goto(exchange, old, new, rules))
    version, directory = yield from get(directory_cell())
    key, taken = key_in(directory, old, layout), key_in(directory, new, layout)
    if key is None or not is_there((yield from get(container_cell(key)))[1]):
        return NO_NAMESPACE
    if taken is not None:
        at, target = yield from get(container_cell(taken))
        if is_there(target):
            return CONFLICT
        if layout == SPARSE and target is None and "fence" in rules:
            fenced = yield from put(container_cell(taken), Object("dropped"), at)
            if fenced.outcome != "ok":
                return BUSY if tries == TRIES_MAX else (yield from goto(rename, old, new, layout, rules, tries + 1))
    wanted = with_entry(directory, (old, ""), (new, key))
    answer = yield from put(directory_cell(), wanted, version)
    if answer.outcome == "lost" and tries < TRIES_MAX:
        return (yield from goto(rename, old, new, layout, rules, tries + 1))
    return OK if answer.outcome == "ok" else UNKNOWN


def exchange(old: str, new: str, rules: Rules, tries: int = 0) -> Step[str]:
    """Mark the key of the new name, which no container has, then exchange the keys of both names."""
    if tries > TRIES_MAX:
        return BUSY
    version, aliases = yield from get(directory_cell())
    key, free = key_in(aliases, old, EXCHANGE) or old, key_in(aliases, new, EXCHANGE) or new
    (_, source), (at, target) = yield from get_together((container_cell(key), container_cell(free)))
    if not is_there(source):
        return NO_NAMESPACE
    if is_there(target):
        return CONFLICT
    if "fence" in rules:
        fenced = yield from put(container_cell(free), Object("fenced"), at)
        if fenced.outcome != "ok":
            return (yield from goto(exchange, old, new, rules, tries + 1))
    answer = yield from put(directory_cell(), exchanged(aliases, old, new), version)
    if answer.outcome == "lost":
        return (yield from goto(exchange, old, new, rules, tries + 1))
    return OK if answer.outcome == "ok" else UNKNOWN


def remove(name: str, layout: str, tries: int = 0) -> Step[str]:
    """Drop a container: mark its record, look for children below its key, act. The entry stays and leads nowhere."""
    _, directory = yield from get(directory_cell())
    key = key_in(directory, name, layout)
    if key is None:
        return NO_NAMESPACE
    version, found = yield from get(container_cell(key))
    if found is None or not is_there(found):
        return NO_NAMESPACE
    marked = yield from put(container_cell(key), Object("dropping"), version)
    if marked.outcome != "ok":
        return BUSY
    for child in (yield from listing(f"name:{key}/")):
        _, entry = yield from get(Cell[Object](child))
        if entry and entry.state in ("new", "active"):
            back = yield from put(container_cell(key), Object("active"), marked.version)
            return NOT_EMPTY if back.outcome == "ok" else BUSY
    gone = yield from put(container_cell(key), Object("dropped"), marked.version)
    if gone.outcome == "lost" and tries < TRIES_MAX:
        return (yield from goto(remove, name, layout, tries + 1))
    return OK if gone.outcome == "ok" else UNKNOWN


def begin(actor: str, request: Request, layout: str, rules: Rules, memory: tuple[Known, ...]) -> Step[str]:
    match request.verb:
        case "load":
            return load(request.name, layout, rules, memory)
        case "create":
            return create(actor, request.name, request.uuid, layout)
        case "drop":
            return drop(request.name, layout)
        case "make":
            return make(actor, request.name, layout, rules)
        case "rename":
            return rename(request.name, request.to, layout, rules)
        case "remove":
            return remove(request.name, layout)


# The sequential catalog.


class Resolve(NamedTuple):
    """The moment at which request number `of` resolves its container; it acts on that container later."""

    name: str
    of: int


class Numbered(NamedTuple):
    request: Request
    number: int


class World(NamedTuple):
    """Containers by name, tables by container, and what the changes in progress have resolved."""

    containers: frozenset[tuple[str, str]]
    tables: frozenset[tuple[str, str, str]]
    handles: frozenset[tuple[int, str]] = frozenset()


def specification(world: World, asked: Numbered | Resolve, *, is_strict: bool) -> tuple[Result, World]:
    """Strict: a change of a table happens at one moment. Otherwise it acts on the container that it resolved before."""
    containers = dict(world.containers)
    if isinstance(asked, Resolve):
        key = containers.get(asked.name.partition(".")[0])
        return OK, world._replace(handles=world.handles | {(asked.of, key)}) if key else world
    request, number = asked
    name, _, table = request.name.partition(".")
    acts_later = not is_strict and request.verb in ("create", "drop", "remove")
    key = dict(world.handles).get(number) if acts_later else containers.get(name)
    living = key is not None and key in containers.values()
    found = next((uuid for home, one, uuid in world.tables if (home, one) == (key, table)), None)
    match request.verb:
        case "load":
            return (found or NO_TABLE) if key else NO_NAMESPACE, world
        case "create" if key and living and not found:
            return OK, world._replace(tables=world.tables | {(key, table, request.uuid)})
        case "drop" if key and found:
            return OK, world._replace(tables=world.tables - {(key, table, found)})
        case "make" if not key:
            return OK, world._replace(containers=world.containers | {(name, f"made{number}")})
        case "remove" if key and living and not any(home == key for home, _, _ in world.tables):
            return OK, world._replace(containers=frozenset(one for one in world.containers if one[1] != key))
        case "rename" if key and request.to not in containers:
            return OK, world._replace(containers=world.containers - {(name, key)} | {(request.to, key)})
        case _:
            return "refused", world


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    layout: str = DIRECTORY,
    is_strict: bool = False,
    losable: int = 0,
    after: Mapping[int, tuple[int, ...]] | None = None,
) -> System:
    """A container `n` with a table `t`, and servers that remember both."""
    entries = (("n", "n"),) if layout == DIRECTORY else ()
    store: dict[str, tuple[int, Object]] = {
        directory_cell().key: (1, Object(entries=entries)),
        container_cell("n").key: (1, Object("active")),
        name_cell("n", "t").key: (1, Object("active", "u0", "n")),
        pointer_cell("u0").key: (1, Object("live")),
    }
    warm = (directory_cell().key, name_cell("n", "t").key, pointer_cell("u0").key)
    memory = tuple(Known(key, *store[key]) for key in warm)
    actors = [
        Actor(
            f"{request.verb}{index}",
            begin,
            (
                f"{request.verb}{index}",
                request,
                layout,
                rules,
                memory if request.name == "n.t" and not request.is_cold else (),
            ),
            (after or {}).get(index, ()),
        )
        for index, request in enumerate(requests)
    ]
    names = sorted({"n.t", *(one.name if "." in one.name else f"{one.to or one.name}.t" for one in requests)})
    start = World(frozenset({("n", "n")}), frozenset({("n", "t", "u0")}))
    asked: list[Numbered | Resolve] = [Numbered(request, number) for number, request in enumerate(requests)]
    asked += [Resolve(request.name, number) for number, request in enumerate(requests)]

    def judge(moment: Moment) -> None:
        results = tuple(
            "refused" if result in REFUSED and request.verb != "load" else result
            for request, result in zip(requests, moment.results, strict=True)
        )
        views: list[tuple[Numbered | Resolve, Result]] = [
            (Numbered(Request("load", name), -1), run(moment.store, load(name, layout, rules))[1]) for name in names
        ]
        if not is_linearizable(
            asked,
            (*moment.masks, *moment.masks),
            (*results, *((None,) * len(requests))),
            specification=lambda world, one: specification(world, one, is_strict=is_strict),
            start=start,
            unsure=UNSURE,
            views=views,
        ):
            shown = ", ".join(f"{name}={seen}" for name, (_, seen) in zip(names, views, strict=True))
            raise Violation(f"not linearizable: then loads show {shown}")

    return System(store, actors, judge, losable=losable, keeps_order=True)
