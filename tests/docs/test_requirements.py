"""Every requirement is on its page, and what proves it exists."""

import re
from typing import Final

import pytest

from tests.docs.pages import ROOT

PAGE: Final = ROOT / "docs" / "requirements.md"
COUNTS: Final = {"S000": 23, "S001": 41, "S002": 19, "S003": 20, "S004": 37}

_ROW: Final = re.compile(r"^\| (?P<id>S\d{3}-\d+) \| (?P<what>[^|]+) \| (?P<proof>[^|]+) \|$", re.MULTILINE)
_TEST: Final = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>test_\w+)`")
_DECISION: Final = re.compile(r"\[decision \d+\]\((?P<page>decisions/[\w-]+\.md)\)")
_OPEN: Final = re.compile(r"open: issue (19|2[0-5])\Z")
_NO_GOAL: Final = "not a goal: nothing to prove"

ROWS: Final = {row["id"]: row["proof"].strip() for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))}


def test_every_requirement_is_listed_once_and_in_order() -> None:
    rows = [row["id"] for row in _ROW.finditer(PAGE.read_text(encoding="utf-8"))]

    assert rows == [f"{group}-{number}" for group, count in COUNTS.items() for number in range(1, count + 1)]


@pytest.mark.parametrize("requirement", ROWS)
def test_a_requirement_has_a_test_a_decision_or_an_open_issue(requirement: str) -> None:
    proof = ROWS[requirement]
    tests = list(_TEST.finditer(proof))

    assert tests or _DECISION.search(proof) or _OPEN.match(proof) or proof == _NO_GOAL, proof
    assert proof.count(".py") == len(tests), "every named test has its file and its name"
    for test in tests:
        file = ROOT / "tests" / test["file"]
        assert file.exists(), file
        assert re.search(rf"^(async )?def {test['name']}\(", file.read_text(encoding="utf-8"), re.MULTILINE), test[0]


@pytest.mark.parametrize("requirement", [one for one, proof in ROWS.items() if _DECISION.search(proof)])
def test_a_decision_names_the_requirement_that_it_is_about(requirement: str) -> None:
    found = _DECISION.search(ROWS[requirement])

    assert found
    assert requirement in (ROOT / "docs" / found["page"]).read_text(encoding="utf-8")
