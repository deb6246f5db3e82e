"""Batched commits of one table (B1 to B8): several commits drafted one on the other, one swap of the pointer.

As in the model of single commits, the content of a metadata file is kept with the pointer. A request sets `main` to its
id; one whose id begins with "keep" leaves it, one with "same" sets it back to the start, which may change nothing.
`history` is every file that was ever committed, in order. Answers are noted in `answered` at the moment they are given,
so that crashes in between are judged. A claim stays open after success: its follower looks for the proof first.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proof.answers import BUSY, CONFLICT, NO_TABLE, OK, UNKNOWN, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.rules import Rules, of
from proof.steps import ABSENT, Cell, Put, Step, call, get, goto, in_memory, passed, put, put_call, read, together
from proof.store import Store, kept, present, run

ALL: Final = of("B")
TRIES_MAX: Final = 2
START: Final = "start"
UNCHANGED: Final = "ok, unchanged"
ANSWERED: Final = "answered"
Answers = tuple[tuple[str, str], ...]
SAID: Final = Cell[Answers](ANSWERED)


class Request(NamedTuple):
    id: str
    guard: str | None
    key: str | None


class Pointer(NamedTuple):
    location: str
    passed: tuple[str, ...]
    applied: tuple[str, ...]
    log: tuple[str, ...]
    main: str
    history: tuple[str, ...]


class Claim(NamedTuple):
    status: str
    owner: str
    locations: tuple[str, ...]


class Setting(NamedTuple):
    rules: Rules
    log_max: int


class Try(NamedTuple):
    actor: str
    request: Request
    setting: Setting
    number: int = 0
    locations: tuple[str, ...] = ()
    claim: int = ABSENT


class Member(NamedTuple):
    attempt: Try
    location: str
    after: Pointer


POINTER: Final = Cell[Pointer]("pointer")
RECEIPT: Final = "receipt"


def claim_of(request: Request) -> Cell[Claim]:
    return Cell(f"claim:{request.key}")


def receipt_of(location: str) -> Cell[str]:
    return Cell(f"receipt:{location}")


def note(answered: Answers, name: str, answer: str) -> tuple[str, Answers]:
    return answer, (*answered, (name, answer))


def tell(attempt: Try, answer: str) -> Step[str]:
    """The answer goes out."""
    return (yield from in_memory(ANSWERED, note, f"{attempt.actor}:{attempt.request.id}", answer))


def moved(pointer: Pointer, location: str, request: Request, log_max: int) -> Pointer:
    log = (*pointer.log, pointer.location)[-log_max:] if log_max else ()
    main = main_after(pointer.main, request.id)
    return Pointer(location, (), (*pointer.applied, request.id), log, main, (*pointer.history, location))


def main_after(main: str, request_id: str) -> str:
    if request_id.startswith("keep"):
        return main
    return START if request_id.startswith("same") else request_id


def file_name(attempt: Try, version: int) -> str:
    request = attempt.request
    return f"{version}-{request.key or request.id}-{attempt.actor}{attempt.number}"


def refusal(pointer: Pointer, request: Request) -> str | None:
    if request.id.startswith("same") and pointer.main == START:
        return UNCHANGED
    return CONFLICT if request.guard not in (None, pointer.main) else None


def is_named(pointer: Pointer, attempt: Try) -> bool:
    """Head, passed over by the last swap, or in the log; by the claim's list, by the key or by the request's hash."""
    passed = pointer.passed if "B3" in attempt.setting.rules else ()
    named = (pointer.location, *passed, *pointer.log)
    request = attempt.request
    return any(one in attempt.locations or one.split("-")[1] == (request.key or request.id) for one in named)


def is_committed(pointer: Pointer, attempt: Try) -> Step[bool]:
    if attempt.request.key is None and not attempt.locations:
        # C9: asked only when a requirement fails.
        return refusal(pointer, attempt.request) is not None and is_named(pointer, attempt)
    if is_named(pointer, attempt):
        return True
    for location in attempt.locations:
        _, receipt = yield from get(receipt_of(location))
        if receipt:
            return True
    return False


def helping(pointer: Pointer, rules: Rules) -> list[Put]:
    passed = pointer.passed if "B4" in rules else ()
    return [put_call(receipt_of(one), RECEIPT, ABSENT) for one in (*passed, pointer.location)]


# One commit alone, as before, but for what a pointer names and what is helped.


def single(attempt: Try) -> Step[str]:
    version, pointer = yield from read(POINTER)
    return (yield from goto(single_on, attempt, version, pointer))


def single_on(attempt: Try, version: int, pointer: Pointer) -> Step[str]:
    """Decide on what was read; a claim that is held was taken before that (C8)."""
    request, rules = attempt.request, attempt.setting.rules
    if (attempt.claim or not request.key) and (yield from is_committed(pointer, attempt)):
        return (yield from goto(finish, attempt))
    refused = refusal(pointer, request)
    if refused:
        if not request.key:
            return (yield from tell(attempt, refused))
        answer = yield from put(claim_of(request), Claim(refused, attempt.actor, attempt.locations), attempt.claim)
        return (yield from (tell(attempt, refused) if answer.outcome == "ok" else goto(follow, attempt)))
    if attempt.number > TRIES_MAX:
        return BUSY
    location = file_name(attempt, len(pointer.applied) + 1)
    locations = (*attempt.locations, location)
    calls = helping(pointer, rules)
    if request.key:
        calls = [put_call(claim_of(request), Claim("open", attempt.actor, locations), attempt.claim), *calls]
    answers = yield from together(*calls)
    if request.key and answers[0].outcome != "ok":
        return (yield from goto(follow, attempt))
    if any(answer.outcome == "unknown" for answer in answers):
        return BUSY
    claimed = attempt._replace(locations=locations, claim=answers[0].version if request.key else ABSENT)
    return (yield from goto(swap, claimed, version, pointer, location))


def swap(attempt: Try, version: int, pointer: Pointer, location: str) -> Step[str]:
    after = moved(pointer, location, attempt.request, attempt.setting.log_max)
    answer = yield from put(POINTER, after, version)
    if answer.outcome == "ok":
        return (yield from goto(finish, attempt))
    now, found = yield from read(POINTER)
    if answer.outcome == "unknown" and now == version:
        return UNKNOWN
    return (yield from goto(single_on, attempt._replace(number=attempt.number + 1), now, found))


def follow(attempt: Try) -> Step[str]:
    request = attempt.request
    version, claim = yield from get(claim_of(request))
    if claim is None:
        return BUSY
    if claim.status != "open":
        return (yield from tell(attempt, claim.status))
    _, pointer = yield from read(POINTER)
    if (yield from is_committed(pointer, attempt._replace(locations=claim.locations))):
        return (yield from goto(finish, attempt))
    if not (yield from passed()) or attempt.number > TRIES_MAX:
        return BUSY
    answer = yield from put(claim_of(request), claim._replace(owner=attempt.actor), version)
    again = attempt._replace(number=attempt.number + 1)
    if answer.outcome != "ok":
        return (yield from goto(follow, again))
    return (yield from goto(single, again._replace(locations=claim.locations, claim=answer.version)))


def finish(attempt: Try) -> Step[str]:
    """The claim stays open: its files are the proof (C8)."""
    return (yield from tell(attempt, OK))


# A batch.


def batch(attempts: tuple[Try, ...]) -> Step[str]:
    version, pointer = yield from read(POINTER)
    return (yield from goto(batch_on, attempts, version, pointer))


def batch_on(attempts: tuple[Try, ...], version: int, pointer: Pointer) -> Step[str]:  # noqa: C901, PLR0912 - one round
    rules = attempts[0].setting.rules
    left = []
    for attempt in attempts:  # Evidence first: an earlier swap of ours may have been applied.
        if attempt.locations and (yield from is_committed(pointer, attempt)):
            yield from tell(attempt, OK)
        else:
            left.append(attempt)
    members, deferred = drafted(tuple(left), pointer)
    if "B6" not in rules:
        drafts = (pointer, *(member.after for member in members))
        for attempt in [one for one in deferred if refusal(drafts[-1], one.request) and not one.request.key]:
            yield from tell(attempt, CONFLICT)
            deferred = tuple(one for one in deferred if one != attempt)
    if not members or attempts[0].number > 0:  # A batch that lost its swap is decided one by one (B8).
        return (yield from goto(alone, tuple(left) if "B6" in rules else (*(m.attempt for m in members), *deferred)))
    keyed = [member for member in members if member.attempt.request.key]
    calls = [
        put_call(
            claim_of(member.attempt.request),
            Claim("open", member.attempt.actor, (*member.attempt.locations, member.location)),
            member.attempt.claim,
        )
        for member in keyed
    ]
    calls += helping(pointer, rules)
    if "B4 after" not in rules:
        calls += [put_call(receipt_of(member.location), RECEIPT, ABSENT) for member in members[:-1]]
    answers = yield from together(*calls)
    if any(answer.outcome == "unknown" for answer in answers[len(keyed) :]):
        return BUSY
    held = {member.attempt.request.id: answer for member, answer in zip(keyed, answers, strict=False)}
    ready, others, is_prefix = [], list(deferred), True
    for member in members:
        answer = held.get(member.attempt.request.id)
        is_held = answer is None or answer.outcome == "ok"
        tried = member.attempt._replace(locations=(*member.attempt.locations, member.location))
        if answer is not None and is_held:
            tried = tried._replace(claim=answer.version)
        is_prefix = is_prefix and is_held
        if is_prefix or "B7" not in rules:
            ready.append(member._replace(attempt=tried))
        elif is_held:
            others.append(tried)
        else:
            others.append(member.attempt._replace(locations=(), claim=ABSENT))
    if not ready:
        return (yield from goto(alone, tuple(others)))
    return (yield from goto(swap_batch, tuple(ready), tuple(others), version))


def drafted(attempts: tuple[Try, ...], pointer: Pointer) -> tuple[tuple[Member, ...], tuple[Try, ...]]:
    """Each on what the one before made of it; what cannot ride along is left for later."""
    members: list[Member] = []
    deferred = []
    draft = pointer
    keys = set()
    rules = attempts[0].setting.rules if attempts else ALL
    for attempt in attempts:
        request = attempt.request
        is_taken_by_base = refusal(pointer, request) is None or "B5" not in rules
        is_twice = (request.key or request.id) in keys
        if not is_taken_by_base or refusal(draft, request) or is_twice:
            deferred.append(attempt)
            continue
        keys.add(request.key or request.id)
        location = file_name(attempt, len(draft.applied) + 1)
        draft = moved(draft, location, request, attempt.setting.log_max)
        members.append(Member(attempt, location, draft))
    if "B2" not in rules and members:  # One file for all, named after the last.
        last = members[-1].location
        as_one = moved(pointer, last, members[-1].attempt.request, attempts[0].setting.log_max)
        after = members[-1].after._replace(log=as_one.log, history=as_one.history)
        members = [member._replace(location=last, after=after) for member in members]
    return tuple(members), tuple(deferred)


def swap_batch(ready: tuple[Member, ...], others: tuple[Try, ...], version: int) -> Step[str]:
    rules = ready[0].attempt.setting.rules
    passed_over = tuple(member.location for member in ready[:-1]) if "B2" in rules else ()
    after = ready[-1].after._replace(passed=passed_over)
    answer = yield from put(POINTER, after, version)
    if answer.outcome == "ok":
        for member in ready:
            yield from call(finish, member.attempt)
        return (yield from goto(alone, others))
    now, found = yield from read(POINTER)
    if answer.outcome == "unknown" and now == version:
        return UNKNOWN
    if "B8" not in rules:  # The drafts are kept, as if nothing had happened.
        again = yield from put(POINTER, after, now)
        if again.outcome == "ok":
            for member in ready:
                yield from call(finish, member.attempt)
        return UNKNOWN
    tries = (*(member.attempt for member in ready), *others)
    return (yield from goto(batch_on, tuple(one._replace(number=one.number + 1) for one in tries), now, found))


def alone(attempts: tuple[Try, ...]) -> Step[str]:
    for attempt in attempts:
        yield from call(single, attempt._replace(number=attempt.number + 1))
    return "over"


def system(  # noqa: C901 - the judge is a part of it
    batched: Sequence[Request],
    singles: Sequence[tuple[str, Request]] = (),
    rules: Rules = ALL,
    *,
    second: Sequence[Request] = (),
    log_max: int = 1,
    losable: int = 0,
) -> System:
    setting = Setting(rules, log_max)
    actors = [Actor("X", batch, (tuple(Try("X", request, setting) for request in batched),))]
    if second:
        actors.append(Actor("Y", batch, (tuple(Try("Y", request, setting) for request in second),)))
    actors += [Actor(name, single, (Try(name, request, setting),)) for name, request in singles]
    requests = {request.id: request for request in (*batched, *second, *(one for _, one in singles))}

    def judge(moment: Moment) -> None:  # noqa: C901 - all properties in one place
        store = moment.store
        pointer = kept(store, POINTER)
        applied = pointer.applied
        if len(set(applied)) < len(applied):
            raise Violation("applied twice")
        mains = [START]
        for one in applied:
            mains.append(main_after(mains[-1], one))
        said: dict[str, set[str]] = {}
        for name, answer in kept(store, SAID):
            request = requests[name.split(":")[1]]
            said.setdefault(request.id, set()).add(answer)
            if answer == OK and request.id not in applied:
                raise Violation("acknowledged and not applied")
            if answer in (CONFLICT, UNCHANGED) and request.id in applied:
                raise Violation(f"answered {answer} and applied")
            if answer == CONFLICT and all(request.guard in (None, main) for main in mains):
                raise Violation("answered 409 conflict by what never was")
        receipts = {key.removeprefix("receipt:") for key in present(store, "receipt:")}
        if not receipts <= set(pointer.history):
            raise Violation("a receipt of a commit that was not made")
        settled = pointer.history[: len(pointer.history) - len(pointer.passed) - 1]
        if not receipts >= set(settled):
            raise Violation("the chain of receipts has a hole")
        for request in requests.values():
            if request.key or request.guard:
                judge_retry(store, request, said.get(request.id, set()), setting)

    first = Pointer("0-init-0", (), (), (), START, ("0-init-0",))
    return System({POINTER.key: (1, first), ANSWERED: (1, ())}, actors, judge, losable=losable)


def judge_retry(store: Store, request: Request, said: set[str], setting: Setting) -> None:
    later, answer = run(store, single(Try("z", request, setting)))
    times = kept(later, POINTER).applied.count(request.id)
    if times > 1:
        raise Violation("a retry after a crash applies twice")
    if answer in (CONFLICT, UNCHANGED) and times:
        raise Violation(f"a retry after a crash answers {answer} for an applied commit")
    if answer == OK and not times:
        raise Violation("a retry after a crash answers ok for nothing")
    if answer in UNSURE:
        raise Violation(f"a retry after a crash is stuck at {answer}")
    if request.key and said - {answer}:
        raise Violation(f"a replay answers {answer} after {sorted(said)}")


# B1: who may still join. The name is read in round 1; a rename leaves the pointer alone.

NAME: Final = Cell[str]("name")
QUEUE: Final = "queue"
HEAD: Final = Cell[tuple[str, ...]]("head")


def enqueue(queue: tuple[str, ...], name: str) -> tuple[str, tuple[str, ...]]:
    return "", (*queue, name)


def take(queue: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return queue, ()


def client(name: str) -> Step[str]:
    yield from in_memory(QUEUE, enqueue, name)
    return "sent"


def rename() -> Step[str]:
    version, _ = yield from read(NAME)
    answer = yield from put(NAME, "moved", version)
    return OK if answer.outcome == "ok" else BUSY


def closing(rules: Rules) -> Step[str]:
    members = yield from in_memory(QUEUE, take)
    if not members:
        return (yield from goto(closing, rules))
    _, name = yield from read(NAME)
    version, head = yield from read(HEAD)
    if "B1" not in rules:
        members += yield from in_memory(QUEUE, take)
    answer = NO_TABLE
    if name == "active":
        swapped = yield from put(HEAD, head + members, version)
        answer = OK if swapped.outcome == "ok" else BUSY
    for member in members:
        yield from in_memory(ANSWERED, note, member, answer)
    return (yield from goto(closing, rules))


def late_join(rules: Rules = ALL) -> System:
    """`c2` is sent after the rename was answered: it must not be carried out under the old name."""

    def judge(moment: Moment) -> None:
        if ("c2", OK) in kept(moment.store, SAID):
            raise Violation("a commit sent after the rename was answered succeeds under the old name")

    actors = [
        Actor("c1", client, ("c1",)),
        Actor("rename", rename, ()),
        Actor("c2", client, ("c2",), after=(1,)),
        Actor("X", closing, (rules,)),
    ]
    store = {NAME.key: (1, "active"), "head": (1, ()), QUEUE: (1, ()), ANSWERED: (1, ())}
    return System(store, actors, judge)
