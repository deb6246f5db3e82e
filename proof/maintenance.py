"""Removal of orphans, and expiry of snapshots, beside writers of every kind (O1 to O11).

The table T has the place `t/`. A run of maintenance condemns files of T that nothing refers to, a later run deletes
them. A *job* writes a file and commits it later, within the minimum age of orphans. A *slow* writer commits a file that
is older than that. Both may commit at any moment, also after a day: only requests that run now end within a day.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, CONFLICT, INVALID, OK, SWEPT
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules, of
from proof.steps import ABSENT, Cell, Step, call, delete, get, goto, listing, put, quiet, read
from proof.store import Store, held, kept, present

RULES: Final = of("O")
TRIES_MAX: Final = 2
SHARE_MAX: Final = 0.5
MISSING: Final = "404 no file"

Age: TypeAlias = Literal["old", "young", "unknown"]
Found: TypeAlias = frozenset[tuple[str, int]]
"""Files by path, with the version that was listed."""


class Table(NamedTuple):
    """A pointer: the files of the current snapshot, those that only old snapshots, or branches and tags, need, and
    those of a pending change.

    `is_swept` is the mark of O5. References of a table with a `scheme` have another one, which is not known as equal.
    `lost` are files whose rows a faulty rewrite lost. A table that is not `is_collected` has `gc.enabled=false`.
    """

    current: frozenset[str] = frozenset()
    former: frozenset[str] = frozenset()
    tagged: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    is_swept: bool = False
    is_readable: bool = True
    scheme: str = ""
    lost: frozenset[str] = frozenset()
    is_collected: bool = True


class Verb(NamedTuple):
    """One actor, and the file that it is about."""

    name: str
    path: str = ""


T: Final = Cell[Table]("table:t")
CONDEMNED: Final = Cell[Found]("condemned")
SWEPT_FILES: Final = Cell[Found]("swept")
TRANSACTION: Final = Cell[str]("transaction")


def file_cell(path: str) -> Cell[Age]:
    return Cell(f"file:{path}")


def written_cell(path: str) -> Cell[str]:
    """What a job remembers between its parts."""
    return Cell(f"written:{path}")


def table_cell(name: str) -> Cell[Table]:
    return Cell(f"table:{name}")


def place_cell(name: str) -> Cell[str]:
    """The place of a table or a stage that is not T."""
    return Cell(f"place:{name}")


# The two runs of maintenance.


def condemn(rules: Rules) -> Step[str]:
    """The first run: list the files of T, then read all references, and note what nothing refers to."""
    # Without the slash, `t10/…` is listed too.
    keys = yield from listing("file:t/" if "O4 slash" in rules else "file:t")
    files: set[tuple[str, int]] = set()
    for key in keys:
        version, age = yield from get(Cell[Age](key))
        if age == "old" or (age is not None and "O1" not in rules):
            files.add((key.removeprefix("file:"), version))
    if "O4 alone" in rules and not (yield from call(is_alone)):
        return SWEPT
    needed = yield from call(references, rules)
    if needed is None:
        return SWEPT
    found = frozenset(one for one in files if one[0] not in needed)
    if not found or ("O7" in rules and len(found) > SHARE_MAX * len(keys)):
        return SWEPT
    version, _ = yield from get(CONDEMNED)
    yield from put(CONDEMNED, found, version)
    if "O2 wait" not in rules:
        return (yield from goto(sweep, found, rules))
    return SWEPT


def remove(rules: Rules) -> Step[str]:
    """The second run: a day after the list was written, delete what is still not referred to."""
    before, found = yield from get(CONDEMNED)
    if found is None:
        return SWEPT
    if "O2 wait" in rules:
        yield from quiet()
    version, found = yield from get(CONDEMNED)
    if found is None or version != before:
        return SWEPT
    if (yield from call(sweep, found, rules)) == SWEPT:
        yield from delete(CONDEMNED, version)
    return SWEPT


def sweep(found: Found, rules: Rules) -> Step[str]:
    """List the files, bump the pointer, look at all references, delete. A run that dies here leaves both lists."""
    early: frozenset[str] | None = frozenset()
    if "O5 order" not in rules and "O2 again" in rules:
        early = yield from call(references, rules)
    if "O5 list" in rules and not (yield from call(mark, found, rules)):
        return BUSY
    if "O2 again" not in rules:
        needed: frozenset[str] | None = frozenset()
    elif "O5 order" in rules:
        needed = yield from call(references, rules)
    else:
        needed = early
    if needed is None or ("O4 alone" in rules and not (yield from call(is_alone))):
        return BUSY
    for path, listed in sorted(found):
        if path not in needed:
            yield from call(delete_file, path, listed, rules)
    return SWEPT


def mark(found: Found, rules: Rules) -> Step[bool]:
    """Add the files to the list of T, then mark the pointer, or bump it if it is marked: slower commits lose."""
    version, before = yield from get(SWEPT_FILES)
    listed = (before or frozenset()) | found if "O5 keep" in rules else found
    answer = yield from put(SWEPT_FILES, listed, version)
    if answer.outcome != "ok":
        return False
    if "O5 bump" not in rules:
        return True
    for _ in range(TRIES_MAX):
        version, table = yield from read(T)
        answer = yield from put(T, table._replace(is_swept=True), version)
        if answer.outcome == "ok":
            return True
    return False


def delete_file(path: str, listed: int, rules: Rules) -> Step[bool]:
    version, _ = yield from get(file_cell(path))
    answer = yield from delete(file_cell(path), listed if "O6" in rules else version)
    return answer.outcome == "ok"


def is_alone() -> Step[bool]:
    """Whether no other table and no stage has a place in that of T."""
    for key in (yield from listing("place:")):
        _, place = yield from get(Cell[str](key))
        if place is not None and f"{place}/".startswith("t/"):
            return False
    return True


def references(rules: Rules) -> Step[frozenset[str] | None]:
    """Every file that a table refers to; None if one cannot be read."""
    needed: set[str] = set()
    for key in (yield from listing("table:")):
        if key != T.key and "O3 tables" not in rules:
            continue
        _, table = yield from read(Cell[Table](key))
        if key == T.key and "O10" in rules and not table.is_collected:
            return None
        if not table.is_readable:
            if "O3 read" in rules:
                return None
            continue
        named = set(table.current | table.former)
        named |= table.tagged if "O3 tags" in rules else frozenset()
        named |= table.pending if "O3 pending" in rules else frozenset()
        needed |= {f"{table.scheme}{path}" for path in named}
    return frozenset(needed)


# Writers and readers.


def write(path: str) -> Step[str]:
    """The first part of a job: it writes its file."""
    answer = yield from put(file_cell(path), "young", ABSENT)
    if answer.outcome == "ok":
        yield from put(written_cell(path), "written", ABSENT)
    return OK if answer.outcome == "ok" else BUSY


def finish(path: str, rules: Rules) -> Step[str]:
    """The second part of a job: it commits its file, if it knows that the file was written."""
    _, is_written = yield from get(written_cell(path))
    return (yield from goto(commit, path, rules)) if is_written else BUSY


def commit(path: str, rules: Rules) -> Step[str]:
    """Commit a file that was written before."""
    for _ in range(TRIES_MAX):
        version, table = yield from read(T)
        if not (yield from call(is_there, path, table.is_swept, rules)):
            return INVALID
        answer = yield from put(T, table._replace(current=table.current | {path}), version)
        if answer.outcome != "lost":
            return OK if answer.outcome == "ok" else BUSY
    return CONFLICT


def is_there(path: str, is_swept: bool, rules: Rules) -> Step[bool]:  # noqa: FBT001 -- jumps pass by position
    """O5: whether a file is not one that is being deleted: another version under the same name is another file."""
    if "O5 check" not in rules or not is_swept:
        return True
    _, listed = yield from get(SWEPT_FILES)
    marked = {version for name, version in listed or () if name == path}
    if not marked:
        return True
    version, _ = yield from get(file_cell(path))
    return version != ABSENT and version not in marked


def write_again(path: str, rules: Rules) -> Step[str]:
    """A job that writes to the name of an orphan, and commits at once. One that replaces a file may be refused."""
    version, _ = yield from get(file_cell(path))
    answer = yield from put(file_cell(path), "young", version)
    if answer.outcome != "ok":
        return BUSY
    return (yield from goto(commit, path, rules))


def transact(path: str, rules: Rules) -> Step[str]:
    """A transaction over T and others: a pending, then its record, then the head."""
    version, table = yield from read(T)
    if not (yield from call(is_there, path, table.is_swept, rules)):
        return INVALID
    answer = yield from put(T, table._replace(pending=frozenset({path})), version)
    if answer.outcome != "ok":
        return BUSY
    decided = yield from put(TRANSACTION, "committed", 1)
    if decided.outcome != "ok":
        return BUSY
    return (yield from goto(fold))


def fold() -> Step[str]:
    for _ in range(TRIES_MAX):
        version, table = yield from read(T)
        folded = table._replace(current=table.current | table.pending, pending=frozenset())
        answer = yield from put(T, folded, version)
        if answer.outcome == "ok":
            return OK
    return OK  # The record says committed: a reader resolves the pending.


def commit_elsewhere(name: str, path: str) -> Step[str]:
    """Another table commits a file of its own, written long ago: its pointer has no mark of T."""
    version, table = yield from get(table_cell(name))
    table = table or Table()
    answer = yield from put(table_cell(name), table._replace(current=table.current | {path}), version)
    return OK if answer.outcome == "ok" else BUSY


def clone(name: str) -> Step[str]:
    """A table is created from the files of T, as a clone or from an older metadata file."""
    _, table = yield from read(T)
    answer = yield from put(table_cell(name), Table(current=table.current), ABSENT)
    return OK if answer.outcome == "ok" else BUSY


def scan() -> Step[str]:
    """A reader plans, and then opens the files."""
    _, table = yield from read(T)
    for path in sorted(table.current):
        version, _ = yield from get(file_cell(path))
        if version == ABSENT:
            return MISSING
    return OK


def supersede(path: str) -> Step[str]:
    """A commit removes a file: from now on only an old snapshot needs it."""
    version, table = yield from read(T)
    after = table._replace(current=table.current - {path}, former=table.former | {path})
    answer = yield from put(T, after, version)
    return OK if answer.outcome == "ok" else BUSY


def expire(path: str, rules: Rules) -> Step[str]:
    """Remove the old snapshot that needs the path, and the file, as Iceberg does in one step.

    O8: if others may need the file, it is left to the removal of orphans. O9: a snapshot that was current less than a
    day ago stays, and so do branches and tags. O11: what a run that died did not compare is compared first.
    """
    _, table = yield from read(T)
    if "O11" in rules and table.lost:
        table = yield from call(compare)
    if path not in table.former or ("O10" in rules and not table.is_collected):
        return SWEPT
    if "O9 grace" in rules:
        yield from quiet()
    version, table = yield from read(T)
    tagged = table.tagged if "O9 tags" in rules else frozenset[str]()
    after = table._replace(former=table.former - {path}, tagged=tagged)
    answer = yield from put(T, after, version)
    if answer.outcome != "ok":
        return BUSY
    others = (yield from call(references, rules)) if "O8" in rules else after.current | after.tagged
    if others is not None and path not in others:
        at, _ = yield from get(file_cell(path))
        yield from delete(file_cell(path), at)
    return OK


def rewrite(path: str, rules: Rules) -> Step[str]:
    """A rewrite that loses the rows of a file by mistake."""
    version, table = yield from read(T)
    after = table._replace(current=table.current - {path}, former=table.former | {path}, lost=frozenset({path}))
    answer = yield from put(T, after, version)
    if answer.outcome == "ok" and "O11" in rules:
        yield from call(compare)
    return OK if answer.outcome == "ok" else BUSY


def compare() -> Step[Table]:
    """Compare the rows of a rewrite with those before it, and roll it back if some are lost (O11)."""
    version, table = yield from read(T)
    if not table.lost:
        return table
    back = table._replace(current=table.current | table.lost, former=table.former - table.lost, lost=frozenset())
    answer = yield from put(T, back, version)
    return back if answer.outcome == "ok" else table._replace(former=frozenset())


def forget(path: str) -> Step[str]:
    """The expiry of a snapshot whose files stay, because others may need them."""
    version, table = yield from read(T)
    answer = yield from put(T, table._replace(former=table.former - {path}), version)
    return OK if answer.outcome == "ok" else BUSY


def begin(verb: Verb, rules: Rules) -> Step[str]:  # noqa: C901, PLR0912 -- one line for each kind of actor
    match verb.name:
        case "condemn":
            return condemn(rules)
        case "remove":
            return remove(rules)
        case "write":
            return write(verb.path)
        case "commit":
            return finish(verb.path, rules)
        case "slow":
            return commit(verb.path, rules)
        case "again" | "replace":
            return write_again(verb.path, rules)
        case "transact":
            return transact(verb.path, rules)
        case "clone":
            return clone("clone")
        case "scan":
            return scan()
        case "expire":
            return expire(verb.path, rules)
        case "forget":
            return forget(verb.path)
        case "supersede":
            return supersede(verb.path)
        case "rewrite":
            return rewrite(verb.path, rules)
        case other:
            return commit_elsewhere(other, verb.path)


class Lake(NamedTuple):
    """The state in which a case begins: T, other tables, the places in the place of T, the files, and those swept.

    `needed` are files that a reader needs in the end: their rows must stay, or tables refer to them that no run sees.
    """

    table: Table = Table(frozenset({"t/a"}))
    tables: tuple[tuple[str, Table], ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    files: tuple[tuple[str, Age], ...] = (("t/a", "old"), ("t/b", "old"), ("t/x", "old"))
    swept: Found = frozenset()
    needed: frozenset[str] = frozenset()


def system(verbs: Sequence[Verb], lake: Lake, rules: Rules = RULES, *, losable: int = 0) -> System:
    """T, whose orphans are removed while the verbs run. The commit of a job comes after its write."""
    store: dict[str, tuple[int, object]] = {T.key: (1, lake.table), TRANSACTION.key: (1, "preparing")}
    store |= {table_cell(name).key: (1, table) for name, table in lake.tables}
    store |= {place_cell(name).key: (1, place) for name, place in lake.places}
    store |= {file_cell(path).key: (1, age) for path, age in lake.files}
    if lake.swept:
        store[SWEPT_FILES.key] = (1, lake.swept)
    written = {verb.path: index for index, verb in enumerate(verbs) if verb.name == "write"}
    actors = [
        Actor(
            f"{verb.name}{index}",
            begin,
            (verb, rules),
            after=(written[verb.path],) if verb.name == "commit" else (),
        )
        for index, verb in enumerate(verbs)
    ]

    def judge(moment: Moment) -> None:
        judge_files(moment.store, lake)
        for verb, result in zip(verbs, moment.results, strict=True):
            if verb.name in {"commit", "again"} and result == INVALID:
                raise Violation("a writer that is not slower than the minimum age was refused")
            if verb.name == "scan" and result == MISSING:
                raise Violation("a reader misses a file of the snapshot that it began with")

    return System(store, actors, judge, losable=losable)


def judge_files(store: Store, lake: Lake) -> None:
    """Every file that a table refers to exists, and every tag is there."""
    if held(store, T) is not None and not lake.table.tagged <= kept(store, T).tagged:
        raise Violation("a tag is gone")
    for path in sorted(lake.needed):
        if held(store, file_cell(path)) is None:
            raise Violation(f"a reader needs {path}, which was deleted")
    for key in present(store, "table:"):
        table = kept(store, Cell[Table](key))
        needed = table.current | table.former | table.tagged
        if held(store, TRANSACTION) == "committed":
            needed |= table.pending
        for path in sorted(needed):
            if held(store, file_cell(path)) is None:
                raise Violation(f"{key.removeprefix('table:')} refers to {path}, which was deleted")
