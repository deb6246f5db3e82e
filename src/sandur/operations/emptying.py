"""Emptying a namespace or a catalog: everything in it is dropped, each thing as if somebody had asked for it.

Every step is an operation of its own: a crash in between leaves less than there was, and the next try goes on.
"""

import contextlib
from typing import Final

from sandur.catalog.identifiers import Namespace
from sandur.catalog.sources import Request, Source
from sandur.errors import NotEmpty, NotFound
from sandur.operations.concurrency import gather_all
from sandur.operations.delta.tables import drop_table
from sandur.operations.drop_namespace import drop_namespace
from sandur.operations.index_truth import keys_below
from sandur.operations.lake import Lake
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import settle_name

DROPS_AT_ONCE: Final = 16
ROUNDS_MAX: Final = 3


async def empty_catalog(lake: Lake, catalog: str, source: Source) -> None:
    """Drop all namespaces of a catalog and what is in them; somebody may be putting something into it meanwhile."""
    folder = lake.layout.namespaces_folder(catalog)
    namespaces = [lake.layout.parse_namespace(key) async for key in keys_below(lake, folder)]
    await _drop_all(lake, namespaces, source)


async def drop_with_content(lake: Lake, namespace: Namespace, request: Request) -> None:
    """Drop a namespace and all that is in it; NotFound when there is none."""
    for rounds in range(ROUNDS_MAX):
        await _empty_namespace(lake, namespace, request.source)
        try:
            return await drop_namespace(lake, namespace, request)
        except NotEmpty:
            if rounds + 1 == ROUNDS_MAX:
                raise
    return None


async def _empty_namespace(lake: Lake, namespace: Namespace, source: Source) -> None:
    layout = lake.layout
    folder, beginning = layout.namespaces_folder(namespace.catalog), layout.namespaces_below(namespace)
    below = [layout.parse_namespace(key) async for key in keys_below(lake, folder, beginning=beginning)]
    await _drop_all(lake, below, source)
    await _drop_names(lake, namespace, source)


async def _drop_all(lake: Lake, namespaces: list[Namespace], source: Source) -> None:
    """The deepest first: a namespace goes only when there is none below it."""
    for namespace in sorted(namespaces, key=lambda namespace: -len(namespace.levels)):
        await _drop_names(lake, namespace, source)
        # Gone already, or somebody was faster to put something into it, which whoever drops the parent finds.
        with contextlib.suppress(NotFound, NotEmpty):
            await drop_namespace(lake, namespace, Request(hash="", source=source))


async def _drop_names(lake: Lake, namespace: Namespace, source: Source) -> None:
    layout = lake.layout
    keys = [key async for key in keys_below(lake, layout.names_folder(namespace))]
    for start in range(0, len(keys), DROPS_AT_ONCE):
        await gather_all(_drop_name(lake, key, source) for key in keys[start : start + DROPS_AT_ONCE])


async def _drop_name(lake: Lake, key: str, source: Source) -> None:
    identifier = lake.layout.parse_name(key)
    live = (await settle_name(lake, identifier)).live
    if live is None:
        return
    record, request = live.name.value, Request(hash="", source=source)
    with contextlib.suppress(NotFound):  # Somebody else was faster.
        if record.kind in {"table", "view"}:
            await drop_table(lake, identifier, request=request)
        else:
            await drop_name(lake, identifier, kind=record.kind, request=request, formats=(record.format,))
