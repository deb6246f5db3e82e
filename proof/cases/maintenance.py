"""Cases of maintenance: orphans and old snapshots are removed beside writers, clones, transactions and readers."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from proof.cases.case import Case, large
from proof.maintenance import RULES, Age, Lake, Table, Verb, system
from proof.rules import without

CONDEMN, REMOVE = Verb("condemn"), Verb("remove")
SLOW, AGAIN, TRANSACT = Verb("slow", "t/x"), Verb("again", "t/x"), Verb("transact", "t/x")
WRITE, COMMIT = Verb("write", "t/y"), Verb("commit", "t/y")
EXPIRE, CLONE, SCAN = Verb("expire", "t/b"), Verb("clone"), Verb("scan")
SUPERSEDE: Final = Verb("supersede", "t/b")

ORPHAN: Final = Lake(Table(frozenset({"t/a", "t/b"})))
"""`t/x` is an orphan, or the file of a slow writer."""

ORPHANS: Final = Lake(ORPHAN.table, files=(("t/a", "old"), ("t/b", "old"), ("t/x", "old"), ("t/z", "old")))
TAGGED: Final = Lake(Table(frozenset({"t/a", "t/b"}), tagged=frozenset({"t/x"})))
PENDING: Final = Lake(Table(frozenset({"t/a", "t/b"}), pending=frozenset({"t/x"})))
FOREIGN: Final = Lake(ORPHAN.table, tables=(("u", Table(frozenset({"t/x"}))),))
UNREADABLE: Final = Lake(ORPHAN.table, tables=(("u", Table(frozenset({"t/x"}), is_readable=False)),))
OTHER_SCHEME: Final = Lake(Table(frozenset({"t/a", "t/b", "t/x"}), scheme="s9://"))
_FILES: Final[tuple[tuple[str, Age], ...]] = (("t/a", "old"), ("t/b", "old"))
NEIGHBOUR: Final = Lake(ORPHAN.table, files=(*_FILES, ("t10/x", "old")), places=(("t10", "t10"),))
NESTED: Final = Lake(ORPHAN.table, files=(*_FILES, ("t/n/x", "old")), places=(("n", "t/n"),))
SHARED: Final = Lake(ORPHAN.table, files=(*_FILES, ("t/x", "old")), places=(("r", "t"),))
UNKNOWN_AGE: Final = Lake(ORPHAN.table, files=(*_FILES, ("t/y", "unknown")))
SWEPT_BEFORE: Final = Lake(
    ORPHAN.table._replace(is_swept=True), files=(*_FILES, ("t/z", "old")), swept=frozenset({("t/x", 1)})
)
EXPIRING: Final = ORPHAN
CLONED: Final = Lake(
    Table(frozenset({"t/a"}), former=frozenset({"t/b"}), tagged=frozenset({"t/x"})),
    tables=(("u", Table(frozenset({"t/b"}))),),
)
LEFT_BEHIND: Final = Lake(ORPHAN.table, files=_FILES)
REWRITTEN: Final = Lake(ORPHAN.table, files=_FILES, needed=frozenset({"t/b"}))
UNSEEN: Final = Lake(
    Table(frozenset({"t/a"}), former=frozenset({"t/b"}), is_collected=False), needed=frozenset({"t/b", "t/x"})
)
"""Tables of another catalog refer to `t/b` and `t/x`."""

REWRITE: Final = Verb("rewrite", "t/b")
FORGET: Final = Verb("forget", "t/b")


def holds(title: str, lake: Lake, *verbs: Verb, losable: int = 0) -> Case:
    return Case(f"orphans: {title}", partial(system, verbs, lake, losable=losable))


def breaks(rule: str, title: str, lake: Lake, verbs: Sequence[Verb], violation: str) -> Case:
    build = partial(system, verbs, lake, without(RULES, rule))
    return Case(f"orphans: without {rule}: {title}", build, breaks=violation)


BOTH: Final = (CONDEMN, REMOVE)
LOST: Final = "which was deleted"
MISSES: Final = "a reader misses a file"
REFUSED: Final = "not slower than the minimum age was refused"

CASES: Final = (
    holds("slow writer", ORPHAN, *BOTH, SLOW),
    holds("slow writer, one answer lost", ORPHAN, *BOTH, SLOW, losable=1),
    holds("slow writer, two answers lost", ORPHAN, *BOTH, SLOW, losable=2),
    holds("slow writer, two runners", ORPHAN, CONDEMN, REMOVE, REMOVE, SLOW),
    holds("two slow writers", ORPHANS, *BOTH, SLOW, Verb("slow", "t/z")),
    holds("slow writer, two whole runs", ORPHANS, *BOTH, *BOTH, SLOW),
    holds("slow writer, an earlier run deleted its file", SWEPT_BEFORE, *BOTH, SLOW),
    holds("job", ORPHAN, *BOTH, WRITE, COMMIT),
    holds("job, one answer lost", ORPHAN, *BOTH, WRITE, COMMIT, losable=1),
    holds("job that reuses a name", ORPHAN, *BOTH, AGAIN),
    holds("job that reuses a name, one answer lost", ORPHAN, *BOTH, AGAIN, losable=1),
    holds("transaction", ORPHAN, *BOTH, TRANSACT),
    holds("transaction, one answer lost", ORPHAN, *BOTH, TRANSACT, losable=1),
    holds("file of a tag", TAGGED, *BOTH, SLOW),
    holds("file of a pending change", PENDING, *BOTH),
    holds("file that another table refers to", FOREIGN, *BOTH),
    holds("file of a table that cannot be read", UNREADABLE, *BOTH),
    holds("unknown scheme", OTHER_SCHEME, *BOTH),
    holds("neighbour t10", NEIGHBOUR, *BOTH, Verb("t10", "t10/x")),
    holds("nested table", NESTED, *BOTH, Verb("n", "t/n/x")),
    holds("registered twice", SHARED, *BOTH, Verb("r", "t/x")),
    holds("stage in the place", NESTED, *BOTH, Verb("staged", "t/n/x")),
    holds("unknown age", UNKNOWN_AGE, *BOTH, Verb("slow", "t/y")),
    holds("expiry, clone", EXPIRING, SUPERSEDE, EXPIRE, CLONE),
    holds("expiry, clone, one answer lost", EXPIRING, SUPERSEDE, EXPIRE, CLONE, losable=1),
    holds("expiry, reader", EXPIRING, SUPERSEDE, EXPIRE, SCAN),
    holds("expiry of files that another table needs", CLONED, EXPIRE, *BOTH),
    holds("removal of an expired file, clone", LEFT_BEHIND, *BOTH, SUPERSEDE, FORGET, CLONE),
    holds("removal of an expired file, reader", LEFT_BEHIND, *BOTH, SUPERSEDE, FORGET, SCAN),
    holds("files of unseen tables", UNSEEN, *BOTH, EXPIRE),
    holds("faulty rewrite, expiry", REWRITTEN, REWRITE, EXPIRE),
    holds("faulty rewrite, two expiries, one answer lost", REWRITTEN, REWRITE, EXPIRE, EXPIRE, losable=1),
    holds("faulty rewrite, expiry, writer", REWRITTEN, REWRITE, EXPIRE, Verb("slow", "t/a")),
    breaks("O1", "job", ORPHAN, [*BOTH, WRITE, COMMIT], REFUSED),
    breaks("O2 wait", "removal of an expired file, clone", LEFT_BEHIND, [CONDEMN, SUPERSEDE, FORGET, CLONE], LOST),
    breaks("O2 wait", "removal of an expired file, reader", LEFT_BEHIND, [CONDEMN, SUPERSEDE, FORGET, SCAN], MISSES),
    breaks("O2 again", "slow writer", ORPHAN, [*BOTH, SLOW], LOST),
    breaks("O3 tags", "file of a tag", TAGGED, BOTH, LOST),
    breaks("O3 pending", "transaction", ORPHAN, [*BOTH, TRANSACT], LOST),
    breaks("O3 tables", "file that another table refers to", FOREIGN, BOTH, LOST),
    breaks("O3 read", "file of a table that cannot be read", UNREADABLE, BOTH, LOST),
    breaks("O4 slash", "neighbour t10", NEIGHBOUR, [*BOTH, Verb("t10", "t10/x")], LOST),
    breaks("O4 alone", "nested table", NESTED, [*BOTH, Verb("n", "t/n/x")], LOST),
    breaks("O4 alone", "registered twice", SHARED, [*BOTH, Verb("r", "t/x")], LOST),
    breaks("O4 alone", "stage in the place", NESTED, [*BOTH, Verb("staged", "t/n/x")], LOST),
    breaks("O5 list", "slow writer", ORPHAN, [*BOTH, SLOW], LOST),
    breaks("O5 bump", "slow writer", ORPHAN, [*BOTH, SLOW], LOST),
    breaks("O5 order", "slow writer", ORPHAN, [*BOTH, SLOW], LOST),
    breaks("O5 check", "slow writer", ORPHAN, [*BOTH, SLOW], LOST),
    breaks("O5 keep", "slow writer, an earlier run deleted its file", SWEPT_BEFORE, [*BOTH, SLOW], LOST),
    breaks("O6", "a file is replaced", ORPHAN, [*BOTH, Verb("replace", "t/x")], LOST),
    breaks("O6", "job that reuses a name", ORPHAN, [*BOTH, AGAIN], REFUSED),
    breaks("O7", "unknown scheme", OTHER_SCHEME, BOTH, LOST),
    breaks("O8", "expiry of files that another table needs", CLONED, [EXPIRE], LOST),
    breaks("O9 grace", "expiry, reader", EXPIRING, [SUPERSEDE, EXPIRE, SCAN], MISSES),
    breaks("O9 grace", "expiry, clone", EXPIRING, [SUPERSEDE, EXPIRE, CLONE], LOST),
    breaks("O9 tags", "expiry of a tagged table", CLONED, [EXPIRE], "a tag is gone"),
    breaks("O10", "files of unseen tables", UNSEEN, BOTH, LOST),
    breaks("O10", "expiry of a file of unseen tables", UNSEEN, [EXPIRE], LOST),
    breaks("O11", "faulty rewrite, expiry", REWRITTEN, [REWRITE, EXPIRE], LOST),
    Case(
        "orphans: another table takes over an orphan (not promised)",
        partial(system, [*BOTH, Verb("u", "t/x")], ORPHAN),
        breaks=LOST,
    ),
    *large(
        holds(
            "slow writer, job, two runners, one answer lost",
            ORPHAN,
            CONDEMN,
            REMOVE,
            REMOVE,
            SLOW,
            WRITE,
            COMMIT,
            losable=1,
        ),
        holds("expiry, clone, slow writer, run", EXPIRING, *BOTH, SUPERSEDE, EXPIRE, CLONE, SLOW),
        holds("transaction, slow writer, job that reuses a name", ORPHAN, *BOTH, TRANSACT, SLOW, AGAIN),
    ),
)
