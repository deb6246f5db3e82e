"""An engine as a process that answers lines of JSON, from its start until the tests are done with it."""

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.interop.engines.environments import ROOT

_STOP_SECONDS_MAX: Final = 30
_LOG_TAIL_CHARACTERS: Final = 3_000


class EngineError(Exception):
    """What an engine answered instead of a result."""


class Conversation:
    """A running engine; one question at a time."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self._process = process
        self._log = log

    def ask(self, **request: object) -> Any:
        """The engine's answer; EngineError with its own words when it fails, or with its log when it died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # Who is gone answers nothing, below.
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"the engine ended with {self._process.wait()}: {self._tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["result"]

    def sql(self, statement: str) -> list[list[Any]]:
        """The rows of a statement."""
        rows: list[list[Any]] = self.ask(sql=statement)
        return rows

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]


@contextlib.contextmanager
def conversation(
    command: Sequence[str | Path], folder: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[Conversation]:
    """Start the command, which finds the tests' own modules, and end it with the block. Its errors go to `log`."""
    log = folder / "log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            yield Conversation(process, log)
        finally:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    """No more questions; who does not leave then is made to."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
