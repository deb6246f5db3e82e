"""`sandur serve`: the server, and how to reach it."""

import os
import sys
from pathlib import Path

from rich.console import Console

from sandur.cli.banner import show_banner
from sandur.server.addresses import address_of
from sandur.server.serve import serve
from sandur.settings import Settings, load_settings


def run_server(*, config: Path | None, flags: dict[str, object]) -> None:
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    code = serve(settings, lambda port: _announce(settings, port))
    if code:
        raise SystemExit(code)


def _announce(settings: Settings, port: int) -> None:
    url = address_of(settings.host, port)
    show_banner(Console(highlight=False), settings, url, activation=_activation())
    # Last, and whole: whoever starts the server waits for this line.
    print(f"Sandur is ready at {url}", flush=True)  # noqa: T201 - told to people and machines


def _activation() -> Path | None:
    """The script of the virtual environment this runs in; None outside of one, and where it is active."""
    script = Path(sys.prefix) / "bin" / "activate"
    is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return script if script.exists() and not is_active else None
