"""The run of all engines: every test belongs to a part, and an interrupted part keeps its results."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.matrix import RESULTS, ROOT, Ended, append, read_results
from tests.interop.run import HERE, TERMINATED, TOO_LONG, Part, chosen, main, parts, run_part

SHOWS = """
import os, signal, threading
import pytest

pytest_plugins = ["tests.interop.conftest"]

@pytest.mark.operation("Novel", "read")
def test_what_is_seen() -> None: ...
"""
DIES = f"""{SHOWS}
def test_what_comes_then() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""
HANGS = f"""{SHOWS}
def test_what_comes_then() -> None:
    threading.Event().wait()
"""


WAITS = """
import os, threading

def test_it() -> None:
    with open(PLACE, "w") as place:
        place.write(str(os.getpid()))
    threading.Event().wait()
"""


def part(source: str, folder: Path) -> Part:
    (folder / "test_one.py").write_text(source, encoding="utf-8")
    return Part("one", ("test_*.py",), root=folder)


def test_every_file_of_tests_belongs_to_a_part() -> None:
    covered = {path for part in parts() for path in part.paths()}

    assert {path for path in covered if path.is_relative_to(HERE)} == set(HERE.rglob("test_*.py"))


def test_every_part_has_tests_and_a_unique_name() -> None:
    assert all(part.paths() for part in parts())
    assert len({part.name for part in parts()}) == len(parts())


@pytest.mark.parametrize(
    ("source", "seconds_max", "exit_code"),
    [
        (SHOWS, 240, 0),
        pytest.param(DIES, 240, -signal.SIGKILL, marks=pytest.mark.interop),
        pytest.param(HANGS, 20, TOO_LONG, marks=pytest.mark.interop),  # It runs until its time limit.
    ],
)
def test_the_results_of_a_part_are_kept_after_any_end(
    source: str, seconds_max: float, exit_code: int, tmp_path: Path
) -> None:
    ended = run_part(part(source, tmp_path), tmp_path / "results", seconds_max=seconds_max)

    found = read_results(tmp_path / "results")
    assert ended.exit_code == exit_code
    assert [(one.engine, one.operation, one.outcome) for one in found.results] == [("Novel", "read", "passed")]
    assert found.ended == {"one": ended}


@pytest.mark.interop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_ended_run_leaves_no_process_of_a_part(number: signal.Signals, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    part(WAITS.replace("PLACE", repr(str(pid))), tmp_path)
    script = f"""
from pathlib import Path
from tests.interop.run import *
end_parts_when_ended()
run_part(Part("one", ("test_*.py",), root=Path({str(tmp_path)!r})), Path({str(tmp_path)!r}) / "results")
"""

    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT) as runner:
        running = int(pid.read_text(encoding="utf-8"))
        runner.send_signal(number)

    assert runner.returncode == TERMINATED
    with pytest.raises(ProcessLookupError):
        os.kill(running, 0)


def test_a_repeated_part_replaces_its_earlier_results(tmp_path: Path) -> None:
    append(tmp_path / "one.jsonl", Ended(exit_code=1, seconds=7))

    ended = run_part(part("def test_it() -> None: ...", tmp_path), tmp_path)

    assert read_results(tmp_path).ended == {"one": ended}


def test_an_interrupted_run_can_be_resumed(tmp_path: Path) -> None:
    append(tmp_path / "duckdb.jsonl", Ended(exit_code=0, seconds=1))
    append(tmp_path / "trino.jsonl", Ended(exit_code=1, seconds=1))

    wanted = [part.name for part in chosen([], resume=True, folder=tmp_path)]

    assert "duckdb" not in wanted
    assert "trino" in wanted
    assert len(wanted) == len(parts()) - 1
    assert [part.name for part in chosen(["trino", "duckdb"], resume=True, folder=tmp_path)] == ["trino"]


def test_an_unknown_part_is_refused_and_no_result_is_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    before = set(RESULTS.glob("*"))

    assert main(["duckdb", "unheard-of"]) == 2

    assert "no part is called unheard-of" in capsys.readouterr().out
    assert set(RESULTS.glob("*")) == before
