"""Functions over HTTP: the protocol only reads them."""

from sandur.errors import NotFound
from sandur.operations.listing import list_names
from sandur.operations.namespaces import load_namespace
from sandur.server.iceberg_rest.bodies import encoded
from sandur.server.iceberg_rest.call import Call
from sandur.server.messages import Answer, json_answer


async def list_functions(call: Call) -> Answer:
    page = call.page
    found = await list_names(call.lake, call.namespace, kind="function", page_token=page.token, page_size=page.size)
    paths = [[*call.namespace.levels, entry.name] for entry in found.entries]
    return json_answer(encoded({"identifiers": paths, "next-page-token": found.next_token}))


async def load_function(call: Call) -> Answer:
    """Absent whatever the name: no function of this catalog has Iceberg's form, which only a writer could give it."""
    await load_namespace(call.lake, call.namespace)
    raise NotFound(f"Function does not exist: {call.identifier('function')}", subject="function")
