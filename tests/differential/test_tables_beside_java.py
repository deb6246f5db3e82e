"""Table commits: our engine compared with Iceberg's Java builder, over generated histories."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from tests.differential import our_engine
from tests.differential.comparison import Comparison, compare
from tests.differential.differences import JAVA_TABLES
from tests.differential.histories import Engines, history
from tests.differential.java_examples import REFERENCE_TEXTS, TABLE_EXAMPLES, Example, creation, with_unknown_field
from tests.differential.java_oracle import JavaOracle
from tests.differential.long_histories import empty_table_request, long_table
from tests.differential.older_forms import older_form
from tests.differential.outcomes import Commit, JsonObject, Outcome, Verdict
from tests.differential.rules import Rule, explained
from tests.differential.table_requests import commit_request, create_request
from tests.differential.table_updates import UPDATES

HISTORIES = 600
HISTORIES_SLOW = 10_000
LONG_HISTORIES = 30
STEPS = 7
SHOWN_MAX = 5
PLACE = "s3://warehouse/db/table/metadata/00001-example.metadata.json"


def table_engines(java: JavaOracle) -> Engines:
    return Engines(
        ours=lambda commit, now_ms: our_engine.commit_table(commit, now_ms=now_ms),
        theirs=java.commit_table,
        create=lambda rng, now_ms: create_request(rng, now_ms=now_ms),
        change=lambda rng, metadata, now_ms: commit_request(rng, metadata, now_ms=now_ms),
        form=older_form,
        stamp=lambda metadata: metadata["last-updated-ms"],
    )


def comparisons(java: JavaOracle, *, seeds: range) -> Iterator[Comparison]:
    for seed in seeds:
        yield from history(table_engines(java), seed=seed, steps=STEPS)


@pytest.fixture(scope="module")
def compared(java: JavaOracle) -> list[Comparison]:
    return list(comparisons(java, seeds=range(HISTORIES)))


def test_every_difference_from_the_java_builder_is_intended(compared: list[Comparison]) -> None:
    _seen, unexplained = explained(compared, JAVA_TABLES)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])


def compare_example(java: JavaOracle, example: Example, *, now_ms: int) -> Comparison:
    """The results of both engines for an example, after its preparation."""
    engines = table_engines(java)
    created = creation(example.version)
    if example.left_out is not None:
        updates = [update for update in created if update["action"] != example.left_out]
        commit = Commit(None, b"", "", {"requirements": [{"type": "assert-create"}], "updates": updates})
        return compare(commit, engines.ours(commit, now_ms), engines.theirs(commit))
    made = java.commit_table(Commit(None, b"", "", {"requirements": [{"type": "assert-create"}], "updates": created}))
    if example.before is not None:
        request: JsonObject = {"requirements": [], "updates": example.before(now_ms)}
        made = java.commit_table(Commit(made.metadata, made.text, PLACE, request))
    base = with_unknown_field(made.metadata or {}) if example.unknown_field else made.metadata
    request = {"requirements": list(example.requirements), "updates": example.updates(now_ms)}
    commit = Commit(base, json.dumps(base).encode(), PLACE, request)
    theirs = engines.theirs(commit)
    stamp = (theirs.metadata or {}).get("last-updated-ms", now_ms)
    return compare(commit, engines.ours(commit, stamp), theirs)


@pytest.mark.parametrize("rule", JAVA_TABLES, ids=lambda rule: rule.name)
def test_the_example_of_a_difference_has_that_difference(java: JavaOracle, rule: Rule) -> None:
    comparison = compare_example(java, TABLE_EXAMPLES[rule.name], now_ms=time.time_ns() // 1_000_000)

    seen, unexplained = explained([comparison], JAVA_TABLES)

    assert unexplained == []
    assert rule.name in seen, f"{seen} {comparison.ours} {comparison.theirs}"


def test_java_reads_our_file_as_its_own(java: JavaOracle, compared: list[Comparison]) -> None:
    changed = [c for c in compared if c.ours.verdict is c.theirs.verdict is Verdict.CHANGED]
    reread = [
        compare(c.commit, Outcome(Verdict.CHANGED, metadata=java.rewritten_table(c.ours.text)), c.theirs)
        for c in changed
    ]

    _seen, unexplained = explained(reread, JAVA_TABLES)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])


def test_the_histories_reach_every_action_and_every_verdict(compared: list[Comparison]) -> None:
    applied = Counter(
        update.get("action") for c in compared if c.theirs.verdict is Verdict.CHANGED for update in c.commit.updates
    )
    refused = Counter(
        update.get("action") for c in compared if c.theirs.verdict is Verdict.REFUSED for update in c.commit.updates
    )
    versions = {c.theirs.metadata["format-version"] for c in compared if c.theirs.metadata}

    assert min(applied[action] for action in UPDATES) >= 3
    assert min(refused[action] for action in UPDATES) >= 3
    assert {c.theirs.verdict for c in compared} == set(Verdict)
    assert {1, 2, 3, 4} <= versions


@pytest.mark.parametrize("text", REFERENCE_TEXTS)
def test_the_histories_reach_every_message_and_ours_contains_it(compared: list[Comparison], text: str) -> None:
    said = [c for c in compared if text in c.theirs.message]

    assert said
    assert any(text in c.ours.message for c in said)


def long_comparisons(java: JavaOracle) -> Iterator[Comparison]:
    for seed in range(LONG_HISTORIES):
        version = 1 + seed % 4
        made = java.commit_table(Commit(None, b"", "", empty_table_request(version)))
        now_ms = time.time_ns() // 1_000_000
        start = long_table(Random(seed), made.metadata or {}, version=version, now_ms=now_ms)
        yield from history(table_engines(java), seed=seed, steps=STEPS, start=start)


def test_every_difference_on_a_table_with_hundreds_of_snapshots_is_intended(java: JavaOracle) -> None:
    compared = list(long_comparisons(java))

    _seen, unexplained = explained(compared, JAVA_TABLES)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])
    assert len([c for c in compared if c.theirs.verdict is Verdict.CHANGED]) > LONG_HISTORIES


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_difference_is_intended_over_many_more_histories(java: JavaOracle) -> None:
    first = int(os.environ.get("SANDUR_TEST_SEED", "1000000"))

    _seen, unexplained = explained(comparisons(java, seeds=range(first, first + HISTORIES_SLOW)), JAVA_TABLES)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])
