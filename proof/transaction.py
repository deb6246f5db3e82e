"""Multi-table transactions: one record makes the `pending` changes of all pointers visible (T1 to T9).

A table with a lower-case name is created by the transactions: its pending is on the new name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, assert_never

from proof.answers import BUSY, CONFLICT, NO_TABLE, OK, SWEPT, UNKNOWN, UNSURE
from proof.checker import Actor, Masks, Moment, Results, System, Violation
from proof.linearizable import is_linearizable
from proof.rules import Rules, of
from proof.steps import ABSENT, Cell, Result, Step, call, delete, get, goto, passed, put, read
from proof.store import Store, kept, run

# "T2 keep" is an alternative to T2, not a part of the protocol.
RULES: Final = of("T1", "T2", "T5 older", "T6", "T9") - {"T2 keep"}
TRIES_MAX: Final = 2
DECIDED: Final = (None, "committed", "aborted")
State: TypeAlias = Literal["preparing", "committed", "aborted", "absent"]


class Pending(NamedTuple):
    transaction: str
    attempt: str


class Pointer(NamedTuple):
    applied: tuple[str, ...]
    pending: Pending | None
    is_missing: bool


class Record(NamedTuple):
    state: State
    attempt: str
    tables: tuple[str, ...] = ()


class Table(NamedTuple):
    """A table as readers see it: the applied commits with a committed pending, and the state of the pending."""

    version: int
    applied: tuple[str, ...]
    pending: Pending | None
    is_missing: bool
    state: State | None


class Transaction(NamedTuple):
    """One attempt. The id is the hash of the key: a retry uses the same record with a new attempt id (T1)."""

    actor: str
    id: str
    tables: tuple[str, ...]
    rules: Rules
    record: int = ABSENT
    tries: int = 0
    remembered: tuple[Table | None, ...] = ()

    @property
    def pending(self) -> Pending:
        return Pending(self.id, self.actor if "T1" in self.rules else "-")


def pointer_of(table: str) -> Cell[Pointer]:
    return Cell(f"pointer:{table}")


def record_of(transaction: str) -> Cell[Record]:
    return Cell(f"transaction:{transaction}")


def state_of(record: Record | None, pending: Pending, rules: Rules) -> State:
    if record is None:
        return "absent"
    return "aborted" if "T1" in rules and record.attempt != pending.attempt else record.state


def effective(table: str, rules: Rules, tries: int = 0) -> Step[Table]:
    """T6: read a pointer, as every request does."""
    version, pointer = yield from read(pointer_of(table))
    applied, pending, is_missing = pointer
    if pending is None:
        return Table(version, applied, None, is_missing, None)
    _, record = yield from get(record_of(pending.transaction))
    state = state_of(record, pending, rules)
    if state == "absent" and "T6" not in rules:
        state = "aborted"
    if state == "absent":
        again, _ = yield from read(pointer_of(table))
        if again != version and tries < TRIES_MAX:
            return (yield from goto(effective, table, rules, tries + 1))
        if again == version and "T2" in rules:
            state = "aborted"
    if state == "committed":
        return Table(version, (*applied, pending.transaction), pending, False, state)  # noqa: FBT003 -- a struct
    return Table(version, applied, pending, is_missing, state)


def load(tables: tuple[str, ...], rules: Rules) -> Step[Result]:
    """A client that loads the tables one after the other."""
    seen: tuple[Result, ...] = ()
    for name in tables:
        table = yield from call(effective, name, rules)
        seen += (NO_TABLE if table.is_missing else table.applied,)
    return seen


def abort_holder(me: str, pending: Pending, rules: Rules) -> Step[None]:
    """T5: abort the transaction that holds a pointer if it is stale or younger."""
    cell = record_of(pending.transaction)
    version, record = yield from get(cell)
    state = state_of(record, pending, rules)
    if state == "absent" and "T2" not in rules:
        yield from put(cell, Record("aborted", pending.attempt), ABSENT)
    if record is None or state != "preparing":
        return
    is_stale = yield from passed()
    if is_stale or ("T5 older" in rules and me < pending.transaction):
        yield from put(cell, record._replace(state="aborted"), version)


def commit(actor: str, name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A commit to one table, without requirements."""
    table = yield from call(effective, name, rules)
    if table.is_missing:
        return NO_TABLE
    if table.pending and table.state not in DECIDED:
        yield from call(abort_holder, actor, table.pending, rules)
        return BUSY if tries == TRIES_MAX else (yield from goto(commit, actor, name, rules, tries + 1))
    swapped = Pointer((*table.applied, actor), None, is_missing=False)
    answer = yield from put(pointer_of(name), swapped, table.version)
    if answer.outcome == "ok":
        return OK
    if answer.outcome == "unknown":
        table = yield from call(effective, name, rules)
        return OK if actor in table.applied else UNKNOWN
    return BUSY if tries == TRIES_MAX else (yield from goto(commit, actor, name, rules, tries + 1))


