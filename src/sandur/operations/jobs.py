"""What works in the background of a workspace, as its store shows it: leases, purges, published datasets, stages."""

from typing import Final

import msgspec

from sandur.catalog.identifiers import full_name_of
from sandur.operations.janitors.lease import Lease
from sandur.operations.lake import Lake
from sandur.operations.published import PublishedDatasets
from sandur.operations.tables.stages import list_stages
from sandur.storage.cell import gather_all, gather_in_batches

_ROWS_MAX: Final = 1_000
"""The largest number of rows of each kind in an answer."""
_READS_AT_ONCE: Final = 32
_QUARANTINE: Final = "quarantine"
_LEASES: Final = ("janitors", "pipeline")


class JobRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that runs, waits or was published. `at_ms` is when it expires, is due, was ordered or published."""

    name: str
    state: str
    at_ms: int = 0
    by: str = ""
    detail: str = ""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything by kind. `is_cut`: at least one list has more rows than an answer holds."""

    leases: list[JobRow]
    purges: list[JobRow]
    published: list[JobRow]
    stages: list[JobRow]
    is_cut: bool


async def list_jobs(lake: Lake) -> Jobs:
    """What runs, waits and was published last, for administrators: `list_stages` authorizes. Each list is bounded."""
    stages, (purges, has_more_purges), published, leases = await gather_all(
        (list_stages(lake, page_size=_ROWS_MAX), _purges(lake), _published(lake), _leases(lake))
    )
    return Jobs(
        leases=leases,
        purges=purges,
        published=published,
        stages=[
            JobRow(
                name=".".join((one.catalog_name, *one.namespace, one.name)),
                state="staged",
                at_ms=one.expires_at,
                by=one.created_by,
                detail=one.location,
            )
            for one in stages.entries
        ],
        is_cut=has_more_purges or stages.next_token is not None,
    )


async def _leases(lake: Lake) -> list[JobRow]:
    return [row for kind in _LEASES if (row := await _lease(lake, kind))]


async def _lease(lake: Lake, kind: str) -> JobRow | None:
    held = await Lease(lake, kind).current()
    if held is None:
        return None
    is_running = held.expires_ms > lake.clock.now_ms()
    return JobRow(
        name=kind,
        state="running" if is_running else "waiting",
        at_ms=held.expires_ms if is_running else held.due_ms,
        by=held.owner,
        detail=f"run {held.fence}",
    )


async def _purges(lake: Lake) -> tuple[list[JobRow], bool]:
    found = await lake.store.list(lake.layout.purge_orders_folder(), limit=_ROWS_MAX + 1)

    async def read(key: str) -> JobRow | None:
        order = await lake.purge_order(*lake.layout.parse_purge_order(key)).read()
        if order is None:
            return None
        value = order.value
        return JobRow(
            name=full_name_of(value.identifier),
            state="blocked" if value.blocked else "waiting",
            at_ms=value.ordered_ms,
            detail=value.blocked or value.uuid,
        )

    rows = await gather_in_batches([one.key for one in found[:_ROWS_MAX]], read, at_once=_READS_AT_ONCE)
    return sorted((row for row in rows if row), key=lambda row: (row.at_ms, row.name)), len(found) > _ROWS_MAX


async def _published(lake: Lake) -> list[JobRow]:
    """The datasets that jobs of the pipeline published last; rows in quarantine need a look."""
    manifest = await lake.feature(PublishedDatasets).manifest()
    return [
        JobRow(
            name=name,
            state="look" if name == _QUARANTINE and dataset.rows else "published",
            at_ms=manifest.published_ms,
            detail=f"{dataset.rows:,} row{'' if dataset.rows == 1 else 's'}, sequence {dataset.sequence}",
        )
        for name, dataset in sorted(manifest.datasets.items())
    ]
