"""Logs of the vendors' SDKs, without keys in them (S29).

An SDK that is told to talk (`OPENAI_LOG=debug`) hides the header it sends the key in, and logs whatever comes back: a
server that echoes the key, in a header or in an error, would put it into a log file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from orchestrator.store.scrub import Scrubber

_FORMATTER = logging.Formatter()


class _Scrubbing(logging.Filter):
    """Rewrites each record before any handler sees it: its message, and the traceback that goes with it."""

    def __init__(self, scrubber: Scrubber) -> None:
        super().__init__()
        self._scrubber = scrubber

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # its arguments do not fit; a log is no place to fail
            message = f"{record.msg} {record.args!r}"
        record.msg, record.args = self._scrubber.text(message), None
        if record.exc_info:
            record.exc_text, record.exc_info = _FORMATTER.formatException(record.exc_info), None
        if record.exc_text:
            record.exc_text = self._scrubber.text(record.exc_text)
        return True


@contextmanager
def scrubbed_logs(scrubber: Scrubber, packages: Sequence[str]) -> Iterator[None]:
    """In the block, the loggers of these packages write no secret. Enter it when the packages are imported: a filter
    is asked on the logger that a record is made by, not on those above it."""
    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in packages]
    loggers = [logging.getLogger(name) for name in names]
    scrubbing = _Scrubbing(scrubber)
    for logger in loggers:
        logger.addFilter(scrubbing)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(scrubbing)
