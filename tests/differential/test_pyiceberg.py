"""Table commits: our engine compared with PyIceberg's `update_table_metadata`, as a careful Python client calls it."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.differential import our_engine, pyiceberg_oracle
from tests.differential.careful_requests import careful_create_request, careful_request
from tests.differential.comparison import Comparison
from tests.differential.differences import PYICEBERG
from tests.differential.histories import Engines, history
from tests.differential.outcomes import Commit, JsonObject, Outcome, Verdict
from tests.differential.rules import explained

HISTORIES = 150
STEPS = 12
SHOWN_MAX = 5
CREATED_MS = 1_750_000_000_000


def in_pyicebergs_form(outcome: Outcome) -> Outcome:
    """Our result after PyIceberg has read and written it, so that only its meaning is compared."""
    if outcome.verdict is not Verdict.CHANGED:
        return outcome
    return Outcome(Verdict.CHANGED, metadata=pyiceberg_oracle.rewritten(outcome.text), text=outcome.text)


def theirs(commit: Commit) -> Outcome:
    """PyIceberg has no create transaction, so a table starts with ours."""
    if commit.base is None:
        return in_pyicebergs_form(our_engine.commit_table(commit, now_ms=CREATED_MS))
    return pyiceberg_oracle.commit_table(commit)


def ours(commit: Commit, now_ms: int) -> Outcome:
    return in_pyicebergs_form(our_engine.commit_table(commit, now_ms=CREATED_MS if commit.base is None else now_ms))


def change(rng: Random, metadata: JsonObject, now_ms: int) -> JsonObject:
    return careful_request(rng, metadata, now_ms=now_ms)


ENGINES = Engines(
    ours=ours,
    theirs=theirs,
    create=lambda rng, now_ms: careful_create_request(rng, now_ms=now_ms),
    change=change,
    form=lambda _rng, metadata: metadata,
    stamp=lambda metadata: metadata["last-updated-ms"],
)


def histories() -> Iterator[Comparison]:
    for seed in range(HISTORIES):
        yield from history(ENGINES, seed=seed, steps=STEPS)


@pytest.fixture(scope="module")
def compared() -> list[Comparison]:
    return list(histories())


def test_every_difference_from_pyiceberg_is_intended(compared: list[Comparison]) -> None:
    _seen, unexplained = explained(compared, PYICEBERG)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])


def test_every_intended_difference_from_pyiceberg_occurs(compared: list[Comparison]) -> None:
    seen, _unexplained = explained(compared, PYICEBERG)

    assert {rule.name for rule in PYICEBERG} - set(seen) == set()


def test_most_commits_have_the_same_result_in_both_engines(compared: list[Comparison]) -> None:
    same = [c for c in compared if not c.differences and c.theirs.verdict is Verdict.CHANGED]

    assert len(same) > len(compared) // 3