def create(actor: str, name: str, rules: Rules, tries: int = 0) -> Step[str]:
    """A plain creation of a name that a transaction may create too."""
    table = yield from call(effective, name, rules)
    if table.pending and table.state not in DECIDED:
        yield from call(abort_holder, actor, table.pending, rules)
        # Never 409: the transaction may still fail.
        return BUSY if tries == TRIES_MAX else (yield from goto(create, actor, name, rules, tries + 1))
    if not table.is_missing:
        return CONFLICT
    swapped = Pointer((*table.applied, actor), None, is_missing=False)
    answer = yield from put(pointer_of(name), swapped, table.version)
    if answer.outcome == "ok":
        return OK
    if tries == TRIES_MAX or answer.outcome == "unknown":
        return UNKNOWN
    return (yield from goto(create, actor, name, rules, tries + 1))


def drop(name: str, rules: Rules, tries: int = 0) -> Step[str]:
    table = yield from call(effective, name, rules)
    if table.is_missing:
        return NO_TABLE
    if table.pending and table.state not in DECIDED:
        yield from call(abort_holder, "0", table.pending, rules)
        return BUSY if tries == TRIES_MAX else (yield from goto(drop, name, rules, tries + 1))
    answer = yield from put(pointer_of(name), Pointer(table.applied, None, is_missing=True), table.version)
    if answer.outcome == "ok":
        return OK
    if tries == TRIES_MAX or answer.outcome == "unknown":
        return UNKNOWN
    return (yield from goto(drop, name, rules, tries + 1))


def transact(attempt: Transaction) -> Step[str]:
    """T2: the record exists before any pending; without T2 the commit point is put-if-absent `committed`."""
    cell = record_of(attempt.id)
    version, record = yield from get(cell)
    if record and record.state == "committed":
        return OK
    if "T2" not in attempt.rules:
        return BUSY if record else (yield from goto(prepare, attempt, 0))
    if record and record.state == "preparing":
        is_stale = yield from passed()
        if not is_stale:
            return BUSY
    answer = yield from put(cell, Record("preparing", attempt.pending.attempt), version)
    if answer.outcome != "ok":
        return BUSY
    return (yield from goto(prepare, attempt._replace(record=answer.version), 0))


def remember(attempt: Transaction, index: int) -> Step[str]:
    """C1: a server knows tables from before the transaction began. What has a pending or is missing is not used."""
    if index == len(attempt.tables):
        return (yield from goto(transact, attempt))
    version, pointer = yield from read(pointer_of(attempt.tables[index]))
    is_usable = pointer.pending is None and not pointer.is_missing and attempt.id not in pointer.applied
    known = Table(version, pointer.applied, None, is_missing=False, state=None) if is_usable else None
    return (yield from goto(remember, attempt._replace(remembered=(*attempt.remembered, known)), index + 1))


def prepare(attempt: Transaction, index: int) -> Step[str]:
    """T3: a pending on every pointer. The first try may rest on what is remembered: the swap confirms it."""
    if index == len(attempt.tables):
        return (yield from goto(decide, attempt))
    name, rules = attempt.tables[index], attempt.rules
    known = attempt.remembered[index] if attempt.remembered and not attempt.tries else None
    table = known or (yield from call(effective, name, rules))
    if table.pending == attempt.pending:
        return (yield from goto(prepare, attempt._replace(tries=0), index + 1))
    is_decided, is_applied = table.state in DECIDED, attempt.id in table.applied
    if is_decided and table.is_missing != name.islower() and not is_applied:
        return (yield from goto(give_up, attempt, CONFLICT if name.islower() else NO_TABLE))
    again = attempt._replace(tries=attempt.tries + 1)
    if attempt.tries > TRIES_MAX:
        return (yield from goto(give_up, attempt, BUSY))
    if table.pending and not is_decided:
        yield from call(abort_holder, attempt.id, table.pending, rules)
        return (yield from goto(prepare, again, index))
    if is_applied:
        return OK
    held = Pointer(table.applied, attempt.pending, is_missing=name.islower())
    answer = yield from put(pointer_of(name), held, table.version)
    if answer.outcome == "ok":
        return (yield from goto(prepare, attempt._replace(tries=0), index + 1))
    return (yield from goto(prepare, again, index))


