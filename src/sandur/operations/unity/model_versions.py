"""Versions of registered models: numbered by their model, one record each."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier
from sandur.catalog.locations import check_length
from sandur.catalog.paging import decode_page_token, encode_page_token
from sandur.catalog.records import ModelVersion, Request, Securable
from sandur.errors import Conflict, Invalid, NotFound
from sandur.operations.containers.records import RecordChange
from sandur.operations.events import version_subject
from sandur.operations.idempotency import claim_for
from sandur.operations.lake import Lake
from sandur.operations.unity.lists import ListRequest
from sandur.operations.unity.securables import drop_securable, load_securable, securable_not_found
from sandur.storage.cell import Cell, gather_all

READS_AT_ONCE: Final = 32


class NewVersion(NamedTuple):
    """The version that a client wants to create."""

    source: str
    run_id: str | None
    comment: str | None


class Versions(NamedTuple):
    """One page of the versions of a model, oldest first."""

    versions: list[ModelVersion]
    next_token: str | None


async def create_version(lake: Lake, model: Identifier, wanted: NewVersion, request: Request) -> ModelVersion:
    """Create the next version of a model.

    The number is taken first, then the version is written. After a crash in between the number stays unused, unless a
    retry with the same key continues with it.
    """
    check_length("source", wanted.source)
    reserved = await _reserve_number(lake, model, request)
    now_ms, principal = lake.clock.now_ms(), request.source.principal
    version_id = lake.clock.new_uuid()
    version = ModelVersion(
        version=reserved.last_version,
        id=version_id,
        source=wanted.source,
        run_id=wanted.run_id,
        location=f"{reserved.location}/versions/{version_id}",
        comment=wanted.comment,
        created_ms=now_ms,
        created_by=principal,
        changed_ms=now_ms,
        changed_by=principal,
    )

    def decide(found: ModelVersion | None) -> ModelVersion:
        if found is not None:
            raise Invalid(f"Version {found.version} of model {model} was created by another request")
        return version

    cell, subject = _cell(lake, reserved, version.version), partial(version_subject, model)
    return await RecordChange(lake, cell, request, "create-model-version", decide, subject=subject).run()


async def load_version(lake: Lake, model: Identifier, number: int, *, situation: str = "") -> ModelVersion:
    record = await load_securable(lake, model, "model", situation=situation)
    found = await _cell(lake, record, number).read()
    if lake.access:  # A2: the right must still hold after the version was read.
        await load_securable(lake, model, "model", situation=situation)
    if found is None or found.value.state == "dropped":
        raise _version_not_found(model, number)
    return found.value


async def list_versions(lake: Lake, model: Identifier, page: ListRequest) -> Versions:
    """List the versions after the token, at most `size`."""
    record = await load_securable(lake, model, "model")
    subject = (lake.layout.root, "model_versions", record.uuid)
    last = decode_page_token(page.token, subject) if page.token else ""
    numbered = (lake.layout.model_version(record.uuid, number) for number in range(1, record.last_version + 1))
    keys = [key for key in numbered if key > last]
    versions: list[ModelVersion] = []
    for start in range(0, len(keys), READS_AT_ONCE):
        some = keys[start : start + READS_AT_ONCE]
        found = await gather_all(_cell_at(lake, key).read() for key in some)
        for key, held in zip(some, found, strict=True):
            if page.size is not None and len(versions) == page.size:
                return Versions(versions, encode_page_token(subject, last))
            if held and held.value.state == "live":
                versions.append(held.value)
            last = key
    return Versions(versions, None)


async def update_version(
    lake: Lake, model: Identifier, number: int, *, comment: str | None, request: Request
) -> ModelVersion:
    fields = {} if comment is None else {"comment": comment}
    return await _change(lake, model, number, "update-model-version", partial(replace, **fields), request)


async def finalize_version(lake: Lake, model: Identifier, number: int, request: Request) -> ModelVersion:
    """Mark a version as ready: all of its files are written. Invalid unless it is pending."""

    def changed(found: ModelVersion) -> ModelVersion:
        if found.status != "PENDING_REGISTRATION":
            raise Invalid(f"Version {number} of model {model} cannot be finalized: it is {found.status}, not pending")
        return replace(found, status="READY")

    return await _change(lake, model, number, "finalize-model-version", changed, request)


async def drop_version(lake: Lake, model: Identifier, number: int, request: Request) -> None:
    await _change(lake, model, number, "drop-model-version", lambda found: replace(found, state="dropped"), request)


async def drop_model(lake: Lake, model: Identifier, *, force: bool, request: Request) -> None:
    """Drop a model; Conflict if it has versions, without `force`. A version created meanwhile is dropped too.

    The versions stay with the record of the model, which an undrop brings back; its janitor deletes both.
    """
    # An earlier attempt of this request has found no versions: the name may belong to another model by now.
    if not force and await claim_for(lake, request, "drop-model").read() is None:
        first = await list_versions(lake, model, ListRequest(None, 1))
        if first.versions:
            version = first.versions[0].version
            raise Conflict(f"Model {model} has versions, the first is {version}; force=true deletes them too")
    await drop_securable(lake, model, "model", request)


async def _reserve_number(lake: Lake, model: Identifier, request: Request) -> Securable:
    """Take the next version number of the model. It is no event: the creation of the version is one."""
    record = await load_securable(lake, model, "model")

    def decide(found: Securable | None) -> Securable:
        if found is None or found.state in {"dropped", "killed"}:
            raise securable_not_found(model, "model")
        return replace(found, state="live", last_version=found.last_version + 1)

    return await RecordChange(
        lake, lake.securable(record.uuid), request, "reserve-model-version", decide, authorize=_authorize(lake, model)
    ).run()


def _authorize(lake: Lake, model: Identifier) -> Callable[[object], Awaitable[None]]:
    """A6: checks what the route declares on the model, by reads that begin after the record to change was read."""

    async def authorize(_record: object) -> None:
        if lake.access:
            await load_securable(lake, model, "model")

    return authorize


async def _change(
    lake: Lake,
    model: Identifier,
    number: int,
    operation: str,
    change: Callable[[ModelVersion], ModelVersion],
    request: Request,
) -> ModelVersion:
    record = await load_securable(lake, model, "model")

    def decide(found: ModelVersion | None) -> ModelVersion:
        if found is None or found.state == "dropped":
            raise _version_not_found(model, number)
        changed = change(found)
        if changed == found:
            return found
        return replace(changed, changed_ms=lake.clock.now_ms(), changed_by=request.source.principal)

    return await RecordChange(
        lake,
        _cell(lake, record, number),
        request,
        operation,
        decide,
        authorize=_authorize(lake, model),
        subject=partial(version_subject, model),
    ).run()


def _cell(lake: Lake, record: Securable, number: int) -> Cell[ModelVersion]:
    return _cell_at(lake, lake.layout.model_version(record.uuid, number))


def _cell_at(lake: Lake, key: str) -> Cell[ModelVersion]:
    return lake.uncached(key, ModelVersion)


def _version_not_found(model: Identifier, number: int) -> NotFound:
    return NotFound(f"Version {number} of model {model} does not exist", subject="model version")
