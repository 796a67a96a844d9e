"""Carries out the items of an outbox: each once, in the order of its key, also after a kill; and says what is in doubt.

    with bus.carrier("outbox", group="mail") as carrier:
        carrier.on("mail", send)
        carrier.run()

Carriers of a group share the shards of the outbox. Before an item is carried out, `begun` is appended to the ledger of
its shard and read back, then the group's log is read to its end. A new owner of a shard writes a barrier to the ledger
and reads through it, so what it does not find there as begun, nobody has begun.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from lockstep.core.delivery import AGAIN, DEAD, DONE, FAILED, REFUSED, REMEMBER, SKIP, SKIPPED, Ledger
from lockstep.core.dispatch import Dispatcher, Rules
from lockstep.errors import (
    AppendTooLarge,
    BadConfig,
    Closed,
    DeliveryRefused,
    Fenced,
    IllegalState,
    LockstepError,
    RecordTooLarge,
    TakenBack,
    Trimmed,
)
from lockstep.log.config import StreamConfig, check_name
from lockstep.runtime import Runtime, Task, logger
from lockstep.streams import arguments
from lockstep.streams.arguments import bad_setting
from lockstep.streams.carrier_shard import CONFIG, CarrierShard, Errand, LedgerLog, Load, ledger_name
from lockstep.streams.handlers import CallersLoop, HandlerLoop, fitting_name, without_value
from lockstep.streams.metrics import CarrierMeter
from lockstep.streams.options import GroupOptions
from lockstep.streams.outbox import Item, label_of
from lockstep.streams.publisher import Publisher
from lockstep.streams.receiver import signals_set
from lockstep.streams.record import Gap, Record
from lockstep.streams.shards import stream_name
from lockstep.streams.threads import Process

if TYPE_CHECKING:
    from lockstep.streams.client import Lockstep
    from lockstep.streams.subscriber import Subscriber

EVERY_KIND = "*"
_WORKERS_MAX = 256
_IDLE_S, _AWAY_S = 1.0, 1.0
_LETTER_S = 30.0
_KINDS_TOLD = 100
_END_S = 10.0
_LATE_S = 30.0
"""How long the outcome of a lost shard's work is offered to its ledger."""

ItemHandler = Callable[[Item], Awaitable[None] | None]
H = TypeVar("H", bound=ItemHandler)


@dataclass(frozen=True, kw_only=True, slots=True)
class CarrierOptions:
    """How a carrier works. All members of a group should use the same."""

    workers: int = 8
    """Items carried out at a time."""
    retries: int = 10
    """Tries after the first one that failed; then the item goes to the dead letters."""
    backoff_s: float = 1.0
    """Pause before the first retry; doubles with each."""
    backoff_max_s: float = 300.0
    on_doubt: str = "again"
    """What is done with an item that was begun by a carrier which did not say how it ended: again, or skip."""
    window: int = 1000
    """Most items of a shard that are read ahead: those of other keys go on while one waits for its next try."""
    window_bytes: int = 64 << 20
    """Most bytes of them in all shards."""
    dead_letters: str | None = None
    """Stream for dead letters; by default the outbox with .dlq added."""
    remember: int = REMEMBER
    """How many finished items are remembered: a copy of one of them is not carried out."""

    def __post_init__(self) -> None:
        if self.on_doubt not in (AGAIN, SKIP):
            raise BadConfig(field="on_doubt", value=self.on_doubt, reason=f"choose {AGAIN} or {SKIP}")
        arguments.integer("workers", self.workers, least=1, most=_WORKERS_MAX, refuse=bad_setting)
        arguments.integer("retries", self.retries, refuse=bad_setting)
        for name in ("window", "window_bytes", "remember"):
            arguments.integer(name, getattr(self, name), least=1, refuse=bad_setting)
        for name in ("backoff_s", "backoff_max_s"):
            arguments.seconds(name, getattr(self, name), finite=True, refuse=bad_setting)
        if self.dead_letters is not None:
            check_name("Stream", self.dead_letters)


