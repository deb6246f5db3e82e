"""The verdict: whether the answers to clients agree with the content of the store."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.clients import Diary, Seen, SentRequest
from tests.chaos.evidence import Evidence, History

COMMITS = frozenset({"snapshot", "last", "own", "column"})


def judge(diary: Diary, evidence: Evidence) -> Sequence[str]:
    """All problems as texts; empty if the run was correct."""
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
    for sent in diary.sent:
        if sent.status is None:
            yield f"{sent.kind} {sent.id}: never answered, after {sent.answers_lost} tries"


def _chains(diary: Diary, evidence: Evidence) -> Iterator[str]:
    """One request per metadata file and one receipt per head; the last one of a dropped table may be missing."""
    blind = {sent.id for sent in diary.sent if sent.kind == "own" and sent.answers_lost}
    for history in evidence.histories:
        if history.is_live and not history.is_whole:
            yield f"{history.uuid}: its head has no receipt"
        # C9: a request without a key that adds and asserts nothing is applied again when it is sent again.
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
    for sent in diary.sent:
        if sent.kind not in COMMITS | {"transaction"}:
            continue
        once = 2 if sent.kind == "transaction" else 1
        found = times[sent.id]
        if sent.is_done and found < once:
            yield f"{_description(sent)}, but found {found} of {once} times: lost"
        if found > once:
            yield f"{_description(sent)}, but found {found} times: applied twice"
        if sent.is_refused and found:
            yield f"{_description(sent)}, but found {found} times: refused and applied"
        if 0 < found < once:
            yield f"{_description(sent)}: half of it is there"


def _creates(diary: Diary, evidence: Evidence) -> Iterator[str]:
    made = Counter(history.made_by for history in evidence.histories)
    for sent in diary.sent:
        if sent.kind != "create":
            continue
        found = made[sent.id]
        # Without a key a retry is another request: the name may have become free in between.
        found_max = 1 if sent.key else 1 + sent.answers_lost
        if sent.is_done and not found:
            yield f"{_description(sent)}, but there is no such table"
        if found > found_max:
            yield f"{_description(sent)}, but there are {found} tables"
        if sent.is_refused and found:
            yield f"{_description(sent)}, but the table was made"


def _drops(diary: Diary, evidence: Evidence) -> Iterator[str]:
    dropped = Counter(history.dropped_by for history in evidence.histories if not history.is_live)
    drops = [sent for sent in diary.sent if sent.kind == "drop"]
    keyed = {_hash(sent.key): sent for sent in drops if sent.key}
    for by, sent in keyed.items():
        wanted = 1 if sent.is_done else 0
        if sent.status is not None and dropped[by] != wanted:
            yield f"{_description(sent)}, but {dropped[by]} tables were dropped by it"
    unkeyed = [sent for sent in drops if not sent.key]
    by_unkeyed = sum(times for by, times in dropped.items() if by not in keyed)
    done = sum(sent.is_done for sent in unkeyed)
    if not done <= by_unkeyed <= done + sum(sent.answers_lost for sent in unkeyed):
        yield f"{by_unkeyed} tables were dropped without a key, {done} such drops acknowledged"


def _names(evidence: Evidence) -> Iterator[str]:
    """Every live table has one name, and every name has a live table."""
    live = {history.uuid for history in evidence.histories if history.is_live}
    names_found = Counter(evidence.names.values())
    for uuid in live | set(names_found):
        names = [str(name) for name, other in evidence.names.items() if other == uuid]
        if uuid not in live:
            yield f"{names} shows {uuid}, which does not live"
        elif len(names) != 1:
            yield f"table {uuid} lives under {len(names)} names: {names}"


def _reads(diary: Diary, evidence: Evidence) -> Iterator[str]:
    """Reads never go back in time, and are never older than a commit acknowledged before they began."""
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
    sent_by_id = {sent.id: sent for sent in diary.sent}
    for history in evidence.histories:
        for place, step in enumerate(history.steps):
            for marker in step.markers:
                sent = sent_by_id.get(marker)
                if sent and sent.is_done:
                    yield history.uuid, sent.ended, place, f"{sent.kind} {sent.id}"


def _pairs(diary: Diary, evidence: Evidence) -> Iterator[str]:
    """Transactions have the same order on both tables of a pair, and no read sees half of one."""
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


def _description(sent: SentRequest) -> str:
    how = "with a key" if sent.key else "without a key"
    lost = f" after {sent.answers_lost} lost answers" if sent.answers_lost else ""
    return f"{sent.kind} {sent.id} {how}: answered {sent.status}{lost} {sent.reason}"


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
