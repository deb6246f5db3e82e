"""`python -m tests.rck`: run the kit in every mode, print the results, and fail if a test fails."""

import argparse
import json
import sys

from rich.console import Console
from rich.table import Table

from tests.rck.kit import CLASSES, MODES, Case, missing
from tests.rck.kit_run import verdict_on


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", action="append", choices=list(MODES), help="default: all of them")
    parser.add_argument("--only", choices=list(CLASSES), help="default: tables and views")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    console = Console(stderr=options.json)
    columns = ("mode", "kit", "passed", "failed", "cannot pass", "skipped by the kit")
    table = Table(*columns, title="REST Compatibility Kit")
    failures: list[tuple[str, str, Case]] = []
    report: dict[str, dict[str, int]] = {}
    for mode in options.mode or MODES:
        for name in [options.only] if options.only else CLASSES:
            verdict = verdict_on(mode, name)
            counts = {
                "passed": verdict.passed,
                "failed": len(verdict.wrong),
                "cannot pass": verdict.impossible,
                "skipped": verdict.skipped,
            }
            table.add_row(mode, name, *map(str, counts.values()))
            report[f"{mode}/{name}"] = counts
            failures += [(mode, name, case) for case in verdict.wrong]
            console.print(f"{mode}, {name}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    console.print(table)
    for mode, name, case in failures:
        console.print(f"[red]✗[/] {mode}, {name}: {case.name}: {case.problem}", highlight=False)
    if options.json:
        print(json.dumps(report, indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
