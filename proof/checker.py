"""Explore every interleaving of a few actors over one store, breadth first, so that a trace found is a shortest one.

An actor's local state is the list of answers it has seen, so a state of the whole system is: the store, each actor's
answers, the writes still in flight, and how many answers may yet be lost.

A crash needs no action of its own: an actor that is never scheduled again has crashed, and `judge` is asked about every
reachable store as if all actors stopped right there. A stall is an actor scheduled late. A lost answer is either a
write that was applied, or one still in flight that may land at any later time or never (G2).
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

from proof.describe import describe_answer, describe_call
from proof.steps import (
    ABSENT,
    Answer,
    Call,
    Choose,
    Done,
    Goto,
    Operation,
    Result,
    Single,
    Step,
    Together,
    Write,
)
from proof.store import Store, perform

Results: TypeAlias = tuple[Result | None, ...]
Masks: TypeAlias = tuple[int | None, ...]

LIMIT_STATES: Final = 3_000_000
REPORT_STATES: Final = 20_000
UNKNOWN_WRITE: Final = Write("unknown", ABSENT)


class Violation(Exception):
    """A property does not hold."""


@dataclass(frozen=True, slots=True)
class Actor:
    """One request: it starts after the actors with the indexes `after` have answered."""

    name: str
    start: Callable[..., Step[Result]]
    arguments: tuple[Hashable, ...]
    after: tuple[int, ...] = ()


class Moment(NamedTuple):
    """What is judged: the store, the answers so far (None: none yet) and, per actor, who had answered when it began.

    A mask has bit j set when actor j had answered; None means that the actor has not begun.
    """

    store: Store
    results: Results
    masks: Masks


class State(NamedTuple):
    store: int
    locals: tuple[int, ...]
    in_flight: tuple[Call, ...]
    losable: int
    masks: Masks


class Transition(NamedTuple):
    actor: str
    call: Call | None
    outcome: str
    after: State


class Verdict(NamedTuple):
    """`violation` is None when every state explored is right; `is_complete` when no state was left out."""

    states: int
    is_complete: bool = True
    violation: str | None = None
    trace: tuple[str, ...] = ()


class Local(NamedTuple):
    """Where an actor stands: the function it runs, the answers it has seen, and those of an unfinished round."""

    actor: Callable[..., Step[Result]]
    arguments: tuple[Hashable, ...]
    seen: tuple[Answer, ...]
    partial: tuple[Single | None, ...]


class System:
    """Actors over a store. `judge` raises Violation; `losable` answers may be lost per run.

    With `keeps_order` the moments say who had answered when an actor began, at the price of more states.
    """

    def __init__(
        self,
        store: Store,
        actors: list[Actor],
        judge: Callable[[Moment], None],
        *,
        losable: int = 0,
        keeps_order: bool = False,
    ) -> None:
        self._actors = actors
        self._judge = judge
        self._keeps_order = keeps_order
        self._stores: list[Store] = []
        self._store_ids: dict[Hashable, int] = {}
        self._locals: list[Local] = []
        self._local_ids: dict[Local, int] = {}
        self._next: list[Operation] = []
        self._ends: list[Result | None] = []
        self._moves: dict[tuple[int, Answer, int | None], list[int]] = {}
        self._performed: dict[tuple[int, Call], tuple[Single, int]] = {}
        begun = tuple(self._local(Local(actor.start, actor.arguments, (), ())) for actor in actors)
        masks = (None,) * len(actors) if keeps_order else ()
        self._start = State(self._store_id(store), begun, (), losable, masks)

    def check(
        self, limit_states: int = LIMIT_STATES, progress: Callable[[int], None] = lambda _states: None
    ) -> Verdict:
        """Explore until a violation, the end or the limit."""
        parents: dict[State, State | None] = {self._start: None}
        queue = deque([self._start])
        judged: dict[tuple[int, Results, Masks], str | None] = {}
        while queue:
            state = queue.popleft()
            results = self._results(state)
            question = (state.store, results, state.masks)
            if question not in judged:
                judged[question] = self._violation(question)
            violation = judged[question]
            if violation is not None:
                return Verdict(len(parents), violation=violation, trace=self._trace(parents, state))
            if len(parents) > limit_states:
                return Verdict(len(parents), is_complete=False)
            for transition in self._transitions(state):
                if transition.after not in parents:
                    parents[transition.after] = state
                    queue.append(transition.after)
                    if len(parents) % REPORT_STATES == 0:
                        progress(len(parents))
        return Verdict(len(parents))

    def _violation(self, question: tuple[int, Results, Masks]) -> str | None:
        store, results, masks = question
        try:
            self._judge(Moment(self._stores[store], results, masks))
        except Violation as violation:
            return str(violation)
        return None

    def _store_id(self, store: Store) -> int:
        frozen = frozenset(store.items())
        known = self._store_ids.setdefault(frozen, len(self._stores))
        if known == len(self._stores):
            self._stores.append(store)
        return known

    def _local(self, local: Local) -> int:
        while local not in self._local_ids:
            operation = replay(local)
            if isinstance(operation, Goto):
                local = Local(operation.actor, operation.arguments, (), ())
                continue
            self._local_ids[local] = len(self._locals)
            self._locals.append(local)
            self._next.append(operation)
            self._ends.append(operation.result if isinstance(operation, Done) else None)
        return self._local_ids[local]

    def _moved(self, before: int, answer: Answer, part: int | None) -> list[int]:
        """The local states after an answer; several, because choices are taken at once."""
        known = self._moves.get((before, answer, part))
        if known is not None:
            return known
        waiting = [self._local(self._answered(before, answer, part))]
        result = []
        while waiting:
            one = waiting.pop()
            operation = self._next[one]
            if isinstance(operation, Choose):
                chosen = range(operation.branches)
                waiting += [self._local(self._answered(one, branch, None)) for branch in chosen]
            else:
                result.append(one)
        self._moves[before, answer, part] = result
        return result

    def _answered(self, before: int, answer: Answer, part: int | None) -> Local:
        local, operation = self._locals[before], self._next[before]
        if part is None:
            return local._replace(seen=(*local.seen, answer))
        parts = cast("Together", operation).parts  # Nothing else has parts.
        partial = list(local.partial or (None,) * len(parts))
        partial[part] = cast("Single", answer)
        whole = tuple(one for one in partial if one is not None)
        if len(whole) == len(partial):
            return local._replace(seen=(*local.seen, whole), partial=())
        return local._replace(partial=tuple(partial))

    def _results(self, state: State) -> Results:
        return tuple([self._ends[local] for local in state.locals])

    def _transitions(self, state: State) -> Iterator[Transition]:
        finished = [self._ends[local] is not None for local in state.locals]
        for index, actor in enumerate(self._actors):
            if not finished[index] and all(finished[other] for other in actor.after):
                yield from self._steps(self._begun(state, index, finished), index)
        for number, call in enumerate(state.in_flight):
            answer, after = self._perform(state.store, call)
            if after != state.store:
                left = state.in_flight[:number] + state.in_flight[number + 1 :]
                outcome = describe_answer(call, answer)
                yield Transition("late", call, outcome, state._replace(store=after, in_flight=left))

    def _begun(self, state: State, index: int, finished: list[bool]) -> State:
        if not self._keeps_order or state.masks[index] is not None:
            return state
        mask = sum(1 << other for other, is_done in enumerate(finished) if is_done)
        return state._replace(masks=(*state.masks[:index], mask, *state.masks[index + 1 :]))

    def _steps(self, state: State, index: int) -> Iterator[Transition]:
        name, local = self._actors[index].name, state.locals[index]
        before, behind = state.locals[:index], state.locals[index + 1 :]
        operation = self._next[local]
        if isinstance(operation, Choose):  # Only as the very first step; later choices are taken with the answer.
            for branch in range(operation.branches):
                for moved in self._moved(local, branch, None):
                    yield Transition(name, None, f"chooses {branch}", state._replace(locals=(*before, moved, *behind)))
            return
        for part, call in self._open_parts(local):
            answer, after = self._perform(state.store, call)
            for moved in self._moved(local, answer, part):
                stepped = State(after, (*before, moved, *behind), state.in_flight, state.losable, state.masks)
                yield Transition(name, call, "", stepped)
            if state.losable and after != state.store:
                in_flight = tuple(sorted((*state.in_flight, call), key=repr))
                for moved in self._moved(local, UNKNOWN_WRITE, part):
                    places, losable = (*before, moved, *behind), state.losable - 1
                    applied = State(after, places, state.in_flight, losable, state.masks)
                    yield Transition(name, call, "applied, answer lost", applied)
                    late = State(state.store, places, in_flight, losable, state.masks)
                    yield Transition(name, call, "in flight, answer lost", late)

    def _open_parts(self, local: int) -> list[tuple[int | None, Call]]:
        operation = self._next[local]
        if isinstance(operation, Together):
            partial = self._locals[local].partial or (None,) * len(operation.parts)
            return [(part, call) for part, call in enumerate(operation.parts) if partial[part] is None]
        return [(None, cast("Call", operation))]  # Choices, jumps and ends were taken out before.

    def _perform(self, store: int, call: Call) -> tuple[Single, int]:
        known = self._performed.get((store, call))
        if known is None:
            answer, after = perform(self._stores[store], call)
            unchanged = after is self._stores[store]
            known = (answer, store if unchanged else self._store_id(after))
            self._performed[store, call] = known
        return known

    def _trace(self, parents: dict[State, State | None], last: State) -> tuple[str, ...]:
        lines = []
        state = last
        while (before := parents[state]) is not None:
            lines.append(self._line(before, state))
            state = before
        shown = (f"{actor.name}={result}" for actor, result in zip(self._actors, self._results(last), strict=True))
        return (*lines[::-1], f"answers so far: {', '.join(shown)}")

    def _line(self, before: State, after: State) -> str:
        taken = next(transition for transition in self._transitions(before) if transition.after == after)
        outcome = taken.outcome
        if taken.call and not outcome:
            outcome = describe_answer(taken.call, self._perform(before.store, taken.call)[0])
        line = f"{taken.actor}: {describe_call(taken.call)} -> {outcome}" if taken.call else f"{taken.actor}: {outcome}"
        pairs = zip(self._actors, self._results(before), self._results(after), strict=True)
        for actor, old, new in pairs:
            if old is None and new is not None:
                line += f"   => {actor.name} answers {new}"
        return line


def replay(local: Local) -> Operation:
    """What the actor does next, found by giving a fresh one all the answers again."""
    generator = local.actor(*local.arguments)
    try:
        operation = next(generator)
        for answer in local.seen:
            operation = generator.send(answer)
    except StopIteration as stop:
        result: Result = stop.value
        return Done(result)
    return operation
