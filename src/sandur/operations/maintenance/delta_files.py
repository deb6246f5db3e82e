"""The files of Delta tables, for their VACUUM: what the log needs, and which other tables name files of a table.

Needed are live files, files removed within the retention, their deletion vectors, and staged commits that are not
published. A shallow clone names files of its source by absolute paths: as long as a table has such a clone, none of its
files is deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import Address, address_around, canonical_address
from sandur.catalog.maintenance.orphans import FORBIDDEN, Suspects, delta_name_reason, identity_of, is_in_log
from sandur.catalog.maintenance.policies import Policy, forbids_deletion
from sandur.catalog.records import DeltaTable
from sandur.delta.log_state import (
    EMPTY,
    Action,
    FileAction,
    LogState,
    folded,
    foreign_files,
    is_foreign,
    is_uniform,
    needed_files,
    retention_ms,
)
from sandur.errors import Invalid, Unavailable
from sandur.operations.delta.log_files import (
    Form,
    log_names,
    newest_checkpoint,
    published_versions,
    read_checkpoint,
    read_commits,
)
from sandur.operations.delta.publishing import LOG_FOLDER, known_published, staged_location
from sandur.operations.lake import Lake
from sandur.operations.maintenance.delta_log import expired_files
from sandur.operations.maintenance.orphans import FILES_MAX, Place, StoreTime, folder_of
from sandur.operations.maintenance.references import WorkspaceReferences, location_refusal
from sandur.settings import seconds_of
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import Version, list_all

COMMITS_MAX: Final = 100_000
_ACTIONS_AT_ONCE: Final = 100_000
_COLUMNS: Final = ("add", "remove", "cdc", "sidecar", "protocol", "metaData")
_FIELDS: Final = frozenset(
    {
        "path",
        "deletionTimestamp",
        "deletionVector",
        "minReaderVersion",
        "readerFeatures",
        "writerFeatures",
        "configuration",
    }
)
DELTA: Final = "DELTA"
_UNIFORM: Final = "it has Iceberg metadata, which names files of its own"
_TABLES_AT_ONCE: Final = 16
_OVER: Final = frozenset({"killed", "purging"})


class _Clone(NamedTuple):
    """The files elsewhere that a Delta table names, and what showed its state when they were read: the version of its
    record, and the newest file of its log; None if the record shows every change.
    """

    seen: tuple[Version, tuple[str, str] | None]
    foreign: tuple[Address, ...]


class DeltaFiles:
    """`references` are those of Iceberg tables, and `clones` those of Delta tables, shared by the tables of a run.

    Most files of an old table are removed ones, so their share says nothing (O7): instead, the files that the log names
    must be among those that the store lists.
    """

    def __init__(
        self,
        lake: Lake,
        policy: Policy,
        references: WorkspaceReferences | None = None,
        clones: "DeltaClones | None" = None,
    ) -> None:
        self._lake = lake
        self._retention_ms = seconds_of(policy.delta.deleted_file_retention) * 1_000
        self._share_max = policy.orphans.share_max
        self._references = references or WorkspaceReferences(lake)
        self._clones = clones or DeltaClones(lake)

    async def open(self, uuid: str, name: Identifier) -> Place | str:
        found = await self._lake.delta_table(uuid).read()
        if found is None or found.value.state != "live":
            return "it does not exist, or is being created or dropped"
        table = found.value
        if refusal := _refusal_of(table):
            return refusal
        try:
            age_ms = self._retention_of(table.properties)
        except Invalid as error:
            return str(error)
        if refusal := await location_refusal(self._lake, name.catalog, table.location):
            return refusal
        is_managed = table.table_type == "MANAGED"
        names = delta_name_reason(known_published(self._lake, table) if is_managed else -1)
        return Place(found, table.location.rstrip("/"), names, age_ms, takes_commits=is_managed, limits_share=False)

    def _retention_of(self, properties: Mapping[str, Any]) -> int:
        return max(self._retention_ms, retention_ms(properties) or 0)

    async def look(self, uuid: str, place: Place, suspects: Suspects, *, is_whole: bool) -> str:
        await self._references.refresh()
        if refusal := await self._references.refusal(uuid, place.record.value.table_uuid, place.location):
            return refusal
        suspects.clear(self._references.foreign(uuid))
        if clone := await self._clones.user_of(uuid, canonical_address(place.location)):
            return clone
        found = await self._lake.delta_table(uuid).read()
        if found is None or found.value.state != "live":
            return "it was dropped"
        return await self._clear_needed(found.value, place, suspects, is_whole=is_whole)

    async def _clear_needed(self, table: DeltaTable, place: Place, suspects: Suspects, *, is_whole: bool) -> str:
        """Clear what the log needs; returns why nothing may be deleted, or an empty text."""
        state = await read_log(self._lake, table)
        if state is None:
            return "it has no log"
        if is_uniform(state.properties):
            return _UNIFORM
        # Engines that write to an external table by its path change its log, and not its record.
        if any(map(forbids_deletion, (table.properties, state.properties))):
            return FORBIDDEN
        retention = max(map(self._retention_of, (table.properties, state.properties)))
        removed_after_ms = await self._lake.feature(StoreTime).now_ms() - retention
        needed = list(needed_files(state, table.location, removed_after_ms=removed_after_ms))
        live = list(needed_files(state._replace(removed={}, changes=frozenset()), table.location, removed_after_ms=0))
        within = canonical_address(place.location)
        around = {one: address_around(one) for one in live}
        # A listed file whose own name has no address is never a suspect.
        own = [one for one in live if around[one].is_within(within) and identity_of(one) == str(around[one])]
        if is_whole and suspects.missing_share(own) > self._share_max:
            return "its log names files in another way than the store does"
        suspects.clear(needed)
        suspects.clear(staged_location(table, commit.file_name) for commit in table.commits)
        suspects.keep_younger(removed_after_ms)
        await self._clear_log(table, state, suspects)
        return ""

    async def _clear_log(self, table: DeltaTable, state: LogState, suspects: Suspects) -> None:
        """O12: clear the files of the log that have not expired."""
        in_log = [one.location for one in suspects.files if is_in_log(one.location)]
        if in_log:
            now_ms = await self._lake.feature(StoreTime).now_ms()
            expired = await expired_files(self._lake, table, state, now_ms=now_ms)
            suspects.clear([one for one in in_log if one not in expired], "needed by the log, or younger than it keeps")


def _refusal_of(table: DeltaTable) -> str:
    """Why no file of a table is ever deleted, as far as its record says; empty if nothing forbids it."""
    if table.data_source_format != DELTA or table.kind != "table":
        return f"it is a table in {table.data_source_format}, which only its engine maintains"
    if table.uniform is not None:
        return _UNIFORM
    return FORBIDDEN if forbids_deletion(table.properties) else ""


class DeltaClones:
    """The files outside of their own location that Delta tables name, for one run."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._clones: dict[str, _Clone] = {}

    async def user_of(self, uuid: str, address: Address) -> str:
        """Which other Delta table names files at an address, in words; empty if none does."""
        lake = self._lake
        listed = await list_all(lake.store, lake.layout.delta_tables_folder())
        others = {lake.layout.parse_delta_table(one.key): one.version for one in listed}
        self._clones = {known: clone for known, clone in self._clones.items() if known in others}
        others.pop(uuid, None)
        found = await gather_in_batches(tuple(others.items()), self._foreign, at_once=_TABLES_AT_ONCE)
        for other, foreign in zip(others, found, strict=True):
            if any(one.is_within(address) for one in foreign):
                return f"table {other} names files of it, as a shallow clone does"
        return ""

    async def _foreign(self, table: tuple[str, Version]) -> Sequence[Address]:
        uuid, version = table
        known = self._clones.get(uuid)
        if known and known.seen == (version, None):
            return known.foreign
        found = await self._lake.delta_table(uuid).read()
        if found is None:
            return ()
        # The record of a managed table shows its commits. Those to an external table do not pass the catalog.
        is_external = _has_log(found.value) and found.value.table_type != "MANAGED"
        seen = found.version, await _newest_in_log(self._lake, found.value) if is_external else None
        if known and known.seen == seen:
            return known.foreign
        # Files in its own folder are nobody else's, and would fill the memory.
        state = await read_log(self._lake, found.value, is_foreign) if _has_log(found.value) else EMPTY
        if state is None:  # Its first commit may come without a change of the record.
            return ()
        foreign = tuple(map(address_around, foreign_files(state)))
        self._clones[uuid] = _Clone(seen, foreign)
        return foreign


