"""Run a function in a forked child of a test."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable
from typing import NoReturn

CHILD_S = 20
FAILED = 99


def exit_code_of_a_fork(function: Callable[[], int]) -> int:
    """What the function returned in a forked child; 99 if it raised, -14 if it was not done in 20 seconds."""
    child = os.fork()
    if child == 0:
        _run_and_exit(function)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_and_exit(function: Callable[[], int]) -> NoReturn:
    """Never return: a child that went on would be a second pytest on the same connection to the controller."""
    code = FAILED
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest-timeout has its own handler; ours ends a wait in C too
        signal.alarm(CHILD_S)
        code = function()
    except BaseException:  # noqa: BLE001 - nothing may leave this function
        traceback.print_exc()
    finally:
        os._exit(code)
