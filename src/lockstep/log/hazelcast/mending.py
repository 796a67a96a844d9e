"""What is missing in the client, from outside. A version whose parts have other names is left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mend_waking(client: Any) -> None:
    """Have the client's thread woken for each call that is sent.

    The client wakes its thread only if it thinks that it is not awake. If a call comes while the thread goes through
    its wake-ups, the mark stays and nobody wakes it again: from then on every call waits for the thread to look by
    itself, which costs 10 ms.
    """
    waker = getattr(getattr(getattr(client, "_reactor", None), "_loop", None), "waker", None)
    if waker is None:
        return
    wake = waker.wake

    def always() -> None:
        waker.awake = False
        wake()

    waker.wake = always


def hear_of_lost_connections(client: Any, lost: Callable[[object], None]) -> None:
    """Have something called when a connection is gone: before the client asks again elsewhere, or hears of members."""
    manager: Any = getattr(client, "_connection_manager", None)
    if hasattr(manager, "add_listener"):
        manager.add_listener(None, lost)
