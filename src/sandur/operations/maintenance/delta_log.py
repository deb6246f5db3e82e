"""The files of a Delta log that have expired (O12): no version needs them that was current within the log's retention.

A version is read from the newest checkpoint before it. So all files before a complete checkpoint may go, once its own
version is as old as the retention; and the sidecars that no checkpoint names which stays.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.maintenance.orphans import SIDECARS_FOLDER
from sandur.catalog.records import DeltaTable
from sandur.delta.log_state import Action, LogState, Sidecar, log_retention_ms
from sandur.delta.protocol import FEATURES
from sandur.errors import Invalid
from sandur.operations.delta.log_files import (
    Checkpoint,
    Form,
    is_checkpoint,
    newest_checkpoint,
    published_versions,
    read_checkpoint,
    read_checkpoint_file,
)
from sandur.operations.delta.publishing import LOG_FOLDER
from sandur.operations.lake import Lake
from sandur.operations.maintenance.orphans import folder_of
from sandur.storage.cell import gather_in_batches
from sandur.storage.contract import list_all

COMPARED_MAX: Final = 1_000
"""The most checkpoints that are read to learn which sidecars they name."""
COMPARED_BYTES_MAX: Final = 64 << 20
"""The most bytes of these checkpoints together."""

_AT_ONCE: Final = 16
_DAY_MS: Final = 86_400_000
_READ: Final = ("protocol.minReaderVersion", "metaData.configuration", "sidecar.path")
_NUMBER: Final = re.compile(r"\d{20}(?=\.)")


class LogFile(NamedTuple):
    """A file below the folder of a log."""

    name: str
    size_bytes: int
    modified_ms: int


class _Naming(msgspec.Struct, frozen=True):
    """A row of a checkpoint, as far as it names sidecars."""

    sidecar: Sidecar | None = None


async def expired_files(lake: Lake, table: DeltaTable, state: LogState, *, now_ms: int) -> frozenset[str]:
    """The locations of the log files of a managed table that may go; `state` is its state at the newest version.

    Unavailable or Invalid if a checkpoint cannot be read: then it is not known which files are needed.
    """
    kept_ms = [log_retention_ms(properties) for properties in (table.properties, state.properties)]
    # A feature that is not known may have rules of its own for the log, as `checkpointProtection` does.
    if None in kept_ms or not state.features <= FEATURES:
        return frozenset()
    since_ms = now_ms - max(one for one in kept_ms if one is not None)
    files = await _list_log(lake, table)
    checkpoint = oldest_needed(files, current_ms=since_ms - since_ms % _DAY_MS)
    if checkpoint is None:
        return frozenset()
    await _check(lake, table, checkpoint)
    names = [one.name for one in files if _version(one) < checkpoint.version]
    names += await _unnamed_sidecars(lake, table, files, checkpoint.version)
    return frozenset(f"{table.location}/{LOG_FOLDER}/{name}" for name in names)


def oldest_needed(files: Sequence[LogFile], *, current_ms: int) -> Checkpoint | None:
    """The checkpoint from which on the log is needed to read every version that was current at a time, or later.

    None if it is needed from its first version on.
    """
    old = published_versions([one.name for one in files if 0 < one.modified_ms <= current_ms])
    return newest_checkpoint([one.name for one in files], upto=max(old)) if old else None


def _version(file: LogFile) -> float:
    """The first version in the name of a file; infinite if it has none."""
    found = _NUMBER.match(file.name)
    return int(found[0]) if found else float("inf")


async def _list_log(lake: Lake, table: DeltaTable) -> Sequence[LogFile]:
    store, folder = folder_of(lake, f"{table.location}/{LOG_FOLDER}")
    listed = await list_all(store, folder)
    return [LogFile(one.key.removeprefix(folder), one.size_bytes, one.modified_ms) for one in listed]


async def _check(lake: Lake, table: DeltaTable, checkpoint: Checkpoint) -> None:
    """Raise Invalid unless the checkpoint can be read, and says what kind of table it is of."""
    has_protocol = has_metadata = False

    def pick(actions: Iterable[Action]) -> Iterator[Action]:
        nonlocal has_protocol, has_metadata
        for action in actions:
            has_protocol, has_metadata = has_protocol or bool(action.protocol), has_metadata or bool(action.metadata)
            if action.sidecar:
                yield action

    async for _ in read_checkpoint(lake, table, checkpoint, Action, _FORM, pick):
        pass
    if not (has_protocol and has_metadata):
        raise Invalid(f"table {table.uuid}: the checkpoint of version {checkpoint.version} is not complete")


async def _unnamed_sidecars(lake: Lake, table: DeltaTable, files: Sequence[LogFile], first: int) -> list[str]:
    """The sidecars that no checkpoint from a version on names; none if these are too many to read."""
    sidecars = [one.name for one in files if one.name.startswith(f"{SIDECARS_FOLDER}/")]
    staying = [one for one in files if is_checkpoint(one.name) and _version(one) >= first]
    if not sidecars or len(staying) > COMPARED_MAX or sum(one.size_bytes for one in staying) > COMPARED_BYTES_MAX:
        return []

    async def named(file: LogFile) -> Sequence[str]:
        location = f"{table.location}/{LOG_FOLDER}/{file.name}"
        rows = await read_checkpoint_file(lake, location, _Naming, _FORM, _with_sidecar)
        return [one.sidecar.path.rpartition("/")[2] for one in rows if one.sidecar]

    found = await gather_in_batches(staying, named, at_once=_AT_ONCE)
    kept = {name for names in found for name in names}
    return [name for name in sidecars if name.removeprefix(f"{SIDECARS_FOLDER}/") not in kept]


def _with_sidecar(rows: Iterable[_Naming]) -> Iterator[_Naming]:
    return (one for one in rows if one.sidecar)


def _is_read(path: str) -> bool:
    return path.startswith(_READ)


_FORM: Final = Form(_is_read, row_bytes=None)
