"""docs/iceberg-differences.md lists every intended difference, and no other."""

import re
from pathlib import Path

from tests.differential.differences import JAVA_CREATIONS, JAVA_TABLES, JAVA_VIEWS, PYICEBERG
from tests.differential.java_examples import TABLE_EXAMPLES

PAGE = Path(__file__).parents[2] / "docs" / "iceberg-differences.md"


def test_the_page_lists_exactly_the_rules_of_the_tests() -> None:
    listed = re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    rules = {rule.name for rules in (JAVA_TABLES, JAVA_CREATIONS, JAVA_VIEWS, PYICEBERG) for rule in rules}

    assert sorted(listed) == sorted(rules)


def test_every_difference_of_tables_has_its_example() -> None:
    assert set(TABLE_EXAMPLES) == {rule.name for rule in JAVA_TABLES}
