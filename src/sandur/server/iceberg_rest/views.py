"""Handlers for views and functions."""

from functools import partial

from sandur.catalog.records import Securable
from sandur.errors import NotFound
from sandur.iceberg.view_commit import decode_create_view, decode_register_view, decode_view_commit
from sandur.operations.access import resolve_authorized
from sandur.operations.containers.namespaces import check_namespace_visible
from sandur.operations.index.lists import list_names
from sandur.operations.tables import register as registration
from sandur.operations.tables import views as operations
from sandur.operations.tables.drop import drop_name
from sandur.operations.unity.functions import function_metadata
from sandur.server.context import Call
from sandur.server.http import NO_CONTENT, Answer, json_answer
from sandur.server.iceberg_rest.tables import (
    PRIVATE,
    Loaded,
    encode,
    identifier_of,
    list_of_kind,
    loaded_body,
    namespace_of,
    page_of,
    rename_of_kind,
)

list_views = partial(list_of_kind, kind="view")
rename_view = partial(rename_of_kind, kind="view")


async def create(call: Call) -> Answer:
    body = decode_create_view(call.http.body)
    return _answer(await operations.create_view(call.lake, namespace_of(call), body, call.request()))


async def load(call: Call) -> Answer:
    return _answer(await operations.load_view(call.lake, identifier_of(call, "view")))


async def exists(call: Call) -> Answer:
    identifier = identifier_of(call, "view")
    if not await operations.view_exists(call.lake, identifier):
        raise NotFound(f"View does not exist: {identifier}", subject="view")
    return NO_CONTENT


async def replace(call: Call) -> Answer:
    body = decode_view_commit(call.http.body)
    return _answer(await operations.commit_view(call.lake, identifier_of(call, "view"), body, call.request()))


async def drop(call: Call) -> Answer:
    await drop_name(call.lake, identifier_of(call, "view"), kind="view", purge=False, request=call.request())
    return NO_CONTENT


async def register_view(call: Call) -> Answer:
    body = decode_register_view(call.http.body)
    loaded = await registration.register_view(
        call.lake, namespace_of(call), body.name, body.metadata_location, request=call.request()
    )
    return _answer(loaded)


async def list_functions(call: Call) -> Answer:
    page = page_of(call)
    found = await list_names(call.lake, namespace_of(call), kind="function", page_token=page.token, page_size=page.size)
    paths = [[*namespace_of(call).levels, entry.name] for entry in found.entries]
    return json_answer(encode({"identifiers": paths, "next-page-token": found.next_token}))


async def load_function(call: Call) -> Answer:
    """A function that Unity Catalog's API made, in the form of Iceberg."""
    identifier = identifier_of(call, "function")
    await check_namespace_visible(call.lake, namespace_of(call))
    missing = NotFound(f"Function does not exist: {identifier}", subject="function")
    found = await resolve_authorized(
        call.lake, identifier, lambda found: found.name.value.kind == "function", missing=missing
    )
    record = found.pointer.value
    if not isinstance(record, Securable):
        raise missing
    return json_answer(encode({"metadata": function_metadata(record)}), *PRIVATE)


def _answer(loaded: Loaded) -> Answer:
    return json_answer(loaded_body(loaded), *PRIVATE)
