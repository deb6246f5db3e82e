"""The stylesheet and the scripts."""

from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.ui.renderer import SAFETY
from sandur.server.ui.static_files import static_answer


async def load_static_file(call: Call) -> Answer:
    answer = static_answer(call.value("hash"), call.value("file"))
    return Answer(answer.status, answer.body, (*answer.headers, *SAFETY))
