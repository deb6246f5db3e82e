"""The inside of a conversation: a line of JSON in, a line of JSON out. It needs nothing but the standard library."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO


def taken_output() -> TextIO:
    """The standard output, for answers alone; whatever else is printed from now on goes to the errors.

    Called before the engine starts, as processes that it starts print as well.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def answer_lines(answers: TextIO, answer: Callable[[dict[str, Any]], object]) -> None:
    """Answer every line of the standard input until it ends; a failure is an answer, too."""
    with answers:
        for line in sys.stdin:
            answers.write(json.dumps(_answered(answer, line), default=str) + "\n")
            answers.flush()


def _answered(answer: Callable[[dict[str, Any]], object], line: str) -> dict[str, object]:
    try:
        return {"result": answer(json.loads(line))}
    except Exception as error:  # noqa: BLE001 - the test judges what went wrong
        return {"error": f"{type(error).__name__}: {error}"}
