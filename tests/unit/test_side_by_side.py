"""The tests in two processes: every test runs once, failures are reported, and an interrupt ends both."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.servers.processes import free_ports

PASSES: Final = """
import os, pathlib

def test_first(): _ran("first")
def test_second(): _ran("second")

def _ran(name):
    with open("ran", "a") as log:
        log.write(f"{pathlib.Path(__file__).name} {name}\\n")
"""
FAILS: Final = "def test_wrong(): assert 1 == 2, 'as expected'\n"
# Says that it has begun, and waits for a writer of the other pipe, which never comes. While a process runs the first
# test of a file, it has not claimed the next file.
WAITS: Final = """
def test_waits():
    with open("began", "w") as began:
        began.write("x")
    open("never")

def test_second(): pass
"""


def started(folder: Path, files: Mapping[str, str]) -> subprocess.Popen[str]:
    """The runner on a small project."""
    (folder / "tests").mkdir()
    for name, text in files.items():
        (folder / "tests" / f"test_{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return subprocess.Popen(
        [sys.executable, "-m", "tests.side_by_side"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_every_test_runs_once_and_every_file_is_reported(tmp_path: Path) -> None:
    process = started(tmp_path, {f"n{number}": PASSES for number in range(4)})
    output, _ = process.communicate()

    expected = sorted(f"test_n{number}.py {name}" for number in range(4) for name in ("first", "second"))
    assert process.returncode == 0, output
    assert sorted((tmp_path / "ran").read_text().splitlines()) == expected
    assert sorted(re.findall(r"^\d\| (tests/\S+) \.\.", output, re.MULTILINE)) == [
        f"tests/test_n{number}.py" for number in range(4)
    ]
    assert output.endswith("tests: passed\n")


def test_a_failure_is_reported_with_its_trace_and_the_other_tests_run(tmp_path: Path) -> None:
    process = started(tmp_path, {"a": PASSES, "b": FAILS, "c": PASSES})
    output, _ = process.communicate()

    assert process.returncode == 1
    assert "as expected" in output
    assert "FAILED tests/test_b.py::test_wrong" in output
    assert len((tmp_path / "ran").read_text().splitlines()) == 4


def test_an_interrupt_ends_all_processes(tmp_path: Path) -> None:
    count = min(2, os.cpu_count() or 1)
    for name in ("began", "never"):
        os.mkfifo(tmp_path / name)
    process = started(tmp_path, {"a": WAITS, "b": WAITS})
    began = os.open(tmp_path / "began", os.O_RDWR)  # Open for writing, too: so there is no end to read.
    for _ in range(count):
        os.read(began, 1)
    os.close(began)

    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()

    assert process.returncode == 130
    assert output.count("KeyboardInterrupt") >= count
    assert output.endswith("tests: interrupted\n")


def test_processes_side_by_side_choose_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for part in ("1/2", "2/2"):
        monkeypatch.setenv("PYTEST_PART", part)
        found[part] = {port % 2 for port in free_ports(10)}

    assert found["1/2"].isdisjoint(found["2/2"])
