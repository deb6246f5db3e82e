"""docs/protocol.md defines every rule of the models and of the code, each once."""

import re
from typing import Final

from proof.rules import RULES
from tests.docs.pages import ROOT

_PAGE: Final = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
_DEFINED: Final = re.compile(r"^\| \*\*((?:GC|SR|[ABGCNDEFRTILMOPSUVW])\d+)\*\* \|", re.MULTILINE)
# The code names a rule in brackets: (C5), (N4, N6), (T1–T9). "S3" alone is the storage service.
_IN_BRACKETS: Final = re.compile(
    r"\((?:rules? )?((?:GC|SR|[ABGCNDEFRTILMOPUVW])\d+(?:[ ,–-]+(?:GC|SR|[ABGCNDEFRTILMOPUVW])\d+)*)[^)]*\)"
)
_RULE: Final = re.compile(r"(?:GC|SR|[ABGCNDEFRTILMOPUVW])\d+")


def used_in_code() -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    return {rule for text in texts for found in _IN_BRACKETS.findall(text) for rule in _RULE.findall(found)}


def test_a_rule_is_defined_once() -> None:
    defined = _DEFINED.findall(_PAGE)

    assert sorted(set(defined)) == sorted(defined)


def test_every_rule_of_the_models_is_defined_with_its_parts() -> None:
    defined = set(_DEFINED.findall(_PAGE))
    parts = {rule for rule in RULES if " " in rule} - {"T2 keep"}  # T2 keep is an alternative to T2.

    assert {rule.split()[0] for rule in RULES} <= defined
    assert {part for part in parts if not is_part_defined(part)} == set()


def is_part_defined(part: str) -> bool:
    """Whether the row of the rule names the part, as in *N6 back* or *Fence*."""
    rule, _, name = part.partition(" ")
    row = re.search(rf"^\| \*\*{rule}\*\* \|(.*)$", _PAGE, re.MULTILINE)
    return row is not None and re.search(rf"\*(?:{rule} )?{name}\*", row[1], re.IGNORECASE) is not None


def test_a_rule_is_defined_before_it_is_used() -> None:
    defined_at = {match[1]: match.start() for match in _DEFINED.finditer(_PAGE)}
    used = [(rule, use.start()) for use in _IN_BRACKETS.finditer(_PAGE) for rule in _RULE.findall(use[1])]

    assert [rule for rule, at in used if at < defined_at[rule]] == []
    assert len(used) > 20


def test_every_rule_of_the_code_is_defined() -> None:
    assert used_in_code() - set(_DEFINED.findall(_PAGE)) == set()
    assert len(used_in_code()) > 20
