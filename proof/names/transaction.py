"""A transaction that creates tables: names `pending` until the record is committed (T1 to T4, T9)."""

from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, EXPIRED, NO_NAMESPACE, OK, SWEPT, UNKNOWN
from proof.names.entries import (
    Active,
    Pending,
    Pointer,
    Record,
    name_cell,
    namespace_cell,
    pointer_cell,
    record_cell,
    space_of,
)
from proof.names.resolution import confirm_namespace, living, settle
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, delete, get, goto, passed, put

TRIES_MAX: Final = 2


class Transaction(NamedTuple):
    """One attempt: `actor` is its attempt id (T1), `namespace_ids` the ids of the namespaces as they were read."""

    actor: str
    id: str
    creates: tuple[tuple[str, str], ...]
    rules: Rules
    record: int = ABSENT
    namespace_ids: tuple[str, ...] = ()
    tries: int = 0

    @property
    def attempt(self) -> str:
        return self.actor if "T1" in self.rules else "-"


def transact(attempt: Transaction) -> Step[str]:
    """T2: the record is known to exist before any pending."""
    cell = record_cell(attempt.id)
    version, record = yield from get(cell)
    if record and record.state == "committed":
        return OK
    if record and record.error:
        return record.error  # T8
    if record and record.state == "preparing":
        is_stale = yield from passed()
        if not is_stale:
            return BUSY
    answer = yield from put(cell, Record("preparing", attempt.attempt), version)
    if answer.outcome != "ok":
        return BUSY
    namespace_ids = []
    for name, _ in attempt.creates:
        _, namespace = yield from get(namespace_cell(space_of(name)))
        namespace_ids.append(namespace.id if namespace else "")
    begun = attempt._replace(record=answer.version, namespace_ids=tuple(namespace_ids))
    if "" in namespace_ids:
        return (yield from goto(give_up, begun, NO_NAMESPACE))
    return (yield from goto(prepare, begun, 0))


def prepare(attempt: Transaction, index: int) -> Step[str]:
    """T3: pointer unbound and name `pending`, for every table."""
    if index == len(attempt.creates):
        return (yield from goto(confirm, attempt))
    name, uuid = attempt.creates[index]
    settled = yield from call(settle, name, attempt.rules)
    if settled is None or attempt.tries > TRIES_MAX:
        return (yield from goto(give_up, attempt, BUSY))
    if settled.uuid:
        return (yield from goto(give_up, attempt, CONFLICT))
    _, pointer = yield from get(pointer_cell(uuid))
    if pointer and pointer.state not in ("unbound", "condemned"):
        # The client chose the uuid, so no further attempt can use another one.
        return (yield from goto(give_up, attempt, EXPIRED if pointer.state == "killed" else CONFLICT))
    if pointer is None:
        made = yield from put(pointer_cell(uuid), Pointer("unbound", uuid), ABSENT)
        if made.outcome == "unknown":
            return (yield from goto(give_up, attempt, BUSY))
    pending = Pending(uuid, attempt.id, attempt.attempt)
    answer = yield from put(name_cell(name), pending, settled.version)
    if answer.outcome == "ok":
        return (yield from goto(prepare, attempt._replace(tries=0), index + 1))
    if answer.outcome == "unknown":
        _, entry = yield from get(name_cell(name))
        if entry == pending:
            return (yield from goto(prepare, attempt._replace(tries=0), index + 1))
    return (yield from goto(prepare, attempt._replace(tries=attempt.tries + 1), index))


def confirm(attempt: Transaction) -> Step[str]:
    """N4 and N5 for what is created: the namespaces and the pointers are seen after the names were written."""
    for (name, uuid), namespace_id in zip(attempt.creates, attempt.namespace_ids, strict=True):
        if "T3 namespace" in attempt.rules:
            is_there = yield from call(confirm_namespace, name, namespace_id, attempt.rules)
            if is_there is not True:
                return (yield from goto(give_up, attempt, BUSY if is_there == "unsure" else NO_NAMESPACE))
        if "T3 pointer" in attempt.rules:
            pointer = yield from call(living, uuid)
            if not isinstance(pointer, Pointer):
                return (yield from goto(give_up, attempt, BUSY if pointer == "unsure" else EXPIRED))
    cell = record_cell(attempt.id)
    committed = Record("committed", attempt.attempt, attempt.creates)
    answer = yield from put(cell, committed, attempt.record)  # T4: happens here, for all.
    if answer.outcome == "unknown":
        _, record = yield from get(cell)
        return OK if record == committed else UNKNOWN
    return OK if answer.outcome == "ok" else BUSY


def give_up(attempt: Transaction, verdict: str) -> Step[str]:
    """T8: the record says so before anything definite is answered."""
    error = "" if verdict == BUSY else verdict
    answer = yield from put(record_cell(attempt.id), Record("aborted", attempt.attempt, (), error), attempt.record)
    return verdict if answer.outcome == "ok" else BUSY


def collect_record(transaction: str, rules: Rules) -> Step[str]:
    """T9, whenever its age gate has passed."""
    cell = record_cell(transaction)
    version, record = yield from get(cell)
    if record is None:
        return SWEPT
    if record.state == "preparing":
        answer = yield from put(cell, record._replace(state="aborted"), version)
        if answer.outcome != "ok":
            return SWEPT
        version = answer.version
    if record.state == "committed" and "T9" in rules:
        for name, uuid in record.creates:
            at, entry = yield from get(name_cell(name))
            if isinstance(entry, Pending) and entry.transaction == transaction:
                settled = yield from put(name_cell(name), Active(uuid), at)
                if settled.outcome != "ok":
                    return SWEPT
    yield from delete(cell, version)
    return SWEPT
