"""The progress of jobs: on a terminal only, on stderr, and a bar where a step has parts."""

import io
import sys

import pytest

from sandur.cli.run_jobs import RunOptions, _output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, *, total: int | None, as_json: bool = False) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with _output(RunOptions(as_json=as_json)) as (progress, _):
        progress("maintain 5/10: compaction", done=5, total=total)
    return stream.getvalue()


def test_a_step_with_parts_has_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = _shown(Terminal(), monkeypatch, total=10)
    uncounted = _shown(Terminal(), monkeypatch, total=None)

    assert "maintain 5/10" in counted
    assert "maintain 5/10" in uncounted
    assert "━" in counted
    assert "━" not in uncounted


def test_files_and_json_have_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, as_json in ((io.StringIO(), False), (Terminal(), True)):
        assert _shown(stream, monkeypatch, total=10, as_json=as_json) == ""
