"""Rules for intended differences, and their check against comparisons."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.differential.comparison import Aspect, Comparison, Difference


@dataclass(frozen=True)
class Rule:
    """One intended difference: `explains` decides whether it applies, `reason` says why we want it."""

    name: str
    reason: str
    explains: Callable[[Comparison, Difference], bool]


@dataclass(frozen=True)
class Rewording:
    """Both refuse for the same reason in different words: patterns of their text and of ours."""

    theirs: str
    ours: str

    def __call__(self, comparison: Comparison, difference: Difference) -> bool:
        return (
            difference.aspect is Aspect.MESSAGE
            and re.match(self.theirs, comparison.theirs.message) is not None
            and re.search(self.ours, comparison.ours.message) is not None
        )


def explained(comparisons: Iterable[Comparison], rules: tuple[Rule, ...]) -> tuple[Counter[str], list[str]]:
    """The number of uses of each rule, and a report of every difference that no rule explains."""
    seen: Counter[str] = Counter()
    unexplained: list[str] = []
    for comparison in comparisons:
        for difference in comparison.differences:
            rule = next((rule for rule in rules if rule.explains(comparison, difference)), None)
            if rule is None:
                unexplained.append(report(comparison, difference))
            else:
                seen[rule.name] += 1
    return seen, unexplained


def report(comparison: Comparison, difference: Difference) -> str:
    """Everything needed to reproduce the difference."""
    return "\n".join(
        (
            f"{difference.aspect} {'/'.join(difference.path)}",
            f"  ours:   {difference.ours!r} {comparison.ours.message!r}",
            f"  theirs: {difference.theirs!r} {comparison.theirs.message!r}",
            f"  request: {comparison.commit.request}",
            f"  base:    {comparison.commit.base_text.decode()}",
        )
    )
