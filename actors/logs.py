"""Logs of the processes that are ours, on standard error: one line a record, quiet unless asked.

All code says what happens to stdlib loggers below `susurrus`, with named fields (`extra`); a host listens to them as it
likes. Here structlog renders them. Records name jobs, windows, actors and times; never audio, text or keys.
structlog is imported when the first record is written: that costs as much as NumPy, and most runs log nothing.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import logging
import os
import sys
from typing import Any

FORMATS = ("console", "json")
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)  # by the number of -v


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add `-v` and `--log-format`."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help="say more on stderr; twice for every detail")
    parser.add_argument("--log-format", choices=FORMATS, default="console", help="how log lines look")


def log_arguments(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The same options again, for a child's command line."""
    return (*["-v"] * arguments.verbose, "--log-format", arguments.log_format)


def configure_logs(arguments: argparse.Namespace, process: str) -> None:
    """Listen to our loggers on standard error. For processes that are ours: a host's logging is the host's."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(process, as_json=arguments.log_format == "json"))
    logger = logging.getLogger("susurrus")
    logger.handlers = [handler]
    logger.setLevel(LEVELS[min(arguments.verbose, len(LEVELS) - 1)])
    logger.propagate = False
    atexit.register(_drop_what_cannot_be_written)


def _drop_what_cannot_be_written() -> None:
    """Before the interpreter flushes standard error at its exit: on a full disk it would end with a code of its own."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stderr.fileno())
        os.close(null)


class _Formatter(logging.Formatter):
    """structlog's rendering, made when the first record comes."""

    def __init__(self, process: str, *, as_json: bool) -> None:
        super().__init__()
        self._process = process
        self._as_json = as_json
        self._rendering: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        if self._rendering is None:
            self._rendering = self._make()
        return self._rendering.format(record)

    def _make(self) -> logging.Formatter:
        import structlog  # noqa: PLC0415 - see above

        def name_process(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
            return {**event, "process": self._process}

        renderer: structlog.typing.Processor = (
            structlog.processors.JSONRenderer(ensure_ascii=False)
            if self._as_json
            # Not its own way with tracebacks: that shows the values of variables, in which audio and text are.
            else structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        )
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.ExtraAdder(),
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                name_process,
            ],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *([structlog.processors.format_exc_info] if self._as_json else []),
                renderer,
            ],
        )
