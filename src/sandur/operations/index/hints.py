"""Hints from the list index, for a process that has not read a table yet: they save a round, and decide nothing.

A new server reads the lists of its workspace before it is ready (`read_ahead`). From then on it knows which record each
listed name leads to. The first load of a table reads both in its first round (`access.read_both`), and its second round
is a warm load with all its checks. A stale entry costs a round, and no more.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Entry, Scope, names_scope, namespaces_scope
from sandur.errors import NotFound, SandurError
from sandur.operations.access import Security
from sandur.operations.lake import Lake
from sandur.operations.securable_chains import namespace_chain
from sandur.storage.cell import gather_all, gather_in_batches

AHEAD_SECONDS_MAX: Final = 2.0
"""A slow store does not delay a start for longer."""
SCOPES_MAX: Final = 500
SEGMENTS_MAX: Final = 200
"""With up to 128 names each, about as many names as a process remembers."""
_DEPTH_MAX: Final = 3
_READS_AT_ONCE: Final = 64


async def read_ahead(lake: Lake) -> None:
    """Read the lists of the workspace into the cache, as far as the bounds allow. Nothing depends on its success."""
    if lake.store.has_instant_reads:
        return
    with contextlib.suppress(SandurError, TimeoutError):
        async with asyncio.timeout(AHEAD_SECONDS_MAX):
            catalogs = [namespaces_scope(entry.name, None) for entry in await _read_entries(lake, CATALOGS)]
            namespaces = await _read_namespaces(lake, catalogs[:SCOPES_MAX])
            await gather_all((_read_chains(lake, namespaces), _read_names(lake, namespaces)))


async def _read_namespaces(lake: Lake, parents: Sequence[Scope]) -> Sequence[Namespace]:
    """The namespaces in these scopes and below them."""
    found: list[Namespace] = []
    for _ in range(_DEPTH_MAX):
        listed = await gather_in_batches(parents, lambda scope: _read_entries(lake, scope), at_once=_READS_AT_ONCE)
        added = [
            Namespace(scope.catalog, (*scope.levels, entry.name))
            for scope, entries in zip(parents, listed, strict=True)
            for entry in entries
        ][: SCOPES_MAX - len(found)]
        found += added
        parents = [namespaces_scope(namespace.catalog, namespace) for namespace in added]
    return found


async def _read_chains(lake: Lake, namespaces: Sequence[Namespace]) -> None:
    """If requests are authorized, what the decisions about these namespaces depend on."""
    if lake.settings.authentication == "off":
        return
    authority = await lake.feature(Security).read()
    if authority.manifest.renames:  # Chains are remembered by the names of containers, and the index has their keys.
        return

    async def read_chain(namespace: Namespace) -> None:
        with contextlib.suppress(NotFound):
            await namespace_chain(lake, authority, namespace, missing=NotFound("", subject="namespace"))

    await gather_in_batches(namespaces, read_chain, at_once=_READS_AT_ONCE)


async def _read_names(lake: Lake, namespaces: Sequence[Namespace]) -> None:
    scopes = [names_scope(namespace) for namespace in namespaces]
    manifests = await gather_in_batches(scopes, lambda scope: lake.index(scope).read(), at_once=_READS_AT_ONCE)
    segments = [
        lake.index_segment(scope, ref.id)
        for scope, manifest in zip(scopes, manifests, strict=True)
        for ref in (manifest.value.segments if manifest else ())
    ]
    await gather_in_batches(segments[:SEGMENTS_MAX], lambda cell: cell.read(), at_once=_READS_AT_ONCE)


async def _read_entries(lake: Lake, scope: Scope) -> Sequence[Entry]:
    """The entries of a list of containers; none of a list that is so long that it has segments."""
    found = await lake.index(scope).read()
    return found.value.entries if found else ()