class CarrierSettings(TypedDict, total=False):
    """The fields of CarrierOptions as keyword arguments."""

    workers: int
    retries: int
    backoff_s: float
    backoff_max_s: float
    on_doubt: str
    window: int
    window_bytes: int
    dead_letters: str | None
    remember: int


class Carrier:
    """Carries out the items of an outbox, as a member of a group. Register handlers, then `run`, or `start`.

    A handler that returns has done it; one that raises is called again after a pause; DeliveryRefused sends the item to
    the dead letters at once. Items of kinds without a handler are left to other groups.
    """

    def __init__(
        self,
        bus: Lockstep,
        outbox: str,
        group: str,
        options: CarrierOptions | None = None,
        group_options: GroupOptions | None = None,
        *,
        dispatcher: type[Dispatcher] = Dispatcher,
    ) -> None:
        self.outbox, self.group = check_name("Stream", outbox), check_name("Group", group)
        self.options = options or CarrierOptions()
        self._bus, self._group_options, self._dispatcher = bus, group_options, dispatcher
        self._runtime: Runtime = bus.runtime
        self._handlers: dict[str, ItemHandler] = {}
        self._meter = CarrierMeter(group)
        self._process = Process("The carrier")
        self._rules = Rules(
            retries=self.options.retries, backoff_s=self.options.backoff_s,
            backoff_max_s=self.options.backoff_max_s, on_doubt=self.options.on_doubt,
        )  # fmt: skip
        self._shards: dict[str, CarrierShard] = {}
        self._lost: list[CarrierShard] = []
        self._lock, self._stepping = threading.Lock(), threading.RLock()
        self._errands: deque[Errand] = deque()
        self._results: deque[tuple[Errand, str, str]] = deque()
        self._workers: list[_Worker] = []
        self._loop: CallersLoop | None = None
        """Where async handlers run; None: in a loop of its own."""
        self._task: Task | None = None
        self._subscriber: Subscriber | None = None
        self._letters: Publisher | None = None
        self._draining = self._finished = False
        self._told: set[str] = set()
        self._calls_seen = 0
        self.error: BaseException | None = None
        """The error that ended it; None while it runs, or if it was closed."""

    def on(self, kind: str, handler: H | None = None) -> Any:
        """Have items of a kind carried out by a function, sync or async; "*" stands for all other kinds.

        Without a function it is a decorator.
        """
        if handler is None:
            return lambda function: self.on(kind, function)
        if self._task is not None:
            raise IllegalState(what="A carrier", action="take a handler", reason="it has been started")
        arguments.text("kind", kind)
        self._handlers[kind] = arguments.function("handler", handler)
        return handler

    def start(self) -> Carrier:
        """Join the group and carry items out in the background."""
        self._process.check()
        if self._task is not None or self._finished:
            raise IllegalState(what="A carrier", action="start", reason="it was started before, or closed")
        if not self._handlers:
            raise IllegalState(what="A carrier", action="start", reason="it has no handler: call on(kind, handler)")
        self._make_ledger()
        self._subscriber = self._bus.subscriber(
            self.outbox, group=self.group, create=False, group_options=self._group_options,
            on_gap="skip", on_gap_found=self._gap, on_error=self._trouble,
        )  # fmt: skip
        self._subscriber._attach(self._is_busy, lambda _: None)
        self._bus.metrics._add(self._meter)
        loop = self._loop or HandlerLoop(self.options.workers)
        self._workers = [_Worker(self, loop, self._runtime) for _ in range(self.options.workers)]
        self._task = self._runtime.spawn("lockstep-carrier", self._step, self._subscriber._waiter, self._crashed)
        return self

    def run(self) -> None:
        """Carry items out until SIGTERM or SIGINT, then finish what is begun. Call it from the main thread."""
        ended = threading.Event()
        if self._task is None:
            self.start()
        with signals_set(ended):
            try:
                while not ended.wait(0.2) and not self._finished:
                    pass
            finally:
                self.close()
        if self.error is not None:
            raise self.error

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self._finished and self._task is None

    @property
    def counts(self) -> dict[str, int]:
        """What it did so far: items done, attempts failed, refused, given up (dead), found in doubt, passed, lost."""
        return {item.name: getattr(self._meter, item.name) for item in fields(self._meter)[1:-1]}

    def wait_idle(self, timeout: float = float("inf")) -> bool:
        """Wait until the group is finished with everything that is on the outbox; False if that takes longer."""
        end, pause = self._runtime.monotonic() + arguments.seconds("timeout", timeout), self._runtime.waiter()
        while not self._finished:
            if self._is_idle():
                return True
            if self._runtime.monotonic() >= end:
                return False
            pause.wait(0.05)
        if self.error is not None:
            raise self.error
        raise Closed(what="The carrier")

    def close(self, timeout: float = 30.0, interrupt: Callable[[], None] | None = None) -> None:
        """Begin nothing more, finish what is begun, hand the shards over.

        `interrupt` is called if handlers are still at work after `timeout` seconds. It ends them; how they ended is
        not noted, so that their items are in doubt, and the next carrier carries them out again.
        """
        timeout = arguments.seconds("timeout", timeout)
        if self._process.is_forked:
            return
        self._draining = True
        if self._task is None or self._subscriber is None:
            self._finished = True
            return
        self._subscriber._waiter.wake()
        if not self._wait_while(self._is_at_work, timeout):
            logger.warning("Deliveries did not end in time", extra={"action": "drain", "seconds": timeout})
            with self._stepping:  # nothing is noted from here on
                self._finished = True
            if interrupt is not None:
                interrupt()
        self._finished = True
        for worker in self._workers:
            worker.end()
        try:
            self._wait_while(self._has_idle_workers, _END_S)
            self._task.stop()
        finally:
            self._task = None
            self._meter.retire()
            for shard in (*self._shards.values(), *self._lost):
                self._let_go(shard)
            self._subscriber.close()
            if self._letters is not None:
                self._letters.close()

    def __enter__(self) -> Carrier:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # the task

    def _step(self) -> float | None:
        if self._finished:
            return None
        assert self._subscriber is not None, "it was started"
        try:
            with self._stepping:
                self._collect()
                took = self._keep_up(self._subscriber)
                self._pump(self._subscriber)
                self._confirm(self._subscriber)
        except Closed:
            self._finished = True
            return None
        except LockstepError as error:
            if self._subscriber._member is None or self._subscriber._member.error is not None:
                raise  # it is in no group any more
            self._trouble("A carrier could not work", error)
            return _AWAY_S
        return 0.0 if took else self._rest_s()

    def _collect(self) -> None:
        """What workers have finished."""
        while self._results:
            errand, outcome, reason = self._results.popleft()
            errand.shard.finished(errand.job, outcome, reason)

    def _keep_up(self, subscriber: Subscriber) -> bool:
        """Follow the group, and read more items if there is room."""
        if not self._is_handling() or self._has_finished_calls():
            subscriber.extend()
        room = self._room(subscriber)
        if room <= 0 or self._draining:
            subscriber._follow()
            self._drop_lost(subscriber)
            return False
        batch = subscriber.poll(0.0, max_records=room)
        self._drop_lost(subscriber)
        if not batch:
            return False
        shard = self._shard(batch.stream, batch.epoch or 0)
        for record in batch.raw():
            shard.give(self._load(record, subscriber._seat(record.stream)))
        return True

    def _room(self, subscriber: Subscriber) -> int:
        """How many items to read at most; a shard that is full is left out until it moves, and others go on."""
        if sum(shard.bytes for shard in self._shards.values()) >= self.options.window_bytes:
            return 0
        rooms = [self.options.window]
        for stream, shard in self._shards.items():
            cursor, left = subscriber._cursors.get(stream), self.options.window - shard.dispatcher.size
            if cursor is not None:
                cursor.paused = left <= 0
            if left > 0:
                rooms.append(left)
        return min(rooms)

    def _load(self, record: Record, seat: str) -> Load:
        label = label_of(record, seat)
        is_for_us = bool(label.fault) or label.kind in self._handlers or EVERY_KIND in self._handlers
        if not is_for_us:
            self._meter.passed += 1
            if label.kind not in self._told and len(self._told) < _KINDS_TOLD:
                self._told.add(label.kind)
                words = "Items of kind %r are left to others: group %s has no handler for them"
                logger.info(words, label.kind, self.group, extra={"action": "kind_passed", "kind": label.kind})
        return Load(record, label, is_for_us)

    def _pump(self, subscriber: Subscriber) -> None:
        for stream, shard in list(self._shards.items()):
            if any(lost.stream == stream and lost.dispatcher.running for lost in self._lost):
                continue  # what it began in an earlier epoch has to end first
            if shard.dispatcher.is_fenced:
                self._begin_anew(shard)
                continue
            self._pump_one(shard)
            if shard.dispatcher.has_jobs and subscriber._is_owner(stream, shard.epoch):
                self._hand_out(shard.take())
        for lost in self._lost:
            self._pump_one(lost)
        self._lost = [lost for lost in self._lost if self._is_worth_keeping(lost)]

    def _pump_one(self, shard: CarrierShard) -> None:
        others = sum(one.dispatcher.begun for one in self._shards.values() if one is not shard)
        doubts = shard.doubts
        try:
            shard.pump(self.options.workers - others - sum(lost.dispatcher.running for lost in self._lost))
        except (Trimmed, TakenBack) as error:  # its end was lost, or another owner was here while this one slept
            words = "A ledger has to be read again from its beginning"
            extra = {"action": "ledger_lost", "stream": shard.ledger.log.name, "reason": str(error)}
            logger.warning(words, extra=extra)
            shard.lose()
        self._meter.doubts += shard.doubts - doubts

    def _begin_anew(self, shard: CarrierShard) -> None:
        """The ledger names another owner, or was cut; the group still names this one: take it over once more."""
        self._shards[shard.stream] = fresh = self._opened(shard.stream, shard.epoch)
        for load in shard.loads():
            fresh.give(load)
        shard.lose()
        self._lost.append(shard)

    def _is_worth_keeping(self, lost: CarrierShard) -> bool:
        if lost.dispatcher.running:
            return True
        is_late = lost.lost_at is not None and self._runtime.monotonic() - lost.lost_at > _LATE_S
        if lost.dispatcher.is_at_work and not is_late:
            return True
        self._let_go(lost)
        return False

    def _let_go(self, shard: CarrierShard) -> None:
        if self._subscriber is not None:
            self._subscriber._waiter.unwatch(shard.ledger.log)
        shard.ledger.log.close()

    def _hand_out(self, errands: list[Errand]) -> None:
        with self._lock:
            self._errands.extend(errands)
        for worker in self._workers:
            worker.wake()

    def _confirm(self, subscriber: Subscriber) -> None:
        """Confirm the unbroken beginning of what the ledger says is finished with."""
        for stream, shard in self._shards.items():
            offset = shard.confirmable()
            if offset is None:
                continue
            try:
                subscriber.confirm(offset, stream=stream)
            except Fenced:
                continue  # they come again, and the ledger knows them
            shard.tidy(offset)

    def _drop_lost(self, subscriber: Subscriber) -> None:
        for stream, shard in list(self._shards.items()):
            if subscriber.epoch(stream) != shard.epoch:
                del self._shards[stream]
                shard.lose()
                self._lost.append(shard)

    def _shard(self, stream: str, epoch: int) -> CarrierShard:
        if stream not in self._shards:
            self._shards[stream] = self._opened(stream, epoch)
        return self._shards[stream]

    def _opened(self, stream: str, epoch: int) -> CarrierShard:
        assert self._subscriber is not None, "it was started"
        member = self._subscriber._member
        assert member is not None, "it is in a group"
        _, slash, number = stream.partition("/")
        log = self._bus.bus.open(ledger_name(self.outbox, self.group) + slash + number)
        self._subscriber._waiter.watch(log)
        ledger = Ledger(self.options.remember)
        dispatcher = self._dispatcher(ledger, member.id, epoch, self._rules)
        return CarrierShard(stream, epoch, LedgerLog(log, self._runtime), dispatcher, self._runtime)

    def _rest_s(self) -> float:
        due = min((one.dispatcher.next_due() for one in (*self._shards.values(), *self._lost)), default=float("inf"))
        return max(0.001, min(_IDLE_S, due - self._runtime.monotonic()))

    # workers

    def _next_errand(self) -> Errand | None:
        with self._lock:
            return self._errands.popleft() if self._errands else None

    def _carry_out(self, errand: Errand, loop: HandlerLoop | CallersLoop) -> None:
        """Called by a worker."""
        try:
            outcome, reason = self._give_up(errand) if errand.job.gives_up else self._call(errand, loop)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - it is tried again
            outcome, reason = FAILED, _told(error)
        self._count(outcome)
        self._results.append((errand, outcome, reason))
        if self._subscriber is not None:
            self._subscriber._waiter.wake()

    def _call(self, errand: Errand, loop: HandlerLoop | CallersLoop) -> tuple[str, str]:
        label = errand.load.label
        if label.fault:
            return REFUSED, label.fault
        if not self._is_still_ours(errand.shard):  # this process slept since it was begun
            return FAILED, "it was not carried out: its shard may be another carrier's by now"
        handler = self._handlers.get(label.kind) or self._handlers[EVERY_KIND]
        try:
            result = handler(errand.item)
            if inspect.isawaitable(result):
                loop.run(result)
        except DeliveryRefused as refusal:
            return REFUSED, str(refusal.params["reason"])
        return DONE, ""

    def _is_still_ours(self, shard: CarrierShard) -> bool:
        """Whether the lease is valid; checked right before a handler is called."""
        subscriber = self._subscriber
        if subscriber is None or subscriber.is_closed or subscriber._member is None or shard.lost_at is not None:
            return False
        return subscriber._member.holds(subscriber._seat(shard.stream), shard.epoch)

    def _give_up(self, errand: Errand) -> tuple[str, str]:
        """Write the dead letter, then say that the item was given up."""
        record, job = errand.load.record, errand.job
        reason = job.reason or "its carriers ended while they were at it"
        headers = (
            ("dlq-stream", record.stream.encode()), ("dlq-offset", str(record.offset).encode()),
            ("dlq-group", self.group.encode()), ("dlq-attempts", str(job.attempt).encode()),
            ("dlq-reason", reason.encode("utf-8", "replace")), *record.headers,
        )  # fmt: skip
        publisher = self._letter_publisher(record.stream)
        try:
            publisher.publish(record.value, key=record.key, headers=headers).result(_LETTER_S)
        except (RecordTooLarge, AppendTooLarge):  # the whole record is still on the outbox
            publisher.publish(b"", key=record.key, headers=without_value(record.value, headers)).result(_LETTER_S)
        extra = {"action": "delivery_given_up", "stream": record.stream, "offset": record.offset, "id": job.id}
        logger.error("Item %s was given up after %d attempts: %s", job.id, job.attempt, reason, extra=extra)
        return DEAD, reason

    def _letter_publisher(self, stream: str) -> Publisher:
        name = self.options.dead_letters or fitting_name(stream_name(stream), ".dlq")
        with self._lock:
            if self._letters is None:
                self._letters = self._bus._open_letters(name, stream)
            return self._letters

    def _count(self, outcome: str) -> None:
        with self._lock:
            self._meter.count(outcome)

    # state

    def _make_ledger(self) -> None:
        shards = self._bus.config(self.outbox).shards
        self._bus.create(ledger_name(self.outbox, self.group), StreamConfig(capacity=CONFIG.capacity, shards=shards))

    def _is_busy(self, stream: str) -> bool:
        """Asked when a shard is to be handed over: what is begun is finished first."""
        shard = self._shards.get(stream)
        if shard is None:
            return False
        shard.dispatcher.is_leaving = True
        if shard.dispatcher.is_at_work:
            return True
        if self._subscriber is not None:
            self._confirm(self._subscriber)
        return False

    def _is_at_work(self) -> bool:
        """Asked while it ends: what is begun is finished, and nothing new is begun."""
        if self._finished:
            return False
        with self._stepping:
            for shard in self._shards.values():
                shard.dispatcher.is_leaving = True
            has_work = any(one.dispatcher.is_at_work for one in (*self._shards.values(), *self._lost))
            return has_work or bool(self._results)

    def _is_handling(self) -> bool:
        return any(worker.at_hand is not None for worker in self._workers)

    def _has_finished_calls(self) -> bool:
        calls = sum(worker.calls for worker in self._workers)
        moved, self._calls_seen = calls != self._calls_seen, calls
        return moved

    def _has_idle_workers(self) -> bool:
        """Workers that were asked to end, have not ended yet, and are not held up by a handler."""
        return any(not worker.ended and worker.at_hand is None for worker in self._workers)

    def _is_idle(self) -> bool:
        """Whether the group is: asked of its log only when this carrier has nothing to do."""
        if any(shard.dispatcher.size for shard in list(self._shards.values())):
            return False
        progress = [one for one in self._bus.groups.describe(self.group).streams if one.lag == 0]
        names = {log.name for log in self._bus.logs(self.outbox)}
        return names <= {one.stream for one in progress}

    def _wait_while(self, condition: Callable[[], bool], timeout: float) -> bool:
        end, pause = self._runtime.monotonic() + timeout, self._runtime.waiter()
        while condition():
            if self._runtime.monotonic() >= end:
                return False
            pause.wait(0.01)
        return True

    def _gap(self, gap: Gap) -> None:
        self._meter.lost += gap.count
        extra = {"action": "items_lost", "stream": gap.stream, "from": gap.first, "to": gap.resumed}
        logger.error("Items that were not carried out yet are gone from their outbox", extra=extra)

    def _trouble(self, summary: str, error: BaseException | None) -> None:
        logger.warning("%s: %s", summary, error, extra={"action": "carrier", "reason": str(error)})

    def _crashed(self, error: BaseException) -> None:
        self.error, self._finished = self.error or error, True
        if self._subscriber is not None:
            self._subscriber._waiter.wake()


class _Worker:
    """A thread that carries out one item after the other."""

    def __init__(self, carrier: Carrier, loop: HandlerLoop | CallersLoop, runtime: Runtime) -> None:
        self._carrier, self._loop = carrier, loop
        self.at_hand: Errand | None = None
        self.calls = 0
        self.ended = self._ending = False
        self._waiter = runtime.waiter()
        self._task = runtime.spawn("lockstep-carrier-worker", self._step, self._waiter, carrier._crashed)

    def wake(self) -> None:
        """Wake it: there may be something to do."""
        self._waiter.wake()

    def end(self) -> None:
        """Begin nothing more; one that is inside a handler ends when that returns."""
        self._ending = True
        self.wake()

    def _step(self) -> float | None:
        if self._ending:
            self.ended = True
            self._loop.release()
            return None
        errand = self.at_hand = self._carrier._next_errand()
        if errand is None:
            return _IDLE_S
        try:
            self._carrier._carry_out(errand, self._loop)
        finally:
            self.at_hand = None
            self.calls += 1
        return 0.0


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


__all__ = ["SKIPPED", "Carrier", "CarrierOptions", "CarrierSettings", "ItemHandler"]
