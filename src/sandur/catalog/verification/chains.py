"""Chains of receipts: every receipt but the first names one that exists, and no two name the same one.

Receipts are added in any order. A pair is forgotten once both were added, so the memory grows with the number of
chains, not with that of receipts.
"""

from typing import Final, NamedTuple

_SHORT_DIGITS: Final = 16
"""The digits of a commit key that are remembered: 64 bits, which no two receipts of a store share by chance."""


class Loose(NamedTuple):
    """A receipt whose predecessor was not added, or was named by another receipt before."""

    key: str
    previous_commit_key: str


class Chains:
    """The ends of the chains that were added so far."""

    def __init__(self) -> None:
        self._ends: set[int] = set()
        self._wanted: dict[int, Loose] = {}
        self._again: list[Loose] = []

    def add(self, key: str, commit_key: str, previous_commit_key: str | None) -> None:
        """Add the receipt under an object key."""
        own = _short(commit_key)
        if self._wanted.pop(own, None) is None:
            self._ends.add(own)
        if previous_commit_key is None:
            return
        previous, loose = _short(previous_commit_key), Loose(key, previous_commit_key)
        if previous in self._ends:
            self._ends.remove(previous)
        elif previous in self._wanted:
            self._again.append(loose)
        else:
            self._wanted[previous] = loose

    @property
    def loose(self) -> list[Loose]:
        """The receipts without a predecessor of their own, once all were added."""
        return [*self._wanted.values(), *self._again]


def _short(commit_key: str) -> int:
    try:
        return int(commit_key[:_SHORT_DIGITS], 16)
    except ValueError:  # A damaged receipt; it is reported by itself.
        return hash(commit_key)
