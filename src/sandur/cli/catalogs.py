"""`sandur catalog`: make and list catalogs, straight on the store."""

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from sandur.catalog.records import Catalog
from sandur.catalog.sources import Request, Source
from sandur.clock import SystemClock
from sandur.operations.catalogs import create_catalog, list_catalogs
from sandur.operations.lake import Lake
from sandur.operations.lakes import Lakes
from sandur.settings import load_settings
from sandur.storage.open import connect

T = TypeVar("T")


def make_catalog(name: str, *, root: str | None, store: str | None, config: Path | None, as_json: bool) -> None:
    request = Request(hash="", source=Source(kind="admin", client="sandur"))

    async def make(lake: Lake) -> Catalog:
        return await create_catalog(lake, name, root=root, properties={}, request=request)

    made = on_store(make, store=store, config=config)
    if as_json:
        print(json.dumps(_row(made)))  # noqa: T201 - output for machines
        return
    Console().print(f"Catalog [bold]{made.name}[/] keeps its tables below {made.root}")


def show_catalogs(*, store: str | None, config: Path | None, as_json: bool) -> None:
    catalogs = on_store(list_catalogs, store=store, config=config)
    if as_json:
        print(json.dumps([_row(catalog) for catalog in catalogs]))  # noqa: T201 - output for machines
        return
    table = Table("catalog", "tables lie below", title="Catalogs")
    for catalog in catalogs:
        table.add_row(catalog.name, catalog.root)
    Console().print(table)


def _row(catalog: Catalog) -> dict[str, str]:
    return {"name": catalog.name, "root": catalog.root, "id": catalog.id}


def on_store(work: Callable[[Lake], Awaitable[T]], *, store: str | None, config: Path | None) -> T:
    """What the work makes of the workspace that the settings name, on the store itself and without a server."""
    settings = load_settings(file=config, environment=os.environ, flags={"store": store})

    async def run() -> T:
        clock = SystemClock()
        lakes = Lakes(settings, clock, connect(settings, clock))
        try:
            await lakes.start()
            return await work(lakes.lake(settings.tenant or "default", settings.workspace or "default"))
        finally:
            await lakes.close()

    return asyncio.run(run())
