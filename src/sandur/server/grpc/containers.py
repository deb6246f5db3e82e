"""Handlers of the services Catalogs, Namespaces and Directory."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from google.protobuf.message import Message

from sandur.catalog.identifiers import Format, Kind, Namespace, checked_new_name
from sandur.catalog.infos import CatalogInfo, catalog_info
from sandur.catalog.paging import checked_page_size
from sandur.operations import directory
from sandur.operations.containers import catalogs, drop, namespaces
from sandur.operations.unity import lists
from sandur.server.context import Call
from sandur.server.grpc.messages import (
    BATCH_MAX,
    Form,
    InvalidField,
    catalog_of,
    form_of,
    identifier_of,
    masked_paths,
    name_message,
    namespace_message,
    namespace_of,
    page_of,
    path_of_namespace,
)
from sandur.v1 import catalogs_pb2 as v1
from sandur.v1.common_pb2 import Name

_PROPERTIES: Final = "properties."
_CATALOG_FIELDS: Final = ("comment", "properties")
_KINDS: Final[Mapping[Kind, v1.ObjectKind]] = {
    "table": v1.OBJECT_KIND_TABLE,
    "view": v1.OBJECT_KIND_VIEW,
    "volume": v1.OBJECT_KIND_VOLUME,
    "function": v1.OBJECT_KIND_FUNCTION,
    "model": v1.OBJECT_KIND_MODEL,
}
_FORMATS: Final[Mapping[Format, v1.ObjectFormat]] = {
    "iceberg": v1.OBJECT_FORMAT_ICEBERG,
    "delta": v1.OBJECT_FORMAT_DELTA,
    "unity": v1.OBJECT_FORMAT_UNITY,
}
_decode_info: Final = msgspec.json.Decoder(CatalogInfo).decode


def no_names(_sent: Message, _default_catalog: str) -> Form:
    """The form of a request that names nothing in its path."""
    return Form()


def by_catalog(sent: v1.GetCatalogRequest, _default_catalog: str) -> Form:
    return form_of((("name", sent.name),))


def creation_of_catalog(sent: v1.CreateCatalogRequest, _default_catalog: str) -> Form:
    body = {"name": sent.name, "comment": sent.comment, "properties": dict(sent.properties)}
    return form_of((), body={**body, "storage_root": sent.storage_root})


def change_of_catalog(sent: v1.UpdateCatalogRequest, _default_catalog: str) -> Form:
    paths = sorted(set(sent.update_mask.paths))
    values: dict[str, object] = {"comment": sent.comment, "properties": dict(sent.properties)}
    return form_of((("name", sent.name),), body={path: values.get(path) for path in paths})


def deletion_of_catalog(sent: v1.DeleteCatalogRequest, _default_catalog: str) -> Form:
    return form_of((("name", sent.name),), query={"force": "true"} if sent.force else {})


def below_parent(sent: v1.ListNamespacesRequest, default_catalog: str) -> Form:
    return form_of(path_of_namespace(sent.parent, default_catalog)[: 1 + bool(sent.parent.levels)])


def by_namespace(sent: Message, default_catalog: str) -> Form:
    return form_of(path_of_namespace(sent.name, default_catalog))


def creation_of_namespace(sent: v1.CreateNamespaceRequest, default_catalog: str) -> Form:
    body = {"namespace": list(sent.name.levels), "properties": dict(sent.properties)}
    return form_of((("prefix", sent.name.catalog or default_catalog),), body=body)


def change_of_namespace(sent: v1.UpdateNamespaceRequest, default_catalog: str) -> Form:
    keys = [path.removeprefix(_PROPERTIES) for path in dict.fromkeys(sent.update_mask.paths)]
    updates = {key: sent.properties[key] for key in keys if key in sent.properties}
    body = {"removals": [key for key in keys if key not in updates], "updates": updates}
    return form_of(path_of_namespace(sent.name, default_catalog), body=body)


def _named_catalog(sent: str) -> str:
    if not sent:
        raise InvalidField("name", "it is empty")
    return sent


async def list_catalogs(call: Call, sent: v1.ListCatalogsRequest) -> v1.ListCatalogsResponse:
    page = page_of(sent.page)
    request = lists.ListRequest(page.token or None, checked_page_size(page.size))
    found = await lists.list_catalogs(call.lake, request)
    messages = [_catalog_message(_decode_info(info)) for info in found.infos]
    return v1.ListCatalogsResponse(catalogs=messages, next_page_token=found.next_token or "")


async def get_catalog(call: Call, sent: v1.GetCatalogRequest) -> v1.Catalog:
    found = await catalogs.load_allowed_catalog(call.lake, _named_catalog(sent.name))
    return _catalog_message(catalog_info(found))


async def create_catalog(call: Call, sent: v1.CreateCatalogRequest) -> v1.Catalog:
    made = await catalogs.create_catalog(
        call.lake,
        checked_new_name("catalog", sent.name),
        root=sent.storage_root or None,
        properties=dict(sent.properties),
        comment=sent.comment or None,
        request=call.request(),
    )
    return _catalog_message(catalog_info(made))


async def update_catalog(call: Call, sent: v1.UpdateCatalogRequest) -> v1.Catalog:
    name = _named_catalog(sent.name)
    paths = masked_paths(
        sent.update_mask, known=lambda path: path in _CATALOG_FIELDS, expected=" or ".join(_CATALOG_FIELDS)
    )
    changed = await catalogs.update_catalog(
        call.lake,
        name,
        comment=sent.comment if "comment" in paths else None,
        properties=dict(sent.properties) if "properties" in paths else None,
        request=call.request(),
    )
    return _catalog_message(catalog_info(changed))


async def delete_catalog(call: Call, sent: v1.DeleteCatalogRequest) -> v1.DeleteCatalogResponse:
    name = _named_catalog(sent.name)
    request = call.request(f"force={sent.force}")
    await drop.drop_catalog(call.lake, name, force=sent.force, request=request)
    return v1.DeleteCatalogResponse()


def _catalog_message(info: CatalogInfo) -> v1.Catalog:
    return v1.Catalog(
        name=info.name,
        id=info.id,
        comment=info.comment,
        properties=info.properties,
        storage_root=info.storage_root,
        owner=info.owner,
        created_at_ms=info.created_at,
        created_by=info.created_by,
        updated_at_ms=info.updated_at,
        updated_by=info.updated_by,
    )


async def list_namespaces(call: Call, sent: v1.ListNamespacesRequest) -> v1.ListNamespacesResponse:
    page, parent = page_of(sent.page), sent.parent
    found = await namespaces.list_namespaces(
        call.lake,
        catalog_of(call, parent.catalog),
        parent=namespace_of(call, parent, "parent") if parent.levels else None,
        page_token=page.token,
        page_size=page.size,
    )
    messages = [namespace_message(namespace) for namespace in found.entries]
    return v1.ListNamespacesResponse(namespaces=messages, next_page_token=found.next_token or "")


async def get_namespace(call: Call, sent: v1.GetNamespaceRequest) -> v1.Namespace:
    found = await namespaces.load_namespace(call.lake, namespace_of(call, sent.name, "name"))
    return _namespace(found.namespace, found.properties)


async def create_namespace(call: Call, sent: v1.CreateNamespaceRequest) -> v1.Namespace:
    namespace = namespace_of(call, sent.name, "name")
    made = await namespaces.create_namespace(call.lake, namespace, dict(sent.properties), call.request())
    return _namespace(made.namespace, made.properties)


async def update_namespace(call: Call, sent: v1.UpdateNamespaceRequest) -> v1.UpdateNamespaceResponse:
    paths = masked_paths(
        sent.update_mask,
        known=lambda path: path.startswith(_PROPERTIES) and path != _PROPERTIES,
        expected="properties.KEY",
    )
    keys = [path.removeprefix(_PROPERTIES) for path in paths]
    if unmasked := sorted(set(sent.properties) - set(keys)):
        raise InvalidField("update_mask", f"it does not name properties.{unmasked[0]}, which has a value")
    changed = await namespaces.update_namespace_properties(
        call.lake,
        namespace_of(call, sent.name, "name"),
        removals=[key for key in keys if key not in sent.properties],
        updates={key: sent.properties[key] for key in keys if key in sent.properties},
        request=call.request(),
    )
    return v1.UpdateNamespaceResponse(updated=changed.updated, removed=changed.removed, missing=changed.missing)


async def delete_namespace(call: Call, sent: v1.DeleteNamespaceRequest) -> v1.DeleteNamespaceResponse:
    await drop.drop_namespace(call.lake, namespace_of(call, sent.name, "name"), call.request())
    return v1.DeleteNamespaceResponse()


def _namespace(namespace: Namespace, properties: Mapping[str, str]) -> v1.Namespace:
    return v1.Namespace(name=namespace_message(namespace), properties=properties)


async def resolve_names(call: Call, sent: v1.ResolveRequest) -> v1.ResolveResponse:
    _check_batch("names", sent.names)
    wanted = [identifier_of(call, name, f"names[{place}]") for place, name in enumerate(sent.names)]
    found = await directory.resolve_names(call.lake, wanted)
    missing = [v1.DirectoryEntry(name=name_message(identifier)) for identifier in wanted]
    return v1.ResolveResponse(entries=_entries(found, missing))


async def look_up_ids(call: Call, sent: v1.LookupRequest) -> v1.LookupResponse:
    _check_batch("uuids", sent.uuids)
    found = await directory.look_up_ids(call.lake, sent.uuids)
    missing = [v1.DirectoryEntry(uuid=uuid) for uuid in sent.uuids]
    return v1.LookupResponse(entries=_entries(found, missing))


def _check_batch(field: str, sent: Sequence[str | Name]) -> None:
    if len(sent) > BATCH_MAX:
        raise InvalidField(field, f"{len(sent)} entries, at most {BATCH_MAX} are allowed; send several requests")


def _entries(
    found: Sequence[directory.DirectoryEntry | None], missing: Sequence[v1.DirectoryEntry]
) -> list[v1.DirectoryEntry]:
    return [_entry(one) if one else absent for one, absent in zip(found, missing, strict=True)]


def _entry(found: directory.DirectoryEntry) -> v1.DirectoryEntry:
    return v1.DirectoryEntry(
        name=name_message(found.identifier),
        uuid=found.uuid,
        kind=_KINDS[found.kind],
        format=_FORMATS[found.format],
        found=True,
    )
