"""At most one engine on Java at a time: who starts one ends the one before, as memory is scarce."""

from collections.abc import Callable
from typing import Final


class Turns:
    """Whose turn it is, known by what ends it."""

    def __init__(self) -> None:
        self._end: Callable[[], None] = lambda: None

    def take(self, end: Callable[[], None]) -> None:
        """Called before a machine is started, with what will end it; the one that runs is ended."""
        before, self._end = self._end, end
        before()


JAVA: Final = Turns()
