"""Shared reads (SR1–SR7): requests of one process that need the same object share one conditional read.

`Flight` is what the process keeps for one object. A read that has begun is in `running`; the one that has not begun is
`waiting`. Reads are carried out by tasks of their own, which may overlap (SR2 serves cost, not safety). Writers and
further readers are on other servers.
"""

from typing import Final, NamedTuple

from proof.answers import OK, UNSURE
from proof.checker import Actor, Moment, System, Violation
from proof.linearizable import is_linearizable
from proof.rules import Rules, of
from proof.steps import Cell, Step, choose, goto, in_memory, put, read
from proof.store import kept

ALL: Final = of("SR")
FAILED: Final = "503 failed"
CANCELLED: Final = "cancelled"
OBJECT: Final = Cell[str]("object")
FLIGHT: Final = "flight"

Seen = tuple[int, str]
"""A version and its value."""

_NOTHING: Final = (0, (0, ""))


class Flight(NamedTuple):
    """`made` counts the reads so far. `owners` are the requests that asked first for each read.

    `ended` are the values of the reads that have ended.
    """

    waiting: int
    running: tuple[int, ...]
    made: int
    owners: tuple[str, ...]
    ended: tuple[tuple[int, str], ...]
    seen: Seen


def arrive(flight: Flight, name: str, rules: Rules) -> tuple[tuple[int, bool], Flight]:
    """Join a read, or make one: its number, and whether the request made it."""
    if flight.waiting:
        return (flight.waiting, False), flight
    if flight.running and "SR1" not in rules:
        return (flight.running[-1], False), flight
    number = flight.made + 1
    return (number, True), flight._replace(waiting=number, made=number, owners=(*flight.owners, name))


def begin(flight: Flight, only: int) -> tuple[tuple[int, Seen], Flight]:
    """Begin the waiting read; it is sent with the version that is remembered now. 0 if none waits."""
    number = flight.waiting
    if not number or only not in {0, number}:
        return _NOTHING, flight
    return (number, flight.seen), flight._replace(waiting=0, running=(*flight.running, number))


def end(flight: Flight, number: int, sent: Seen, found: Seen | None, rules: Rules) -> tuple[str, Flight]:
    """End a read with what it found; None if it failed. It answers no request if a later read has done so before."""
    running = tuple(one for one in flight.running if one != number)
    if found is None:
        value = FAILED if "SR4" in rules else flight.seen[1]
        failed = () if number in dict(flight.ended) else ((number, value),)
        return "", flight._replace(running=running, ended=(*flight.ended, *failed))
    held = found
    if found[0] == sent[0]:
        held = sent if "SR5" in rules else flight.seen
    answered = dict(flight.ended)
    reached = [one for one in flight.running if one <= number or "SR7" not in rules]
    ended = tuple((one, held[1]) for one in reached if one not in answered)
    return "", flight._replace(running=running, ended=(*flight.ended, *ended), seen=held)


def late(flight: Flight, found: Seen, rules: Rules) -> tuple[str, Flight]:
    """The answer of a read that was given up."""
    if "SR6" in rules or not flight.running:
        return "", flight
    return "", flight._replace(running=flight.running[1:], ended=(*flight.ended, (flight.running[0], found[1])))


def outcome(flight: Flight, number: int) -> tuple[str, Flight]:
    return dict(flight.ended).get(number, ""), flight


def note(flight: Flight, found: Seen) -> tuple[str, Flight]:
    return "", flight._replace(seen=found)


def reader(name: str, rules: Rules, may_cancel: bool) -> Step[str]:  # noqa: FBT001 - the arguments of a step are hashed
    number, is_own = yield from in_memory(FLIGHT, arrive, name, rules)
    if is_own and "SR3" not in rules:
        return (yield from goto(own_read, number, rules))
    return (yield from goto(wait, number, may_cancel))


def wait(number: int, may_cancel: bool) -> Step[str]:  # noqa: FBT001 - as above
    value = yield from in_memory(FLIGHT, outcome, number)
    if value:
        return value
    if may_cancel and (yield from choose(2)):
        return CANCELLED
    return (yield from goto(wait, number, may_cancel))


