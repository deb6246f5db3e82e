"""Where a result comes from: the machine, the date, and a hash of the source files that it measures."""

import datetime as dt
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parent.parent
RESULTS: Final = Path(__file__).parent / "results"

_SERVED: Final = ("avro", "catalog", "delta", "iceberg", "operations", "server", "storage")
MEASURED: Final[Mapping[str, Sequence[str]]] = {
    "audit": ("operations/audit", "server"),
    "traces": ("server",),
    "batching": ("operations", "storage"),
    "buckets": _SERVED,
    "calls": ("operations", "storage"),
    "cold": _SERVED,
    "credentials": ("operations", "server"),
    "delta": _SERVED,
    "events": ("operations/event_feed", "server"),
    "grpc": ("server/grpc", "v1"),
    "health": ("catalog/maintenance", "operations/maintenance", "pipeline"),
    "iceberg_commit": ("iceberg",),
    "latency": ("operations", "storage"),
    "lineage": ("operations/lineage", "server"),
    "maintenance": ("catalog/maintenance", "operations/maintenance", "pipeline"),
    "pipeline": ("pipeline", "operations", "storage"),
    "planning": ("avro", "iceberg", "operations/planning"),
    "scale": _SERVED,
    "security": _SERVED,
    "server": _SERVED,
    "signing": ("operations/credentials", "server", "storage/credentials"),
    "storage": ("storage",),
    "ui": ("operations/explore", "server/ui"),
    "unity": _SERVED,
}
"""The folders below src/sandur that each benchmark measures."""


def provenance(name: str) -> dict[str, object]:
    """What every result file records about its run."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cpus": os.cpu_count(),
        },
        "sources_sha256": sources_hash(name),
    }


def sources_hash(name: str) -> str:
    """A hash over the source files that a benchmark measures."""
    digest = hashlib.sha256()
    source = REPOSITORY / "src" / "sandur"
    for folder in MEASURED[name]:
        for path in sorted((source / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(source)}\n".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def stale_results() -> Iterator[str]:
    """The results whose sources have changed since they were measured."""
    for name in MEASURED:
        file = RESULTS / f"{name}.json"
        if not file.exists():
            yield f"{name}: not measured yet"
            continue
        result = json.loads(file.read_text(encoding="utf-8"))
        if result.get("sources_sha256") != sources_hash(name):
            yield f"{name}: measured {result.get('date', 'at an unknown time')}, before the last change of its sources"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