def decide(attempt: Transaction) -> Step[str]:
    """T4: the transaction happens here, for all tables."""
    committed = Record("committed", attempt.pending.attempt, attempt.tables)
    answer = yield from put(record_of(attempt.id), committed, attempt.record)
    if answer.outcome == "unknown":
        _, record = yield from get(record_of(attempt.id))
        return OK if record == committed else UNKNOWN
    return OK if answer.outcome == "ok" else BUSY


def give_up(attempt: Transaction, verdict: str) -> Step[str]:
    """T8: the record says aborted before any answer but 5xx."""
    answer = yield from put(record_of(attempt.id), Record("aborted", attempt.pending.attempt), attempt.record)
    return verdict if answer.outcome == "ok" else BUSY


def collect(transaction: str, rules: Rules) -> Step[str]:
    """T9: the janitor of a record, which may run at any time."""
    cell = record_of(transaction)
    version, record = yield from get(cell)
    if record is None:
        return SWEPT
    if record.state == "preparing":
        answer = yield from put(cell, record._replace(state="aborted"), version)
        if answer.outcome != "ok":
            return SWEPT
        record, version = record._replace(state="aborted"), answer.version
    if record.state == "aborted" and "T2 keep" in rules:
        return SWEPT
    if record.state == "committed" and "T9" in rules:
        for name in record.tables:
            at, pointer = yield from read(pointer_of(name))
            if pointer.pending and pointer.pending.transaction == transaction:
                final = Pointer((*pointer.applied, transaction), None, is_missing=False)
                answer = yield from put(pointer_of(name), final, at)
                if answer.outcome != "ok":
                    return SWEPT
    yield from delete(cell, version)
    return SWEPT


@dataclass(frozen=True)
class Transact:
    id: str
    tables: tuple[str, ...]
    remembers: bool = False


@dataclass(frozen=True)
class Commit:
    table: str


@dataclass(frozen=True)
class Create:
    table: str


@dataclass(frozen=True)
class Drop:
    table: str


@dataclass(frozen=True)
class Load:
    tables: tuple[str, ...]


@dataclass(frozen=True)
class Collect:
    transaction: str


Request: TypeAlias = Transact | Commit | Create | Drop | Load | Collect
World: TypeAlias = tuple[tuple[str, Result], ...]


class Named(NamedTuple):
    """A request and its actor: the actor identifies commits and creations."""

    actor: str
    request: Request


def start(actor: str, request: Request, rules: Rules) -> Step[Result]:
    match request:
        case Transact(transaction, tables, remembers):
            attempt = Transaction(actor, transaction, tables, rules)
            return remember(attempt, 0) if remembers else transact(attempt)
        case Commit(table):
            return commit(actor, table, rules)
        case Create(table):
            return create(actor, table, rules)
        case Drop(table):
            return drop(table, rules)
        case Load(tables):
            return load(tables, rules)
        case Collect(transaction):
            return collect(transaction, rules)
        case _:
            assert_never(request)


def specification(world: World, named: Named) -> tuple[Result, World]:
    """All tables as one map; a table is the tuple of its applied commits."""
    tables, request = dict(world), named.request
    match request:
        case Load(names):
            return tuple(tables[name] for name in names), world
        case Collect():
            return SWEPT, world
        case Drop(name):
            if tables[name] == NO_TABLE:
                return NO_TABLE, world
            return OK, tuple(sorted((tables | {name: NO_TABLE}).items()))
        case Transact(transaction, names):
            if any(transaction in applied for applied in map(tables.get, names) if isinstance(applied, tuple)):
                return OK, world
            return applied_to(tables, names, {name for name in names if name.islower()}, transaction)
        case Commit(name):
            return applied_to(tables, (name,), set(), named.actor)
        case Create(name):
            return applied_to(tables, (name,), {name}, named.actor)
        case _:
            assert_never(request)


