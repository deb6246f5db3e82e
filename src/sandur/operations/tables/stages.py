"""Stages: tables that are validated and wait for the commit that creates them (rules S1–S4)."""

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec
import structlog

from sandur.catalog.identifiers import Format, Identifier
from sandur.catalog.location_claims import Holder
from sandur.catalog.paging import Page, checked_page_size, decode_page_token, encode_page_token
from sandur.catalog.records import Claim, DeltaStage, Request, Stage
from sandur.clock import uuid_v8
from sandur.errors import Busy, SandurError, SwapLost, Unsupported
from sandur.iceberg.table_metadata import TableMetadata, encode_table_metadata
from sandur.operations.access import authorize_metastore, authorize_namespace
from sandur.operations.counters import STAGE_OUTCOMES, Counters
from sandur.operations.idempotency import ClaimLost, claim_for
from sandur.operations.lake import Lake
from sandur.operations.locations.claims import LocationClaims, Refusal
from sandur.operations.locations.placement import (
    holder_of,
    locations_of,
    named_early,
    places_to_claim,
    resolve_placed_namespace,
)
from sandur.operations.tables.documents import LoadedTable
from sandur.operations.tables.drafts import name_taken
from sandur.operations.tables.names import namespace_not_found, resolve_name
from sandur.settings import seconds_of
from sandur.storage.cell import Cell, gather_all, gather_in_batches
from sandur.storage.contract import ABSENT

log = structlog.get_logger()

_STAGES_READ_MAX: Final = 1_000
_READS_AT_ONCE: Final = 64


