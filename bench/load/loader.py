"""The compiled load generator: built once per version of its sources; one process per job."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from bench.load.target import Target

SOURCES: Final = Path(__file__).with_name("generator")

_JOB_SECONDS: Final = 30.0
_SECONDS_OVER_MAX: Final = 60.0
_SHOWN_CHARS_MAX: Final = 300


class Extra(msgspec.Struct):
    """Further results of some jobs; None if the job does not measure them."""

    etag: str = ""
    path: str = ""
    items: int = 0
    pages: int = 0
    lost: int | None = None
    doubled: int | None = None
    looks: int | None = None
    torn_looks: int | None = None
    torn_at_end: int | None = None
    gave_up: int | None = None
    dropped: int | None = None
    refused_after_drop: int | None = None


class Result(msgspec.Struct):
    """The result of one job. `broken` lists broken promises; with an `error` the other fields are meaningless."""

    ok: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    status: dict[str, int] = msgspec.field(default_factory=dict)
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    example: str = ""
    bytes_per_answer: int = 0
    client_cpu: float = 0.0
    server_cpu_ms: float = 0.0
    conflict_share: float = 0.0
    extra: Extra = msgspec.field(default_factory=Extra)
    broken: list[str] = msgspec.field(default_factory=list)
    error: str = ""

    @property
    def is_good(self) -> bool:
        return not self.error and self.ok > 0


class Loader:
    """Runs jobs against targets. `threads` are the CPU threads that the generator may use."""

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._binary = _built()

    def run(self, target: Target, kind: str, **job: object) -> Result:
        """One job, to its end or until it takes far too long."""
        where = {"addr": target.address, "root": target.root, "headers": target.headers, "pids": target.pids}
        text = msgspec.json.encode({"kind": kind, "server": where, "namespace": target.namespace, **job})
        environment = {**os.environ, "GOMAXPROCS": str(self._threads), "GOGC": "400"}
        seconds = job.get("seconds", _JOB_SECONDS)
        assert isinstance(seconds, float | int)
        limit = seconds + _SECONDS_OVER_MAX
        try:
            done = subprocess.run(
                [self._binary], input=text, capture_output=True, timeout=limit, env=environment, check=True
            )
        except subprocess.TimeoutExpired:
            return Result(error=f"no end after {limit:.0f} s")
        except subprocess.CalledProcessError as failure:
            return Result(error=f"the generator failed: {failure.stderr.decode()[:_SHOWN_CHARS_MAX]}")
        return msgspec.json.decode(done.stdout, type=Result)


def is_go_here() -> bool:
    return shutil.which("go") is not None


def _built() -> Path:
    """The binary, built again only if its sources changed."""
    go = shutil.which("go")
    if go is None:
        raise RuntimeError("the load generator is compiled with go, which is not installed")
    files = sorted(SOURCES.glob("*.go"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    binary = Path(tempfile.gettempdir()) / f"sandur-load-{os.getuid()}-{digest}"
    if not binary.exists():
        made = binary.with_suffix(f".{os.getpid()}")
        environment = {**os.environ, "GO111MODULE": "off", "CGO_ENABLED": "0"}
        subprocess.run([go, "build", "-o", made, *files], check=True, env=environment)
        made.rename(binary)
    return binary
