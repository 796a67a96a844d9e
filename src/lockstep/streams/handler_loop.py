"""The event loops in which async handlers run, so that they can share what belongs to a loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from concurrent.futures import wait
from typing import Any

_ENDS_WITHIN_S = 10.0
_LOOK_AGAIN_S = 1.0


class HandlerLoop:
    """One event loop for all workers of a receiver, on a thread of its own that starts with the first async handler.

    Each worker waits for its handler, so that its records stay in order; those of several workers run side by side.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()

    def run(self, result: Awaitable[Any]) -> None:
        """Run something to its end, in the context of the calling worker; raises what it raises."""
        error = asyncio.run_coroutine_threadsafe(_error_of(result), self._running()).result()
        if error is not None:
            raise error

    def release(self) -> None:
        """A worker ended. With the last one the loop ends, and tasks that handlers did not await are cancelled."""
        with self._lock:
            self._workers -= 1
            thread, loop = self._thread, self._loop
            if self._workers or thread is None or loop is None or not thread.is_alive():
                return
        loop.call_soon_threadsafe(self._ended.set)
        thread.join(_ENDS_WITHIN_S)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # one that a task of the user ended is replaced
                started = threading.Event()
                self._thread = threading.Thread(target=self._main, args=(started,), name="lockstep-loop", daemon=True)
                self._thread.start()
                started.wait()
            assert self._loop is not None, "it was made before it was told"
            return self._loop

    def _main(self, started: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._ended, self._loop = asyncio.Event(), runner.get_loop()
            self._loop.call_soon(started.set)
            runner.run(_wait(self._ended))


class CallersLoop:
    """The event loop of the program itself: made in it, and used by the threads of workers."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def run(self, result: Awaitable[Any]) -> None:
        """Run something to its end, while the calling worker waits; raises what it raises."""
        running = _error_of(result)
        try:
            future = asyncio.run_coroutine_threadsafe(running, self._loop)
        except RuntimeError:  # the loop is closed
            running.close()
            raise
        while not wait([future], _LOOK_AGAIN_S).done:
            if self._loop.is_closed():
                message = "the event loop was closed before the handler returned"
                raise RuntimeError(message)
        error = future.result()
        if error is not None:
            raise error

    def release(self) -> None:
        """It is not ours to end."""


async def _wait(ended: asyncio.Event) -> None:
    await ended.wait()


async def _error_of(result: Awaitable[Any]) -> BaseException | None:
    """What it raised. Handed over as a value: SystemExit would end the loop, and the handlers of other workers."""
    try:
        await result
    except BaseException as error:  # noqa: BLE001 - raised again by the worker
        return error
    return None
