"""The rules of the protocols. A model can leave one out, which shows what the rule prevents."""

from typing import Final, TypeAlias

Rules: TypeAlias = frozenset[str]

RULES: Final = {
    "C3": "the name of a metadata file is unique per attempt; no attempt adopts the file of another one",
    "C4": "the claim keeps every attempted location, not only the latest",
    "C5": "before the pointer moves past a file, its receipt exists; recovery reads the receipt after the pointer",
    "C7": "a further attempt swaps the claim before it swaps the pointer, and stops if it loses the claim",
    "C8": "a takeover reads the pointer after it has swapped the claim, not before",
    "C9": "without a key, the file name contains the hash of the request; it is searched for when a requirement fails",
    "GC1": "a file that could still become current is deleted only after the pointer was bumped",
    "GC2": "the orphan janitor condemns the pointer, then reads its name, then kills the pointer",
    "N4": "a name is created as `new`; it exists only if its namespace, read after it, has the recorded id",
    "N4 name": "an attempt that finds its uuid under the name checks it by the namespace id in the name",
    "N4 seen": "a creator that cannot remove its `new` namespace does not answer that it was never created",
    "N5": "a creator reads its pointer again after it has written the name",
    "N6": "the creator of a child cancels `dropping` by a swap; it does not withdraw the child",
    "N6 back": '"not empty" is answered only after the namespace was swapped back to active',
    "N6 id": "a drop of a namespace ignores a `new` name that was created for an earlier namespace of that name",
    "N7": "a writer that changes a `new` name first binds its pointer; the orphan janitor visits unbound pointers only",
    "N7 pending": "a writer that changes a `pending` name of a committed transaction first binds its pointer",
    "N8": "a keyed create that loses the name kills its pointer before it answers",
    "N9": "no operation deletes a name that was used; it is only swapped",
    "N10": "a keyed create whose pointer was killed swaps its claim to a new uuid and continues",
    "D2": "the claim of a drop pins the uuid; a `dropped` name is reused only after its pointer is dropped",
    "D3": "a drop swaps the name first, then the pointer",
    "R1": "a taken new name refuses the rename only if the old name is still as it was read before",
    "R6 settle": "a writer that finds `moved` makes the new name active before it reuses the old one",
    "R6 fence": "a writer that frees a `moving` name first bumps the old name, which makes the rename impossible",
    "R7": "a reader that finds `moving` here and no `moved` there reads the entry again before it answers 404",
    "R8 pin": "the claim of a rename pins the uuid; a retry moves that table or none",
    "R8 all": "the claim of a rename keeps every attempted rename, not only the latest",
    "R8 fence": "a further attempt swaps the claim after it has read the names, and stops if it loses the claim",
    "R8 order": "an attempt looks for the proof of its rename after it has looked for a reason to refuse, not before",
    "R8 proof": "only a `moved` name with a rename of the claim proves it; the table under the new name does not",
    "R9": "a writer that reuses a `moved` name first marks the claim of the rename as done",
    "S1": "the record of a stage is a cross-check; a commit that asserts the creation does not need it",
    "S2": "the uuid of a stage does not prove that this request happened; its content does",
    "S3": "a request whose pointer was made by another request condemns it, reads the name, then takes it",
    "S4": "the janitor of stages deletes the record and nothing else",
    "T1": "pending and record contain a unique attempt id; a pending of another attempt is aborted",
    "T2": "the record exists before the first pending",
    "T2 keep": "(instead of T2) a request that finds a pending without a record writes `aborted`, for ever",
    "T3 namespace": "a transaction that creates reads the namespaces again after its names, before it commits",
    "T3 pointer": "a transaction that creates reads its new pointers again after its names, before it commits",
    "T5": "a pending of an undecided transaction is neither a table nor a free name: abort it, or answer busy",
    "T5 older": "the older transaction aborts the younger one",
    "T6": "a reader that finds no record reads the pointer again: only the same pending twice means aborted",
    "T9": "the janitor of transactions finishes every participant before it deletes a committed record",
    "I1": "a mark is written before the name changes and removed after the index is up to date",
    "I2": "an index update reads the index, then the name, then swaps: it writes the current state of the name",
    "I3": "an update that changes nothing still swaps",
    "I4": "a rebuild reads the version of the index before it lists the names",
    "L3": "a trimmed version is compared with the published file; unreadable means unknown, never conflict",
    "L4": "commits are trimmed only up to a version whose published file exists",
    "L5": "a commit is decided on the record that says whether the table is dropped; a dropped table accepts none",
    "O1": "at a chosen place, a creation writes its record, then looks for the others, then writes its name",
    "O3 order": "a volume looks for purge orders after its record is written, and gives way to them",
    "O3 look": "a purge looks for volumes after its order is due, and deletes nothing if there is one",
}


def of(*families: str) -> Rules:
    """The rules of some families: "N" gives N4, N5, …; "T3" gives both its parts."""
    chosen = frozenset(rule for rule in RULES if rule.startswith(families))
    missing = [family for family in families if not any(rule.startswith(family) for rule in RULES)]
    if missing:
        raise ValueError(f"rules: no rule begins with {missing}")
    return chosen


def without(rules: Rules, *left_out: str) -> Rules:
    """The rules without some of them; ValueError if one of those is not among the rules."""
    if not rules.issuperset(left_out):
        raise ValueError(f"rules {sorted(rules)}: cannot leave out {sorted(set(left_out) - rules)}")
    return rules.difference(left_out)
