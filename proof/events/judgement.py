"""What is promised of events and undrop, in every reachable state."""

from collections.abc import Mapping, Sequence

from proof.answers import BUSY, NO_TABLE, OK, REFUSED
from proof.checker import Results, Violation
from proof.events.janitors import purge, sweep_name
from proof.events.records import Event, Name, files_cell, pointer_cell, space_cell
from proof.events.resolution import look
from proof.events.undrop import take_back, undrop
from proof.rules import Rules
from proof.store import Store, held, present, run

Views = Mapping[str, str]
"""What a load shows under each name."""


def events_of(store: Store) -> list[Event]:
    return [event for event in present(store, "receipt:").values() if isinstance(event, Event)]


def judge_holes(store: Store) -> None:
    """No chain has a hole, also before anything is repaired."""
    events = events_of(store)
    receipts = {event.id for event in events}
    for event in events:
        if event.previous and event.previous not in receipts:
            raise Violation(f"hole: the event before {event.kind} has no receipt")


def chain_of(events: Sequence[Event]) -> list[Event]:
    """The events of one object in their order."""
    following = {event.previous: event for event in events}
    if len(following) < len(events):
        raise Violation(f"fork: two events follow the same one: {sorted(event.kind for event in events)}")
    chain: list[Event] = []
    while (chain[-1].id if chain else "") in following:
        chain.append(following[chain[-1].id if chain else ""])
    if len(chain) < len(events):
        raise Violation("hole: no chain leads to an event")
    return chain


def by_object(events: Sequence[Event]) -> dict[str, list[Event]]:
    grouped: dict[str, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.object, []).append(event)
    return grouped


def judge_chains(store: Store, views: Views) -> None:
    """Every object has one chain, and the chains lead to what loads show."""
    shown = [uuid for uuid in views.values() if uuid != NO_TABLE]
    if BUSY in shown:
        raise Violation("a name is stuck: a load says busy")
    if len(set(shown)) < len(shown):
        raise Violation("one table under two names")
    replayed: dict[str, str] = {}
    for uuid, events in by_object(events_of(store)).items():
        chain = chain_of(events)
        if uuid.endswith("/content"):
            judge_content(store, uuid.removesuffix("/content"), chain)
            continue
        for event in chain:
            if (uuid in replayed) != (event.kind in ("renamed", "dropped")):
                raise Violation(f"an impossible event: {event.kind}")
            replayed.pop(uuid, None)
            if event.kind != "dropped":
                replayed[uuid] = event.name
    seen = {uuid: name for name, uuid in views.items() if uuid != NO_TABLE}
    if wrong := [uuid for uuid in replayed if replayed[uuid] != seen.get(uuid)]:
        raise Violation(f"the events show what does not exist: {wrong}")
    if missing := [uuid for uuid in seen if seen[uuid] != replayed.get(uuid)]:
        raise Violation(f"no event shows what exists: {missing}")


def judge_content(store: Store, uuid: str, chain: Sequence[Event]) -> None:
    pointer = held(store, pointer_cell(uuid))
    if pointer and (pointer.change is None or pointer.change != chain[-1]):
        raise Violation("the last change of content is not the last event of its chain")


def judge_answers(store: Store, done: Sequence[tuple[str, str]], results: Results) -> None:
    """One event for what was answered with success, none for what was refused. `done`: verb and `by`, or empty."""
    recorded = [event.by for event in events_of(store)]
    for (verb, by), result in zip(done, results, strict=True):
        count = recorded.count(by) if by else 0
        if count > 1:
            raise Violation(f"two events for one request: {verb}")
        if by and result == OK and count == 0:
            raise Violation(f"answered ok, but there is no event: {verb}")
        if result in REFUSED and count:
            raise Violation(f"answered {result}, but there is an event: {verb}")


def judge_files(store: Store, views: Views) -> None:
    for uuid in views.values():
        if uuid != NO_TABLE and files_cell(uuid).key in store and held(store, files_cell(uuid)) is None:
            raise Violation("the files of a table that exists were purged")


def judge_undrops(store: Store, views: Views, uuid: str, rules: Rules) -> None:
    """What is dropped and not purged can come back, and then stays."""
    pointer = held(store, pointer_cell(uuid))
    is_gone = pointer is None or pointer.state == "purging" or held(store, files_cell(uuid)) is None
    if held(store, space_cell("X")) is None:
        return
    names = {key.removeprefix("name:"): name for key, name in present(store, "name:").items()}
    was = next((name for name, entry in names.items() if isinstance(entry, Name) and entry.uuid == uuid), "X.z")
    later, answer = run(store, undrop("z", uuid, was, "X.z", rules))
    if is_gone:
        if answer == OK:
            raise Violation("an undrop succeeds after the purge began")
        return
    if answer != OK or run(later, look("X.z", rules))[1] != uuid:
        raise Violation(f"a dropped table cannot come back: {answer}")
    for name in views:
        again, _ = run(later, sweep_name(name, rules))
        if run(again, look("X.z", rules))[1] != uuid:
            raise Violation("the reuse of the old name ends the table that came back")


def judge_orders(now: Store, store: Store, uuid: str, rules: Rules) -> None:
    """What was ordered is purged, unless it comes back; what was not ordered is not. `now` is before any repair."""
    pointer = held(store, pointer_cell(uuid))
    if pointer is None or pointer.event is None:
        return
    if f"order:{uuid}/{pointer.event.id}" in now:
        later, _ = run(store, take_back(uuid, rules))
        later, _ = run(later, purge(uuid, pointer.event.name, rules))
        if held(later, files_cell(uuid)) is not None:
            raise Violation("an ordered purge never happens")
    elif pointer.state in ("dropped", "purging") and held(store, files_cell(uuid)) is None:
        raise Violation("purged for a drop that did not order it")
