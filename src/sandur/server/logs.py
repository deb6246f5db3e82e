"""Log lines on standard error: text for people by default, JSON for machines."""

import logging
import sys
from typing import Final, Literal

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

LogFormat = Literal["text", "json"]

_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_encoder: Final = msgspec.json.Encoder(enc_hook=str)
_pairs: Final = structlog.processors.KeyValueRenderer()


def configure_logging(log_format: LogFormat, level: str) -> None:
    """Write all log events, also those of libraries, as lines to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _render_json if log_format == "json" else _render_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=max(_LEVELS[level], logging.WARNING), force=True)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    return _encoder.encode(event)


def _render_text(logger: WrappedLogger, method: str, event: EventDict) -> bytes:
    """`time level event key='value' …`. Values are quoted, so that none can forge a field or a line."""
    trace = event.pop("exception", None)
    head = f"{event.pop('timestamp')} {event.pop('level')} {event.pop('event')}"
    line = f"{head} {_pairs(logger, method, event)}" if event else head
    return (f"{line}\n{trace}" if trace else line).encode("utf-8", "backslashreplace")


class _ToStructlog(logging.Handler):
    """Passes the log records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
