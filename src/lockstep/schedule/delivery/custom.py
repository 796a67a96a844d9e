"""Deliveries to Python classes of the operator, for tenants of type CUSTOM_CLASS.

A class is known by name: from the mapping that the node was started with, or from an installed package that registers
it in the entry point group `lockstep.schedule.processors`. Nothing else is imported, whatever a tenant asks for.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from queue import SimpleQueue
from typing import Any

from lockstep.errors import BadArgument
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Done, Outcome, printable, redact, secret_texts
from lockstep.schedule.delivery.queue import Answer, DeliveryQueue, QueueLimits
from lockstep.schedule.fired import Fired, Processor, Refuse
from lockstep.schedule.tenants import Tenant

GROUP = "lockstep.schedule.processors"
ERROR_CHARS = 4096


class NoOpProcessor:
    """Takes every event and does nothing, for trials and load tests."""

    def process(self, fired: Fired) -> None:
        """Take an event."""


BUILT_IN: Mapping[str, type] = {
    "NoOp": NoOpProcessor,
    "com.walmartlabs.bigben.processors.NoOpCustomClassProcessor": NoOpProcessor,
}


@dataclass(slots=True, eq=False)
class _Kept:
    """A tenant's processor; the lock is held while it is made."""

    props: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    processor: Processor | None = None


class CustomCourier:
    """Delivers events to processors. A processor that runs into the time-out is FAILED; its thread goes on meanwhile.

    So the next try may begin while the last one still runs, and `event_id` tells that it is the same event.
    """

    def __init__(self, options: CourierOptions | None = None) -> None:
        self._options = options or CourierOptions()
        self._threads = _Threads(self._options.processor_threads)
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        most = self._options.processor_threads
        limits = QueueLimits(
            total=most, per_tenant=max(1, most // 2), waiting_s=self._options.queue_timeout_s,
            pending=self._options.pending,
        )  # fmt: skip
        self._queue = DeliveryQueue("lockstep-custom-courier", self._process, self._end, limits)

    def check(self, tenant: Tenant) -> None:
        """Raise BadArgument for a name that is not known, and for a class that can't be made."""
        _arguments(self._named(tenant), tenant)

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin a delivery."""
        self._queue.submit(delivery, done)

    def forget(self, tenant: str) -> None:
        """Give up a tenant's processor; the next event has another one made."""
        with self._lock:
            self._kept.pop(tenant, None)

    def close(self) -> None:
        """End what is under way, with FAILED; a function that still runs in its thread is not waited for."""
        self._queue.close()
        self._threads.close()

    def _named(self, tenant: Tenant) -> type:
        name = str(tenant.props.get("eventProcessorClass"))
        found = {**BUILT_IN, **self._options.processors}.get(name)
        if found is not None:
            return found
        entry = next(iter(entry_points(group=GROUP, name=name)), None)
        if entry is None:
            reason = f"no processor has this name; register it in the entry point group {GROUP}"
            raise BadArgument(name="eventProcessorClass", value=name, reason=reason)
        try:
            loaded = entry.load()
        except Exception as error:  # a module may raise anything
            reason = f"it could not be loaded: {type(error).__name__}: {error}"
            raise BadArgument(name="eventProcessorClass", value=name, reason=reason) from error
        if not isinstance(loaded, type):
            raise BadArgument(name="eventProcessorClass", value=name, reason="its entry point is not a class")
        return loaded

    def _processor(self, tenant: Tenant) -> Processor:
        """A tenant's processor; made by the first event, while the tenant's others wait for it."""
        with self._lock:
            kept = self._kept.get(tenant.tenant)
            if kept is None or kept.props is not tenant.props:
                self._kept[tenant.tenant] = kept = _Kept(tenant.props)
        with kept.lock:
            if kept.processor is None:
                found = self._named(tenant)
                made: Processor = found(*_arguments(found, tenant))
                kept.processor = made
            return kept.processor

    async def _process(self, delivery: Delivery) -> Answer:
        call = self._threads.submit(lambda: self._call(delivery))
        try:
            async with asyncio.timeout(self._options.timeout_s):
                outcome, rest = await asyncio.wrap_future(call)
                return await _awaited(rest, delivery) if inspect.isawaitable(rest) else (outcome, rest)
        except TimeoutError:
            seconds = f"{self._options.timeout_s:g} s"
            if call.cancelled():
                return Outcome.FAILED, f"Not begun: all threads of processors were busy for {seconds}."
            return Outcome.FAILED, f"The processor did not end within {seconds}."

    def _call(self, delivery: Delivery) -> tuple[Outcome, Any]:
        """Run in a thread: call the processor; a coroutine is handed on to the loop."""
        try:
            processor = self._processor(delivery.tenant)
        except BadArgument as error:
            return Outcome.REFUSED, str(error.params["reason"])
        except BaseException as error:  # noqa: BLE001  # whatever a constructor raises is an answer
            return _failure(error, delivery)
        try:
            return Outcome.TAKEN, processor.process(Fired.of(delivery.event, dry_run=delivery.dry_run))
        except BaseException as error:  # noqa: BLE001  # whatever a processor raises is an answer
            return _failure(error, delivery)

    async def _end(self) -> None:
        """Nothing of the loop's is kept."""


async def _awaited(rest: Awaitable[Any], delivery: Delivery) -> Answer:
    task = asyncio.current_task()
    try:
        await rest
    except asyncio.CancelledError as error:
        if task is not None and task.cancelling():
            raise
        return _failure(error, delivery)
    except BaseException as error:  # noqa: BLE001  # whatever a processor raises is an answer
        return _failure(error, delivery)
    return Outcome.TAKEN, None


def _failure(error: BaseException, delivery: Delivery) -> Answer:
    refused = isinstance(error, Refuse)
    text = str(error) if refused and str(error) else f"{type(error).__name__}: {error}".removesuffix(": ")
    shown = redact(printable(text), secret_texts(delivery.tenant.props))[:ERROR_CHARS]
    return Outcome.REFUSED if refused else Outcome.FAILED, shown


def _arguments(found: type, tenant: Tenant) -> tuple[Any, ...]:
    """What a class is made with; BadArgument if it takes neither nothing nor a name and props."""
    for arguments in ((tenant.tenant, dict(tenant.props)), ()):
        try:
            inspect.signature(found).bind(*arguments)
        except (TypeError, ValueError):
            continue
        return arguments
    name = str(tenant.props["eventProcessorClass"])
    reason = (
        f"no suitable constructor found for custom processor: {name}, either a no-args constructor or a constructor "
        "with parameters (str, dict) is required"
    )
    raise BadArgument(name="eventProcessorClass", value=name, reason=reason)


class _Threads:
    """A bounded pool of daemon threads: a processor that never ends does not keep the process from ending."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._work: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._running = 0
        self._busy = 0

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Have a call made by the next free thread; a future that is cancelled before that is dropped."""
        future: Future[Any] = Future()
        with self._lock:
            self._busy += 1
            if self._busy > self._running and self._running < self._most:
                self._running += 1
                threading.Thread(target=self._run, name="lockstep-processor", daemon=True).start()
        self._work.put((future, call))
        return future

    def close(self) -> None:
        """Let threads end, each after what it is doing."""
        for _ in range(self._running):
            self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                future.set_result(call())
            with self._lock:
                self._busy -= 1
