"""Functions over HTTP."""

import msgspec

from sandur.catalog.identifiers import checked_new_name, identifier_from_parts, namespace_from_parts
from sandur.catalog.securables import FunctionDefinition, securable_info
from sandur.operations.unity import securables as operations
from sandur.operations.unity.lists import ListAsked, list_in_schema
from sandur.server.messages import Answer
from sandur.server.unity_rest.bodies import DONE, list_answer, shown
from sandur.server.unity_rest.call import Call, Comment


class CreateFunction(FunctionDefinition, frozen=True, kw_only=True):
    name: str
    catalog_name: str
    schema_name: str
    comment: Comment | None = None

    @property
    def definition(self) -> FunctionDefinition:
        fields = msgspec.structs.fields(FunctionDefinition)
        return FunctionDefinition(**{field.name: getattr(self, field.name) for field in fields})


class CreateFunctionRequest(msgspec.Struct, frozen=True):
    function_info: CreateFunction


async def create(call: Call) -> Answer:
    body = call.body(CreateFunctionRequest, "create function request").function_info
    identifier = identifier_from_parts(body.catalog_name, body.schema_name, checked_new_name("function", body.name))
    made = await operations.create_function(
        call.lake, identifier, body.definition, comment=body.comment, request=call.request()
    )
    return shown(securable_info(identifier, made))


async def list_all(call: Call) -> Answer:
    namespace = namespace_from_parts(call.wanted("catalog_name"), call.wanted("schema_name"))
    listed = await list_in_schema(call.lake, namespace, ("function",), "functions", ListAsked(*call.page))
    return list_answer(call, "functions", listed)


async def load(call: Call) -> Answer:
    identifier = call.identifier("name")
    return shown(securable_info(identifier, await operations.load_securable(call.lake, identifier, "function")))


async def delete(call: Call) -> Answer:
    await operations.drop_securable(call.lake, call.identifier("name"), "function", call.request())
    return DONE
