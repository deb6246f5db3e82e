"""`python -m tests.rck`: run the kit in every mode, show what passed, and fail if anything did not."""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.rck.kit import CLASSES, MODES, WAREHOUSE, Case, missing, run

_READY = re.compile(r"Sandur is ready at (\S+)")


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """A fresh server with the kit's warehouse, which may put tables where the kit wants them; its address."""
    environment = {**os.environ, "SANDUR_DEFAULT_CATALOG": WAREHOUSE, "SANDUR_FSYNC": "never"}
    # The kit asks for tables and views below /tmp by name.
    flags = ["--store", str(folder / "store"), "--port", "0", "--allow-location", "file:/tmp"]
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "serve", *flags]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            yield _address(process)
        finally:
            process.terminate()
            process.wait(timeout=30)


def _address(process: "subprocess.Popen[str]") -> str:
    for line in process.stdout or ():
        if found := _READY.search(line):
            return found[1]
    raise RuntimeError("the server ended before it was ready")


def results(mode: str, which: Sequence[str]) -> Iterator[tuple[str, Sequence[Case]]]:
    """The cases of each class, each on a server of its own: the kit wants its namespaces gone."""
    for name in which:
        with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as url:
            yield name, run(CLASSES[name], url, MODES[mode])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", action="append", choices=list(MODES), help="default: all of them")
    parser.add_argument("--only", choices=list(CLASSES), help="default: tables and views")
    parser.add_argument("--json", action="store_true")
    told = parser.parse_args()
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    console = Console(stderr=told.json)
    table = Table("mode", "kit", "passed", "failed", "skipped by the kit", title="REST Compatibility Kit")
    failures: list[tuple[str, str, Case]] = []
    report: dict[str, dict[str, int]] = {}
    for mode in told.mode or MODES:
        for name, cases in results(mode, [told.only] if told.only else list(CLASSES)):
            failed = [case for case in cases if case.problem]
            skipped = sum(case.is_skipped for case in cases)
            passed = len(cases) - len(failed) - skipped
            table.add_row(mode, name, str(passed), str(len(failed)), str(skipped))
            report[f"{mode}/{name}"] = {"passed": passed, "failed": len(failed), "skipped": skipped}
            failures += [(mode, name, case) for case in failed]
            console.print(f"{mode}, {name}: {passed} passed, {len(failed)} failed, {skipped} skipped")
    console.print(table)
    for mode, name, case in failures:
        console.print(f"[red]✗[/] {mode}, {name}: {case.name}: {case.problem}", highlight=False)
    if told.json:
        print(json.dumps(report, indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
