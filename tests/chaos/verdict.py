"""The verdict: whether what clients were told and what is in the store can be true at the same time."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.clients import Asked, Diary, Seen
from tests.chaos.evidence import Evidence, History

COMMITS = frozenset({"snapshot", "last", "own", "column"})


def judge(diary: Diary, evidence: Evidence) -> Sequence[str]:
    """Everything that is wrong, in words; nothing is what should be found."""
    return [
        *diary.wrong,
        *evidence.wrong,
        *_never_answered(diary),
        *_chains(diary, evidence),
        *_commits(diary, evidence),
        *_creates(diary, evidence),
        *_drops(diary, evidence),
        *_names(evidence),
        *_reads(diary, evidence),
        *_pairs(diary, evidence),
    ]


def _never_answered(diary: Diary) -> Iterator[str]:
    for asked in diary.asked:
        if asked.status is None:
            yield f"{asked.kind} {asked.id}: never answered, after {asked.answers_lost} tries"


def _chains(diary: Diary, evidence: Evidence) -> Iterator[str]:
    """One request for every metadata file, one receipt for every head; a dropped table's last may be still to come."""
    blind = {asked.id for asked in diary.asked if asked.kind == "own" and asked.answers_lost}
    for history in evidence.histories:
        if history.is_live and not history.is_whole:
            yield f"{history.uuid}: its head has no receipt"
        # C9: what neither adds nor asserts anything and has no key is applied again when it is sent again.
        again = {step.request_hash for step in history.steps if step.markers & blind}
        for step in history.steps:
            is_again = not step.markers and step.request_hash in again
            if len(step.markers) != 1 and not is_again:
                yield f"{step.location}: shows traces of {len(step.markers)} requests: {sorted(step.markers)}"


def _applied(evidence: Evidence) -> Counter[str]:
    """How often each request was applied, counting every table."""
    return Counter(marker for history in evidence.histories for step in history.steps for marker in step.markers)


def _commits(diary: Diary, evidence: Evidence) -> Iterator[str]:
    times = _applied(evidence)
    for asked in diary.asked:
        if asked.kind not in COMMITS | {"transaction"}:
            continue
        once = 2 if asked.kind == "transaction" else 1
        found = times[asked.id]
        if asked.is_done and found < once:
            yield f"{_told(asked)}, but found {found} of {once} times: lost"
        if found > once:
            yield f"{_told(asked)}, but found {found} times: applied twice"
        if asked.is_refused and found:
            yield f"{_told(asked)}, but found {found} times: refused and applied"
        if 0 < found < once:
            yield f"{_told(asked)}: half of it is there"


def _creates(diary: Diary, evidence: Evidence) -> Iterator[str]:
    made = Counter(history.made_by for history in evidence.histories)
    for asked in diary.asked:
        if asked.kind != "create":
            continue
        found = made[asked.id]
        # Without a key a re-send is another request: the name may have become free in between.
        found_max = 1 if asked.key else 1 + asked.answers_lost
        if asked.is_done and not found:
            yield f"{_told(asked)}, but there is no such table"
        if found > found_max:
            yield f"{_told(asked)}, but there are {found} tables"
        if asked.is_refused and found:
            yield f"{_told(asked)}, but the table was made"


def _drops(diary: Diary, evidence: Evidence) -> Iterator[str]:
    dropped = Counter(history.dropped_by for history in evidence.histories if not history.is_live)
    drops = [asked for asked in diary.asked if asked.kind == "drop"]
    keyed = {_hash(asked.key): asked for asked in drops if asked.key}
    for by, asked in keyed.items():
        wanted = 1 if asked.is_done else 0
        if asked.status is not None and dropped[by] != wanted:
            yield f"{_told(asked)}, but {dropped[by]} tables were dropped by it"
    unkeyed = [asked for asked in drops if not asked.key]
    by_unkeyed = sum(times for by, times in dropped.items() if by not in keyed)
    done = sum(asked.is_done for asked in unkeyed)
    if not done <= by_unkeyed <= done + sum(asked.answers_lost for asked in unkeyed):
        yield f"{by_unkeyed} tables were dropped without a key, {done} such drops acknowledged"


def _names(evidence: Evidence) -> Iterator[str]:
    """Every live table under one name, every name a live table."""
    live = {history.uuid for history in evidence.histories if history.is_live}
    shown = Counter(evidence.names.values())
    for uuid in live | set(shown):
        names = [str(name) for name, other in evidence.names.items() if other == uuid]
        if uuid not in live:
            yield f"{names} shows {uuid}, which does not live"
        elif len(names) != 1:
            yield f"table {uuid} lives under {len(names)} names: {names}"


def _reads(diary: Diary, evidence: Evidence) -> Iterator[str]:
    """Reads never go back in time, and never behind what was acknowledged before they began."""
    places = _places(evidence.histories)
    acknowledged = _acknowledged(diary, evidence)
    events: Mapping[str, list[tuple[float, int, str]]] = defaultdict(list)
    for uuid, ended, place, what in acknowledged:
        events[uuid].append((ended, place, what))
    for seen in diary.seen:
        if seen.location not in places:
            yield f"{seen.table}: a load showed {seen.location}, which was never its head"
            continue
        events[seen.uuid].append((seen.ended, places[seen.location], "a load"))
    for known in events.values():
        known.sort()
    for seen in diary.seen:
        if problem := _stale(seen, places, events[seen.uuid]):
            yield problem


def _stale(seen: Seen, places: Mapping[str, int], known: Sequence[tuple[float, int, str]]) -> str | None:
    before = [(place, what) for ended, place, what in known if ended < seen.began]
    if not before or seen.location not in places:
        return None
    place, what = max(before)
    if places[seen.location] >= place:
        return None
    return f"{seen.table}: a load showed number {places[seen.location]}, after {what} had shown number {place}"


def _places(histories: Sequence[History]) -> dict[str, int]:
    return {step.location: place for history in histories for place, step in enumerate(history.steps)}


def _acknowledged(diary: Diary, evidence: Evidence) -> Iterator[tuple[str, float, int, str]]:
    asked_by_id = {asked.id: asked for asked in diary.asked}
    for history in evidence.histories:
        for place, step in enumerate(history.steps):
            for marker in step.markers:
                asked = asked_by_id.get(marker)
                if asked and asked.is_done:
                    yield history.uuid, asked.ended, place, f"{asked.kind} {asked.id}"


def _pairs(diary: Diary, evidence: Evidence) -> Iterator[str]:
    """Transactions come in one order on both tables of a pair, and nobody sees the one without the other."""
    orders = {history.uuid: _pair_order(history) for history in evidence.histories}
    for earlier, later in diary.pairs:
        first, second = orders.get(earlier.uuid, []), orders.get(later.uuid, [])
        if first != second:
            yield f"{earlier.table} and {later.table}: their transactions are in another order"
        elif earlier.pair not in first or later.pair not in first:
            yield f"{earlier.table} or {later.table} showed a transaction that never was: {earlier.pair}, {later.pair}"
        elif first.index(earlier.pair) > first.index(later.pair):
            yield f"{earlier.table} showed {earlier.pair}, and {later.table} then still {later.pair}"


def _pair_order(history: History) -> list[str]:
    order: list[str] = [""]
    for step in history.steps:
        if step.pair != order[-1]:
            order.append(step.pair)
    return order


def _told(asked: Asked) -> str:
    how = "with a key" if asked.key else "without a key"
    lost = f" after {asked.answers_lost} lost answers" if asked.answers_lost else ""
    return f"{asked.kind} {asked.id} {how}: answered {asked.status}{lost} {asked.reason}"


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