def _has_log(table: DeltaTable) -> bool:
    """Whether it is a Delta table with files that anybody may need."""
    if table.state in _OVER or table.is_ended:
        return False
    return table.data_source_format == DELTA and bool(table.location) and table.kind == "table"


async def _newest_in_log(lake: Lake, table: DeltaTable) -> tuple[str, str]:
    """The last name in a log, which the next commit replaces, and the version of that object."""
    store, folder = folder_of(lake, f"{table.location}/{LOG_FOLDER}")
    listed = ((one.key.removeprefix(folder), str(one.version)) for one in await list_all(store, folder))
    return max((one for one in listed if one[0][0].isdecimal()), default=("", ""))


async def read_log(
    lake: Lake, table: DeltaTable, is_needed: Callable[[FileAction], bool] = lambda _: True
) -> LogState | None:
    """The state of the log at the newest version, with the files that are needed; None if the table has no log.

    Unavailable if a part of it is missing or too many files are needed, Invalid if it cannot be read: then it is not
    known which files are needed.
    """
    names = await log_names(lake, table)
    if not names:
        return None

    def pick(actions: Iterable[Action]) -> Iterator[Action]:
        for number, action in enumerate(one for one in actions if _is_picked(one, is_needed)):
            _check_number(table, number)
            yield action

    state = EMPTY
    actions: list[Action] = []
    async for part in _parts(lake, table, names, pick):
        actions += part
        if len(actions) >= _ACTIONS_AT_ONCE:
            state, actions = await asyncio.to_thread(folded, state, actions), []
            _check_number(table, _number_of_files(state))
    state = await asyncio.to_thread(folded, state, actions)
    _check_number(table, _number_of_files(state))
    return state


