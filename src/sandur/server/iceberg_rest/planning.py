"""Handlers for scan planning."""

from typing import assert_never

import msgspec

from sandur.iceberg.scan.requests import decode_scan_request
from sandur.operations.planning import plans as operations
from sandur.server.context import Call
from sandur.server.errors import error_object
from sandur.server.http import NO_CONTENT, Answer, json_answer
from sandur.server.iceberg_rest.errors import ERRORS
from sandur.server.iceberg_rest.messages import encode, table_of
from sandur.server.iceberg_rest.tables import PRIVATE


class FetchTasksBody(msgspec.Struct, frozen=True, rename="kebab"):
    plan_task: str


async def plan(call: Call) -> Answer:
    scan = decode_scan_request(call.http.body)
    result = await operations.plan_table_scan(call.lake, table_of(call), scan, call.request())
    return json_answer(_result_body(result, call, names_plan=True), *PRIVATE)


async def fetch_result(call: Call) -> Answer:
    result = await operations.fetch_planning_result(
        call.lake, table_of(call), call.value("plan-id"), principal=call.identity.principal
    )
    return json_answer(_result_body(result, call, names_plan=False), *PRIVATE)


async def cancel(call: Call) -> Answer:
    await operations.cancel_planning(
        call.lake, table_of(call), call.value("plan-id"), principal=call.identity.principal
    )
    return NO_CONTENT


async def fetch_tasks(call: Call) -> Answer:
    body = call.body(FetchTasksBody, "task request")
    fields = await operations.fetch_scan_tasks(
        call.lake, table_of(call), body.plan_task, principal=call.identity.principal
    )
    return json_answer(b"{" + fields + b"}", *PRIVATE)


def _result_body(result: operations.Result, call: Call, *, names_plan: bool) -> bytes:
    """The result in the form of its status. Only a completed result may have a list of tasks, even an empty one."""
    match result:
        case operations.Completed(plan_id=plan_id, result=found):
            named = b',"plan-id":' + encode(plan_id) if names_plan else b""
            tasks = b',"plan-tasks":' + encode(found.plan_tasks)
            return b'{"status":"completed"' + named + b"," + found.fields + tasks + b"}"
        case operations.Submitted(plan_id=plan_id):
            return encode({"status": "submitted", "plan-id": plan_id} if names_plan else {"status": "submitted"})
        case operations.Cancelled():
            return encode({"status": "cancelled"})
        case operations.Failed(error=error):
            problem = ERRORS.problem(error, call.operation, call.http.request_id)
            return encode({"status": "failed", "error": error_object(problem)})
        case _:
            assert_never(result)
