"""Lines of an engine's log: plain, and in the form of SAS's failover document."""

from __future__ import annotations

import logging
import re

import pytest

from lockstep.cli.engine_services import told
from lockstep.runtime import logger

ACTIVE = "Hot failover state switched to active"


def say(level: int, *, as_document: bool) -> None:
    with told(level, verbose=False, as_document=as_document):
        logger.info(ACTIVE, extra={"action": "role"})
        logger.info("Standby synced, current message id = %d", 7, extra={"action": "takeover"})
        logger.info("of no interest", extra={"action": "other"})


def test_plain_lines(capsys):
    say(logging.INFO, as_document=False)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("; ")[2] for line in lines] == [
        f"INFO; {ACTIVE}",
        "INFO; Standby synced, current message id = 7",
    ]


@pytest.mark.parametrize(("level", "count"), [(logging.INFO, 2), (logging.WARNING, 1)])
def test_lines_of_the_document_have_thread_logger_and_place_and_going_active_is_a_warning(capsys, level, count):
    say(level, as_document=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == count
    begin = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}; WARN; \d{8}; lockstep; "
    assert re.fullmatch(begin + r"\(test_engine_lines\.py:\d+\); say\(\): " + ACTIVE, lines[0])
    assert count == 1 or "; INFO; " in lines[1]
