"""Cases of grants: requests beside revocations, and the changes of the manifest itself."""

from functools import partial
from typing import Final

from proof.cases.case import Case
from proof.grants.administrators import Administer, Look, OwnerAllows, Transfer, changes
from proof.grants.bootstrap import first_start
from proof.grants.keys import Keyed, replays
from proof.grants.manifest import RULES, Allow, Grant, Revoke
from proof.grants.object_ids import reused_uuid
from proof.grants.segments import collection
from proof.grants.tables import FREE, Commit, FencedRevoke, Load, Repoint, Show, Write, started_after, system
from proof.grants.transaction import revoked
from proof.rules import without

RIGHT: Final = Grant("p", "a")
LOAD, COMMIT = Load("p"), Commit("p", "+p")
REVOKE, ALLOW, FENCED = Revoke(RIGHT), Allow(RIGHT), FencedRevoke(RIGHT)
SECRET, CLEAN, TO_B = Write("a", "secret"), Write("a", "clean"), Repoint("b")
# Each request with the indexes of the requests that have answered before it begins.
REVOKED_THEN_WRITTEN: Final = ((LOAD, ()), (REVOKE, ()), (SECRET, (1,)))
CLEANED_THEN_GRANTED: Final = ((LOAD, ()), (CLEAN, ()), (ALLOW, (1,)))
IN_FLIGHT: Final = ((COMMIT, ()), (FENCED, ()), (Show(), (1,)))
KEYED: Final = Keyed("p", "x")
OTHER_KEYED: Final = Keyed("q", "y")
TWO_ALLOW: Final = (
    (Administer("A", "allow", Grant("c", "r")), ()),
    (Administer("B", "allow", Grant("d", "r")), ()),
)
REMOVE_B: Final = (Administer("A", "revoke", Grant("B", "admin")), ())
OWNER_CHANGES: Final = (
    (OwnerAllows("o", Grant("e", "r")), ()),
    (Transfer("n"), ()),
    (Look(Grant("e", "r")), (1,)),
)

LOADS: Final = (
    Case("grants: load, revoke, then a secret is written", partial(system, REVOKED_THEN_WRITTEN)),
    Case(
        "grants: two loads, revoke, then a secret is written",
        partial(system, (*REVOKED_THEN_WRITTEN, (LOAD, ()))),
    ),
    Case("grants: load, cleaned, then granted", partial(system, CLEANED_THEN_GRANTED, grants=())),
    Case(
        "grants: load, revoke on another table, then renamed here",
        partial(
            system,
            ((LOAD, ()), (Revoke(Grant("p", "b")), ()), (TO_B, (1,))),
            grants=(RIGHT, Grant("p", "b")),
        ),
    ),
    Case(
        "grants: loads, dropped and created again",
        partial(system, ((LOAD, ()), (Repoint(FREE), ()), (TO_B, (1,)), (LOAD, ()))),
    ),
    Case(
        "grants: load, revoke, grant, write",
        partial(system, ((LOAD, ()), (REVOKE, ()), (ALLOW, (1,)), (SECRET, ()))),
    ),
    Case(
        "grants: without A1: load, revoke, then a secret is written",
        partial(system, REVOKED_THEN_WRITTEN, without(RULES, "A1")),
        "not linearizable",
    ),
    Case(
        "grants: without A2: load, revoke, then a secret is written",
        partial(system, REVOKED_THEN_WRITTEN, without(RULES, "A2")),
        "not linearizable",
    ),
    Case(
        "grants: without A2: load, cleaned, then granted",
        partial(system, CLEANED_THEN_GRANTED, without(RULES, "A2"), grants=()),
        "not linearizable",
    ),
    Case(
        "grants: without A3: load, dropped and created again",
        partial(system, ((LOAD, ()), (Repoint(FREE), ()), (TO_B, (1,))), without(RULES, "A3")),
        "not linearizable",
    ),
    Case(
        "grants: without A4: load, the name leads to another table",
        partial(system, ((LOAD, ()), (TO_B, ())), without(RULES, "A4")),
        "not linearizable",
    ),
    Case("grants: a chosen uuid is used again", reused_uuid),
    Case(
        "grants: without A3 minted: a chosen uuid is used again",
        partial(reused_uuid, without(RULES, "A3 minted")),
        "chosen uuid",
    ),
)

