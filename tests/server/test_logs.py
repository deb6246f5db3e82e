"""Log lines: one per event, as text or JSON; no value can forge a second line."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import logging
import structlog
from sandur.server.logs import configure_logging

configure_logging("{form}", "{level}")
log = structlog.get_logger()
log.info("request", status=200, path="a b", odd="x\\ny=1", empty="")
log.warning("careful", key="\\udcff")
logging.getLogger("uvicorn.error").error("broken %s", "pipe")
logging.getLogger("uvicorn.error").info("chatter")
try:
    1 / 0
except ZeroDivisionError as error:
    log.error("unexpected error", exc_info=error)
"""


def lines(form: str, level: str = "info") -> list[str]:
    script = SCRIPT.replace("{form}", form).replace("{level}", level)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return done.stderr.splitlines()


def test_json_lines_contain_every_field() -> None:
    events = [json.loads(line) for line in lines("json")]

    assert [event["event"] for event in events] == ["request", "careful", "broken pipe", "unexpected error"]
    assert events[0]["odd"] == "x\ny=1"
    assert events[0]["level"] == "info"
    assert events[2]["logger"] == "uvicorn.error"
    assert "ZeroDivisionError" in events[3]["exception"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_file_name_that_is_not_text_is_logged_with_an_escape(form: str) -> None:
    assert "\\udcff" in lines(form)[1]


def test_a_value_cannot_forge_a_field_or_a_line() -> None:
    first = lines("text")[0]

    assert first.endswith(r"""info request status=200 path='a b' odd='x\ny=1' empty=''""")


def test_a_level_drops_the_lines_below_it() -> None:
    assert json.loads(lines("json", "warning")[0])["event"] == "careful"
    assert len(lines("json", "error")) == 2
