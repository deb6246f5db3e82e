"""Iceberg's REST Compatibility Kit in its plain mode; `make rck` runs it in every mode."""

import pytest

from tests.rck.kit import IMPOSSIBLE, Case, judged, missing
from tests.rck.kit_run import verdict_on

FORMAT_3 = "format 3"
IMPOSSIBLE_CASES = [Case(name, f"Commit failed: {reason}: 2 < 4") for name, reason in IMPOSSIBLE[FORMAT_3].items()]


@pytest.mark.timeout(900)  # The first run also downloads the kit's jars.
@pytest.mark.parametrize(("name", "count"), [("tables", 97), ("views", 50)])
def test_every_test_of_the_kit_passes(name: str, count: int) -> None:
    if reason := missing():
        pytest.skip(reason)

    verdict = verdict_on("default", name)

    assert not verdict.wrong
    assert verdict.passed == count


def test_a_known_failure_is_expected_only_in_its_mode() -> None:
    cases = [Case("testOther()"), Case("testLeftOut()", is_skipped=True), *IMPOSSIBLE_CASES]

    verdict = judged(cases, FORMAT_3)

    assert (verdict.passed, verdict.impossible, verdict.skipped, len(verdict.wrong)) == (1, 7, 1, 0)
    assert len(judged(cases, "default").wrong) == 7


def test_a_known_failure_is_wrong_if_it_passes_or_fails_for_another_reason() -> None:
    passed, failed, *others = IMPOSSIBLE_CASES
    cases = [Case(passed.name), Case(failed.name, "Server error: 500"), *others]

    verdict = judged(cases, FORMAT_3)

    assert verdict.impossible == 5
    assert {case.name for case in verdict.wrong} == {passed.name, failed.name}


def test_any_other_failure_is_wrong() -> None:
    verdict = judged([Case("testOther()", "it broke"), *IMPOSSIBLE_CASES], FORMAT_3)

    assert verdict.wrong == [Case("testOther()", "it broke")]
