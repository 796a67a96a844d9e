"""A scheduler for asyncio: the calls of Scheduler, each in a thread, so that none blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from lockstep.errors import Closed, IllegalState
from lockstep.schedule.fired import Fired
from lockstep.schedule.scheduler import DEFAULT_TENANT, Scheduler
from lockstep.streams.async_client import AsyncLockstep
from lockstep.streams.options import ReceiverSettings

if TYPE_CHECKING:
    from lockstep.streams.client import Lockstep

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    call: Callable[Concatenate[Scheduler, P], T],
) -> Callable[Concatenate[AsyncScheduler, P], Coroutine[Any, Any, T]]:
    """Make a method of Scheduler one to await, with the same arguments and documentation."""

    @wraps(call)
    async def method(self: AsyncScheduler, /, *given: P.args, **named: P.kwargs) -> T:
        return await self._run(partial(call, self.scheduler, *given, **named))

    return method


class AsyncScheduler:
    """A scheduler for one event loop: the calls of Scheduler, to await."""

    def __init__(self, bus: AsyncLockstep, opening: Callable[[Lockstep], Scheduler]) -> None:
        self._bus, self._opening = bus, opening
        self._opens = asyncio.Lock()
        self._scheduler: Scheduler | None = None
        self._registrations: list[asyncio.Future[Any]] = []
        self._closed = False

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler itself; its calls block."""
        if self._closed:
            raise Closed(what="The scheduler")
        if self._scheduler is None:
            reason = "write 'async with bus.scheduler(...) as scheduler', or await it"
            raise IllegalState(what="The scheduler", action="be used before it is open", reason=reason)
        return self._scheduler

    at = _awaited(Scheduler.at)
    after = _awaited(Scheduler.after)
    schedule_many = _awaited(Scheduler.schedule_many)
    cancel = _awaited(Scheduler.cancel)
    find = _awaited(Scheduler.find)
    events = _awaited(Scheduler.events)
    replay = _awaited(Scheduler.replay)
    every = _awaited(Scheduler.every)
    crons = _awaited(Scheduler.crons)
    remove_cron = _awaited(Scheduler.remove_cron)
    pause = _awaited(Scheduler.pause)
    resume = _awaited(Scheduler.resume)
    trigger = _awaited(Scheduler.trigger)
    backfill = _awaited(Scheduler.backfill)
    would_backfill = _awaited(Scheduler.would_backfill)
    register = _awaited(Scheduler.register)
    tenants = _awaited(Scheduler.tenants)
    remove_tenant = _awaited(Scheduler.remove_tenant)
    pause_tenant = _awaited(Scheduler.pause_tenant)
    resume_tenant = _awaited(Scheduler.resume_tenant)

    def on(self, tenant: str = DEFAULT_TENANT, **options: Unpack[ReceiverSettings]) -> Callable[
        [Callable[[Fired], Any]], Callable[[Fired], Any]
    ]:  # fmt: skip
        """Have a function called with every event of a tenant that fires; it is not awaited.

        A plain function runs in a thread, a coroutine on an event loop that all async functions share. The function is
        registered in the background; the next call that is awaited waits for that, and raises what went wrong.
        """
        scheduler = self.scheduler

        def register(function: Callable[[Fired], Any]) -> Callable[[Fired], Any]:
            begun = self._bus.run(lambda _: scheduler.on(tenant, **options)(function))
            self._registrations.append(asyncio.ensure_future(begun))
            return function

        return register

    async def close(self) -> None:
        """Hand this node's shards over and end. Events that wait are stored, and fire where a node runs."""
        if self._closed:
            return
        self._closed = True
        if self._scheduler is None:
            return
        try:
            await self._registered()
        finally:
            scheduler = self._scheduler
            await asyncio.shield(asyncio.ensure_future(self._bus.run(lambda _: scheduler.close())))

    async def _registered(self) -> None:
        """Wait for functions that are being registered; raise why one could not be."""
        begun, self._registrations = self._registrations, []
        for error in await asyncio.gather(*begun, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _run(self, call: Callable[[], T]) -> T:
        await self._registered()
        return await self._bus.run(lambda _: call())

    async def _open(self) -> AsyncScheduler:
        async with self._opens:
            if self._scheduler is None and not self._closed:
                self._scheduler = await self._bus.run(self._opening)
        return self

    def __await__(self) -> Generator[Any, None, AsyncScheduler]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncScheduler:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