@dataclass
class Staging:
    """One request to validate a create and keep it as a stage, which no reader sees.

    Only empty directories exist at its location. A location that the client chose is claimed until the stage expires
    (P3). With a key, a retry gets the stage of the first attempt, because the claim pins its uuid. `stage_id` is the id
    that the client chose, empty if it chose none: the same principal, name and id always get the same stage.
    """

    lake: Lake
    identifier: Identifier
    metadata_of: Callable[[str], TableMetadata]
    named: Sequence[str]
    request: Request
    stage_id: str = ""

    def __post_init__(self) -> None:
        self._claim = claim_for(self.lake, self.request, "stage-table")
        self._places = LocationClaims(self.lake)
        self._began_ms = self.lake.clock.now_ms()

    async def run(self) -> LoadedTable:
        if not self.lake.settings.stage_create:
            raise Unsupported("stage-create is disabled (setting stage_create)")
        uuid = self._chosen_uuid() if self.stage_id else self.lake.clock.new_uuid()
        if self.stage_id and (staged := await self._find(uuid)):
            return staged
        try:
            return await self._write(uuid)
        except ClaimLost:  # The namespace was authorized before the claim was taken (A9).
            await self._withdraw()
            return await self._follow(await self._claim.follow())
        except SandurError:
            await self._claim.release()
            await self._withdraw()
            raise

    def _chosen_uuid(self) -> str:
        """The uuid of the table under the client's stage id. Another principal with the same id gets another one."""
        source = self.request.source
        of = [self.lake.layout.root, source.principal_id or source.principal, self.identifier, self.stage_id]
        return uuid_v8(hashlib.sha256(msgspec.json.encode(of)).hexdigest())

    async def _find(self, uuid: str) -> LoadedTable | None:
        """The stage that an earlier request with this stage id made."""
        namespace, stage = await gather_all(
            (resolve_placed_namespace(self.lake, self.identifier.namespace), self._cell(uuid).read())
        )
        if namespace is None or stage is None:
            return None
        missing, namespace_id = namespace_not_found(self.identifier.namespace), namespace.value.id
        await authorize_namespace(self.lake, self.identifier.namespace, missing=missing, namespace_id=namespace_id)
        return staged_table(stage.value)

    def _cell(self, uuid: str) -> Cell[Stage]:
        return self.lake.stage(self.identifier, uuid)

    async def _withdraw(self) -> None:
        await self.lake.background.run("withdraw location claims", self._places.withdraw())

    async def _follow(self, followed: Claim) -> LoadedTable:
        """The stage of the first attempt or, if that attempt did not get so far, one with the same uuid."""
        if stage := await self._cell(followed.uuid).read():
            return staged_table(stage.value)
        if followed.state == "done":  # Committed or expired since; the first answer is still what the client wants.
            await resolve_placed_namespace(self.lake, self.identifier.namespace)
            metadata = encode_table_metadata(self.metadata_of(followed.uuid))
            return LoadedTable(metadata=metadata, table_uuid=followed.uuid, stage_id=self.stage_id or followed.uuid)
        try:
            return await self._write(followed.uuid)
        except ClaimLost:
            raise Busy(f"{self.identifier}: another attempt of this request is staging it") from None

    async def _write(self, uuid: str) -> LoadedTable:
        lake, identifier = self.lake, self.identifier
        early = named_early(lake, identifier, self.named)
        me = holder_of(lake, identifier, uuid, "iceberg", "table", self.request, began_ms=self._began_ms)
        namespace, found, unfree = await gather_all(
            (
                resolve_placed_namespace(lake, identifier.namespace),
                resolve_name(lake, identifier),
                self._places.write(me, early),  # P3
            )
        )
        missing = namespace_not_found(identifier.namespace)
        if namespace:
            await authorize_namespace(lake, identifier.namespace, missing=missing, namespace_id=namespace.value.id)
        refusal: SandurError | None
        if namespace is None:
            refusal = missing
        elif found:
            refusal = name_taken(identifier, found.name.value, "table")
        else:
            unfree = unfree or await self._secure(me, uuid)
            refusal = unfree.error if unfree else None
        if isinstance(refusal, Busy):
            raise refusal
        if refusal:
            await self._claim.done(uuid=uuid, error=refusal)  # G3
            raise refusal
        return await self._keep(uuid, self.metadata_of(uuid))

    async def _secure(self, me: Holder, uuid: str) -> Refusal | None:
        """P3, P4: claim the places that the client chose, then look. Raises Invalid for a reserved folder."""
        places = places_to_claim(self.lake, self.identifier, uuid, locations_of(self.metadata_of(uuid)))
        return await self._places.write(me, self._places.needs(me, places)) or await self._places.look()

    async def _keep(self, uuid: str, metadata: TableMetadata) -> LoadedTable:
        lake, identifier = self.lake, self.identifier
        await self._claim.take(uuid=uuid)
        create_directories(lake, metadata.location)
        body = encode_table_metadata(metadata)
        now_ms = lake.clock.now_ms()
        stage = Stage(
            table_uuid=uuid,
            identifier=identifier,
            location=metadata.location,
            created_ms=now_ms,
            expires_ms=now_ms + seconds_of(lake.settings.stage_ttl) * 1_000,
            metadata=msgspec.Raw(body),
            stage_id=self.stage_id,
            created_by=self.request.source.principal,
            principal_id=self.request.source.principal_id,
        )
        cell = self._cell(uuid)
        if await cell.try_swap(stage, expected=ABSENT):
            lake.feature(Counters).add(STAGE_OUTCOMES, "staged")
        elif earlier := await cell.read():  # Another attempt wrote it, and may have answered with it.
            stage = earlier.value
        await self._claim.done(uuid=uuid, location=metadata.location)
        return staged_table(stage)


def staged_table(stage: Stage) -> LoadedTable:
    """A stage as the answer to the request that made it."""
    return LoadedTable(bytes(stage.metadata), stage.table_uuid, stage_id=stage.stage_id or stage.table_uuid)


