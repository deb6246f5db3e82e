"""Runs the same random history on two engines and collects the differences."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.differential.comparison import Comparison, compare
from tests.differential.outcomes import Commit, JsonObject, Outcome, Verdict

METADATA_FOLDER = "s3://warehouse/db/table/metadata"
ASCII_CHANCE = 0.5
OURS_CHANCE = 0.5


@dataclass(frozen=True)
class Engines:
    """How the two engines and the generators of requests are called."""

    ours: Callable[[Commit, int], Outcome]
    theirs: Callable[[Commit], Outcome]
    create: Callable[[Random, int], JsonObject]
    change: Callable[[Random, JsonObject, int], JsonObject]
    form: Callable[[Random, JsonObject], JsonObject]  # Another valid form of the result, which the next step reads.
    stamp: Callable[[JsonObject], object]  # The time of a change according to its metadata.


def history(engines: Engines, *, seed: int, steps: int, start: JsonObject | None = None) -> Iterator[Comparison]:
    """A create transaction or an existing table, then commits; each step starts from one engine's result."""
    rng = Random(seed)
    base = start
    text, location = (b"", "") if start is None else (_compact(start), f"{METADATA_FOLDER}/00000-start.metadata.json")
    for step in range(steps):
        now_ms = time.time_ns() // 1_000_000
        request = engines.create(rng, now_ms) if base is None else engines.change(rng, base, now_ms)
        commit = Commit(base, text, location, request)
        theirs = engines.theirs(commit)
        ours = engines.ours(commit, _their_time(engines, theirs, since_ms=now_ms))
        yield compare(commit, ours, theirs)
        if ours.verdict is theirs.verdict is Verdict.CHANGED:
            # Continuing from our own file checks that the other engine can read it.
            source = ours if rng.random() < OURS_CHANCE else theirs
            base = source.metadata or {}
            form = engines.form(rng, base)
            text = source.text if form is base else json.dumps(form, ensure_ascii=rng.random() < ASCII_CHANCE).encode()
            location = f"{METADATA_FOLDER}/{step:05d}-{seed}.metadata.json"


def _compact(metadata: JsonObject) -> bytes:
    return json.dumps(metadata, separators=(",", ":"), ensure_ascii=False).encode()


def _their_time(engines: Engines, theirs: Outcome, *, since_ms: int) -> int:
    """The time that the other engine took from its own clock, so that ours writes the same one."""
    until_ms = time.time_ns() // 1_000_000
    stamped = engines.stamp(theirs.metadata) if theirs.metadata else None
    return stamped if isinstance(stamped, int) and since_ms <= stamped <= until_ms else until_ms
