"""The examination of an installation: the store, the clock, janitors and pipelines, and what waits for them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from sandur.catalog.record_versions import NEWEST
from sandur.errors import SandurError
from sandur.operations.backlog import JANITORS_RUN, read_backlog
from sandur.operations.credentials.profiles import own_store_profile
from sandur.operations.credentials.vend import probe_access
from sandur.operations.janitors.sweep import DAY_MS, list_layouts
from sandur.operations.lake import Lake
from sandur.settings import Settings, seconds_of
from sandur.storage.layout import LOCATIONS_COMPLETE, RESTORING
from sandur.storage.probe import check_access, verify_store, write_time
from sandur.storage.record_form import read_format

SKEW_WARN_MS: Final = 2_000
SKEW_FAIL_MS: Final = 30_000
"""Leases, stale transactions and retention compare the clocks of servers with that of the store."""
WORKSPACES_MAX: Final = 100
PURGES_WARN: Final = 1_000

State = Literal["ok", "warn", "fail"]


class Line(NamedTuple):
    """One result; `remedy` says what to do about a warning or a failure."""

    subject: str
    state: State
    text: str
    remedy: str = ""


async def examine_store(lake: Lake) -> list[Line]:
    """Everything that needs the store. It writes only into a folder of the probe and removes that."""
    lines = [await _guarded("store", _store, lake)]
    if lines[0].state == "fail":
        return lines
    for subject, examine in (("rights", _rights), ("clock", _clock), ("credentials", _credentials)):
        lines.append(await _guarded(subject, examine, lake))
    lines.append(await _guarded("records", _records, lake))
    if await lake.store.head(RESTORING):
        lines.append(Line("restore", "fail", "a restore is not finished", "run the same sandur restore again"))
    if await lake.store.head(LOCATIONS_COMPLETE) is None:
        text = "places of older tables are still being recorded"
        lines.append(Line("locations", "warn", text, "start a server with janitors, and wait for its next runs"))
    count = 0
    async for layout in list_layouts(lake.store, lake.settings):
        lines += await _background(lake.in_workspace(layout))
        count += 1
        if count == WORKSPACES_MAX:
            break
    return lines


async def _guarded(subject: str, examine: Callable[[Lake], Awaitable[Line]], lake: Lake) -> Line:
    try:
        return await examine(lake)
    except SandurError as error:
        return Line(subject, "fail", str(error), "correct the settings or the rights of the server: sandur probe")


async def _store(lake: Lake) -> Line:
    proven = await verify_store(lake.store, lake.clock, f"store {lake.settings.store}")
    return Line("store", "ok", f"{lake.settings.store} has all {len(proven)} guarantees")


async def _rights(lake: Lake) -> Line:
    await check_access(lake.store, lake.clock)
    return Line("rights", "ok", "objects can be read, written, listed and deleted")


async def _clock(lake: Lake) -> Line:
    """Compare the time of an object that is written now with the clock of this machine."""
    skew_ms = clock_skew_ms(*await write_time(lake.store, lake.clock))
    text = f"{abs(skew_ms) / 1_000:.1f} s {'behind' if skew_ms > 0 else 'ahead of'} the store"
    if abs(skew_ms) < SKEW_WARN_MS:
        return Line("clock", "ok", text)
    return Line("clock", "warn" if abs(skew_ms) < SKEW_FAIL_MS else "fail", text, "synchronize the clock (NTP)")


def clock_skew_ms(store_ms: int, before_ms: int, after_ms: int) -> int:
    """How far the clock is behind the store; 0 if the store's time lies within the call, to the second."""
    if before_ms - 1_000 <= store_ms <= after_ms + 1_000:  # S3 has whole seconds.
        return 0
    return store_ms - (after_ms if store_ms > after_ms else before_ms)


async def _credentials(lake: Lake) -> Line:
    profile = own_store_profile(lake)
    if profile is None or not await probe_access(lake, profile):
        return Line("credentials", "ok", "clients get no credentials from this server")
    return Line("credentials", "ok", f"credentials for clients are issued ({profile.access})")


async def _records(lake: Lake) -> Line:
    found = await read_format(lake.store)
    text = f"version {found.major}.{found.minor} ({found.state}), this Sandur writes up to {NEWEST}"
    if found.major > NEWEST.major:
        return Line("records", "fail", text, "upgrade Sandur")
    if found.major < NEWEST.major or found.state != "steady":
        return Line("records", "warn", text, "once no older server runs: sandur upgrade --no-dry-run")
    return Line("records", "ok", text)


async def _background(lake: Lake) -> list[Line]:
    """When janitors and the pipeline last succeeded, and what waits for them."""
    now_ms, layout = lake.clock.now_ms(), lake.layout
    where = (
        "" if (layout.tenant, layout.workspace) == ("default", "default") else f" {layout.tenant}/{layout.workspace}"
    )
    try:
        backlog = await read_backlog(lake)
    except SandurError as error:
        return [Line(f"backlog{where}", "fail", str(error), "run: sandur verify")]
    late_ms = 4 * seconds_of(lake.settings.janitor_interval) * 1_000
    lines = [_last_run(f"janitors{where}", backlog.last_success_ms.get(JANITORS_RUN, 0), now_ms, late_ms)]
    jobs = {work: ended_ms for work, ended_ms in backlog.last_success_ms.items() if work != JANITORS_RUN}
    if jobs:
        oldest = min(jobs, key=lambda work: jobs[work])
        lines.append(_last_run(f"pipeline{where}: {oldest}", jobs[oldest], now_ms, 2 * DAY_MS))
    text = f"{backlog.marks_overdue} overdue index marks, {backlog.purges_waiting} purges"
    is_late = backlog.marks_overdue > 0 or backlog.purges_waiting >= PURGES_WARN
    remedy = "start a server with janitors, or look for failures in its log" if is_late else ""
    return [*lines, Line(f"backlog{where}", "warn" if is_late else "ok", text, remedy)]


def _last_run(subject: str, ended_ms: int, now_ms: int, late_ms: int) -> Line:
    if not ended_ms:
        remedy = "start a server with janitors = true, and wait for its first run"
        return Line(subject, "warn", "no run has succeeded yet", remedy)
    minutes = (now_ms - ended_ms) // 60_000
    text = f"last succeeded {minutes} minutes ago"
    return Line(subject, "ok", text) if now_ms - ended_ms <= late_ms else Line(subject, "warn", text, "look at the log")


def examine_settings(settings: Settings, *, is_loopback: bool) -> Iterator[Line]:
    """Settings that are allowed and unwise."""
    with_logins = settings.authentication == "on"
    unwise: Mapping[str, tuple[bool, str, str]] = {
        "fsync": (settings.fsync == "never", "a power cut loses acknowledged commits", 'set fsync = "always"'),
        "authentication": (
            not with_logins and not is_loopback,
            "everyone who reaches the server may do everything",
            'set authentication = "on"',
        ),
        "janitors": (not settings.janitors, "this server removes nothing", "let another server run with janitors"),
        "audit": (with_logins and settings.audit == "off", "no record says who did what", 'set audit = "auto"'),
        "sealing_keys": (
            with_logins and not settings.sealing_keys,
            "secrets of credentials and subscriptions are refused",
            "run: sandur admin sealing-key",
        ),
        "receipt_retention": (
            seconds_of(settings.receipt_retention) * 1_000 < 7 * DAY_MS,
            "readers that are away for a week miss events",
            "set receipt_retention to P7D or more",
        ),
    }
    for name, (is_unwise, text, remedy) in unwise.items():
        if is_unwise:
            yield Line(f"setting {name}", "warn", text, remedy)
