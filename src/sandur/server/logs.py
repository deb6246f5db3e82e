"""The log of a server: events as lines on standard error, as text or as JSON."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import Final, Literal

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

_encoder: Final = msgspec.json.Encoder(enc_hook=str)
_pairs: Final = structlog.processors.KeyValueRenderer()

log = structlog.get_logger()


def configure_logging(log_format: Literal["text", "json"], level: str) -> None:
    """Write all log events, also those of libraries, as lines to standard error."""
    level_number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            _render_json if log_format == "json" else _render_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level_number),
        logger_factory=lambda *_: _LossyLogger(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=max(level_number, logging.WARNING), force=True)


class _LossyLogger(structlog.BytesLogger):
    """Loses a line that cannot be written, as on a full disk: no request may fail for its log."""

    def msg(self, message: bytes) -> None:
        try:
            super().msg(message)
        except OSError:  # There is no place left to report it.
            return

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


@contextlib.contextmanager
def temporary_logging(log_format: Literal["text", "json"], level: str) -> Iterator[None]:
    """`configure_logging` for a block, in a program that outlives the application."""
    root, configuration = logging.getLogger(), structlog.get_config()
    handlers, level_before = root.handlers[:], root.level
    configure_logging(log_format, level)
    try:
        yield
    finally:
        structlog.configure(**configuration)
        root.handlers[:] = handlers
        root.setLevel(level_before)


def _render_json(_logger: WrappedLogger, _method: str, event: EventDict) -> bytes:
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:  # The name of a file whose bytes are no text.
        return json.dumps(event, default=str).encode()


def _render_text(logger: WrappedLogger, method: str, event: EventDict) -> bytes:
    """`time level event key='value' …`. Values are quoted, so that none can forge a field or a line."""
    trace = event.pop("exception", None)
    head = f"{event.pop('timestamp')} {event.pop('level')} {event.pop('event')}"
    line = f"{head} {_pairs(logger, method, event)}" if event else head
    return (f"{line}\n{trace}" if trace else line).encode("utf-8", "backslashreplace")


class _ToStructlog(logging.Handler):
    """Passes the log records of libraries on to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)