def own_read(number: int, rules: Rules) -> Step[str]:
    """Without SR3: the request that asked first reads, and may be cancelled in the middle."""
    begun, sent = yield from in_memory(FLIGHT, begin, number)
    if not begun:
        return (yield from goto(own_read, number, rules))
    found = yield from read(OBJECT)
    if (yield from choose(2)):
        return CANCELLED
    yield from in_memory(FLIGHT, end, number, sent, tuple(found), rules)
    return (yield from goto(wait, number, False))  # noqa: FBT003 - as above


def task(rules: Rules, may_fail: bool) -> Step[str]:  # noqa: FBT001 - as above
    number, sent = yield from in_memory(FLIGHT, begin, 0)
    if not number:
        return (yield from goto(task, rules, may_fail))
    found = yield from read(OBJECT)
    if may_fail and (yield from choose(2)):
        yield from in_memory(FLIGHT, end, number, sent, None, rules)
        yield from in_memory(FLIGHT, late, tuple(found), rules)
    else:
        yield from in_memory(FLIGHT, end, number, sent, tuple(found), rules)
    return (yield from goto(task, rules, may_fail))


def direct() -> Step[str]:
    """A read of the same process that is not shared; what it found is remembered when it ends."""
    found = yield from read(OBJECT)
    yield from in_memory(FLIGHT, note, tuple(found))
    return found[1]


def elsewhere() -> Step[str]:
    """A read of another server."""
    _, value = yield from read(OBJECT)
    return value


def writer(value: str) -> Step[str]:
    version, _ = yield from read(OBJECT)
    answer = yield from put(OBJECT, value, version)
    return OK if answer.outcome == "ok" else (yield from goto(writer, value))


class Plan(NamedTuple):
    """How many actors of each kind meet, and what may happen to them."""

    readers: int = 3
    writers: int = 1
    directs: int = 0
    others: int = 0
    tasks: int = 1
    cancels: bool = False
    fails: bool = False


def shared(plan: Plan, rules: Rules = ALL) -> System:
    """Readers that share reads, beside writers; histories are judged with all that requests saw."""
    actors, requests = [], []
    for number in range(plan.readers):
        actors.append(Actor(f"R{number + 1}", reader, (f"R{number + 1}", rules, plan.cancels)))
        requests.append(("read", ""))
    for number in range(plan.writers):
        after = (len(actors) - 1,) if number else ()
        actors.append(Actor(f"W{number + 1}", writer, (f"w{number + 1}",), after=after))
        requests.append(("write", f"w{number + 1}"))
    actors += [Actor(f"D{number + 1}", direct, ()) for number in range(plan.directs)]
    actors += [Actor(f"E{number + 1}", elsewhere, ()) for number in range(plan.others)]
    requests += [("read", "")] * (plan.directs + plan.others)
    names = [actor.name for actor in actors]
    actors += [Actor(f"task{number + 1}", task, (rules, plan.fails)) for number in range(plan.tasks)]

    def judge(moment: Moment) -> None:
        flight = kept(moment.store, Cell[Flight](FLIGHT))
        results = moment.results[: len(requests)]
        for number in (flight.waiting, *flight.running):
            owner = flight.owners[number - 1] if number else ""
            if owner and "SR3" not in rules and results[names.index(owner)] == CANCELLED:
                raise Violation("a read that no task carries out keeps others waiting")
        if not is_linearizable(
            requests,
            moment.masks[: len(requests)],
            results,
            specification=_answer,
            start="0",
            unsure=UNSURE | {FAILED, CANCELLED},
            views=(),
        ):
            raise Violation(f"not linearizable: {dict(zip(names, results, strict=True))}")

    start = Flight(0, (), 0, (), (), (1, "0"))
    return System({OBJECT.key: (1, "0"), FLIGHT: (1, start)}, actors, judge, keeps_order=True)


def _answer(world: str, request: tuple[str, str]) -> tuple[str, str]:
    return (OK, request[1]) if request[0] == "write" else (world, world)
