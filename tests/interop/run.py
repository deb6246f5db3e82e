"""`make interop`: run the tests of every engine, each part in its own process, then write the engine matrix.

An engine that hangs or crashes affects only its own part. Results are on disk at once, so an interrupted run continues
with `--resume`, and single parts can be repeated by name.
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.interop import matrix
from tests.interop.matrix import KEPT_IN, RESULTS, ROOT, Ended, append, read_results

HERE: Final = Path(__file__).parent
# The first run of a part may install, and build, an engine.
PART_SECONDS_MAX: Final = 5_400
TOO_LONG: Final = 124
TERMINATED: Final = 143
_END_SECONDS_MAX: Final = 60


@dataclass(frozen=True)
class Part:
    """Tests that run in one process: files by patterns; `only` selects among them, like the -k of pytest."""

    name: str
    files: tuple[str, ...]
    only: str = ""
    root: Path = HERE

    def paths(self) -> list[Path]:
        return sorted({path for pattern in self.files for path in self.root.glob(pattern)})


_SPARK: Final = ("spark/test_*.py",)
_KEYLESS: Final = ("test_keyless.py", "test_keyless_isolation.py")
_CROSS: Final = ("test_cross_reading.py",)

# Quick parts come first. In each part at most one JVM runs at a time.
NAMED: Final = (
    Part("tools", ("test_matrix.py", "test_run.py", "engines/test_environments.py")),
    Part("pyiceberg", ("test_pyiceberg*.py",)),
    Part("duckdb", ("test_duckdb.py", "test_duckdb_races.py")),
    Part("polars", ("test_polars.py",)),
    Part("daft", ("engines/test_daft.py",)),
    Part("datafusion", ("engines/test_datafusion.py",)),
    Part("sail", ("engines/test_sail.py",)),
    Part("ibis", ("engines/test_ibis.py",)),
    Part("dbt", ("engines/test_dbt.py",)),
    Part("dlt", ("engines/test_dlt.py",)),
    Part("chdb", ("engines/test_chdb.py",)),
    Part("iceberg-js", ("engines/test_iceberg_js.py",)),
    Part("iceberg-go", ("engines/test_iceberg_go.py",)),
    Part("iceberg-rust", ("engines/test_iceberg_rust.py",)),
    Part("grpc-go", ("engines/test_grpc_go.py",)),
    Part("trino", ("engines/test_trino.py",)),
    Part("flink", ("engines/test_flink.py",)),
    Part("maintenance-beside-flink", ("test_maintenance_beside_flink.py",), root=HERE.parent / "pipeline"),
    Part("spark", _SPARK, only="iceberg-1.11.0-folder"),
    Part("spark-s3", _SPARK, only="iceberg-1.11.0-S3"),
    Part("spark-iceberg-1.12", _SPARK, only="iceberg-1.12.0"),
    Part("spark-3.5", _SPARK, only="iceberg-1.5.2"),
    Part("spark-sessions", _SPARK, only="not iceberg-1"),
    Part("tokens", ("test_printed_recipes.py", "engines/test_secured.py")),
    Part(
        "logins",
        (
            "test_logins.py",
            "test_*_logins.py",
            "test_login_recipes.py",
            "test_mock_oauth2.py",
            "engines/test_*_logins.py",
        ),
    ),
    Part("recipes", ("test_recipes.py", "engines/test_recipes_on_s3.py", "test_tutorial.py", "test_printed_pages.py")),
    Part("no-keys", _KEYLESS, only="not Spark and not Trino and not Flink"),
    Part("no-keys-trino", _KEYLESS, only="Trino"),
    Part("no-keys-flink", _KEYLESS, only="Flink"),
    Part("no-keys-spark", (*_KEYLESS, "test_keyless_spark.py"), only="Spark or keyless_spark"),
    Part("no-keys-delta", ("test_delta_bucket.py", "test_delta_rs_bucket.py", "test_duckdb_bucket.py")),
    Part("opa", ("test_opa.py",)),
    Part("signing", ("test_signed_requests.py",)),
    Part("lineage", ("test_lineage.py",)),
    Part("demo", ("test_demo.py",)),
    Part("system-tables", ("test_system_tables.py",)),
    Part("streams", ("test_stream_sinks.py",)),
    Part("reading-on-a-folder", _CROSS, only="folder-"),
    Part("reading-on-s3", _CROSS, only="S3-"),
)


def parts() -> list[Part]:
    """All parts; the last one collects the files that no other part names."""
    named = {path for part in NAMED for path in part.paths()}
    others = sorted(str(path.relative_to(HERE)) for path in HERE.rglob("test_*.py") if path not in named)
    return [*NAMED, Part("others", tuple(others))] if others else [*NAMED]


def run_part(part: Part, folder: Path = RESULTS, *, seconds_max: float = PART_SECONDS_MAX) -> Ended:
    """Run the tests of a part and replace its earlier results; end them after `seconds_max`."""
    kept = folder / f"{part.name}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(b"")
    selected = ["-k", part.only] if part.only else []
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-m", "", *selected, *map(str, part.paths())]
    started = time.monotonic()
    exit_code = _run(command, {KEPT_IN: str(kept)}, seconds_max)
    ended = Ended(exit_code=exit_code, seconds=round(time.monotonic() - started, 1))
    append(kept, ended)
    return ended


def _run(command: Sequence[str], environment: dict[str, str], seconds_max: float) -> int:
    """The exit code; every process that the command started ends with it."""
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, start_new_session=True)
    try:
        return process.wait(seconds_max)
    except subprocess.TimeoutExpired:
        return TOO_LONG
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def end_parts_when_ended() -> None:
    """End the running part with this process, also where the shell ignores these signals."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(TERMINATED))


