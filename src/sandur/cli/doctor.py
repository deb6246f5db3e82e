"""`sandur doctor`: examine the store, this machine and the settings, and say what to do about each problem."""

import asyncio
import platform
import re
import resource
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sandur import __version__
from sandur.cli.output import print_json, print_rows, say
from sandur.cli.store_admin import StoreFlags
from sandur.clock import SystemClock
from sandur.operations.examination import Line, examine_settings, examine_store
from sandur.operations.lake import Lakes
from sandur.server.addresses import is_loopback
from sandur.settings import Settings
from sandur.storage.locations import address_of, connect

OPEN_FILES_MIN: Final = 4_096
DISK_SHARE_MIN: Final = 0.05
MEMORY_BYTES_MIN: Final = 512 << 20
_EXTRAS: Final = {
    "planning": "pyarrow",
    "grpc": "grpc",
    "preview": "duckdb",
    "gcs": "google.auth",
    "otel": "opentelemetry.sdk",
    "spark": "pyspark",
}


def run_doctor(flags: StoreFlags, *, as_json: bool) -> int:
    """Print one line per check; returns the exit code, 1 if something fails."""
    settings = flags.settings()
    lines = [*examine_machine(settings), *examine_settings(settings, is_loopback=is_loopback(settings.host))]
    lines += asyncio.run(_examine(settings))
    counts = {state: sum(line.state == state for line in lines) for state in ("ok", "warn", "fail")}
    if as_json:
        print_json({**counts, "lines": [line._asdict() for line in lines]})
    else:
        rows = [[line.state, line.subject, line.text, line.remedy] for line in lines]
        print_rows(["state", "subject", "found", "what to do"], rows, empty="")
        say(", ".join(f"{count} {state}" for state, count in counts.items()))
    return 1 if counts["fail"] else 0


async def _examine(settings: Settings) -> Sequence[Line]:
    clock = SystemClock()
    lakes = Lakes(settings, clock, connect(settings, clock, creates=False))
    try:
        return await examine_store(lakes.lake(settings.tenant or "default", settings.workspace or "default"))
    finally:
        await lakes.close()


def examine_machine(settings: Settings) -> Iterator[Line]:
    """Versions, and the limits of this machine that a server needs."""
    extras = ", ".join(name for name, module in _EXTRAS.items() if _is_installed(module)) or "none"
    yield Line("versions", "ok", f"Sandur {__version__}, Python {platform.python_version()}, extras: {extras}")
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    file = Path("/proc/meminfo")
    yield memory(file.read_text(encoding="ascii") if file.exists() else "")
    if (place := address_of(settings.store)).startswith("file:///"):
        folder = Path(place.removeprefix("file://"))
        if not folder.exists():
            yield Line("disk", "ok", "the folder does not exist yet")
            return
        usage = shutil.disk_usage(folder)
        yield disk(total_bytes=usage.total, free_bytes=usage.free)


def open_files(limit: int) -> Line:
    """`limit` is what the process may raise its number of open files to."""
    if limit == resource.RLIM_INFINITY:
        return Line("open files", "ok", "unlimited")
    is_few = limit < OPEN_FILES_MIN
    remedy = f"raise the limit to {OPEN_FILES_MIN} or more (ulimit -n, LimitNOFILE)" if is_few else ""
    return Line("open files", "warn" if is_few else "ok", f"at most {limit:,}", remedy)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # The package around it is missing.
        return False


def memory(meminfo: str) -> Line:
    """`meminfo` is the text of /proc/meminfo. Memory that caches hold counts as available."""
    found = re.search(r"(?m)^MemAvailable:\s+(\d+) kB$", meminfo)
    if found is None:
        return Line("memory", "ok", "not known on this system")
    available = int(found[1]) * 1_024
    is_low = available < MEMORY_BYTES_MIN
    remedy = f"a worker needs about {MEMORY_BYTES_MIN >> 20} MiB" if is_low else ""
    return Line("memory", "warn" if is_low else "ok", f"{available >> 20:,} MiB available", remedy)


def disk(*, total_bytes: int, free_bytes: int) -> Line:
    is_low = free_bytes < total_bytes * DISK_SHARE_MIN
    text = f"{free_bytes >> 30:,} of {total_bytes >> 30:,} GiB free"
    return Line("disk", "warn" if is_low else "ok", text, "make room: a full disk refuses changes" if is_low else "")
