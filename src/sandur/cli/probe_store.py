"""`sandur probe`: the boot probe, by hand."""

import asyncio
import json
import os
from pathlib import Path

from rich.console import Console

from sandur.clock import SystemClock
from sandur.settings import load_settings
from sandur.storage.contract import ObjectStore
from sandur.storage.open import open_store
from sandur.storage.probe import verify_store


def probe_store(*, store: str | None, config: Path | None, as_json: bool) -> None:
    settings = load_settings(file=config, environment=os.environ, flags={"store": store})
    asyncio.run(_probe(settings.store, open_store(settings.store, settings), as_json=as_json))


async def _probe(url: str, store: ObjectStore, *, as_json: bool) -> None:
    try:
        proven = await verify_store(store, SystemClock())
    finally:
        await store.close()
    if as_json:
        print(json.dumps({"store": url, "proven": proven}))  # noqa: T201 - output for machines
        return
    console = Console()
    for guarantee in proven:
        console.print(f"[green]✓[/] {guarantee}")
    console.print(f"[bold]{url}[/] keeps every guarantee.")
