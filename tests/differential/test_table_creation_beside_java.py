"""Created tables: our engine compared with Iceberg's Java builder."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.differential import our_engine
from tests.differential.comparison import Comparison, compare
from tests.differential.differences import JAVA_CREATIONS
from tests.differential.java_oracle import JavaOracle
from tests.differential.outcomes import Commit, Verdict
from tests.differential.rules import explained
from tests.differential.table_creations import table_creation

CREATIONS = 1_600
SHOWN_MAX = 5
NOBODY = "00000000-0000-0000-0000-000000000000"


def creations(java: JavaOracle) -> Iterator[Comparison]:
    for seed in range(CREATIONS):
        rng = Random(seed)
        request = table_creation(rng)
        theirs = java.create_table(request)
        made = theirs.metadata or {"table-uuid": NOBODY, "last-updated-ms": 1}
        ours = our_engine.create_table(request, table_uuid=made["table-uuid"], now_ms=made["last-updated-ms"])
        yield compare(Commit(None, b"", "", request), ours, theirs)


@pytest.fixture(scope="module")
def compared(java: JavaOracle) -> list[Comparison]:
    return list(creations(java))


def test_every_difference_of_a_new_table_is_intended(compared: list[Comparison]) -> None:
    _seen, unexplained = explained(compared, JAVA_CREATIONS)

    assert not unexplained, f"{len(unexplained)} differences\n" + "\n\n".join(unexplained[:SHOWN_MAX])


def test_every_intended_difference_of_a_new_table_occurs(compared: list[Comparison]) -> None:
    seen, _unexplained = explained(compared, JAVA_CREATIONS)

    assert {rule.name for rule in JAVA_CREATIONS} - set(seen) == set()


def test_creations_succeed_and_fail(compared: list[Comparison]) -> None:
    assert {comparison.theirs.verdict for comparison in compared} == {Verdict.CHANGED, Verdict.REFUSED}
