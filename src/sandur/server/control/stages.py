"""The handler that lists tables which are staged and not committed."""

from sandur.operations.tables import stages
from sandur.server.context import Call, whole_number
from sandur.server.control.principals import answer_with
from sandur.server.http import Answer


async def list_stages(call: Call) -> Answer:
    size = call.query.get("page_size")
    page = await stages.list_stages(
        call.lake,
        page_token=call.query.get("page_token") or None,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
    )
    return answer_with({"stages": page.entries, "next_page_token": page.next_token})
