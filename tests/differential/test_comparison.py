"""The comparison itself: it must find every difference that matters, and only those."""

import pytest

from tests.differential.comparison import MISSING, Aspect, Difference, compare
from tests.differential.outcomes import Commit, Json, JsonObject, Outcome, Verdict
from tests.differential.rules import Rule, explained

COMMIT = Commit(base=None, base_text=b"", base_location="", request={"requirements": [], "updates": []})


def changed(metadata: JsonObject) -> Outcome:
    return Outcome(Verdict.CHANGED, metadata=metadata)


def test_equal_outcomes_do_not_differ() -> None:
    comparison = compare(COMMIT, changed({"a": [1, {"b": None}]}), changed({"a": [1, {"b": None}]}))

    assert comparison.differences == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "path"),
    [
        ({"a": 1}, {"a": 2}, ("a",)),
        ({"a": 1}, {"a": True}, ("a",)),
        ({"a": 1}, {"a": 1.0}, ("a",)),
        ({"a": 2**63 - 1}, {"a": 2**63 - 2}, ("a",)),
        ({"a": None}, {}, ("a",)),
        ({}, {"a": {}}, ("a",)),
        ({"a": [1, 2]}, {"a": [2, 1]}, ("a", "0")),
        ({"a": [1]}, {"a": [1, 2]}, ("a",)),
        ({"a": [{"b": {"c": "x"}}]}, {"a": [{"b": {"c": "y"}}]}, ("a", "0", "b", "c")),
    ],
)
def test_a_difference_is_reported_with_its_path(ours: Json, theirs: Json, path: tuple[str, ...]) -> None:
    comparison = compare(COMMIT, changed(ours), changed(theirs))

    assert comparison.differences[0].path == path


def test_a_missing_key_and_a_null_are_different() -> None:
    comparison = compare(COMMIT, changed({}), changed({"a": None}))

    assert comparison.differences == (Difference(Aspect.METADATA, ("a",), MISSING, None),)


def test_the_order_of_statistics_files_does_not_matter() -> None:
    first, second = {"snapshot-id": 1}, {"snapshot-id": 2}
    comparison = compare(COMMIT, changed({"statistics": [first, second]}), changed({"statistics": [second, first]}))

    assert comparison.differences == ()


def test_another_verdict_is_a_difference() -> None:
    comparison = compare(COMMIT, Outcome(Verdict.UNCHANGED), Outcome(Verdict.CONFLICT, message="late"))

    assert [d.aspect for d in comparison.differences] == [Aspect.VERDICT]


def test_our_message_must_contain_theirs() -> None:
    theirs = Outcome(Verdict.REFUSED, message="Cannot do that")

    alike = compare(COMMIT, Outcome(Verdict.REFUSED, message="table t: Cannot do that"), theirs)
    unlike = compare(COMMIT, Outcome(Verdict.REFUSED, message="no"), theirs)

    assert alike.differences == ()
    assert [d.aspect for d in unlike.differences] == [Aspect.MESSAGE]


def test_the_text_of_a_crash_is_not_compared() -> None:
    theirs = Outcome(Verdict.REFUSED, message="null pointer", has_crashed=True)

    comparison = compare(COMMIT, Outcome(Verdict.REFUSED, message="no such spec"), theirs)

    assert comparison.differences == ()


def test_an_unknown_difference_is_reported_and_an_intended_one_is_counted() -> None:
    comparison = compare(COMMIT, changed({"a": 1, "b": 1}), changed({"a": 2, "b": 2}))
    rule = Rule("a-differs", "for this test", lambda _comparison, difference: difference.path == ("a",))

    seen, unexplained = explained([comparison], (rule,))

    assert seen == {"a-differs": 1}
    assert len(unexplained) == 1
    assert unexplained[0].startswith("metadata b")
