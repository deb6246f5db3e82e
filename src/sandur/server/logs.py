"""Logs as lines: for people by default, as JSON for machines."""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
import structlog

LogFormat = Literal["text", "json"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PLAIN: Final = re.compile(r"[!#-<>-~]+\Z")  # Nearly every value: printable ASCII but space, quotation mark and `=`.
_encoder: Final = msgspec.json.Encoder(enc_hook=str)


def configure_logging(log_format: LogFormat, level: str) -> None:
    """Send everything, also what libraries log, as lines to the standard error."""
    structlog.configure(
        # One of ours instead of a chain: a line is written for every request.
        processors=[_as_json if log_format == "json" else _as_text],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )
    handler = _ToStructlog()
    logging.basicConfig(handlers=[handler], level=max(_LEVELS[level], logging.WARNING), force=True)


def _as_json(logger: object, method: str, event: MutableMapping[str, Any]) -> bytes:
    told = _with_trace(logger, method, event)
    return _encoder.encode({**told, "level": method, "timestamp": _now()})


def _as_text(logger: object, method: str, event: MutableMapping[str, Any]) -> bytes:
    """`time level event key=value …`, and a trace on lines of its own."""
    told = _with_trace(logger, method, event)
    name, trace = told.pop("event"), told.pop("exception", None)
    line = f"{_now()} {method} {name}{_pairs(told)}"
    return (f"{line}\n{trace}" if trace else line).encode("utf-8", "backslashreplace")


def _with_trace(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return structlog.processors.format_exc_info(logger, method, event) if "exc_info" in event else event


def _now() -> str:
    now = datetime.now(UTC)  # noqa: TID251 - the time of a line: nobody acts on it
    return now.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


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
