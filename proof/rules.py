"""The rules of the protocols that can be left out of a model, to see what each is for."""

from typing import Final, TypeAlias

Rules: TypeAlias = frozenset[str]

RULES: Final = {
    "C3": "a metadata file's name is unique per attempt; nobody adopts another attempt's file",
    "C4": "the claim keeps every location tried, not the latest",
    "C5": "before the pointer moves past a file its receipt exists; recovery asks for it after the pointer",
    "C7": "a further attempt swaps the claim before it swaps the pointer, and gives way when that is lost",
    "C8": "a takeover reads the pointer after it has swapped the claim, not before",
    "C9": "without a key the file name carries the request's hash, looked for when a requirement fails",
    "GC1": "a file that could still be swapped in is deleted only after the pointer's version was swapped on",
    "GC2": "orphan collection condemns the pointer, then looks for its name, then kills",
    "N4": "a name is born `new`; who meets it checks the namespace's id after the name, and only then believes it",
    "N4 name": "an attempt that finds its uuid under the name judges it by the namespace id in the name",
    "N4 seen": "a creator that cannot take its `new` namespace away does not say that it never was",
    "N5": "a creator reads its pointer again after it wrote the name",
    "N6": "who has a child to show cancels `dropping` by a swap; it does not withdraw the child",
    "N6 back": "that a namespace is not empty is answered only after it was swapped back to active",
    "N6 id": "who drops a namespace does not count a `new` name made for an earlier namespace of that name",
    "N7": "who changes a `new` name first binds its pointer; orphan collection looks at unbound ones only",
    "N7 pending": "who changes a `pending` name of a committed transaction first binds its pointer",
    "N8": "a keyed create that loses the name kills its pointer before it answers",
    "N9": "a name once used is never deleted by an operation, only swapped",
    "N10": "a keyed create whose pointer was killed swaps its claim to a fresh uuid and goes on",
    "D2": "the claim of a drop names the uuid; a `dropped` name is reused only after its pointer is dropped",
    "D3": "drop happens at the name, then the pointer; not the other way round",
    "R1": "that the new name is taken refuses only if the old one is still as it was read before",
    "R6 settle": "who meets `moved` makes the new name active before it reuses the old one",
    "R6 fence": "who frees a `moving` name first makes the rename impossible, by swapping the old name's version on",
    "R7": "a reader that finds `moving` and no `moved` on the other side reads the entry again before it says no",
    "R8 pin": "the claim of a rename names the uuid; a retry moves that table or none",
    "R8 all": "the claim of a rename keeps every rename tried, not the latest",
    "R8 fence": "a further attempt swaps the claim, after it read the names, and gives way when that is lost",
    "R8 order": "an attempt looks for the proof of its rename after it looked for what refuses it, not before",
    "R8 proof": "only `moved` by a rename of the claim proves it; the table under the new name does not",
    "R9": "who reuses a `moved` name first writes into the rename's claim that it happened",
    "S1": "the record of a stage is a cross-check; a commit that asserts the create does not need it",
    "S2": "the uuid of a stage is no proof that this request happened; its content is",
    "S3": "who finds its uuid's pointer made by another request condemns it, looks at the name, then takes it",
    "S4": "the janitor of stages deletes the record and nothing else",
    "T1": "a unique attempt id in pending and record; a pending of another attempt is aborted",
    "T2": "the record exists before the first pending",
    "T2 keep": "(instead of T2) who meets a pending without record writes `aborted`, and nobody ever deletes that",
    "T3 namespace": "a transaction that creates reads the namespaces again after its names, before it commits",
    "T3 pointer": "a transaction that creates reads its new pointers again after its names, before it commits",
    "T5": "a pending of an undecided transaction is neither a table nor free: abort the transaction, or say busy",
    "T5 older": "the older transaction aborts the younger one it meets",
    "T6": "a reader that finds no record reads the pointer again: only the same pending twice means aborted",
    "T9": "record collection finalizes every participant before it deletes a committed record",
    "I1": "a mark is written before the name changes and removed after the index is right",
    "I2": "an index update reads the index, then the name, then swaps: it writes what is true",
    "I3": "an update that finds nothing to change swaps all the same",
    "I4": "a rebuild takes the index's version before it lists",
    "L3": "a trimmed version is compared with the published file; unreadable means unknown, never conflict",
    "L4": "commits are trimmed only up to a version whose published file exists",
    "L5": "a commit is decided on the record that says whether the table lives; what was dropped takes none",
}


def of(*families: str) -> Rules:
    """The rules of some families: "N" gives N4, N5, …; "T3" gives both its parts."""
    chosen = frozenset(rule for rule in RULES if rule.startswith(families))
    missing = [family for family in families if not any(rule.startswith(family) for rule in RULES)]
    if missing:
        raise ValueError(f"rules: no rule begins with {missing}")
    return chosen


def without(rules: Rules, *left_out: str) -> Rules:
    """The rules but for some; every one left out must have been among them."""
    if not rules.issuperset(left_out):
        raise ValueError(f"rules {sorted(rules)}: cannot leave out {sorted(set(left_out) - rules)}")
    return rules.difference(left_out)
