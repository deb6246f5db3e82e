"""One case: a system, and whether it should hold."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from proof.checker import System, Verdict

LIMIT_STATES: Final = 3_000_000
LIMIT_STATES_LARGE: Final = 1_000_000


@dataclass(frozen=True)
class Case:
    """`breaks` is a part of the violation to be found; None when everything should hold.

    A large case takes more than a second or two; the bounded part leaves it out.
    """

    title: str
    build: Callable[[], System]
    breaks: str | None = None
    is_large: bool = False
    limit_states: int = LIMIT_STATES

    def is_as_expected(self, verdict: Verdict) -> bool:
        if self.breaks is None:
            return verdict.violation is None
        return verdict.violation is not None and self.breaks in verdict.violation


def large(*cases: Case) -> tuple[Case, ...]:
    """The cases, without the bounded part, and with a search that stops earlier."""
    return tuple(replace(case, is_large=True, limit_states=LIMIT_STATES_LARGE) for case in cases)
