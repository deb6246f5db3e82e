"""Handlers for namespaces."""

import msgspec

from sandur.catalog.identifiers import Namespace
from sandur.errors import NotFound
from sandur.operations.containers import drop
from sandur.operations.containers import namespaces as operations
from sandur.server.context import Call
from sandur.server.http import NO_CONTENT, Answer, decode_levels, json_answer
from sandur.server.iceberg_rest.tables import SEPARATOR, catalog_of, encode, namespace_of, page_of


class CreateNamespaceBody(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    properties: dict[str, str] | None = None


class UpdatePropertiesBody(msgspec.Struct, frozen=True):
    removals: tuple[str, ...] | None = None
    updates: dict[str, str] | None = None


async def list_namespaces(call: Call) -> Answer:
    page = page_of(call)
    found = await operations.list_namespaces(
        call.lake, catalog_of(call), parent=_parent(call), page_token=page.token, page_size=page.size
    )
    levels = [namespace.levels for namespace in found.entries]
    return json_answer(encode({"namespaces": levels, "next-page-token": found.next_token}))


async def create_namespace(call: Call) -> Answer:
    body = call.body(CreateNamespaceBody, "create namespace request")
    namespace = Namespace(catalog_of(call), body.namespace)
    loaded = await operations.create_namespace(call.lake, namespace, body.properties or {}, call.request())
    return _answer(loaded.namespace, loaded.properties)


async def load_namespace(call: Call) -> Answer:
    loaded = await operations.load_namespace(call.lake, namespace_of(call))
    return _answer(loaded.namespace, loaded.properties)


async def namespace_exists(call: Call) -> Answer:
    if not await operations.namespace_exists(call.lake, namespace_of(call)):
        raise NotFound(f"Namespace does not exist: {namespace_of(call)}", subject="namespace")
    return NO_CONTENT


async def drop_namespace(call: Call) -> Answer:
    await drop.drop_namespace(call.lake, namespace_of(call), call.request())
    return NO_CONTENT


async def update_properties(call: Call) -> Answer:
    body = call.body(UpdatePropertiesBody, "update namespace properties request")
    changed = await operations.update_namespace_properties(
        call.lake,
        namespace_of(call),
        removals=body.removals or (),
        updates=body.updates or {},
        request=call.request(),
    )
    answer = {"updated": list(changed.updated), "removed": list(changed.removed), "missing": list(changed.missing)}
    return json_answer(encode(answer))


def _answer(namespace: Namespace, properties: object) -> Answer:
    return json_answer(encode({"namespace": namespace.levels, "properties": properties}))


def _parent(call: Call) -> Namespace | None:
    parent = call.query.get("parent")
    if not parent:
        return None
    is_pyiceberg = (call.http.header(b"user-agent") or "").startswith("PyIceberg")
    return Namespace(catalog_of(call), parent_levels(parent, is_encoded_twice=is_pyiceberg))


def parent_levels(parent: str, *, is_encoded_twice: bool) -> tuple[str, ...]:
    """The levels of the query parameter `parent`, which has been decoded once.

    Java joins plain levels with 0x1F. PyIceberg joins encoded levels, and the result is encoded again.
    """
    if is_encoded_twice or ("\x1f" not in parent and SEPARATOR in parent.upper()):
        return decode_levels(parent.encode())
    return tuple(parent.split("\x1f"))
