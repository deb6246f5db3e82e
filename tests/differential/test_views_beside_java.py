"""View commits: our engine compared with Iceberg's Java builder, over generated histories."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.differential import our_engine
from tests.differential.comparison import Comparison, compare
from tests.differential.differences import JAVA_VIEWS
from tests.differential.histories import Engines, history
from tests.differential.java_oracle import JavaOracle
from tests.differential.outcomes import JsonObject, Outcome, Verdict
from tests.differential.rules import explained
from tests.differential.view_requests import commit_view_request, create_view_request

HISTORIES = 400
STEPS = 8
SHOWN_MAX = 5
ACTIONS = (
    "assign-uuid", "upgrade-format-version", "add-schema", "set-location", "set-properties", "remove-properties",
    "add-view-version", "set-current-view-version",
)  # fmt: skip


def _last_logged(metadata: JsonObject) -> object:
    log = metadata["version-log"]
    return log[-1]["timestamp-ms"] if log else None


def comparisons(java: JavaOracle) -> Iterator[Comparison]:
    engines = Engines(
        ours=lambda commit, now_ms: our_engine.commit_view(commit, now_ms=now_ms),
        theirs=java.commit_view,
        create=lambda rng, now_ms: create_view_request(rng, now_ms=now_ms),
        change=lambda rng, metadata, now_ms: commit_view_request(rng, metadata, now_ms=now_ms),
        form=lambda _rng, metadata: metadata,
        stamp=_last_logged,
    )
    for seed in range(HISTORIES):
        yield from history(engines, seed=seed, steps=STEPS)


@pytest.fixture(scope="module")
def compared(java: JavaOracle) -> list[Comparison]:
    return list(comparisons(java))


def test_every_difference_of_a_view_is_intended(compared: list[Comparison]) -> None:
    _seen, unexplained = explained(compared, JAVA_VIEWS)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])


def test_every_intended_difference_of_a_view_occurs(compared: list[Comparison]) -> None:
    seen, _unexplained = explained(compared, JAVA_VIEWS)

    assert {rule.name for rule in JAVA_VIEWS} - set(seen) == set()


def test_java_reads_our_view_as_its_own(java: JavaOracle, compared: list[Comparison]) -> None:
    changed = [c for c in compared if c.ours.verdict is c.theirs.verdict is Verdict.CHANGED]
    reread = [
        compare(c.commit, Outcome(Verdict.CHANGED, metadata=java.rewritten_view(c.ours.text)), c.theirs)
        for c in changed
    ]

    _seen, unexplained = explained(reread, JAVA_VIEWS)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])


def test_the_histories_of_views_reach_every_action_and_every_verdict(compared: list[Comparison]) -> None:
    applied = Counter(
        u.get("action") for c in compared if c.theirs.verdict is Verdict.CHANGED for u in c.commit.updates
    )

    assert min(applied[action] for action in ACTIONS) >= 3
    assert {c.theirs.verdict for c in compared} == set(Verdict)
