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
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_few = hard != resource.RLIM_INFINITY and hard < OPEN_FILES_MIN
    remedy = f"raise the limit to {OPEN_FILES_MIN} or more (ulimit -n, LimitNOFILE)" if is_few else ""
    text = "unlimited" if hard == resource.RLIM_INFINITY else f"at most {hard:,}"
    yield Line("open files", "warn" if is_few else "ok", text, remedy)
    yield _memory()
    if (place := address_of(settings.store)).startswith("file:///"):
        yield _disk(Path(place.removeprefix("file://")))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # The package around it is missing.
        return False


def available_bytes(text: str) -> int:
    """The memory that a process can get, in the text of /proc/meminfo; 0 if it is not there."""
    found = re.search(r"(?m)^MemAvailable:\s+(\d+) kB$", text)
    return int(found[1]) * 1_024 if found else 0


def _memory() -> Line:
    file = Path("/proc/meminfo")
    free = available_bytes(file.read_text(encoding="ascii")) if file.exists() else 0
    text = f"{free >> 20:,} MiB available"
    if not free:
        return Line("memory", "ok", "not known on this system")
    is_low = free < MEMORY_BYTES_MIN
    return Line("memory", "warn" if is_low else "ok", text, "a worker needs about 512 MiB" if is_low else "")


def _disk(folder: Path) -> Line:
    if not folder.exists():
        return Line("disk", "ok", "the folder does not exist yet")
    usage = shutil.disk_usage(folder)
    is_low = usage.free < usage.total * DISK_SHARE_MIN
    text = f"{usage.free >> 30:,} of {usage.total >> 30:,} GiB free"
    return Line("disk", "warn" if is_low else "ok", text, "make room: a full disk refuses changes" if is_low else "")
