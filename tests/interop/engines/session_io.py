"""Input and output of an engine session: one line of JSON per request and per response. Standard library only."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO


def taken_output() -> TextIO:
    """Reserve the standard output for responses; all other output goes to the standard error from now on.

    Call it before the engine starts: its child processes print too.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def answer_lines(answers: TextIO, answer: Callable[[dict[str, Any]], object]) -> None:
    """Answer each line of the standard input until it ends; an exception becomes an error response."""
    with answers:
        for line in sys.stdin:
            answers.write(json.dumps(_answered(answer, line), default=str) + "\n")
            answers.flush()


def _answered(answer: Callable[[dict[str, Any]], object], line: str) -> dict[str, object]:
    try:
        return {"result": answer(json.loads(line))}
    except Exception as error:  # noqa: BLE001 - the test judges what went wrong
        return {"error": f"{type(error).__name__}: {error}"}
