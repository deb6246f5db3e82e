"""A transaction on two tables beside a fenced revocation on one of them (A15)."""

from typing import Final, Literal, NamedTuple

from proof.answers import BUSY, FORBIDDEN, OK
from proof.checker import Actor, Moment, System, Violation
from proof.grants.manifest import MANIFEST, RULES, Grant, revoke
from proof.rules import Rules
from proof.steps import Cell, Step, call, goto, put, read, read_together
from proof.store import kept


class Table(NamedTuple):
    """`pending` is the transaction that changes the table, or empty."""

    content: str
    pending: str


TABLES: Final = ("t", "u")
RECORD: Final = Cell[Literal["preparing", "committed", "aborted"]]("record")
BEFORE, AFTER = "before", "after"


def table(name: str) -> Cell[Table]:
    return Cell(f"table:{name}")


def transact(rules: Rules) -> Step[str]:
    """The transaction of p. Its record is `preparing` from the start."""
    if "A15 late" in rules:
        versions = yield from read_together(table("t"), table("u"))
        _, manifest = yield from read(MANIFEST)
    else:
        _, manifest = yield from read(MANIFEST)
        versions = yield from read_together(table("t"), table("u"))
    if any(Grant("p", name) not in manifest for name in TABLES):
        return FORBIDDEN
    for name, (version, value) in zip(TABLES, versions, strict=True):
        prepared = yield from put(table(name), value._replace(pending="T"), version)
        if prepared.outcome != "ok":
            return BUSY
    at, state = yield from read(RECORD)
    if state != "preparing":
        return BUSY
    committed = yield from put(RECORD, "committed", at)
    return OK if committed.outcome == "ok" else BUSY


def revoke_fenced(name: str, rules: Rules) -> Step[str]:
    yield from call(revoke, Grant("p", name))
    return (yield from goto(fence, name, rules))


def fence(name: str, rules: Rules) -> Step[str]:
    """Bump the pointer (A5), or abort the transaction on it (A15)."""
    version, value = yield from read(table(name))
    if value.pending and "A15" in rules:
        at, state = yield from read(RECORD)
        if state == "preparing":
            aborted = yield from put(RECORD, "aborted", at)
            if aborted.outcome != "ok":
                return (yield from goto(fence, name, rules))
        return OK
    bumped = yield from put(table(name), value, version)
    return OK if bumped.outcome == "ok" else (yield from goto(fence, name, rules))


def look(name: str) -> Step[str]:
    """Whether the transaction has happened, as a reader sees it (T6)."""
    _, value = yield from read(table(name))
    if not value.pending:
        return BEFORE
    _, state = yield from read(RECORD)
    return AFTER if state == "committed" else BEFORE


def revoked(name: str, rules: Rules = RULES) -> System:
    """The right on one table is revoked; a reader looks after the answer."""
    actors = [
        Actor("transaction", transact, (rules,)),
        Actor("revoke", revoke_fenced, (name, rules)),
        Actor("look", look, (name,), after=(1,)),
    ]
    tables = {table(one).key: (1, Table("0", "")) for one in TABLES}
    grants = tuple(Grant("p", one) for one in TABLES)
    return System({MANIFEST.key: (1, grants), RECORD.key: (1, "preparing"), **tables}, actors, judge, keeps_order=True)


def judge(moment: Moment) -> None:
    _, revocation, seen = moment.results
    if revocation == OK and seen == BEFORE and kept(moment.store, RECORD) == "committed":
        raise Violation("a transaction happens after the revocation was answered")
