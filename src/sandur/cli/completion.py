"""Completion of names in a shell: what a server or store has, within 300 milliseconds, or what it had last time."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from sandur.cli.flags import TargetFlags

_SECONDS_MAX: Final = 0.3
_FRESH_MS: Final = 10_000
_NAMES_MAX: Final = 1_000
_CONTAINERS: Final = frozenset({"catalog", "namespace"})

Completer = Callable[[typer.Context, str], list[str]]


def _completer(wanted: Callable[[str], bool]) -> Completer:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        """The names that begin with the text; never an error, which would garble the command line."""
        with contextlib.suppress(Exception):
            parent, _, beginning = incomplete.rpartition(".")
            entries = _entries(parent, ctx)
            names = [name for name, kind in entries if name.startswith(beginning) and wanted(kind)]
            return [f"{parent}.{name}" if parent else name for name in names[:_NAMES_MAX]]
        return []

    return complete


complete_name: Final = _completer(lambda _kind: True)
complete_container: Final = _completer(lambda kind: kind in _CONTAINERS)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="Such as main.sales.orders", autocompletion=complete_name)
]
PlaceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="A catalog or namespace; default: the catalogs", autocompletion=complete_container
    ),
]
NamespaceArgument = Annotated[
    str, typer.Argument(metavar="NAMESPACE", help="Such as main.sales", autocompletion=complete_container)
]
NewNameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="The full name of the new object", autocompletion=complete_container)
]


def _entries(parent: str, ctx: typer.Context) -> list[tuple[str, str]]:
    """The names and kinds in a container: fresh from the cache, else asked for, else whatever the cache has."""
    from sandur.clock import SystemClock  # noqa: PLC0415 - starts fast

    given = ctx.params
    flags = TargetFlags(given.get("profile"), given.get("server"), given.get("store"), given.get("config"))
    file = _cache_file(flags, parent)
    now_ms = SystemClock().now_ms()
    cached = _read(file)
    if cached and now_ms - cached[0] < _FRESH_MS:
        return cached[1]
    try:
        found = _fetched(flags, parent)
    except Exception:  # noqa: BLE001 - a server that does not answer, a login that has ended: the old names are better
        return cached[1] if cached else []
    _write(file, now_ms, found)
    return found


def _fetched(flags: TargetFlags, parent: str) -> list[tuple[str, str]]:
    import asyncio  # noqa: PLC0415 - starts fast

    from sandur.cli.targets import name_of, run_on_target  # noqa: PLC0415 - starts fast
    from sandur.client.catalog import CatalogClient  # noqa: PLC0415 - starts fast

    within = name_of(parent) if parent else None

    async def collect(client: CatalogClient) -> list[tuple[str, str]]:
        collections = ("namespaces", "names") if within and len(within.parts) > 1 else ("names",)
        found: list[tuple[str, str]] = []
        for collection in collections:
            async for entry in client.entries(within, collection=collection):
                found.append((entry["name"], entry["kind"]))
                if len(found) >= _NAMES_MAX:
                    return found
        return found

    async def bounded(client: CatalogClient) -> list[tuple[str, str]]:
        return await asyncio.wait_for(collect(client), _SECONDS_MAX)

    return run_on_target(bounded, flags)


def _cache_file(flags: TargetFlags, parent: str) -> Path:
    known = [os.environ.get(name, "") for name in ("SANDUR_SERVER", "SANDUR_PROFILE", "SANDUR_STORE")]
    digest = hashlib.sha256(repr((flags, known, os.getcwd(), parent)).encode()).hexdigest()[:32]  # noqa: PTH109 - a text
    home = os.environ.get("XDG_CACHE_HOME") or ""
    folder = Path(home) if home.startswith("/") else Path.home() / ".cache"
    return folder / "sandur" / "names" / f"{digest}.json"


def _read(file: Path) -> tuple[int, list[tuple[str, str]]] | None:
    try:
        time_ms, entries = json.loads(file.read_text(encoding="utf-8"))
        return int(time_ms), [(str(name), str(kind)) for name, kind in entries]
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path, now_ms: int, entries: list[tuple[str, str]]) -> None:
    with contextlib.suppress(OSError):  # Only a cache.
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump([now_ms, entries], opened)
        temporary.replace(file)
