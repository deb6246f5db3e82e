"""`sandur audit`: search the audit trail, on the store itself or through a server."""

import asyncio
import datetime as dt
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.audit import AuditFilter, AuditRecord
from sandur.cli.output import print_rows, say
from sandur.cli.store_admin import StoreFlags, run_on_store
from sandur.client.profiles import user_profiles
from sandur.client.sessions import API, connected, find_target
from sandur.clock import SystemClock
from sandur.operations.audit.search import LAST_MS, AuditPage, search_audit, time_of
from sandur.operations.lake import Lake

_PAGE_SIZE: Final = 1_000
_PAGES_MAX: Final = 100_000
_SECOND_CHARS: Final = 19
_COLUMNS: Final = ("time (UTC)", "principal", "operation", "on", "decision", "status", "reason")


class AuditFlags(NamedTuple):
    """What to search and how much to print. Without `uri` and `profile`, the store is read."""

    filters: Mapping[str, str]
    since: str
    until: str | None
    limit: int
    uri: str | None = None
    token: str | None = None
    profile: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    records: tuple[AuditRecord, ...]
    next_token: str | None = None
    damaged: tuple[str, ...] = ()


class _Found(NamedTuple):
    records: Sequence[AuditRecord]
    damaged: Sequence[str]


def show_audit(flags: AuditFlags, store: StoreFlags, *, as_json: bool) -> None:
    """Print the records, oldest first: as a table, or as lines of JSON."""
    if flags.uri or flags.profile:
        found = _from_server(flags)
    else:
        found = run_on_store(lambda lake: _on_store(lake, flags), store, access="read")
    if as_json:
        for record in found.records:
            print(msgspec.json.encode(record).decode())  # noqa: T201 - output for machines
    else:
        print_rows(_COLUMNS, [_row(record) for record in found.records], empty="No records.")
    if len(found.records) == flags.limit:
        say(f"These are the first {flags.limit} records; --limit prints more.")
    if found.damaged:
        say(f"{len(found.damaged)} objects of the trail cannot be read, for example {found.damaged[0]}")


def _row(record: AuditRecord) -> Sequence[str]:
    return (
        str(dt.datetime.fromtimestamp(record.time_ms / 1_000, dt.UTC))[:_SECOND_CHARS],
        record.principal,
        record.operation,
        record.securable_name,
        record.decision,
        str(record.status),
        record.detail or record.reason,
    )


async def _on_store(lake: Lake, flags: AuditFlags) -> _Found:
    now_ms = SystemClock().now_ms()
    until_ms = time_of(flags.until, now_ms) if flags.until else LAST_MS
    wanted = AuditFilter(time_of(flags.since, now_ms), until_ms, **flags.filters)
    return await _collect(flags.limit, lambda token: search_audit(lake, wanted, page_size=_PAGE_SIZE, page_token=token))


async def _collect(limit: int, load: Callable[[str | None], Awaitable[AuditPage | _Answer]]) -> _Found:
    """At most `limit` records of all pages."""
    records: list[AuditRecord] = []
    damaged: list[str] = []
    token: str | None = None
    for _ in range(_PAGES_MAX):
        page = await load(token)
        records += page.records
        damaged += page.damaged
        token = page.next_token
        if token is None or len(records) >= limit:
            break
    return _Found(records[:limit], damaged)


def _from_server(flags: AuditFlags) -> _Found:
    now_ms = SystemClock().now_ms()
    query = {**flags.filters, "since": str(time_of(flags.since, now_ms)), "page_size": str(_PAGE_SIZE)}
    if flags.until:
        query["until"] = str(time_of(flags.until, now_ms))
    profiles = user_profiles(os.environ)
    target = find_target(profiles, profile=flags.profile, server=flags.uri, environment=os.environ)
    target = target._replace(token=flags.token or target.token)

    async def run() -> _Found:
        async with connected(target, profiles, SystemClock()) as session:

            async def load(token: str | None) -> _Answer:
                page = {**query, **({"page_token": token} if token else {})}
                return msgspec.json.decode(await session.request("GET", f"{API}/audit", query=page), type=_Answer)

            return await _collect(flags.limit, load)

    return asyncio.run(run())
