"""The files of a Delta log, and which commits are published: clients report it, and the files prove it (L4)."""

import contextlib
from itertools import takewhile
from operator import itemgetter
from typing import Final

from sandur.catalog.records import DeltaCommit, DeltaTable
from sandur.delta.coordination import published_name, unpublished
from sandur.errors import Invalid, SwapLost, Unavailable
from sandur.operations.caches import LruCache
from sandur.operations.lake import Lake
from sandur.operations.receipts import DeltaReceipts
from sandur.storage.cell import gather_all

COMPARED_BYTES_MAX: Final = 256 << 20

_LINE_END: Final = b"\n"

LOG_FOLDER = "_delta_log"
STAGED_FOLDER = f"{LOG_FOLDER}/_staged_commits"


def published_location(table: DeltaTable, version: int) -> str:
    return f"{table.location}/{LOG_FOLDER}/{published_name(version)}"


def staged_location(table: DeltaTable, file_name: str) -> str:
    return f"{table.location}/{STAGED_FOLDER}/{file_name}"


def _published_versions(lake: Lake) -> LruCache[str, int]:
    """By table uuid: the version up to which this server saw the commits published."""
    return LruCache(lake.settings.cache_records_max)


def known_published(lake: Lake, table: DeltaTable) -> int:
    """The version up to which all commits are known to be published, from the record or from this server's cache."""
    seen = lake.feature(_published_versions).get(table.uuid, 0)
    return max(table.published, min(seen, table.last_version))


def unpublished_commits(lake: Lake, table: DeltaTable) -> tuple[DeltaCommit, ...]:
    """The commits that are not known to be published, newest first."""
    return unpublished(table.commits, known_published(lake, table))


async def verify_published(lake: Lake, table: DeltaTable, reported: int) -> int:
    """L4: the version up to which all files exist, at most the one that a client reports; this server caches it.

    All tracked files are checked at once; nothing after the first missing one counts. The receipts of these commits
    are written, because the commits may be forgotten afterwards (G6).
    """
    known = known_published(lake, table)
    rows = [row for row in table.commits if known < row.version <= reported]
    are_there = await gather_all(_is_published(lake, table, row) for row in rows)
    published = takewhile(itemgetter(1), zip(rows, are_there, strict=True))
    highest = max((row.version for row, _ in published), default=known)
    if highest > known:
        lake.feature(_published_versions)[table.uuid] = highest
    return highest


async def _is_published(lake: Lake, table: DeltaTable, row: DeltaCommit) -> bool:
    receipt = lake.feature(DeltaReceipts).ensure(table, row)
    try:
        is_there, _ = await gather_all((lake.locations.exists(published_location(table, row.version)), receipt))
    except Invalid:  # The settings no longer allow the location.
        return False
    return is_there


async def have_same_actions(lake: Lake, one: str, other: str) -> bool | None:
    """Whether two log files have the same lines; None if one is missing or both are too large to compare.

    A line end after the last line does not count: Delta on Spark publishes the commits of all writers line by line, and
    adds it where a writer left it out.
    """
    stores = [lake.locations.holder(location) for location in (one, other)]
    heads = await gather_all(store.head(key) for store, key in stores)
    sizes = [head.size_bytes for head in heads if head]
    if len(sizes) == len(stores) and max(sizes) - min(sizes) > len(_LINE_END):
        return False
    if len(sizes) < len(stores) or max(sizes) > COMPARED_BYTES_MAX:
        return None
    found = [stored.data if stored else None for stored in await gather_all(store.get(key) for store, key in stores)]
    lines = {data.removesuffix(_LINE_END) for data in found if data is not None}
    return None if None in found else len(lines) == 1


async def publish_commits(lake: Lake, table: DeltaTable) -> int:
    """Copy the staged files of all commits that are not published yet into the log; returns the newest such version.

    Writers do this themselves after their commit; this does it for writers that died before. A published file never
    changes: one that exists must have the same actions.
    """
    published = known_published(lake, table)
    for row in sorted(unpublished_commits(lake, table), key=lambda one: one.version):
        source, target = staged_location(table, row.file_name), published_location(table, row.version)
        data = await lake.locations.read(source)
        if data is None:
            if await lake.locations.exists(target):
                published = row.version
                continue
            raise Unavailable(f"commit {row.version} of the Delta table at {table.location}: {source} does not exist")
        with contextlib.suppress(SwapLost):
            await lake.locations.create(target, data)
        if await have_same_actions(lake, source, target) is False:
            raise Unavailable(f"{target} exists with other actions than the commit that the catalog accepted, {source}")
        published = row.version
    return published
