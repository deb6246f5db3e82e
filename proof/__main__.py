"""Check the protocols: `python -m proof [word ...] [--trace] [--bounded] [--json]`."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from proof.cases import ALL
from proof.cases.case import Case
from proof.report import Outcome, check, print_json, print_table


def select_cases(words: Sequence[str], *, is_bounded: bool) -> list[Case]:
    """The cases whose title contains one of the words; all of them without words."""
    cases = [case for case in ALL if not (is_bounded and case.is_large)]
    return [case for case in cases if not words or any(word in case.title for word in words)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if every case ends as expected, 1 if one does not, 2 if no case is selected."""
    parser = argparse.ArgumentParser(prog="python -m proof", description="Check the storage protocols.")
    parser.add_argument("words", nargs="*", metavar="word", help="check only the cases whose title contains a word")
    parser.add_argument("--trace", action="store_true", help="print the shortest trace of every case that breaks")
    parser.add_argument("--bounded", action="store_true", help="skip the large cases; takes less than a minute")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON, traces included")
    options = parser.parse_args(arguments)

    cases = select_cases(options.words, is_bounded=options.bounded)
    if not cases:
        print(f"No case contains any of: {' '.join(options.words)}", file=sys.stderr)  # noqa: T201 -- the output of a command
        return 2
    outcomes: list[Outcome] = check(cases, Console(stderr=True))
    if options.json:
        print_json(outcomes)
    else:
        print_table(outcomes, has_traces=options.trace)
    return 0 if all(outcome.is_expected for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
