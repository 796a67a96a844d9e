"""Run as a program of its own: ends a server when the process that it belongs to is gone, however that ended.

The kernel's death signal would not do: it is sent when the thread that started a server ends, not its process.
"""

from __future__ import annotations

import os
import select
import signal
import sys


def main(owner: int, server: int) -> None:
    """Wait until the owner or the server has ended; then end what is left of the server."""
    try:
        ending = os.pidfd_open(server)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(ending, select.POLLIN)
        poll.register(os.pidfd_open(owner), select.POLLIN)
        if os.getppid() == owner:  # else it was gone before it could be watched, and its number may be another's
            poll.poll()
    except ProcessLookupError:
        pass  # the owner is gone already
    _end(server, ending)


def _end(server: int, handle: int) -> None:
    try:
        signal.pidfd_send_signal(handle, 0)
        os.killpg(server, signal.SIGKILL)
    except ProcessLookupError:
        return  # the server ended first


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
