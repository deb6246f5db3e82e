"""Commit of one table: a claim for the key, a swap of the pointer, receipts (C1 to C11).

A metadata file is immutable and has a unique name, so the model stores its content in the pointer; `proof.files` models
the files. A request sets `main` to its id. An id that begins with "snap" also adds a snapshot with that id; an id that
begins with "undo" sets `main` back to the start.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple, TypeAlias

from proof.answers import BUSY, CONFLICT, NO_TABLE, OK, REFUSED, UNKNOWN, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules
from proof.steps import ABSENT, Cell, Put, Result, Step, get, goto, passed, put, put_call, read, together
from proof.store import Store, kept, present, run

TRIES_MAX: Final = 2
START: Final = "start"


class Request(NamedTuple):
    """`guard` is the value that `main` must have; `key` the idempotency key."""

    id: str
    guard: str | None
    key: str | None


class Pointer(NamedTuple):
    location: str
    is_dropped: bool
    applied: tuple[str, ...]
    log: tuple[str, ...]
    main: str


class Claim(NamedTuple):
    """C4: the list keeps every attempted location; `status` is "open" or the answer to replay."""

    status: str
    owner: str
    locations: tuple[str, ...]


class Setting(NamedTuple):
    rules: Rules
    log_max: int


class Try(NamedTuple):
    """The state of one actor: its request, the number of attempts, and the locations and version of its claim.

    `is_taken_over` says that the claim was another attempt's; only `proof.rename_and_commit` notes it.
    """

    actor: str
    request: Request
    setting: Setting
    number: int = 0
    locations: tuple[str, ...] = ()
    claim: int = ABSENT
    is_taken_over: bool = False


Receipt: TypeAlias = Literal["receipt"]
POINTER: Final = Cell[Pointer]("pointer")
RECEIPT: Final[Receipt] = "receipt"
FIRST: Final = Pointer("0-init-0", False, (), (), START)  # noqa: FBT003 -- a positional struct


def claim_of(request: Request) -> Cell[Claim]:
    return Cell(f"claim:{request.key}")


def receipt_of(location: str) -> Cell[Receipt]:
    return Cell(f"receipt:{location}")


def file_name(attempt: Try, pointer: Pointer) -> str:
    """C3: the version, the key or request hash, and a nonce of this attempt."""
    request = attempt.request
    return f"{len(pointer.applied) + 1}-{request.key or request.id}-{attempt.actor}{attempt.number}"


def of_request(location: str, key: str) -> bool:
    return location.split("-")[1] == key


def moved(pointer: Pointer, location: str, attempt: Try) -> Pointer:
    request, log_max = attempt.request, attempt.setting.log_max
    log = (*pointer.log, pointer.location)[-log_max:] if log_max else ()
    main = START if request.id.startswith("undo") else request.id
    return Pointer(location, False, (*pointer.applied, request.id), log, main)  # noqa: FBT003 -- a positional struct


def refusal(pointer: Pointer, request: Request) -> str | None:
    if pointer.is_dropped:
        return NO_TABLE
    return CONFLICT if request.guard not in (None, pointer.main) else None


def is_in_log(pointer: Pointer, key: str, locations: tuple[str, ...]) -> bool:
    return any(of_request(one, key) or one in locations for one in (pointer.location, *pointer.log))


def helping(pointer: Pointer, rules: Rules) -> list[Put]:
    """C5: the receipt of the head exists before the pointer moves past it."""
    return [put_call(receipt_of(pointer.location), RECEIPT, ABSENT)] if "C5" in rules else []


def commit(attempt: Try) -> Step[str]:
    """C1, C2: read, decide, then claim and help in one round."""
    request, rules = attempt.request, attempt.setting.rules
    version, pointer = yield from read(POINTER)
    if not request.key:
        return (yield from goto(commit_unkeyed, attempt, version, pointer))
    refused = refusal(pointer, request)
    if refused:  # C4: if a requirement fails at once, the claim is written with the answer.
        answer = yield from put(claim_of(request), Claim(refused, attempt.actor, ()), ABSENT)
        return refused if answer.outcome == "ok" else (yield from goto(follow, attempt))
    location = file_name(attempt, pointer)
    claim = put_call(claim_of(request), Claim("open", attempt.actor, (location,)), ABSENT)
    answers = yield from together(claim, *helping(pointer, rules))
    if answers[0].outcome != "ok":
        return (yield from goto(follow, attempt))
    if answers[-1].outcome == "unknown":
        return BUSY  # G2: a receipt that may be missing does not count.
    claimed = attempt._replace(locations=(location,), claim=answers[0].version)
    return (yield from goto(swap, claimed, version, pointer, location))


def is_replay(pointer: Pointer, request: Request, rules: Rules) -> bool:
    """C9: without a key, the added snapshot exists, or a file of this request is in the log."""
    if request.id.startswith("snap") and request.id in pointer.applied:
        return True
    return "C9" in rules and refusal(pointer, request) == CONFLICT and is_in_log(pointer, request.id, ())


def commit_unkeyed(attempt: Try, version: int, pointer: Pointer) -> Step[str]:
    request, rules = attempt.request, attempt.setting.rules
    if is_replay(pointer, request, rules):
        return OK
    refused = refusal(pointer, request)
    if refused:
        return refused
    if attempt.number > TRIES_MAX:
        return BUSY
    location = file_name(attempt, pointer)
    for answer in (yield from together(*helping(pointer, rules))) if "C5" in rules else ():
        if answer.outcome == "unknown":
            return BUSY
    swapped = yield from put(POINTER, moved(pointer, location, attempt), version)
    if swapped.outcome == "ok":
        return OK
    now, found = yield from read(POINTER)
    if swapped.outcome == "unknown":
        _, receipt = yield from get(receipt_of(location))
        if is_in_log(found, "", (location,)) or receipt:
            return OK
        if now == version:
            return UNKNOWN  # G2: the swap may still be applied.
    return (yield from goto(commit_unkeyed, attempt._replace(number=attempt.number + 1), now, found))


def swap(attempt: Try, version: int, pointer: Pointer, location: str) -> Step[str]:
    """C6: the commit happens here."""
    answer = yield from put(POINTER, moved(pointer, location, attempt), version)
    if answer.outcome == "ok":
        return OK  # The claim stays open: a retry finds the proof (C8).
    now, found = yield from read(POINTER)
    if answer.outcome == "unknown" and now == version:
        return UNKNOWN  # C7: the swap may still be applied, so the claim stays open.
    return (yield from goto(decide, attempt._replace(number=attempt.number + 1), now, found))


def is_committed(pointer: Pointer, attempt: Try) -> Step[bool]:
    """C5: a file of the claim is the head, is in its log, or has a receipt. The receipts are read after the pointer."""
    if is_in_log(pointer, attempt.request.key or "", attempt.locations):
        return True
    if "C5" in attempt.setting.rules:
        for location in attempt.locations:
            _, receipt = yield from get(receipt_of(location))
            if receipt:
                return True
    return False


def decide(attempt: Try, version: int, pointer: Pointer) -> Step[str]:
    """C7: the actor holds the claim at version `attempt.claim`; the pointer was read afterwards."""
    request, rules = attempt.request, attempt.setting.rules
    if (yield from is_committed(pointer, attempt)):
        return (yield from goto(finish, attempt))
    refused = refusal(pointer, request)
    if refused:  # G3: the claim records the refusal before it is answered.
        answer = yield from put(claim_of(request), Claim(refused, attempt.actor, attempt.locations), attempt.claim)
        return refused if answer.outcome == "ok" else (yield from goto(follow, attempt))
    if attempt.number > TRIES_MAX:
        return BUSY  # C11: the claim stays open.
    location = file_name(attempt, pointer)
    locations = (*attempt.locations, location) if "C4" in rules else (location,)
    claim = put_call(claim_of(request), Claim("open", attempt.actor, locations), attempt.claim)
    answers = yield from together(claim, *helping(pointer, rules))
    if answers[0].outcome != "ok" and "C7" in rules:  # The fence: another attempt holds the claim now.
        return (yield from goto(follow, attempt))
    if answers[-1].outcome == "unknown":
        return BUSY
    claimed = attempt._replace(locations=locations, claim=answers[0].version)
    return (yield from goto(swap, claimed, version, pointer, location))


def follow(attempt: Try) -> Step[str]:
    """C8: the key is claimed. Replay, wait, or take the claim over if it is stale, which may be at any time.

    A claim that is open replays, too, if one of its files became current: that is final, and needs no takeover.
    """
    request, rules = attempt.request, attempt.setting.rules
    early = None if "C8" in rules else (yield from read(POINTER))
    version, claim = yield from get(claim_of(request))
    if claim is None:
        return BUSY  # Our own claim is still in flight.
    if claim.status != "open":
        return claim.status
    _, seen = yield from read(POINTER)
    if (yield from is_committed(seen, attempt._replace(locations=claim.locations))):
        return OK
    is_stale = yield from passed()
    if not is_stale or attempt.number > TRIES_MAX:
        return BUSY
    mine = claim._replace(owner=attempt.actor)
    answer = yield from put(claim_of(request), mine, version)
    again = attempt._replace(number=attempt.number + 1)
    if answer.outcome != "ok":
        return (yield from goto(follow, again))
    at, pointer = early or (yield from read(POINTER))  # C8: the pointer is read after the claim was swapped.
    return (yield from goto(decide, again._replace(locations=claim.locations, claim=answer.version), at, pointer))


def finish(attempt: Try) -> Step[str]:
    """Best effort, by an attempt that took the claim over: the answer does not depend on this write (C6)."""
    yield from put(claim_of(attempt.request), Claim(OK, attempt.actor, attempt.locations[-1:]), attempt.claim)
    return OK


def drop() -> Step[str]:
    version, pointer = yield from read(POINTER)
    answer = yield from put(POINTER, pointer._replace(is_dropped=True), version)
    return OK if answer.outcome == "ok" else UNKNOWN


def system(
    requests: list[tuple[str, Request]],
    rules: Rules,
    *,
    log_max: int = 1,
    losable: int = 0,
    drops: int = 0,
) -> System:
    """One actor per request; a request that is listed twice is a retry."""
    setting = Setting(rules, log_max)
    actors = [Actor(name, commit, (Try(name, request, setting),)) for name, request in requests]
    actors += [Actor(f"drop{number}", drop, ()) for number in range(drops)]
    return System({POINTER.key: (1, FIRST)}, actors, judge_of(requests, setting, commit), losable=losable)


def judge_of(
    requests: list[tuple[str, Request]], setting: Setting, start: Callable[[Try], Step[str]]
) -> Callable[[Moment], None]:
    """The judge of requests that begin with `start`; their actors come first."""

    def judge(moment: Moment) -> None:
        judge_applied(moment, requests, setting.rules)
        for request in {request for _, request in requests if request.key}:
            answers = zip(requests, moment.results, strict=False)
            said = {result for (_, one), result in answers if one == request and result not in UNSURE}
            judge_retry(moment.store, request, said, start(Try("z", request, setting)))

    return judge


def judge_applied(moment: Moment, requests: list[tuple[str, Request]], rules: Rules) -> None:
    pointer = kept(moment.store, POINTER)
    applied = pointer.applied
    if len(set(applied)) < len(applied):
        raise Violation("applied twice")
    for (_, request), result in zip(requests, moment.results, strict=False):
        if result == OK and request.id not in applied:
            raise Violation("acknowledged and not applied")
        if result in REFUSED and request.id in applied:
            raise Violation(f"answered {result} and applied")
    if "C5" in rules and len(present(moment.store, "receipt:")) < len(applied):
        raise Violation("the chain of receipts has a hole behind the head")


def judge_retry(store: Store, request: Request, said: AbstractSet[Result | None], retry: Step[str]) -> None:
    """All actors stop here, and the request is sent once more."""
    later, answer = run(store, retry)
    pointer = kept(later, POINTER)
    times = pointer.applied.count(request.id)
    if times > 1:
        raise Violation("a retry after a crash applies twice")
    if answer in REFUSED and times:
        raise Violation(f"a retry after a crash answers {answer} for an applied commit")
    if answer == OK and not times:
        raise Violation("a retry after a crash answers ok for nothing")
    if answer in UNSURE:
        raise Violation(f"a retry after a crash is stuck at {answer}")
    if said - {answer}:
        raise Violation(f"a replay answers {answer} after {sorted(map(str, said))}")
