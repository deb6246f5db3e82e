"""What a table was, snapshot by snapshot: an extension that `config` does not advertise."""

from sandur.operations import history as operations
from sandur.server.iceberg_rest.bodies import encoded
from sandur.server.iceberg_rest.call import Call
from sandur.server.iceberg_rest.tables import PRIVATE
from sandur.server.messages import Answer, json_answer


async def schemas(call: Call) -> Answer:
    found = await operations.schemas(call.lake, call.identifier("table"))
    return json_answer(encoded({"schemas": found}), *PRIVATE)


async def partition_specs(call: Call) -> Answer:
    found = await operations.partition_specs(call.lake, call.identifier("table"))
    return json_answer(encoded({"partition-specs": found}), *PRIVATE)


async def snapshots(call: Call) -> Answer:
    found = await operations.snapshots(call.lake, call.identifier("table"))
    return json_answer(encoded({"snapshots": found}), *PRIVATE)