COMMITS: Final = (
    Case(
        "grants: commit after the revocation",
        partial(started_after, ((COMMIT, ()), (REVOKE, ()), (COMMIT, (1,)))),
    ),
    Case(
        "grants: without A1: commit after the revocation",
        partial(started_after, ((COMMIT, (1,)), (REVOKE, ())), without(RULES, "A1")),
        "began after",
    ),
    Case(
        "grants: commit in progress, plain revocation (not promised)",
        partial(system, ((COMMIT, ()), (REVOKE, ()), (Show(), (1,)))),
        "not linearizable",
    ),
    Case("grants: commit in progress, fenced revocation", partial(system, IN_FLIGHT)),
    Case("grants: commit in progress, fenced revocation, one answer lost", partial(system, IN_FLIGHT, losable=1)),
    Case("grants: commit in progress, fenced revocation, two answers lost", partial(system, IN_FLIGHT, losable=2)),
    Case(
        "grants: commit in progress, fenced revocation, reads before its answer (not promised)",
        partial(system, ((COMMIT, ()), (FENCED, ()), (LOAD, ()), (Show(), (2,)))),
        "not linearizable",
    ),
    Case(
        "grants: two commits, fenced revocation",
        partial(system, (*IN_FLIGHT, (Commit("p", "+2"), ()))),
    ),
    Case("grants: commit, revocation, one answer lost", partial(system, ((COMMIT, ()), (REVOKE, ())), losable=1)),
    Case(
        "grants: without A5: commit in progress, fenced revocation",
        partial(system, IN_FLIGHT, without(RULES, "A5")),
        "not linearizable",
    ),
    Case(
        "grants: without A5 order: commit in progress, fenced revocation",
        partial(system, IN_FLIGHT, without(RULES, "A5 order")),
        "not linearizable",
    ),
    Case(
        "grants: without A6: commit in progress, fenced revocation",
        partial(system, IN_FLIGHT, without(RULES, "A6")),
        "not linearizable",
    ),
    Case(
        "grants: without A6 attempt: commit in progress, fenced revocation",
        partial(system, IN_FLIGHT, without(RULES, "A6 attempt")),
        "not linearizable",
    ),
    Case(
        "grants: without A7: commit, revocation, one answer lost",
        partial(system, ((COMMIT, ()), (REVOKE, ())), without(RULES, "A7"), losable=1),
        "403 and applied",
    ),
    Case("grants: transaction, fenced revocation on the second table", partial(revoked, "u")),
    Case("grants: transaction, fenced revocation on the first table", partial(revoked, "t")),
    Case(
        "grants: without A15: transaction, fenced revocation on the second table",
        partial(revoked, "u", without(RULES, "A15")),
        "after the revocation",
    ),
    Case(
        "grants: without A15 late: transaction, fenced revocation on the second table",
        partial(revoked, "u", without(RULES, "A15 late")),
        "after the revocation",
    ),
)

KEYS: Final = (
    Case(
        "grants: keyed, revoked, replay, another principal under the key",
        partial(replays, ((KEYED, ()), (REVOKE, ()), (KEYED, (1,)), (OTHER_KEYED, ()))),
    ),
    Case(
        "grants: keyed, revoked, replay, granted again, replay",
        partial(replays, ((KEYED, ()), (REVOKE, ()), (KEYED, (1,)), (ALLOW, (2,)), (KEYED, (3,)))),
    ),
    Case(
        "grants: without A8: two principals under one key",
        partial(replays, ((KEYED, ()), (OTHER_KEYED, ())), without(RULES, "A8")),
        "another principal",
    ),
    Case(
        "grants: without A9: keyed, revoked, replay",
        partial(replays, ((KEYED, ()), (REVOKE, (0,)), (KEYED, (1,))), without(RULES, "A9")),
        "right was revoked",
    ),
    Case(
        "grants: without A10: revoked, keyed, granted again, replay",
        partial(replays, ((REVOKE, ()), (KEYED, (0,)), (ALLOW, (1,)), (KEYED, (2,))), without(RULES, "A10")),
        "granted again",
    ),
)

MANIFEST: Final = (
    Case(
        "grants: an administrator removes another one, who grants",
        partial(
            changes,
            (REMOVE_B, (Administer("B", "allow", Grant("c", "r")), ()), (Look(Grant("c", "r")), (0,))),
        ),
    ),
    Case("grants: three changes of the manifest", partial(changes, (*TWO_ALLOW, REMOVE_B))),
    Case(
        "grants: the owner grants, the owner changes, the new owner grants",
        partial(changes, (*OWNER_CHANGES, (OwnerAllows("n", Grant("c", "r")), ()))),
    ),
    Case(
        "grants: without A11: two changes of the manifest",
        partial(changes, TWO_ALLOW, without(RULES, "A11")),
        "not linearizable",
    ),
    Case(
        "grants: without A12 order: the owner grants, the owner changes",
        partial(changes, OWNER_CHANGES, without(RULES, "A12 order")),
        "not linearizable",
    ),
    Case(
        "grants: without A12 bump: the owner grants, the owner changes",
        partial(changes, OWNER_CHANGES, without(RULES, "A12 bump")),
        "not linearizable",
    ),
    Case("grants: two servers start, two answers lost", partial(first_start, losable=2)),
    Case(
        "grants: three servers start, two recoveries, one answer lost",
        partial(first_start, servers=3, recoveries=2, losable=1),
        is_large=True,
    ),
    Case("grants: without A13: two servers start", partial(first_start, without(RULES, "A13")), "never valid"),
    Case(
        "grants: without A13 unknown: two servers start, one answer lost",
        partial(first_start, without(RULES, "A13 unknown"), losable=1),
        "never valid",
    ),
    Case("grants: segments, collection, one answer lost", collection),
    Case(
        "grants: without A14 bump: segments, collection, one answer lost",
        partial(collection, without(RULES, "A14 bump")),
        "a segment that is gone",
    ),
    Case(
        "grants: without A14 again: segments, collection, one answer lost",
        partial(collection, without(RULES, "A14 again")),
        "a missing segment",
    ),
)

CASES: Final = (*LOADS, *COMMITS, *KEYS, *MANIFEST)
