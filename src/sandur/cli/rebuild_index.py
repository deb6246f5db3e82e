"""`sandur index rebuild`: make the list indexes anew, straight on the store."""

import asyncio
import json
import os
from pathlib import Path

from rich.console import Console

from sandur.clock import SystemClock
from sandur.errors import Unavailable
from sandur.operations.lakes import Lakes
from sandur.operations.rebuild_all import rebuild_all
from sandur.settings import load_settings
from sandur.storage.open import connect


def rebuild_indexes(catalog: str | None, *, store: str | None, config: Path | None, as_json: bool) -> None:
    """Print how many there are; raise Unavailable when some could not be made anew."""
    settings = load_settings(file=config, environment=os.environ, flags={"store": store})

    async def run() -> tuple[int, list[str]]:
        clock = SystemClock()
        lakes = Lakes(settings, clock, connect(settings, clock))
        made, failed = 0, []
        try:
            await lakes.start()
            lake = lakes.lake(settings.tenant or "default", settings.workspace or "default")
            async for scope, error in rebuild_all(lake, catalog):
                if error is None:
                    made += 1
                else:
                    failed.append(f"{lake.layout.list_index(scope)}: {error}")
        finally:
            await lakes.close()
        return made, failed

    made, failed = asyncio.run(run())
    if as_json:
        print(json.dumps({"rebuilt": made, "failed": failed}))  # noqa: T201 - output for machines
    else:
        Console().print(f"{made} indexes made anew")
    if failed:
        raise Unavailable(f"{len(failed)} indexes could not be made anew, the first of them {failed[0]}")
