"""Environments of the heavy engines: installed on first use below .tools, in a folder named by a hash of their pins."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
TOOLS: Final = ROOT / ".tools" / "engines"
PINS: Final = Path(__file__).parent / "pins"

_INSTALL_SECONDS_MAX: Final = 2_400
_OUTPUT_CHARACTERS_MAX: Final = 600
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class NotInstalled(Exception):
    """An engine cannot be installed on this machine; the message says why."""


def python_environment(name: str) -> Path:
    """The interpreter of an environment with the packages that `pins/NAME.txt` lists."""
    pins = PINS / f"{name}.txt"

    def install(home: Path) -> None:
        uv = _program("uv", beside=Path(sys.executable).parent)
        run([uv, "venv", "--quiet", "--python", sys.executable, home / "venv"])
        interpreter = home / "venv" / "bin" / "python"
        run([uv, "pip", "install", "--quiet", "--python", interpreter, "--require-hashes", "-r", pins])

    return installed(name, [pins], install) / "venv" / "bin" / "python"


def install_duckdb_extensions(interpreter: Path, home: Path) -> None:
    """Put DuckDB's extensions below a home folder, where `INSTALL` finds them; they come from packages."""
    script = "tests.interop.engines.sessions.install_extensions"
    run([interpreter, "-m", script], environment={"HOME": str(home)})


def maven_files(name: str) -> Path:
    """The folder with the files that `pins/NAME.txt` lists as coordinates, one per line."""
    pins = PINS / f"{name}.txt"

    return installed(name, [pins], lambda home: fetch_maven_files(pins, home))


def fetch_maven_files(pins: Path, folder: Path) -> None:
    """Put the files whose coordinates the pins list into the folder."""
    maven = _program("mvn")
    for coordinates in pins.read_text(encoding="utf-8").split():
        run([maven, "--quiet", "--batch-mode", _COPY, f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"])


def node_modules(name: str) -> Path:
    """The folder with the packages that `pins/NAME/package-lock.json` pins."""
    pins = [PINS / name / file for file in ("package.json", "package-lock.json", ".npmrc")]

    def install(home: Path) -> None:
        npm = _program("npm")
        for file in pins:
            shutil.copy(file, home)
        run([npm, "ci", "--prefix", home, "--silent", "--no-audit", "--no-fund"])

    return installed(name, pins, install)


def go_tool(name: str) -> Path:
    """The program of the Go module that `pins/NAME.txt` pins, with its version."""
    pins = PINS / f"{name}.txt"

    def install(home: Path) -> None:
        pinned = pins.read_text(encoding="utf-8").strip()
        run([_program("go"), "install", pinned], environment={"GOBIN": str(home)})

    return installed(name, [pins], install) / name


def go_program(name: str) -> Path:
    """The program built from the Go module in the folder of this name."""

    def install(home: Path) -> None:
        go = _program("go")
        run([go, "build", "-o", home / "program", "."], folder=_sources(name, home))

    return installed(name, _files(name), install) / "program"


def cargo_program(name: str) -> Path:
    """The program built from the crate in the folder of this name; the build files stay in `target` beside it."""

    def install(home: Path) -> None:
        cargo = _program("cargo")
        made = home / "target" / "debug"
        run([cargo, "build", "--quiet", "--target-dir", home / "target"], folder=_sources(name, home))
        [program] = [path for path in made.iterdir() if path.is_file() and os.access(path, os.X_OK)]
        shutil.copy(program, home / "program")

    return installed(name, _files(name), install) / "program"


def _files(name: str) -> list[Path]:
    return sorted(path for path in (Path(__file__).parent / name).rglob("*") if path.is_file())


def _sources(name: str, home: Path) -> Path:
    """A copy to build in, so that nothing is left beside the sources."""
    return Path(shutil.copytree(Path(__file__).parent / name, home / "sources"))


def installed(name: str, pins: Sequence[Path], install: Callable[[Path], None], *, tools: Path = TOOLS) -> Path:
    """A folder that `install` has filled, now or in an earlier run; other pins get another folder."""
    pinned = b"\0".join([sys.version.encode(), *(pin.read_bytes() for pin in pins)])
    home = tools / f"{name}-{hashlib.sha256(pinned).hexdigest()[:12]}"
    with _locked(home):
        if not (home / ".ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            install(home)
            (home / ".ready").touch()
    return home


def run(command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, folder: Path = ROOT) -> None:
    """Run an installer to its end; NotInstalled with the end of its output if it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS_MAX,
        check=False,
    )
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-_OUTPUT_CHARACTERS_MAX:]
        raise NotInstalled(f"{Path(command[0]).name} failed with {done.returncode}: {output}")


def java_home(version: int) -> Path:
    """A Java of at least this version: named by JAVA_HOME, or where Debian's packages put theirs."""
    named = [Path(os.environ["JAVA_HOME"])] if "JAVA_HOME" in os.environ else []
    homes = [*named, *sorted(Path("/usr/lib/jvm").glob("*"))]
    for home in homes:
        if (found := _java_version(home)) is not None and found >= version:
            return home
    raise NotInstalled(f"Java {version} or newer is not installed")


def _java_version(home: Path) -> int | None:
    """The feature version in the release file; None if there is no Java."""
    with contextlib.suppress(OSError):
        for line in (home / "release").read_text(encoding="utf-8").splitlines():
            if line.startswith("JAVA_VERSION="):
                return int(line.partition("=")[2].strip('"').split(".")[0])
    return None


def _program(name: str, *, beside: Path | None = None) -> Path:
    found = beside / name if beside and (beside / name).exists() else shutil.which(name)
    if found is None:
        raise NotInstalled(f"{name} is not installed")
    return Path(found)


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Lock the folder, so that no other run of the tests installs into it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
