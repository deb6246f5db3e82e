"""The kit as a program: its class path, its two classes, and the result of a run."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

POM: Final = Path(__file__).parent / "pom.xml"
CACHE: Final = Path(__file__).parents[2] / ".tools" / "rck"
PACKAGE: Final = "org.apache.iceberg.rest."
CLASSES: Final = {
    "tables": PACKAGE + "RESTCompatibilityKitCatalogTests",
    "views": PACKAGE + "RESTCompatibilityKitViewCatalogTests",
}
WAREHOUSE: Final = "rck_warehouse"
FLAGS: Final = {
    "rck.local": "false",
    "rck.requires-namespace-create": "true",
    "rck.supports-serverside-retry": "true",
    "rck.supports-names-with-dot": "true",
    "rck.supports-variant": "true",
}
# The kit may be run with any property of the Java client: each mode is another client.
MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "default": {},
    "pages of one": {"rest-page-size": "1"},
    "refs only": {"snapshot-loading-mode": "refs"},
    "format 3": {"table-default.format-version": "3"},
    "no table cache": {"rest-table-cache.max-entries": "0"},
    "server planning": {"scan-planning-mode": "server"},
}

# Tests that cannot pass in a mode because of the format's rules, with the message of the refusal. In format 3 a
# snapshot has a first row id, which must not be below `next-row-id`. A replace that raced with another one breaks
# this rule: the client retries with the same snapshot, so every retry fails. Iceberg's own reference server refuses
# the same seven.
_ROWS_NUMBERED_TWICE: Final = "first-row-id is behind table next-row-id"
# This test waits for a report of the planning, which a client with server-side planning does not send.
_NO_SCAN_REPORT: Final = "expected: 1"
IMPOSSIBLE: Final[Mapping[str, Mapping[str, str]]] = {
    "format 3": dict.fromkeys(
        (
            "testConcurrentReplaceTransactions()",
            "testConcurrentReplaceTransactionSchema()",
            "testConcurrentReplaceTransactionSchema2()",
            "testConcurrentReplaceTransactionPartitionSpec()",
            "testConcurrentReplaceTransactionPartitionSpec2()",
            "testConcurrentReplaceTransactionSortOrder()",
            "testConcurrentReplaceTransactionSortOrderConflict()",
        ),
        _ROWS_NUMBERED_TWICE,
    ),
    "server planning": {"testCatalogWithCustomMetricsReporter()": _NO_SCAN_REPORT},
}

_RUN_SECONDS_MAX: Final = 900


class Case(NamedTuple):
    """One test of the kit: `problem` is empty if it passed; `is_skipped` if the kit skipped it."""

    name: str
    problem: str = ""
    is_skipped: bool = False


class Verdict(NamedTuple):
    """The result of one test class: `impossible` failed as expected, `wrong` failed with a reason."""

    passed: int
    impossible: int
    skipped: int
    wrong: Sequence[Case]


def judged(cases: Sequence[Case], mode: str) -> Verdict:
    """Every case must pass, except known failures, which must fail for the known reason."""
    impossible = IMPOSSIBLE.get(mode, {})
    as_expected = [case for case in cases if case.name in impossible and impossible[case.name] in case.problem]
    ran = [case for case in cases if case not in as_expected and not case.is_skipped]
    failed = [case for case in ran if case.problem]
    surprises = [
        Case(case.name, f"it passed, though it should say: {impossible[case.name]}")
        for case in ran
        if case.name in impossible and not case.problem
    ]
    skipped = sum(case.is_skipped for case in cases)
    return Verdict(len(ran) - len(failed), len(as_expected), skipped, [*failed, *surprises])


def missing() -> str | None:
    """The requirement of the kit that this machine lacks; None if all are present."""
    for program, package in (("java", "Java 17"), ("mvn", "Maven, which finds the kit's jars")):
        if shutil.which(program) is None:
            return f"{program} is not installed ({package})"
    return None


def class_path(pom: Path = POM) -> str:
    """The jars of the kit, or of another project file; resolved by Maven once and then cached."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    remembered = CACHE / f"{digest}.classpath"
    if not remembered.exists() or not all(Path(jar).exists() for jar in remembered.read_text().split(os.pathsep)):
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={remembered}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_RUN_SECONDS_MAX)
    return remembered.read_text()


def run(test_class: str, url: str, properties: Mapping[str, str]) -> Sequence[Case]:
    """Run every case of one class against the server at `url`, with these client properties."""
    flags = {**FLAGS, "uri": url, "warehouse": WAREHOUSE, **properties}
    with tempfile.TemporaryDirectory() as reports:
        command = [
            "java",
            *(f"-D{name}={value}" for name, value in flags.items()),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
            "-cp",
            class_path(),
            "org.junit.platform.console.ConsoleLauncher",
            "execute",
            f"--select-class={test_class}",
            f"--reports-dir={reports}",
            "--details=none",
            "--disable-banner",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_SECONDS_MAX, check=False)
        files = sorted(Path(reports).glob("TEST-junit-jupiter.xml"))
        if not files:
            raise RuntimeError(f"the kit did not run: {done.stdout[-2_000:]}{done.stderr[-2_000:]}")
        return _cases(files[0])


def _cases(report: Path) -> Sequence[Case]:
    found = []
    for element in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - written by the kit a moment ago
        failure = element.find("failure")
        failure = element.find("error") if failure is None else failure
        problem = "" if failure is None else (failure.get("message") or failure.text or "failed")
        found.append(Case(element.get("name", ""), problem.strip()[:400], element.find("skipped") is not None))
    return found
