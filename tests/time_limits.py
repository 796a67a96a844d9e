"""A test that can't be interrupted ends its worker, so that the run goes on and says which test it was.

pytest-timeout raises in the test when its time is up. That does not reach a test that waits in C (a lock of LMDB, a
call of librdkafka), and the teardown of a test that failed has no time limit at all. Here a thread of faulthandler,
which needs no lock of Python, prints where all threads are and ends the process.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Generator

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

GRACE_S = 60.0
"""How long a test may take after its time is up: to fail, and to put away what it used."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process if a test and its fixtures take far longer than they may."""
    _arm(item)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Begin again: pytest's own use of faulthandler disarms it when a test fails."""
    _arm(item)


def _arm(item: pytest.Item) -> None:
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, None)
    if stderr is not None:
        faulthandler.dump_traceback_later(limit_s(item) + GRACE_S, exit=True, file=stderr)


def limit_s(item: pytest.Item) -> float:
    """How long a test may take: what it is marked with, else what all have."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker is not None else item.config.getini("timeout"))
