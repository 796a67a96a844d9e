"""Deliveries on a background event loop, within limits: so many at once in total and for each tenant.

Deliveries that come while the loop is busy are handed over together. Tenants take turns, so one with a long queue does
not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from lockstep.errors import TimedOut
from lockstep.schedule.delivery.port import Delivery, Done, Outcome, Result

logger = logging.getLogger("lockstep")

Answer = tuple[Outcome, str | None]
Handle = Callable[[Delivery], Awaitable[Answer]]
CLOSED = "The node was stopped before the delivery ended."
_SWEEP_S = 0.25
_CANCEL_S = 2.0
_CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What a queue keeps to."""

    total: int
    per_tenant: int
    waiting_s: float
    pending: int


@dataclass(slots=True, eq=False)
class _Job:
    delivery: Delivery
    done: Done | None
    since: float = 0.0

    def report(self, outcome: Outcome, error: str | None) -> None:
        """Hand the result over, once; an error of the one who gets it is not the queue's."""
        done, self.done = self.done, None
        if done is None:
            return
        try:
            done(Result(self.delivery, outcome, error))
        except Exception as raised:  # noqa: BLE001  # the other deliveries go on
            logger.error(
                "The result of a delivery was not taken: %s", type(raised).__name__, extra={"action": "result_lost"}
            )


@dataclass(slots=True, eq=False)
class _Tenant:
    name: str
    waiting: deque[_Job] = field(default_factory=deque)
    running: int = 0
    in_turn: bool = False


class DeliveryQueue:
    """Runs `handle` for deliveries on its own thread; `end` gives back what `handle` made, on the same thread."""

    def __init__(self, name: str, handle: Handle, end: Callable[[], Awaitable[None]], limits: QueueLimits) -> None:
        self._name, self._handle, self._end, self._limits = name, handle, end, limits
        self._lock = threading.Lock()
        self._inbox: list[_Job] = []
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # The rest belongs to the loop's thread.
        self._tenants: dict[str, _Tenant] = {}
        self._turns: deque[_Tenant] = deque()
        self._tasks: dict[asyncio.Task[None], _Job] = {}
        self._pending = 0
        self._sweeping = False

    def submit(self, delivery: Delivery, done: Done) -> None:
        """Have a delivery handled; never blocks."""
        job = _Job(delivery, done)
        with self._lock:
            if not self._closed:
                loop = self._loop or self._start()
                self._inbox.append(job)
                if len(self._inbox) == 1:
                    loop.call_soon_threadsafe(self._take)
                return
        job.report(Outcome.FAILED, CLOSED)

    def call(self, action: Callable[[], None]) -> None:
        """Have something done on the loop's thread; nothing if it does not run."""
        with self._lock:
            if self._loop is not None and not self._closed:
                self._loop.call_soon_threadsafe(action)

    def close(self) -> None:
        """End everything under way with FAILED; TimedOut if the thread does not end."""
        with self._lock:  # what was submitted before is taken before the loop stops: it does both in this order
            first, self._closed = not self._closed, True
            loop, thread = self._loop, self._thread
            if first and loop is not None:
                loop.call_soon_threadsafe(self._stop)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_S)
            if thread.is_alive():
                raise TimedOut(what=f"Stopping {self._name}", seconds=_CLOSE_S)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, args=(loop,), name=self._name, daemon=True)
        self._thread.start()
        return loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _take(self) -> None:
        with self._lock:
            jobs, self._inbox = self._inbox, []
        assert self._loop is not None
        now = self._loop.time()
        for job in jobs:
            if self._pending >= self._limits.pending:
                job.report(Outcome.FAILED, f"Not sent: {self._pending} deliveries are under way or waiting.")
                continue
            self._pending += 1
            job.since = now
            tenant = self._tenants.setdefault(job.delivery.tenant.tenant, _Tenant(job.delivery.tenant.tenant))
            tenant.waiting.append(job)
            self._queue(tenant)
        self._begin()

    def _queue(self, tenant: _Tenant) -> None:
        if tenant.waiting and not tenant.in_turn and tenant.running < self._limits.per_tenant:
            tenant.in_turn = True
            self._turns.append(tenant)

    def _begin(self) -> None:
        """Begin what the limits allow, one of each tenant in turn."""
        assert self._loop is not None
        while self._turns and len(self._tasks) < self._limits.total:
            tenant = self._turns.popleft()
            tenant.in_turn = False
            if tenant.waiting:
                job = tenant.waiting.popleft()
                tenant.running += 1
                task = self._loop.create_task(self._run(tenant, job))
                self._tasks[task] = job
                self._queue(tenant)
        if not self._sweeping and self._pending > len(self._tasks):
            self._sweeping = True
            self._loop.call_later(_SWEEP_S, self._sweep)

    async def _run(self, tenant: _Tenant, job: _Job) -> None:
        try:
            outcome, error = await self._handle(job.delivery)
            job.report(outcome, error)
        except asyncio.CancelledError:
            job.report(Outcome.FAILED, CLOSED)
            raise
        except Exception as raised:  # noqa: BLE001  # a defect in one delivery must not end the others
            job.report(Outcome.FAILED, f"The delivery failed: {type(raised).__name__}.")
        finally:
            self._finish(tenant)

    def _finish(self, tenant: _Tenant) -> None:
        task = asyncio.current_task()
        assert task is not None
        del self._tasks[task]
        tenant.running -= 1
        self._pending -= 1
        if tenant.waiting:
            self._queue(tenant)
        elif tenant.running == 0 and not tenant.in_turn:
            self._tenants.pop(tenant.name, None)
        if not self._closed:
            self._begin()

    def _sweep(self) -> None:
        """Give up what has waited too long; in each queue the oldest comes first."""
        self._sweeping = False
        if self._closed:
            return
        assert self._loop is not None
        before = self._loop.time() - self._limits.waiting_s
        for tenant in list(self._tenants.values()):
            while tenant.waiting and tenant.waiting[0].since <= before:
                job = tenant.waiting.popleft()
                self._pending -= 1
                job.report(Outcome.FAILED, f"Not sent: it waited {self._limits.waiting_s:g} s behind other deliveries.")
        self._begin()

    def _stop(self) -> None:
        assert self._loop is not None
        self._ending = self._loop.create_task(self._wind_up(self._loop))

    async def _wind_up(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            for tenant in self._tenants.values():
                for job in tenant.waiting:
                    job.report(Outcome.FAILED, CLOSED)
                tenant.waiting.clear()
            under_way = dict(self._tasks)
            for task in under_way:
                task.cancel()
            if under_way:
                await asyncio.wait(under_way, timeout=_CANCEL_S)
            for job in under_way.values():
                job.report(Outcome.FAILED, CLOSED)  # of those that do not let themselves be cancelled
            await self._end()
        finally:
            loop.stop()
