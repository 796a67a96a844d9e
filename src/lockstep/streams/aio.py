"""Waiting in an event loop."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from lockstep.log.port import LogWaiter

_LOOK_AGAIN_S = 0.5


async def wait_async(waiter: LogWaiter, timeout: float) -> None:
    """Wait in an event loop: on a descriptor if the waiter has one, else on a thread."""
    number = waiter.fileno()
    if number is None:
        await asyncio.to_thread(waiter.wait, timeout)
        return
    # A descriptor of its own: if the waiter is closed meanwhile, its number may be used for another file.
    descriptor = os.dup(number)
    loop = asyncio.get_running_loop()
    woken: asyncio.Future[Any] = loop.create_future()
    loop.add_reader(descriptor, _settle, woken)
    try:
        await asyncio.wait_for(woken, min(timeout, _LOOK_AGAIN_S))
    except TimeoutError:
        return
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        waiter.wait(0.0)


def _settle(woken: asyncio.Future[Any]) -> None:
    if not woken.done():
        woken.set_result(None)
