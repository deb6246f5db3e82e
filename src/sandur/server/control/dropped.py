"""Handlers that list what was dropped, and bring it back."""

from typing import get_args

import msgspec

from sandur.catalog.identifiers import Kind, Namespace, checked_uuid, parse_full_name, parse_schema_name
from sandur.errors import Invalid
from sandur.operations.tables import undrop as operations
from sandur.server.context import Call, whole_number
from sandur.server.control.principals import answer_with
from sandur.server.http import Answer


class UndropRequest(msgspec.Struct, frozen=True):
    """`uuid` says which one, if the name was dropped more than once or is used again. `new_name` is a full name."""

    uuid: str | None = None
    new_name: str | None = None


async def undrop(call: Call) -> Answer:
    kind, was = _kind(call.value("kind")), parse_full_name(call.value("full_name"))
    body = call.body(UndropRequest, "undrop") if call.http.body else UndropRequest()
    if body.uuid is not None:
        checked_uuid("uuid", body.uuid)
    identifier, uuid = await operations.undrop(
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
    page = await operations.list_dropped(
        call.lake,
        catalog,
        namespace,
        page_token=call.query.get("page_token") or None,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
    )
    return answer_with({"dropped": page.entries, "next_page_token": page.next_token})


def _kind(text: str) -> Kind:
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        if kind == text:
            return kind
    raise Invalid(f"Invalid kind {text[:80]!r}: expected one of {', '.join(kinds)}")
