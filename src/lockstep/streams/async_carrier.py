"""A carrier for asyncio: async handlers run in the program's own event loop, and nothing blocks it.

async with bus.carrier("outbox", group="mail") as carrier:
    carrier.on("mail", send)
    await carrier.run()
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import nullcontext
from types import TracebackType
from typing import Any

from lockstep.streams import arguments
from lockstep.streams.async_client import Threads
from lockstep.streams.carrier import Carrier, CarrierOptions, H
from lockstep.streams.handlers import CallersLoop
from lockstep.streams.receiver import signals_set

_THREADS = 3
"""One that runs it, one that waits until it is idle, and one that closes it."""
_SLICE_S = 0.2


class AsyncCarrier:
    """Carries out the items of an outbox, for one event loop. Register handlers, then `run`, or `start`.

    Async handlers run as tasks of this loop, at most as many at a time as there are `workers`; plain functions run in
    threads.
    """

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._threads = Threads("lockstep-carrier-async", _THREADS, "The carrier")
        self._starting: asyncio.Future[Carrier] | None = None
        self._closing: asyncio.Future[None] | None = None

    @property
    def outbox(self) -> str:
        """The stream whose items it carries out."""
        return self._carrier.outbox

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self._carrier.group

    @property
    def options(self) -> CarrierOptions:
        """How it works."""
        return self._carrier.options

    @property
    def counts(self) -> dict[str, int]:
        """What it did so far: items done, attempts failed, refused, given up (dead), found in doubt, passed, lost."""
        return self._carrier.counts

    @property
    def error(self) -> BaseException | None:
        """Why it ended, if it did not end because it was closed."""
        return self._carrier.error

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._carrier.is_closed

    def on(self, kind: str, handler: H | None = None) -> Any:
        """Have items of a kind carried out by a function, sync or async; "*" stands for all other kinds.

        Without a function it is a decorator.
        """
        return self._carrier.on(kind, handler)

    async def start(self) -> AsyncCarrier:
        """Join the group and carry items out in the background, while this loop runs."""
        if self._starting is None:
            self._carrier._loop = CallersLoop()
            self._starting = self._threads.start(self._carrier.start)
            await asyncio.shield(self._starting)
        else:
            await self._threads.run(self._carrier.start)  # says why not
        return self

    async def run(self) -> None:
        """Carry items out until it is closed or cancelled, or SIGTERM or SIGINT comes; then finish what is begun.

        Signals are seen by the main thread only.
        """
        ended = threading.Event()
        is_main = threading.current_thread() is threading.main_thread()
        with signals_set(ended) if is_main else nullcontext():
            try:
                if self._starting is None:
                    await self.start()
                while not ended.is_set() and not self._carrier._finished:
                    await self._threads.run(ended.wait, _SLICE_S)
            finally:
                await self.close()
        if self.error is not None:
            raise self.error

    async def wait_idle(self, timeout: float = float("inf")) -> bool:
        """Wait until the group is finished with everything that is on the outbox; False if that takes longer."""
        loop = asyncio.get_running_loop()
        end = loop.time() + arguments.seconds("timeout", timeout)
        while True:
            left = max(end - loop.time(), 0.0)
            if await self._threads.run(self._carrier.wait_idle, min(left, _SLICE_S)):
                return True
            if left <= 0:
                return False

    async def close(self, timeout: float = 30.0) -> None:
        """Begin nothing more, finish what is begun, hand the shards over. A second call waits for the first."""
        if self._closing is None:
            seconds = arguments.seconds("timeout", timeout)
            self._closing = asyncio.ensure_future(self._close(seconds))
        await asyncio.shield(self._closing)

    async def _close(self, timeout: float) -> None:
        """Runs to its end even if the caller is cancelled, as handlers may need the loop to return."""
        try:
            if self._starting is not None:
                await asyncio.wait([self._starting])
            await self._threads.run(self._carrier.close, timeout)
        finally:
            self._threads.close()

    async def __aenter__(self) -> AsyncCarrier:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
