"""Views over HTTP."""

from sandur.errors import NotFound
from sandur.iceberg.view_commit import decode_create_view, decode_register_view, decode_view_commit
from sandur.operations import register as registering
from sandur.operations import views as operations
from sandur.operations.drop_table import drop_name
from sandur.server.iceberg_rest.bodies import Loaded, loaded_body
from sandur.server.iceberg_rest.call import Call
from sandur.server.iceberg_rest.tables import PRIVATE, list_of_kind, rename_of_kind
from sandur.server.messages import NO_CONTENT, Answer, json_answer


async def list_views(call: Call) -> Answer:
    return await list_of_kind(call, "view")


async def create(call: Call) -> Answer:
    body = decode_create_view(call.http.body)
    return _shown(await operations.create_view(call.lake, call.namespace, body, call.request()))


async def load(call: Call) -> Answer:
    return _shown(await operations.load_view(call.lake, call.identifier("view")))


async def exists(call: Call) -> Answer:
    identifier = call.identifier("view")
    if not await operations.view_exists(call.lake, identifier):
        raise NotFound(f"View does not exist: {identifier}", subject="view")
    return NO_CONTENT


async def replace(call: Call) -> Answer:
    body = decode_view_commit(call.http.body)
    return _shown(await operations.commit_view(call.lake, call.identifier("view"), body, call.request()))


async def drop(call: Call) -> Answer:
    await drop_name(call.lake, call.identifier("view"), kind="view", purge=False, request=call.request())
    return NO_CONTENT


async def rename_view(call: Call) -> Answer:
    return await rename_of_kind(call, "view")


async def register_view(call: Call) -> Answer:
    body = decode_register_view(call.http.body)
    loaded = await registering.register_view(
        call.lake, call.namespace, body.name, body.metadata_location, request=call.request()
    )
    return _shown(loaded)


def _shown(loaded: Loaded) -> Answer:
    return json_answer(loaded_body(loaded, {}), *PRIVATE)