def applied_to(tables: dict[str, Result], names: tuple[str, ...], creates: set[str], mark: str) -> tuple[Result, World]:
    world = tuple(sorted(tables.items()))
    for name in names:
        if (tables[name] == NO_TABLE) != (name in creates):
            return (CONFLICT if name in creates else NO_TABLE), world
    for name in names:
        applied = tables[name]
        tables[name] = (*applied, mark) if isinstance(applied, tuple) else (mark,)
    return OK, tuple(sorted(tables.items()))


def system(
    requests: Sequence[Request],
    rules: Rules = RULES,
    *,
    tables: tuple[str, ...] = ("A", "B"),
    losable: int = 0,
    is_retried: bool = True,
) -> System:
    """A transaction that is listed twice is a retry. Without `is_retried`, none is sent again after a crash."""
    named = [Named(f"{type(request).__name__.lower()}{index}", request) for index, request in enumerate(requests)]
    actors = [Actor(one.actor, start, (one.actor, one.request, rules)) for one in named]
    world: World = tuple((table, NO_TABLE if table.islower() else ()) for table in sorted(tables))

    def judge(moment: Moment) -> None:
        for table in tables:
            applied = kept(moment.store, pointer_of(table)).applied
            if len(set(applied)) < len(applied):
                raise Violation("applied twice")
        views = [(Named("z", Load((table,))), run(moment.store, load((table,), rules))[1]) for table in tables]
        judge_history(moment, named, world, views)
        if is_retried:
            judge_retries(moment, requests, rules)
        judge_tables(moment.store, tables, rules)

    store = {pointer_of(table).key: (1, Pointer((), None, table.islower())) for table in tables}
    return System(store, actors, judge, losable=losable, keeps_order=True)


def judge_history(
    moment: Moment, requests: Sequence[Named], world: World, views: Sequence[tuple[Named, Result]]
) -> None:
    single, masks, results = split_loads(requests, moment)
    if not is_linearizable(
        single,
        masks,
        results,
        specification=specification,
        start=world,
        unsure=UNSURE,
        views=views,
    ):
        raise Violation(f"not linearizable: then loads show {[view for _, view in views]}")


def split_loads(requests: Sequence[Named], moment: Moment) -> tuple[list[Named], Masks, Results]:
    """A client that loads several tables counts as several loads, one after the other."""
    single, owners = [], []
    for index, named in enumerate(requests):
        loads = named.request.tables if isinstance(named.request, Load) else ()
        parts = [Named(named.actor, Load((table,))) for table in loads] or [named]
        single += parts
        owners += [index] * len(parts)
    masks: list[int | None] = []
    results: list[Result | None] = []
    for position, owner in enumerate(owners):
        result, mask = moment.results[owner], moment.masks[owner]
        if isinstance(result, tuple):
            result = (result[position - owners.index(owner)],)
        if mask is not None:
            earlier = (other for other in range(position) if owners[other] == owner)
            mask = sum(1 << other for other, its_owner in enumerate(owners) if mask >> its_owner & 1)
            mask |= sum(1 << other for other in earlier)
        results.append(result)
        masks.append(mask)
    return single, tuple(masks), tuple(results)


def judge_retries(moment: Moment, requests: Sequence[Request], rules: Rules) -> None:
    for request, result in zip(requests, moment.results, strict=True):
        if isinstance(request, Transact):
            _, answer = run(moment.store, start("z", request, rules))
            pointers = {table: kept(moment.store, pointer_of(table)) for table in request.tables}
            is_dropped = any(pointer.is_missing and not table.islower() for table, pointer in pointers.items())
            if answer in UNSURE:
                raise Violation(f"a retry of the transaction is stuck at {answer}")
            if result == OK and answer != OK and not is_dropped:
                raise Violation("an acknowledged transaction is not replayed")


def judge_tables(store: Store, tables: tuple[str, ...], rules: Rules) -> None:
    for table in tables:
        _, answer = run(store, start("z", Create(table) if table.islower() else Commit(table), rules))
        if answer in UNSURE:
            raise Violation(f"table stuck: a commit answers {answer}")
