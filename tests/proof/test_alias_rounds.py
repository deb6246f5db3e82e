"""Decision 23 has the rounds that the model of an alias layer counts, and today's are those that the server needs."""

import re
from typing import Final

from proof.alias_rounds import Layer, Memory, reads_of_a_warm_load, rounds
from tests.docs.pages import ROOT

LAYERS: Final[tuple[Layer, ...]] = ("today", "directory", "sparse", "exchange")
_PAGE: Final = (ROOT / "docs" / "decisions" / "0023-renaming-catalogs-and-schemas.md").read_text(encoding="utf-8")
_ROWS: Final[dict[str, tuple[str, Memory]]] = {
    "warm load": ("load", "all"),
    "load of another table": ("load", "containers"),
    "load of another table, hint correct": ("load, hint correct", "containers"),
    "load by a fresh server": ("load", "nothing"),
    "load by a fresh server, hint correct": ("load, hint correct", "nothing"),
    "warm commit": ("commit", "all"),
    "commit to another table": ("commit", "containers"),
    "commit by a fresh server": ("commit", "nothing"),
    "list, unchanged": ("list", "all"),
    "list, changed": ("list", "containers"),
    "list by a fresh server": ("list", "nothing"),
    "create": ("create", "containers"),
    "create by a fresh server": ("create", "nothing"),
}


def figures(title: str) -> list[int]:
    row = re.search(rf"^\| {re.escape(title)} \|(.*)\|$", _PAGE, re.MULTILINE)
    assert row, title
    return [int(cell) for cell in row[1].split("|")]


def test_the_decision_has_the_rounds_of_the_model() -> None:
    for title, (request, memory) in _ROWS.items():
        assert figures(title) == [rounds(request, layer, memory) for layer in LAYERS], title


def test_the_decision_has_the_reads_of_a_warm_load() -> None:
    assert figures("reads of a warm load") == [reads_of_a_warm_load(layer) for layer in LAYERS]
    assert figures("reads of a warm load, grants checked") == [
        reads_of_a_warm_load(layer, checks_grants=True) for layer in LAYERS
    ]


def test_the_model_counts_today_what_a_server_needs() -> None:
    """The same figures as tests/operations/test_rounds.py."""
    found = {title: rounds(request, "today", memory) for title, (request, memory) in _ROWS.items()}

    assert found["warm load"] == 1
    assert (found["load by a fresh server, hint correct"], found["load by a fresh server"]) == (2, 3)
    assert found["warm commit"] == 2
    assert rounds("commit, hint correct", "today", "nothing") == 4
    assert found["commit by a fresh server"] == 5
    assert found["create"] == 4


def test_a_warm_load_stays_at_one_round() -> None:
    assert {rounds("load", layer, "all") for layer in LAYERS} == {1}
