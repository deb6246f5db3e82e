"""Cases of commit: with and without a key, lost answers, renames and drops, file names and their collection."""

from functools import partial
from typing import Final

from proof import files
from proof.cases.case import Case, large
from proof.commit import START, Request, system
from proof.rename_and_commit import Others
from proof.rename_and_commit import system as named
from proof.rules import of, without

KEYED: Final = of("C4", "C5", "C7", "C8")
UNKEYED: Final = of("C5", "C9")
RENAMED: Final = KEYED | of("C10")

FREE, GUARDED = Request("r1", None, "K"), Request("r1", START, "K")
SNAPSHOT, PROPERTY, BLIND = Request("snap1", START, None), Request("p1", START, None), Request("p1", None, None)
F, G = ("F", Request("f", None, None)), ("G", Request("g", None, None))
UNDO = ("G", Request("undo", None, None))


def twice(request: Request, *others: tuple[str, Request]) -> list[tuple[str, Request]]:
    return [("A", request), ("B", request), *others]


RENAME, REUSE, BACK = Others(("gone",)), Others(("gone", "other")), Others(("gone", "table"))
RENAME_F, BACK_F = RENAME._replace(foreign=("f",)), BACK._replace(foreign=("f",))
RENAME_UNDO = RENAME._replace(foreign=("f", "undo"))

FREE_FG, GUARDED_UNDO = twice(FREE, F, G), twice(GUARDED, F, UNDO)

RENAMES: Final = (
    Case("commit: keyed twice, rename", partial(named, twice(FREE), RENAMED, RENAME)),
    Case("commit: keyed twice, rename, old name reused", partial(named, twice(FREE), RENAMED, REUSE)),
    Case("commit: keyed twice, rename and back", partial(named, twice(FREE), RENAMED, BACK)),
    Case("commit: keyed twice, rename, one answer lost", partial(named, twice(FREE), RENAMED, RENAME, losable=1)),
    Case(
        "commit: keyed once, rename, foreign commit, two answers lost, no log",
        partial(named, [("A", FREE)], RENAMED, RENAME_F, log_max=0, losable=2),
    ),
    Case(
        "commit: no key, rename, foreign commit, two answers lost, no log",
        partial(named, [("A", BLIND)], RENAMED, RENAME_F, log_max=0, losable=2),
    ),
    Case("commit: keyed twice, drop, name first", partial(named, twice(FREE), RENAMED, Others(drop="stays"))),
    Case("commit: keyed twice, drop and undrop elsewhere", partial(named, twice(FREE), RENAMED, Others(drop="back"))),
    *large(
        Case(
            "commit: keyed twice, rename, foreign commit, no log",
            partial(named, twice(FREE), RENAMED, RENAME_F, log_max=0),
        ),
        Case("commit: keyed twice, rename and back, foreign commit", partial(named, twice(FREE), RENAMED, BACK_F)),
        Case(
            "commit: keyed twice, rename, foreign commit, one answer lost, no log",
            partial(named, twice(FREE), RENAMED, RENAME_F, log_max=0, losable=1),
        ),
        Case(
            "commit: keyed twice, guarded, undone, rename, no log",
            partial(named, twice(GUARDED), RENAMED, RENAME_UNDO, log_max=0),
        ),
        Case("commit: keyed three times, rename", partial(named, twice(FREE, ("C", FREE)), RENAMED, RENAME)),
    ),
    Case(
        "commit: without C10 look: no key, rename, foreign commit, one answer lost, no log",
        partial(named, [("A", BLIND)], without(RENAMED, "C10 look"), RENAME_F, log_max=0, losable=1),
        breaks="answered 404 no table and applied",
    ),
    Case(
        "commit: without C10 fence: keyed twice, rename",
        partial(named, twice(FREE), without(RENAMED, "C10 fence"), RENAME),
        breaks="answered 404 no table and applied",
    ),
    Case(
        "commit: without C10 fence: keyed twice, the name leads to another table",
        partial(named, twice(FREE), without(RENAMED, "C10 fence"), Others(("other",))),
        breaks="answered 409 conflict and applied",
    ),
    Case(
        "commit: without C10 fence: keyed twice, drop, name first",
        partial(named, twice(FREE), without(RENAMED, "C10 fence"), Others(drop="stays")),
        breaks="answered 404 no table and applied",
    ),
    Case(
        "commit: without C10 again: keyed twice, rename",
        partial(named, twice(FREE), without(RENAMED, "C10 again"), RENAME),
        breaks="answered 404 no table and applied",
    ),
    Case(
        "commit: keyed twice, drop with purge (not promised)",
        partial(named, twice(FREE), RENAMED, Others(drop="purged")),
        breaks="answered 404 no table and applied",
    ),
    Case(
        "commit: keyed twice without a uuid, old name reused and dropped (not promised)",
        partial(named, twice(Request("blind", None, "K")), RENAMED, Others(("reused",))),
        breaks="a retry after a crash answers 404 no table for an applied commit",
    ),
)

