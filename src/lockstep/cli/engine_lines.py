"""What an engine says about its role on standard error, as lines of a log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

TOLD = frozenset({"role", "takeover", "buffer", "persist", "replace", "gate", "preflight", "connector"})
"""The actions of which an engine tells everybody."""
_PLAIN = "%(asctime)s; %(levelname)s; %(message)s"
_WHERE = "%(thread_id)s; %(name)s; (%(filename)s:%(lineno)d); %(funcName)s()"
_DOCUMENT = f"%(asctime)s; %(levelname)s; {_WHERE}: %(message)s"
_WORDS = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_GOES_ACTIVE = "Hot failover state switched to active"


class DocumentLines(logging.Formatter):
    """Lines as SAS's failover document shows them: with thread, logger, place and function."""

    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def __init__(self) -> None:
        super().__init__(_DOCUMENT)

    def format(self, record: logging.LogRecord) -> str:
        """See Formatter."""
        shown = logging.makeLogRecord(record.__dict__)
        shown.levelname = _WORDS.get(record.levelname, record.levelname)
        shown.__dict__["thread_id"] = f"{(record.thread or 0) % 100_000_000:08d}"
        return super().format(shown)


class _Telling(logging.StreamHandler):  # type: ignore[type-arg]
    """Shows what everybody should know; in the document's form an engine that goes active warns, also the first one."""

    def __init__(self, least: int, *, as_document: bool) -> None:
        super().__init__()
        self._least, self._as_document = least, as_document
        self.setFormatter(DocumentLines() if as_document else logging.Formatter(_PLAIN))
        self.addFilter(lambda record: getattr(record, "action", "") in TOLD)

    def emit(self, record: logging.LogRecord) -> None:
        """See Handler."""
        if self._as_document and record.getMessage() == _GOES_ACTIVE and record.levelno < logging.WARNING:
            record = logging.makeLogRecord(record.__dict__)
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        if record.levelno >= self._least:
            super().emit(record)


@contextmanager
def told(level: int, *, verbose: bool, as_document: bool = False) -> Iterator[None]:
    """What an engine has to say about its role, on standard error; with --verbose everything is there anyway."""
    log, before = logging.getLogger("lockstep"), logging.getLogger("lockstep").level
    handler = logging.NullHandler() if verbose else _Telling(level, as_document=as_document)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