def chosen(names: Sequence[str], *, resume: bool, folder: Path = RESULTS) -> list[Part]:
    """The named parts, or all; with `resume`, those that failed or were interrupted. ValueError for an unknown name."""
    known = {part.name: part for part in parts()}
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"no part is called {unknown[0]}; there are: {', '.join(known)}")
    wanted = [part for name, part in known.items() if name in names or not names]
    if not resume:
        return wanted
    ended = read_results(folder).ended
    return [part for part in wanted if part.name not in ended or ended[part.name].exit_code]


def run(wanted: Iterable[Part], console: Console) -> None:
    """Run one part after the other, with a line before and after each."""
    all_of_them = list(wanted)
    for number, part in enumerate(all_of_them, start=1):
        console.rule(f"[bold]{part.name}[/] ({number} of {len(all_of_them)})")
        console.print(_line(part.name, run_part(part)))


def _line(name: str, ended: Ended) -> str:
    how = {0: "[green]passed[/]", TOO_LONG: "[red]took too long[/]"}.get(ended.exit_code, "[red]failed[/]")
    return f"{name}: {how} after {ended.seconds:.0f} s"


def show_times(console: Console) -> None:
    table = Table("part", "tests", "seconds", title="How long each part took")
    ended = read_results().ended
    for part in parts():
        if one := ended.get(part.name):
            table.add_row(part.name, "failed" if one.exit_code else "passed", f"{one.seconds:.0f}")
    table.add_row("all", "", f"{sum(one.seconds for one in ended.values()):.0f}")
    console.print(table)


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 if a test failed or a part was interrupted, 2 for an unknown part."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.run")
    parser.add_argument("parts", nargs="*", metavar="PART", help="the parts to run; all by default")
    parser.add_argument("--resume", action="store_true", help="run only parts that failed or were interrupted")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        wanted = chosen(options.parts, resume=options.resume)
    except ValueError as error:
        console.print(str(error), markup=False)
        return 2
    if not options.parts and not options.resume:
        shutil.rmtree(RESULTS, ignore_errors=True)
    end_parts_when_ended()
    run(wanted, console)
    ended = read_results().ended
    is_whole = all(part.name in ended for part in parts())
    code = matrix.main(is_whole=is_whole)
    show_times(console)
    return int(bool(code) or any(one.exit_code for one in ended.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
