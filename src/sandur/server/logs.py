"""Logs as lines: for people by default, as JSON for machines."""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Literal

import msgspec
import structlog

LogFormat = Literal["text", "json"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PLAIN: Final = re.compile(r"[!#-<>-~]+\Z")  # Nearly every value: printable ASCII but space, quotation mark and `=`.
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def configure_logs(log_format: LogFormat, level: str) -> None:
    """Send everything, also what libraries log, as lines to the standard error."""
    render = _as_json if log_format == "json" else _as_text
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )
    handler = _ToStructlog()
    logging.basicConfig(handlers=[handler], level=max(_LEVELS[level], logging.WARNING), force=True)


def _as_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> bytes:
    return _encoder.encode(event)


def _as_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> bytes:
    """`time level event key=value …`, and a trace on lines of its own."""
    time, level, name = event.pop("timestamp"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", None)
    line = f"{time} {level} {name}{_pairs(event)}"
    return (f"{line}\n{trace}" if trace else line).encode("utf-8", "backslashreplace")


def _pairs(event: Mapping[str, object]) -> str:
    return "".join([f" {key}={_shown(value)}" for key, value in event.items()])


def _shown(value: object) -> str:
    text = str(value)
    if _PLAIN.match(text):
        return text
    # A quoted value can neither forge another pair nor another line.
    return text if text.isprintable() and text and not set(text) & {" ", '"', "="} else repr(text)


class _ToStructlog(logging.Handler):
    """Passes what libraries log on to the same lines."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
