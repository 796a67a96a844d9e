"""A subscriber that calls you: records are handed to a function, in the background, in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from lockstep.errors import AppendTooLarge, BadConfig, Closed, Fenced, LockstepError, RecordTooLarge
from lockstep.log.batch import Headers
from lockstep.runtime import Runtime, Task, logger
from lockstep.streams import arguments
from lockstep.streams.arguments import bad_setting
from lockstep.streams.handlers import (
    Handler,
    HandlerLoop,
    OnFailure,
    dead_letter_headers,
    letter_headers,
    stopped_at,
    without_value,
)
from lockstep.streams.publisher import Publisher
from lockstep.streams.record import Record, RecordBatch
from lockstep.streams.shards import shard_of, stream_name
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.threads import Process
from lockstep.streams.workers import Owner, Progress, Verdict, Worker, calling

CONFIRM = ("handled", "periodic", "off")
_IDLE_S = 1.0
_WORKERS_END_S = 10.0
_WORKERS_MAX = 1024
_LETTER_S = 30.0
OpenPublisher = Callable[[str, str], Publisher]
"""Opens a publisher to the dead-letter stream of a stream, which is made if it is missing."""


class Receiver:
    """Polls a subscriber and hands each record to `handler`. Ends with the subscriber.

    `workers` above 1 handles records of different keys side by side; those of one key stay in order. Async handlers run
    in one event loop, as many at a time as there are workers. Its own task only takes, confirms and keeps up with the
    group, so that a slow handler does not hold that up.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        handler: Handler,
        runtime: Runtime,
        open_publisher: OpenPublisher,
        *,
        on_failure: OnFailure | None = None,
        confirm: str = "handled",
        confirm_every_s: float = 1.0,
        workers: int = 1,
        prefetch: int = 1000,
    ) -> None:
        if confirm not in CONFIRM:
            raise BadConfig(field="confirm", value=confirm, reason=f"choose one of {', '.join(CONFIRM)}")
        workers = arguments.integer("workers", workers, least=1, most=_WORKERS_MAX, refuse=bad_setting)
        prefetch = arguments.integer("prefetch", prefetch, least=1, refuse=bad_setting)
        confirm_every_s = arguments.seconds("confirm_every_s", confirm_every_s, finite=True, refuse=bad_setting)
        subscriber._attach(self._is_busy, self._confirmable)
        self.subscriber, self._runtime, self._open_publisher = subscriber, runtime, open_publisher
        self._policy = on_failure or OnFailure()
        self._confirm, self._confirm_every_s, self._prefetch = confirm, confirm_every_s, prefetch
        self._process = Process("The receiver")
        self._confirm_due = 0.0
        self._progress: dict[str, Progress] = {}
        self._lock = threading.RLock()
        self._publishers: dict[str, Publisher] = {}
        self._draining = self._close_when_idle = self._finished = False
        self._calls_seen = 0
        self.error: BaseException | None = None
        """Why it stands still or ended, if it did."""
        owner = Owner(
            decode=subscriber._decode,
            begin=self._begin,
            outcome=self._settled,
            refused=self._letter_refused,
            extend=subscriber.extend,
            failed=self._count_failure,
            rested=subscriber._waiter.wake,
        )
        loop = HandlerLoop(workers)
        self._workers = [Worker(handler, self._policy, runtime, owner, loop) for _ in range(workers)]
        self._worker_tasks = [self._start(worker) for worker in self._workers]
        self._task = runtime.spawn("lockstep-receiver", self._step, subscriber._waiter, self._crashed)

    @property
    def is_running(self) -> bool:
        """False once it ended."""
        return not self._finished

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self.subscriber.is_closed

    def drain(self, timeout: float = 30.0) -> None:
        """Take no more records, finish those that were begun, confirm them. The others are delivered again.

        Called by the handler itself it does not wait: the record at hand is finished when the handler returns.
        """
        timeout = arguments.seconds("timeout", timeout)
        self._draining = True
        if self._is_called_by_handler():
            return
        if not self._wait_while(self._is_at_work, timeout):
            logger.warning("Work at hand did not end in time", extra={"action": "drain", "seconds": timeout})
        self._confirm_done(now=True)

    def close(self, timeout: float = 30.0) -> None:
        """Drain, then close the subscriber, whether or not the handler returned in time.

        Called by the handler itself it does not wait: it closes after the handler returned.
        """
        if self._process.is_forked:
            return  # a child inherited it: the work is the parent's
        if self._is_called_by_handler():
            self._draining = self._close_when_idle = True
            return
        try:
            self.drain(timeout)
        finally:
            self._shut()

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then drain and close. Raises what it stood still at, or ended of.

        Call it from the main thread.
        """
        ended = threading.Event()
        with signals_set(ended):
            try:
                while not ended.wait(0.2) and self.is_running:
                    pass
            finally:
                self.close()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self, worker: Worker) -> Task:
        return self._runtime.spawn("lockstep-worker", worker.step, self._runtime.waiter(), self._crashed)

    def _step(self) -> float | None:
        try:
            took = not self._finished and self._keep_up()
        except Closed:
            self._finished = True
        self._confirm_done(now=self._finished)
        if self._close_when_idle and not self._is_at_work():
            self._shut()
        if self._finished:
            self._end_workers()
            return None
        return 0.0 if took else _IDLE_S

    def _keep_up(self) -> bool:
        """Follow the group, drop what is lost, and hand the next records to the workers if there is room."""
        self._tell_progress()
        room = self._prefetch - self._in_flight()
        if room <= 0 or self._draining or self.error is not None:
            self.subscriber._follow()
            batch = None
        else:
            batch = self.subscriber.poll(0.0, max_records=room)
        with self._lock:
            self._drop_lost()
            if batch:
                self._hand_out(batch)
        return bool(batch)

    def _hand_out(self, batch: RecordBatch) -> None:
        progress = self._progress.setdefault(batch.stream, Progress(batch.epoch))
        for record in batch.raw():
            progress.add(record.offset)
            self._worker_for(record).give(record, batch.epoch)
        for task in self._worker_tasks:
            task.wake()

    def _tell_progress(self) -> None:
        """Processing time counts from the last call that ended; waiting for records is not being late."""
        calls = sum(worker.calls for worker in self._workers)
        if calls != self._calls_seen or not self._is_handling():
            self._calls_seen = calls
            self.subscriber.extend()

    def _begin(self, record: Record, epoch: int | None) -> Verdict:
        """Asked by a worker right before it calls the handler."""
        if self._finished or self.subscriber.is_closed:
            return Verdict.DROP
        with self._lock:
            progress = self._progress.get(record.stream)
            if progress is None or progress.epoch != epoch or self.subscriber.epoch(record.stream) != epoch:
                return Verdict.DROP
            if (self._draining or progress.leaving) and not progress.fills_a_hole(record.offset):
                return Verdict.DROP
            if not self._has_lease(record.stream, epoch):
                return Verdict.WAIT
            progress.begin(record.offset)
        return Verdict.HANDLE

    def _has_lease(self, stream: str, epoch: int | None) -> bool:
        """A lease that ran out may come back in the same epoch, so its records are not lost yet."""
        member = self.subscriber._member
        if member is None or epoch is None:
            return True
        try:
            return member.holds(self.subscriber._seat(stream), epoch)
        except Closed:
            return False

    def _drop_lost(self) -> None:
        """Work on streams that went to another member is forgotten: it will be done there."""
        epochs = {name: self.subscriber.epoch(name) for name in self._progress}
        for stream in [name for name, progress in self._progress.items() if progress.epoch != epochs[name]]:
            del self._progress[stream]
            for worker in self._workers:
                worker.drop(stream)

    def _worker_for(self, record: Record) -> Worker:
        if len(self._workers) == 1:
            return self._workers[0]
        return self._workers[shard_of(record.key or b"", len(self._workers))]

    def _is_busy(self, stream: str) -> bool:
        """Asked when a stream is to be handed over: what is begun is finished first, the rest is left to the next."""
        with self._lock:
            progress = self._progress.get(stream)
            if progress is not None:
                progress.leaving = True
                if progress.has_begun:
                    return True
        self._confirm_done(now=True)
        return False

    def _confirmable(self, stream: str) -> int | None:
        """How far a stream may be confirmed: what is handled, and the record at which the calling handler is."""
        at_hand = self._at_hand()
        with self._lock:
            progress = self._progress.get(stream)
            if progress is None:
                return None
            is_of_stream = at_hand is not None and at_hand.stream == stream
            return progress.reaches(at_hand.offset if at_hand is not None and is_of_stream else None)

    def _at_hand(self) -> Record | None:
        """The record of the handler that asks, while it is called: a task that it did not await has none."""
        found = calling()
        return found[1] if found is not None and found[0] in self._workers and found[0].at_hand is found[1] else None

    def _is_at_work(self) -> bool:
        """Whether there is something to wait for before it closes."""
        if self._is_handling():
            return True
        if self._finished or self.error is not None or self.subscriber.is_closed:
            return False
        with self._lock:
            return any(progress.has_begun for progress in self._progress.values())

    def _is_handling(self) -> bool:
        return any(worker.at_hand is not None for worker in self._workers)

    def _is_called_by_handler(self) -> bool:
        found = calling()
        return found is not None and found[0] in self._workers

    def _wait_while(self, condition: Callable[[], bool], timeout: float) -> bool:
        """False if it was still so after `timeout` seconds."""
        end = self._runtime.monotonic() + timeout
        pause = self._runtime.waiter()
        while condition():
            if self._runtime.monotonic() >= end:
                return False
            pause.wait(0.01)
        return True

    def _end_workers(self) -> None:
        """None outlives the receiver; one that is inside the handler ends when that returns."""
        for worker, task in zip(self._workers, self._worker_tasks, strict=True):
            worker.end()
            task.wake()

    def _shut(self) -> None:
        self._finished = True
        self._end_workers()
        try:
            self._wait_while(self._has_idle_workers, _WORKERS_END_S)
            self._task.stop()
        finally:
            self.subscriber.close()
            for publisher in self._publishers.values():
                publisher.close()

    def _has_idle_workers(self) -> bool:
        """Workers that were asked to end, have not ended yet, and are not held up by the handler."""
        return any(not worker.ended and worker.at_hand is None for worker in self._workers)

    def _in_flight(self) -> int:
        with self._lock:
            return sum(progress.in_flight for progress in self._progress.values())

    def _settled(self, record: Record, epoch: int | None, attempts: int, error: BaseException | None) -> bool:
        if error is not None and not self._give_up(record, attempts, error):
            return False
        with self._lock:
            progress = self._progress.get(record.stream)
            if progress is not None and progress.epoch == epoch:
                progress.done(record.offset)
        return True

    def _give_up(self, record: Record, attempts: int, error: BaseException) -> bool:
        """The retries are used up. True: go on after the record."""
        if self._policy.then == "stop":
            self.error = stopped_at(record, attempts, error)
            logger.error("Receiver stands still", exc_info=error, extra={"action": "stopped", "offset": record.offset})
            if self.subscriber.options.on_error is not None:
                self.subscriber.options.on_error("The handler failed", self.error)
            return False
        if self._policy.then == "dead-letter":
            self._send_letter(record, dead_letter_headers(record, self.subscriber.group, attempts, error))
            self.subscriber._meter.dead_letters += 1
        return True

    def _send_letter(self, record: Record, headers: Headers) -> None:
        """Store a dead letter; one that is too large goes without its value, which the source stream still has."""
        publisher = self._publisher(self._policy.dead_letter_stream(stream_name(record.stream)), record.stream)
        try:
            publisher.publish(record.value, key=record.key, headers=headers).result(_LETTER_S)
        except (RecordTooLarge, AppendTooLarge) as error:
            logger.error(
                "Record %d of %s does not fit into its dead-letter stream; the letter goes without its value: %s",
                record.offset, record.stream, error, extra={"action": "letter_cut", "stream": record.stream},
            )  # fmt: skip
            self._send_cut_letter(publisher, record, without_value(record.value, headers))

    def _send_cut_letter(self, publisher: Publisher, record: Record, headers: Headers) -> None:
        """Store a letter without its value, and if that is still too large without key and headers."""
        try:
            publisher.publish(b"", key=record.key, headers=headers).result(_LETTER_S)
        except (RecordTooLarge, AppendTooLarge):
            publisher.publish(b"", headers=letter_headers(headers)).result(_LETTER_S)

    def _letter_refused(self, record: Record, error: LockstepError) -> None:
        summary = f"The dead letter of record {record.offset} of {record.stream} could not be stored; trying again"
        logger.error("%s: %s", summary, error, extra={"action": "letter_refused", "stream": record.stream})
        if self.subscriber.options.on_error is not None:
            self.subscriber.options.on_error(summary, error)

    def _publisher(self, stream: str, source: str) -> Publisher:
        with self._lock:
            if stream not in self._publishers:
                self._publishers[stream] = self._open_publisher(stream, source)
            return self._publishers[stream]

    def _confirm_done(self, *, now: bool = False) -> None:
        """Confirm the unbroken beginning of what is done; with `now`, before the next period begins."""
        time = self._runtime.monotonic()
        if self.subscriber.group is None or self._confirm == "off":
            return
        if self._confirm == "periodic" and time < self._confirm_due and not now:
            return
        self._confirm_due = time + self._confirm_every_s
        with self._lock:
            ready = {name: progress.prefix for name, progress in self._progress.items() if progress.prefix is not None}
            for name in ready:
                self._progress[name].prefix = None
        for name, offset in ready.items():
            try:
                self.subscriber.confirm(offset, stream=name)
            except (Fenced, Closed) as error:  # they are handed out again, by this member or another
                logger.warning("Handled records were not confirmed", extra={"action": "fenced", "reason": str(error)})

    def _count_failure(self) -> None:
        self.subscriber._meter.handler_failures += 1

    def _crashed(self, error: BaseException) -> None:
        self.error, self._finished = self.error or error, True
        self._end_workers()
        self.subscriber._waiter.wake()
        if self.subscriber.options.on_error is not None:
            self.subscriber.options.on_error("The receiver ended", error)


@contextmanager
def signals_set(ended: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT only set `ended`, so that a second one does not cut off what the first one began."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what the signal module passes
        ended.set()

    before = {name: signal.signal(name, end) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, signal.SIG_DFL if handler is None else handler)  # None: it was not set by Python
