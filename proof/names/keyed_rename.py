"""Rename under an idempotency key (R8, R9): a claim pins the table and names every rename tried.

The claim is swapped after the names were read and before R2; who takes it over swaps it first and reads the names then.
So a slower attempt either loses its swap of a name or its swap of the claim.
"""

from typing import Final, NamedTuple

from proof.answers import BUSY, NO_TABLE, OK, UNKNOWN
from proof.names.entries import Moved, RenameClaim, name_cell, rename_claim
from proof.names.rename import AGAIN, Plan, move, plan
from proof.names.resolution import look
from proof.rules import Rules
from proof.steps import ABSENT, Step, call, get, goto, passed, put

TRIES_MAX: Final = 1


class Renaming(NamedTuple):
    actor: str
    old: str
    new: str
    key: str
    rules: Rules
    tries: int = 0


def rename_keyed(attempt: Renaming) -> Step[str]:
    """The first attempt: read, then claim."""
    planned = yield from call(plan, attempt.old, attempt.new, attempt.rules)
    if planned in (BUSY, AGAIN):
        return BUSY
    claim = RenameClaim(planned, "", ()) if isinstance(planned, str) else opened(attempt, planned.uuid, ())
    answer = yield from put(rename_claim(attempt.key), claim, ABSENT)
    if answer.outcome != "ok":
        return (yield from goto(follow, attempt))
    if isinstance(planned, str):
        return planned
    return (yield from goto(act, attempt, planned, answer.version, claim))


def opened(attempt: Renaming, uuid: str, renames: tuple[str, ...]) -> RenameClaim:
    return RenameClaim("open", uuid, (*renames, f"{attempt.actor}{attempt.tries}"))


def act(attempt: Renaming, planned: Plan, version: int, claim: RenameClaim) -> Step[str]:
    answer = yield from call(move, planned, claim.renames[-1], attempt.key, attempt.rules)
    if answer == OK:
        return (yield from goto(finish, attempt, OK, version, claim))
    if answer in (UNKNOWN, BUSY):
        return answer  # It may still land; the claim stays open.
    return (yield from goto(decide, attempt._replace(tries=attempt.tries + 1), version, claim))


def finish(attempt: Renaming, verdict: str, version: int, claim: RenameClaim) -> Step[str]:
    """G3: a refusal is answered after the claim records it; a success is decided by the name."""
    answer = yield from put(rename_claim(attempt.key), claim._replace(status=verdict), version)
    if answer.outcome == "ok" or verdict == OK:
        return verdict
    return (yield from goto(follow, attempt))


def decide(attempt: Renaming, version: int, claim: RenameClaim) -> Step[str]:
    """Holds the claim at `version`; the names are read after that, and the proof last (R8 order).

    If the old name was reused since the rename happened, its claim says so (R9), and the swap of the claim is lost.
    """
    rules = attempt.rules
    if "R8 order" not in rules and (yield from call(is_proven, attempt, claim)):
        return (yield from goto(finish, attempt, OK, version, claim))
    planned = yield from call(plan, attempt.old, attempt.new, rules)
    if "R8 order" in rules and (yield from call(is_proven, attempt, claim)):
        return (yield from goto(finish, attempt, OK, version, claim))
    if planned in (BUSY, AGAIN) or attempt.tries > TRIES_MAX:
        return BUSY
    if isinstance(planned, Plan) and planned.uuid != claim.uuid and "R8 pin" in rules:
        planned = NO_TABLE
    if isinstance(planned, str):
        return (yield from goto(finish, attempt, planned, version, claim))
    mine = opened(attempt, planned.uuid, claim.renames if "R8 all" in rules else ())
    answer = yield from put(rename_claim(attempt.key), mine, version)
    if answer.outcome != "ok" and "R8 fence" in rules:
        return (yield from goto(follow, attempt))
    return (yield from goto(act, attempt, planned, answer.version, mine))


def is_proven(attempt: Renaming, claim: RenameClaim) -> Step[bool]:
    """Without "R8 proof", the table under the new name counts as a proof too."""
    _, entry = yield from get(name_cell(attempt.old))
    if isinstance(entry, Moved) and entry.rename in claim.renames:
        return True
    return "R8 proof" not in attempt.rules and (yield from call(look, attempt.new, attempt.rules)) == claim.uuid


def follow(attempt: Renaming) -> Step[str]:
    """The key is claimed: replay, wait, or take the claim over if it is stale, as in C8."""
    version, claim = yield from get(rename_claim(attempt.key))
    if claim is None:
        return BUSY
    if claim.status != "open":
        return claim.status
    is_stale = yield from passed()
    if not is_stale or attempt.tries > TRIES_MAX:
        return BUSY
    answer = yield from put(rename_claim(attempt.key), claim, version)
    again = attempt._replace(tries=attempt.tries + 1)
    if answer.outcome != "ok":
        return (yield from goto(follow, again))
    return (yield from goto(decide, again, answer.version, claim))
