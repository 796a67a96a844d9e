"""A fault of the client that costs 10 ms for each call, mended."""

from __future__ import annotations

from typing import Any


def mend_waking(client: Any) -> None:
    """Have the client's thread woken for each call that is sent.

    The client wakes its thread only if it thinks that it is not awake. If a call comes while the thread goes through
    its wake-ups, the mark stays and nobody wakes it again: from then on every call waits for the thread to look by
    itself. A version whose parts have other names is left as it is.
    """
    waker = getattr(getattr(getattr(client, "_reactor", None), "_loop", None), "waker", None)
    if waker is None:
        return
    wake = waker.wake

    def always() -> None:
        waker.awake = False
        wake()

    waker.wake = always