CASES: Final = (
    Case("commit: keyed twice, two foreign commits", partial(system, FREE_FG, KEYED), is_large=True),
    Case(
        "commit: keyed twice, guarded, undone by foreign commits", partial(system, GUARDED_UNDO, KEYED), is_large=True
    ),
    Case("commit: keyed twice, foreign commit", partial(system, twice(FREE, F), KEYED)),
    Case("commit: keyed twice, guarded, foreign commit, drop", partial(system, twice(GUARDED, F), KEYED, drops=1)),
    Case(
        "commit: keyed twice, foreign commit, one answer lost",
        partial(system, twice(FREE, F), KEYED, losable=1),
        is_large=True,
    ),
    Case("commit: keyed twice, one answer lost", partial(system, twice(FREE), KEYED, losable=1)),
    Case("commit: keyed twice, two answers lost", partial(system, twice(FREE), KEYED, losable=2), is_large=True),
    Case("commit: keyed once, two answers lost", partial(system, [("A", FREE)], KEYED, log_max=0, losable=2)),
    Case(
        "commit: keyed once, foreign commit, two answers lost",
        partial(system, [("A", GUARDED), F], KEYED, log_max=0, losable=2),
    ),
    Case(
        "commit: keyed twice, foreign commit, two answers lost",
        partial(system, twice(FREE, F), KEYED, log_max=0, losable=2),
        is_large=True,
    ),
    Case(
        "commit: keyed twice, guarded, undone, one answer lost, no log",
        partial(system, GUARDED_UNDO, KEYED, log_max=0, losable=1),
        is_large=True,
    ),
    Case(
        "commit: keyed three times, foreign commit, no log",
        partial(system, twice(FREE, ("C", FREE), F), KEYED, log_max=0),
        is_large=True,
    ),
    Case(
        "commit: without C5: keyed twice, guarded, log of one",
        partial(system, twice(GUARDED, F, G), without(KEYED, "C5")),
        breaks="a retry after a crash answers 409 conflict for an applied commit",
    ),
    Case(
        "commit: without C5: keyed twice, nothing required, log of one",
        partial(system, FREE_FG, without(KEYED, "C5")),
        breaks="a retry after a crash applies twice",
    ),
    Case(
        "commit: without C4: keyed twice, two foreign commits",
        partial(system, FREE_FG, without(KEYED, "C4")),
        breaks="a retry after a crash applies twice",
        is_large=True,
    ),
    Case(
        "commit: without C7: keyed twice, two foreign commits",
        partial(system, FREE_FG, without(KEYED, "C7")),
        breaks="applied twice",
        is_large=True,
    ),
    Case(
        "commit: without C8: keyed twice, guarded, undone by foreign commits",
        partial(system, GUARDED_UNDO, without(KEYED, "C8")),
        breaks="answered 409 conflict and applied",
        is_large=True,
    ),
    Case(
        "commit: snapshot sent twice, foreign commits, one answer lost",
        partial(system, twice(SNAPSHOT, F, G), UNKEYED, losable=1),
        is_large=True,
    ),
    Case(
        "commit: snapshot sent twice, foreign commit, two answers lost",
        partial(system, twice(SNAPSHOT, F), UNKEYED, losable=2),
        is_large=True,
    ),
    Case("commit: snapshot sent twice, two answers lost", partial(system, twice(SNAPSHOT), UNKEYED, losable=2)),
    Case(
        "commit: guarded property sent twice, foreign commit, one answer lost",
        partial(system, twice(PROPERTY, F), UNKEYED, log_max=2, losable=1),
    ),
    Case(
        "commit: guarded property sent twice, foreign commit, two answers lost",
        partial(system, twice(PROPERTY, F), UNKEYED, log_max=2, losable=2),
    ),
    Case(
        "commit: without C9: guarded property sent twice",
        partial(system, twice(PROPERTY, F), without(UNKEYED, "C9"), log_max=2),
        breaks="answered 409 conflict and applied",
    ),
    Case(
        "commit: nothing required and no key, sent twice (not promised)",
        partial(system, twice(BLIND, F), UNKEYED, log_max=2),
        breaks="applied twice",
    ),
    *RENAMES,
    Case("files: two attempts under one key", partial(files.two_attempts, of("C3"))),
    Case(
        "files: without C3: the file is adopted",
        partial(files.two_attempts, frozenset(), adopts=True),
        breaks="the pointer names a metadata file that was deleted",
    ),
    Case(
        "files: without C3: a fresh name on collision",
        partial(files.two_attempts, frozenset()),
        breaks="the committed file is not the one the claim names",
    ),
    Case("files: stalled commits, collection, one answer lost", partial(files.sweep, of("GC1"))),
    Case(
        "files: without GC1: stalled commits, collection by age alone",
        partial(files.sweep, frozenset()),
        breaks="the pointer names a metadata file that was collected",
    ),
)