def _is_picked(action: Action, is_needed: Callable[[FileAction], bool]) -> bool:
    files = [one for one in (action.add, action.remove, action.cdc) if one]
    return not files or any(map(is_needed, files))


def _number_of_files(state: LogState) -> int:
    return len(state.live) + len(state.removed) + len(state.changes)


def _check_number(table: DeltaTable, files: int) -> None:
    if files > FILES_MAX:
        limit = f"a run keeps at most {FILES_MAX:,} in memory"
        raise Unavailable(f"table {table.uuid}: its log names at least {files:,} files, and {limit}")


async def _parts(
    lake: Lake, table: DeltaTable, names: Sequence[str], pick: Callable[[Iterable[Action]], Iterable[Action]]
) -> AsyncIterator[Iterable[Action]]:
    """The actions of the newest checkpoint, then those of the commits after it."""
    newest = max(published_versions(names), default=-1)
    last = max(newest, table.last_version) if table.table_type == "MANAGED" else newest
    checkpoint = newest_checkpoint(names)
    first = 0
    if checkpoint:
        first = checkpoint.version + 1
        async for part in read_checkpoint(lake, table, checkpoint, Action, Form(_is_wanted, row_bytes=None), pick):
            yield part
    if last - first > COMMITS_MAX:
        raise Unavailable(f"table {table.uuid}: its log has more than {COMMITS_MAX:,} commits after its checkpoint")
    async for _, some in read_commits(lake, table, range(first, last + 1), Action):
        yield pick(some)


def _is_wanted(path: str) -> bool:
    """Statistics and partition values are large, and not needed."""
    top, _, rest = path.partition(".")
    return top in _COLUMNS and rest.partition(".")[0] in _FIELDS