async def finish_stage(lake: Lake, identifier: Identifier, metadata: TableMetadata, *, location: str) -> None:
    """Delete the stage of a table that was committed, and log which commit it became.

    If this is lost, a janitor deletes the stage when it expires. A commit needs no stage, so there may be none (S1).
    """
    cell = lake.stage(identifier, metadata.table_uuid or "")
    stage = await cell.read()
    if stage is None:
        return
    lake.feature(Counters).add(STAGE_OUTCOMES, "finalized")
    log.info(
        "stage finalized",
        stage_id=stage.value.stage_id or stage.value.table_uuid,
        table=str(identifier),
        table_uuid=stage.value.table_uuid,
        metadata_location=location,
        snapshots=len(metadata.snapshots),
        is_at_staged_location=metadata.location == stage.value.location,
        waited_ms=lake.clock.now_ms() - stage.value.created_ms,
    )
    with contextlib.suppress(SwapLost):
        await cell.empty(expected=stage.version)


async def note_failed_finalize(lake: Lake, identifier: Identifier, uuid: str, error: SandurError) -> None:
    """Count and log a commit that did not make a staged table. The stage stays: the client may try again."""
    if stage := await lake.stage(identifier, uuid).read():
        lake.feature(Counters).add(STAGE_OUTCOMES, "failed")
        stage_id = stage.value.stage_id or stage.value.table_uuid
        reason = f"{type(error).__name__}: {error}"
        log.warning("stage not finalized", stage_id=stage_id, table=str(identifier), reason=reason)


class StageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stage for administrators. Times are milliseconds since 1970."""

    stage_id: str
    format: Format
    catalog_name: str
    namespace: tuple[str, ...]
    name: str
    table_uuid: str
    location: str
    created_at: int
    expires_at: int
    created_by: str = ""


async def list_stages(lake: Lake, *, page_token: str | None = None, page_size: int | None = None) -> Page[StageInfo]:
    """The stages of both formats that wait for their commit, sorted by format and name, for administrators."""
    what, limit = ("stages", lake.layout.root), min(checked_page_size(page_size), _STAGES_READ_MAX)
    after = decode_page_token(page_token, what) if page_token else ""
    first, second = (
        lake.store.list(folder, after=after or None, limit=limit + 1)
        for folder in sorted((lake.layout.stages_folder(), lake.layout.delta_stages_folder()))
    )
    _, one, other = await gather_all((authorize_metastore(lake), first, second))
    found = [*one, *other]
    read = await gather_in_batches([one.key for one in found[:limit]], partial(_info, lake), at_once=_READS_AT_ONCE)
    token = encode_page_token(what, found[limit - 1].key) if len(found) > limit else None
    return Page([info for info in read if info], token)


async def _info(lake: Lake, key: str) -> StageInfo | None:
    """The stage under a key; None if it is gone by now."""
    if key.startswith(lake.layout.delta_stages_folder()):
        delta = await lake.delta_stage(lake.layout.parse_delta_stage(key)).read()
        return _described(delta.value, "delta", delta.value.uuid, delta.value.uuid) if delta else None
    iceberg = await lake.stage(*lake.layout.parse_stage(key)).read()
    if iceberg is None:
        return None
    stage = iceberg.value
    return _described(stage, "iceberg", stage.table_uuid, stage.stage_id or stage.table_uuid)


def _described(stage: Stage | DeltaStage, table_format: Format, uuid: str, stage_id: str) -> StageInfo:
    catalog, levels, name = stage.identifier
    return StageInfo(
        stage_id=stage_id,
        format=table_format,
        catalog_name=catalog,
        namespace=levels,
        name=name,
        table_uuid=uuid,
        location=stage.location,
        created_at=stage.created_ms,
        expires_at=stage.expires_ms,
        created_by=stage.created_by,
    )


def create_directories(lake: Lake, location: str) -> None:
    """Create the directories of a table on a file system: some engines write only into directories that exist."""
    lake.locations.make_folders(*_directories(location))


def remove_empty_directories(lake: Lake, location: str) -> None:
    """Remove the directories of a table that was never created. A table with metadata was created."""
    metadata, data = _directories(location)
    if lake.locations.remove_empty_folder(metadata):
        lake.locations.remove_empty_folder(data)


def _directories(location: str) -> tuple[str, str]:
    return f"{location}/metadata", f"{location}/data"
