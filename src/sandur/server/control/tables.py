"""Handlers for tables that are staged or dropped, and for earlier states of Delta tables."""

from typing import Annotated, get_args

import msgspec

from sandur.catalog.identifiers import Kind, Namespace, checked_uuid, parse_full_name, parse_schema_name
from sandur.errors import BadRequest, Invalid
from sandur.operations.delta import restore
from sandur.operations.tables import stages, undrop
from sandur.server.context import Call, whole_number
from sandur.server.control.browse import identifier_of
from sandur.server.control.principals import answer_with
from sandur.server.http import Answer

Version = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


async def list_stages(call: Call) -> Answer:
    size = call.query.get("page_size")
    page = await stages.list_stages(
        call.lake,
        page_token=call.query.get("page_token") or None,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
    )
    return answer_with({"stages": page.entries, "next_page_token": page.next_token})


class UndropRequest(msgspec.Struct, frozen=True):
    """`uuid` says which one, if the name was dropped more than once or is used again. `new_name` is a full name."""

    uuid: str | None = None
    new_name: str | None = None


async def undrop_object(call: Call) -> Answer:
    kind, was = _kind(call.value("kind")), parse_full_name(call.value("full_name"))
    body = call.body(UndropRequest, "undrop") if call.http.body else UndropRequest()
    if body.uuid is not None:
        checked_uuid("uuid", body.uuid)
    identifier, uuid = await undrop.undrop(
        call.lake,
        was,
        kind=kind,
        target=parse_full_name(body.new_name) if body.new_name else None,
        uuid=body.uuid,
        request=call.request(),
    )
    return answer_with({"kind": kind, "full_name": f"{identifier.catalog}.{identifier}", "uuid": uuid})


async def list_dropped(call: Call) -> Answer:
    size, catalog, levels = call.query.get("page_size"), call.query.get("catalog"), call.query.get("namespace")
    if not catalog:
        raise Invalid("The parameter catalog is required: the name of a catalog")
    namespace: Namespace | None = parse_schema_name(f"{catalog}.{levels}") if levels else None
    page = await undrop.list_dropped(
        call.lake,
        catalog,
        namespace,
        page_token=call.query.get("page_token") or None,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
    )
    return answer_with({"dropped": page.entries, "next_page_token": page.next_token})


class RestoreRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The version of a Delta table to restore; Iceberg tables move their branch `main` instead.

    `expected_version` is the version that the table must still have: the one that the preview showed.
    """

    version: Version
    expected_version: Version


async def preview_restore(call: Call) -> Answer:
    text = call.query.get("version")
    if not text:
        raise BadRequest("The parameter version is required: a version of the table")
    version = whole_number(text, "version", at_least=0)
    return answer_with(await restore.preview_restore(call.lake, identifier_of(call), version))


async def restore_table(call: Call) -> Answer:
    body = call.body(RestoreRequest, "restore request")
    restored = await restore.restore_table(
        call.lake, identifier_of(call), body.version, expected=body.expected_version, request=call.request()
    )
    return answer_with(restored)


def _kind(text: str) -> Kind:
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        if kind == text:
            return kind
    raise Invalid(f"Invalid kind {text[:80]!r}: expected one of {', '.join(kinds)}")
