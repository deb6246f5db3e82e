"""The measures of the source tree, on small trees made for the test."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from checks.house import Module, duplicates, read_modules, swap_loops, too_complex, with_one_importer

SIX_LINES = "\n".join(f"x{number} = {number}" for number in range(6))


def modules(tmp_path: Path, **sources: str) -> Sequence[Module]:
    (tmp_path / "sandur").mkdir()
    for name, source in sources.items():
        (tmp_path / "sandur" / f"{name}.py").write_text(source)
    return read_modules(tmp_path)


def test_six_equal_lines_in_two_modules_are_a_duplicate(tmp_path: Path) -> None:
    found = duplicates(modules(tmp_path, a=f"{SIX_LINES}\ny = 1", b=f"z = 1\n{SIX_LINES}"))

    assert found == ["sandur.a:1 = sandur.b:2"]


def test_five_equal_lines_are_not_a_duplicate(tmp_path: Path) -> None:
    five = SIX_LINES.rpartition("\n")[0]

    assert not duplicates(modules(tmp_path, a=f"{five}\ny = 1", b=f"{five}\nz = 1"))


def test_equal_imports_are_not_a_duplicate(tmp_path: Path) -> None:
    imports = "from m import (\n    a,\n    b,\n    c,\n    d,\n    e,\n)"

    assert not duplicates(modules(tmp_path, a=f"{imports}\ny = 1", b=f"{imports}\nz = 1"))


@pytest.mark.parametrize(
    "source",
    [
        "for _ in range(8):\n    try:\n        swap()\n    except SwapLost:\n        continue",
        "def f():\n    try:\n        swap()\n    except (Busy, SwapLost):\n        pass\nfor _ in range(8):\n    f()",
    ],
    ids=["in the loop", "in a function that the loop calls"],
)
def test_a_bounded_loop_that_catches_a_lost_swap_is_a_retry_loop(tmp_path: Path, source: str) -> None:
    assert len(swap_loops(modules(tmp_path, a=source))) == 1


def test_a_module_with_one_importer_is_found(tmp_path: Path) -> None:
    found = with_one_importer(
        modules(tmp_path, a="", b="import sandur.a", c="from sandur import b", d="import sandur.b")
    )

    assert found == ["sandur.a <- sandur.b"]


def test_boolean_operators_count_as_branches(tmp_path: Path) -> None:
    condition = " and ".join(["x"] * 16)

    assert too_complex(modules(tmp_path, a=f"def f(x):\n    return {condition}")) == ["sandur.a:f 16"]
