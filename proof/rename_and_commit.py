"""Commits beside a rename or drop of their table: their name is gone, or leads to another table (C10).

The requests are those of `proof.commit`. They assert the uuid of the table, unless their id begins with "blind". The
pointer, the claim and the receipts belong to the table and stay its own under every name.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from proof import commit as unnamed
from proof.answers import BUSY, CONFLICT, NO_TABLE, OK, UNKNOWN
from proof.checker import Actor, System
from proof.commit import (
    FIRST,
    POINTER,
    TRIES_MAX,
    Claim,
    Pointer,
    Request,
    Setting,
    Try,
    claim_of,
    file_name,
    helping,
    is_committed,
    judge_of,
    moved,
    refusal,
)
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Step, call, delete, get, goto, passed, put, put_call, read, together

DROP_TRIES_MAX: Final = 4

# "gone": nothing is there, and the name still tells the uuid. "reused": another table had the name, and was dropped.
Name: TypeAlias = Literal["table", "gone", "other", "reused"]
Dropped: TypeAlias = Literal["stays", "purged", "back"]
Files: TypeAlias = Literal["files"]
NAME: Final = Cell[Name]("name:t")
FILES: Final = Cell[Files]("files")


class Others(NamedTuple):
    """What happens beside the requests.

    `names` are the states that the name gets, one after the other. `foreign` are the ids of commits under the name that
    the table has. `drop` says what happens to a dropped table: it "stays", is "purged", or comes "back" elsewhere.
    """

    names: tuple[Name, ...] = ()
    foreign: tuple[str, ...] = ()
    drop: Dropped | None = None


def commit(attempt: Try) -> Step[str]:
    """Resolve the name, read the pointer, decide. A claim that is held was taken before (C8)."""
    request = attempt.request
    _, name = yield from read(NAME)
    if name != "table":
        return (yield from goto(commit_without_name, attempt, name))
    version, pointer = yield from read(POINTER)
    if pointer.is_dropped:
        return (yield from goto(commit_without_name, attempt, "gone"))
    if attempt.locations and (yield from is_committed(pointer, attempt)):
        return (yield from goto(finish, attempt))
    if refused := refusal(pointer, request):
        return (yield from goto(refuse, attempt, refused))
    if attempt.number > TRIES_MAX:
        return BUSY
    return (yield from goto(write_aside, attempt, version, pointer))


def write_aside(attempt: Try, version: int, pointer: Pointer) -> Step[str]:
    """C4, C5, C7: the claim and the receipt of the head, in one round."""
    request, location = attempt.request, file_name(attempt, pointer)
    locations = (*attempt.locations, location)
    claim = put_call(claim_of(request), Claim("open", attempt.actor, locations), attempt.claim)
    claims = [claim] if request.key else []
    answers = yield from together(*claims, *helping(pointer, attempt.setting.rules))
    if request.key and answers[0].outcome != "ok":
        return (yield from goto(follow, attempt))
    if answers[-1].outcome == "unknown":
        return BUSY
    held = answers[0].version if request.key else ABSENT
    tried = attempt._replace(locations=locations, claim=held)
    return (yield from goto(swap, tried, version, pointer, location))


def swap(attempt: Try, version: int, pointer: Pointer, location: str) -> Step[str]:
    """C6, C7: a lost swap resolves the name again."""
    answer = yield from put(POINTER, moved(pointer, location, attempt), version)
    if answer.outcome == "ok":
        return OK
    if answer.outcome == "unknown":
        now, _ = yield from read(POINTER)
        if now == version:
            return UNKNOWN  # G2
    return (yield from goto(commit, attempt._replace(number=attempt.number + 1)))


def commit_without_name(attempt: Try, name: Name) -> Step[str]:
    """C10: look at the table of the claim or of the uuid, whatever its name is now, before refusing."""
    request, rules = attempt.request, attempt.setting.rules
    is_about_another = name == "reused" and request.id.startswith("blind") and not attempt.claim
    if is_about_another:
        return (yield from goto(refuse_elsewhere, request))
    if request.key and not attempt.claim:
        _, claim = yield from get(claim_of(request))
        if claim:
            return (yield from goto(follow, attempt))
    if "C10 look" in rules and attempt.locations and (yield from call(shows_commit, attempt)):
        return (yield from goto(finish, attempt))
    if "C10 fence" in rules and attempt.is_taken_over:
        if not (yield from call(fence)):
            return UNKNOWN
        if "C10 again" in rules and (yield from call(shows_commit, attempt)):
            return (yield from goto(finish, attempt))
    return (yield from goto(refuse, attempt, CONFLICT if name == "other" else NO_TABLE))


def shows_commit(attempt: Try) -> Step[bool]:
    """Whether the table shows that the commit was made. A table whose files are gone shows nothing."""
    _, pointer = yield from read(POINTER)
    if pointer.is_dropped:
        _, files = yield from get(FILES)
        if files is None:
            return False
    return (yield from is_committed(pointer, attempt))


def fence() -> Step[bool]:
    """A swap that was decided before loses from here on, also if the bump is lost. False if the outcome is unknown."""
    version, pointer = yield from read(POINTER)
    if pointer.is_dropped:
        return True
    answer = yield from put(POINTER, pointer, version)
    return answer.outcome != "unknown"


def refuse(attempt: Try, refused: str) -> Step[str]:
    """G3: with a key, the claim records the refusal before it is answered."""
    request = attempt.request
    if not request.key:
        return refused
    answer = yield from put(claim_of(request), Claim(refused, attempt.actor, attempt.locations), attempt.claim)
    return refused if answer.outcome == "ok" else (yield from goto(follow, attempt))


def refuse_elsewhere(request: Request) -> Step[str]:
    """The name tells the uuid of the table that had it last; the refusal is recorded in a claim of that table."""
    claim = Cell[Claim](f"other claim:{request.key}")
    answer = yield from put(claim, Claim(NO_TABLE, "", ()), ABSENT)
    return BUSY if answer.outcome == "unknown" else NO_TABLE


def follow(attempt: Try) -> Step[str]:
    """C8: replay, wait, or take the claim over and resolve the name again."""
    request = attempt.request
    version, claim = yield from get(claim_of(request))
    if claim is None:
        return BUSY
    if claim.status != "open":
        return claim.status
    _, pointer = yield from read(POINTER)
    if (yield from is_committed(pointer, attempt._replace(locations=claim.locations))):
        return OK
    if not (yield from passed()) or attempt.number > TRIES_MAX:
        return BUSY
    answer = yield from put(claim_of(request), claim._replace(owner=attempt.actor), version)
    again = attempt._replace(number=attempt.number + 1)
    if answer.outcome != "ok":
        return (yield from goto(follow, again))
    taken = again._replace(locations=claim.locations, claim=answer.version, is_taken_over=True)
    return (yield from goto(commit, taken))


def finish(attempt: Try) -> Step[str]:
    return (yield from goto(unnamed.finish, attempt)) if attempt.request.key else OK


def change_name(names: tuple[Name, ...]) -> Step[str]:
    """Renames and creations of others: each is one swap of this name."""
    version, _ = yield from read(NAME)
    for name in names:
        answer = yield from put(NAME, name, version)
        if answer.outcome != "ok":
            return BUSY
        version = answer.version
    return OK


def drop(then: Dropped) -> Step[str]:
    """D3, D4: the name, then the pointer; then a purge, or an undrop under another name."""
    version, _ = yield from read(NAME)
    dropped = yield from put(NAME, "gone", version)
    if dropped.outcome != "ok" or not (yield from call(set_dropped, is_dropped=True)):
        return BUSY
    if then == "back":
        return OK if (yield from call(set_dropped, is_dropped=False)) else BUSY
    if then == "purged":
        at, _ = yield from read(FILES)
        yield from delete(FILES, at)
    return OK


def set_dropped(*, is_dropped: bool) -> Step[bool]:
    for _ in range(DROP_TRIES_MAX):
        version, pointer = yield from read(POINTER)
        answer = yield from put(POINTER, pointer._replace(is_dropped=is_dropped), version)
        if answer.outcome != "lost":
            return answer.outcome == "ok"
    return False


def system(
    requests: list[tuple[str, Request]], rules: Rules, others: Others, *, log_max: int = 1, losable: int = 0
) -> System:
    """One actor per request; a request that is listed twice is a retry."""
    setting = Setting(rules, log_max)
    foreign = [(f"F{number}", Request(one, None, None)) for number, one in enumerate(others.foreign)]
    actors = [Actor(name, commit, (Try(name, request, setting),)) for name, request in requests]
    actors += [Actor(name, unnamed.commit, (Try(name, request, setting),)) for name, request in foreign]
    if others.names:
        actors.append(Actor("names", change_name, (others.names,)))
    if others.drop:
        actors.append(Actor("drop", drop, (others.drop,)))
    store = {NAME.key: (1, "table"), POINTER.key: (1, FIRST), FILES.key: (1, "files")}
    return System(store, actors, judge_of([*requests, *foreign], setting, commit), losable=losable)
