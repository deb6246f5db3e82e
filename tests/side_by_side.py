"""Run the tests in two processes side by side: python -m tests.side_by_side [arguments of pytest].

Each process is a pytest of its own, with its own servers, ports and temporary folders. Both collect all tests; each
claims one file after the other, so that neither waits for the other until the end. A process alone would use one of two
processors.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

PROCESSES_MAX: Final = 2
PART: Final = "PYTEST_PART"
"""The environment variable with the number of a process and the number of processes, such as `1/2`."""

_CLAIMS: Final = "PYTEST_CLAIMS"
_WHOLE_FOLDERS: Final = ("tests/pipeline",)
"""Folders whose tests share something that takes long to start, such as a session of Spark."""
_INTERRUPTED: Final = 130


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests of the files that this process claims; part of pytest's own loop."""
    folder = os.environ.get(_CLAIMS)
    if not folder or session.config.option.collectonly:
        return None
    if session.testsfailed and not session.config.option.continue_on_collection_errors:
        raise session.Interrupted(f"{session.testsfailed} errors during collection")
    items = _claimed(session, Path(folder))
    item = next(items, None)
    while item is not None:
        following = next(items, None)  # pytest ends the fixtures that the next test does not need.
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


def _claimed(session: pytest.Session, folder: Path) -> Iterator[pytest.Item]:
    own: dict[str, bool] = {}
    for item in session.items:
        unit = _unit_of(item.nodeid)
        if unit not in own:
            own[unit] = _claim(folder / unit.replace("/", "+"))
        if own[unit]:
            yield item


def _unit_of(node_id: str) -> str:
    """What is claimed together: a file, or a whole folder."""
    file = node_id.partition("::")[0]
    return next((folder for folder in _WHOLE_FOLDERS if file.startswith(f"{folder}/")), file)


def _claim(claim: Path) -> bool:
    try:
        claim.mkdir()
    except FileExistsError:
        return False
    return True


class Part:
    """One of the processes. Files are reported as they end, and everything else when the process has ended."""

    def __init__(self, number: int, count: int, claims: str, arguments: Sequence[str]) -> None:
        self._number = number
        self._report: list[str] = []
        options = [
            "-p",
            "tests.side_by_side",
            "-o",
            f"cache_dir=.pytest_cache/{number}",
            "-o",
            "console_output_style=classic",
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *arguments],
            env={**os.environ, PART: f"{number}/{count}", _CLAIMS: claims},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # An interrupt of the terminal is passed on once, not sent twice.
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def interrupt(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def wait(self) -> int:
        """Wait for the end, and print the report."""
        code = self.process.wait()
        self._reader.join()
        print(f"\n===== process {self._number}: exit code {code} =====\n{''.join(self._report)}", flush=True)  # noqa: T201 - a program
        return code

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("tests/") or ".py " in line:
                print(f"{self._number}| {line}", end="", flush=True)  # noqa: T201 - a program
            else:
                self._report.append(line)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 if every process succeeds, 130 after an interrupt."""
    count = min(PROCESSES_MAX, os.cpu_count() or 1)
    is_interrupted = False
    with tempfile.TemporaryDirectory(prefix="sandur-claims-") as claims:
        parts = [Part(number, count, claims, arguments) for number in range(1, count + 1)]

        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            nonlocal is_interrupted
            is_interrupted = True
            for part in parts:
                part.interrupt()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, interrupt)
        codes = [part.wait() for part in parts]
    failed = [code for code in codes if code]
    print("tests: interrupted" if is_interrupted else "tests: failed" if failed else "tests: passed", flush=True)  # noqa: T201 - a program
    return _INTERRUPTED if is_interrupted else max(failed, key=abs, default=0) and 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
