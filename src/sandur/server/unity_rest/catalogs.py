"""Catalogs over HTTP."""

import msgspec

from sandur.catalog.identifiers import checked_new_name
from sandur.catalog.infos import catalog_info
from sandur.errors import Unsupported
from sandur.operations.containers import catalogs as operations
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.unity.lists import ListRequest, list_catalogs
from sandur.server.http import Answer
from sandur.server.unity_rest.call import DONE, Call, Comment, list_answer, shown


class CreateCatalog(msgspec.Struct, frozen=True):
    name: str
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    storage_root: str | None = None


class UpdateCatalog(msgspec.Struct, frozen=True):
    comment: Comment | None = None
    properties: dict[str, str] | None = None
    new_name: str | None = None


async def create(call: Call) -> Answer:
    body = call.body(CreateCatalog, "create catalog request")
    made = await operations.create_catalog(
        call.lake,
        checked_new_name("catalog", body.name),
        root=body.storage_root or None,
        properties=body.properties or {},
        comment=body.comment,
        request=call.request(),
    )
    return shown(catalog_info(made))


async def list_all(call: Call) -> Answer:
    return list_answer(call, "catalogs", await list_catalogs(call.lake, ListRequest(*call.page)))


async def load(call: Call) -> Answer:
    return shown(catalog_info(await operations.load_catalog(call.lake, call.value("name"))))


async def update(call: Call) -> Answer:
    """An empty map of properties changes nothing: clients that know nothing of them send one."""
    name = call.value("name")
    body = call.body(UpdateCatalog, "update catalog request")
    check_not_renamed("Catalog", name, body.new_name)
    changed = await operations.update_catalog(
        call.lake, name, comment=body.comment, properties=body.properties or None, request=call.request()
    )
    return shown(catalog_info(changed))


async def delete(call: Call) -> Answer:
    force = call.is_set("force")
    await drop_catalog(call.lake, call.value("name"), force=force, request=call.request(f"force={force}"))
    return DONE


def check_not_renamed(what: str, name: str, new_name: str | None) -> None:
    """Catalogs and schemas keep their names: everything in them is kept, and written by engines, under these."""
    if new_name not in {None, "", name}:
        raise Unsupported(f"{what} {name} cannot be renamed to {new_name}: what it holds lies under its name")
