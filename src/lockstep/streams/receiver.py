"""A subscriber that calls you: records are handed to a function, in the background, in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from lockstep.errors import BadConfig, Closed, Fenced
from lockstep.runtime import Runtime, Task, logger
from lockstep.streams.handling import Handler, OnFailure, dead_letter_headers, stopped_at
from lockstep.streams.publisher import Publisher
from lockstep.streams.record import Record
from lockstep.streams.shards import shard_of, stream_name
from lockstep.streams.subscriber import Subscriber
from lockstep.streams.workers import Progress, Worker

CONFIRM = ("handled", "periodic", "off")
_IDLE_S = 1.0
OpenPublisher = Callable[[str], Publisher]


class Receiver:
    """Polls a subscriber and hands each record to `handler`. Ends with the subscriber.

    `workers` above 1 handles records of different keys side by side; those of one key stay in order.
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
        if workers < 1 or prefetch < 1:
            raise BadConfig(field="workers", value=workers, reason="workers and prefetch must be at least 1")
        subscriber.attach(self._is_busy)
        self.subscriber, self._runtime, self._open_publisher = subscriber, runtime, open_publisher
        self._policy = on_failure or OnFailure()
        self._confirm, self._confirm_every_s, self._prefetch = confirm, confirm_every_s, prefetch
        self._confirm_due = 0.0
        self._progress: dict[str, Progress] = {}
        self._lock = threading.RLock()
        self._publishers: dict[str, Publisher] = {}
        self._draining = False
        self._finished = False
        self.error: BaseException | None = None
        """Why it stands still or ended, if it did."""
        self._workers = [self._new_worker(handler) for _ in range(workers)]
        self._side_tasks: list[tuple[Task, Worker]] = []
        self._side_tasks += self._start_side_workers()
        self._task = runtime.spawn("lockstep-receiver", self._step, subscriber.waiter, self._crashed)

    @property
    def is_running(self) -> bool:
        """False once it ended."""
        return not self._finished

    @property
    def is_closed(self) -> bool:
        """True after close."""
        return self.subscriber.is_closed

    def drain(self, timeout: float = 30.0) -> None:
        """Take no more records, finish those at hand, confirm them."""
        self._draining = True
        end = self._runtime.monotonic() + timeout
        pause = self._runtime.waiter()
        while self._in_flight() and self.error is None and self._runtime.monotonic() < end:
            self._task.wake()
            pause.wait(0.01)
        self._confirm_done(now=True)

    def close(self, timeout: float = 30.0) -> None:
        """Drain, then close the subscriber."""
        if not self._finished:
            self.drain(timeout)
            self._finished = True
            self._task.stop()
            for task, _ in self._side_tasks:
                task.stop()
        for worker in self._workers:
            worker.close()
        self.subscriber.close()
        for publisher in self._publishers.values():
            publisher.close()

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, then drain and close. Call it from the main thread."""
        ended = threading.Event()

        def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what the signal module passes
            ended.set()

        before = {name: signal.signal(name, stop) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            while not ended.wait(0.2) and self.is_running:
                pass
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
            self.close()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _new_worker(self, handler: Handler) -> Worker:
        return Worker(
            handler,
            self._policy,
            self._runtime,
            decode=self.subscriber.decode,
            outcome=self._settled,
            extend=self.subscriber.extend,
            failed=self._count_failure,
        )

    def _start_side_workers(self) -> list[tuple[Task, Worker]]:
        """With one worker the receiver's own task does the work; with more, each has a task of its own."""
        if len(self._workers) == 1:
            return []
        started = []
        for worker in self._workers:
            task = self._runtime.spawn("lockstep-worker", worker.step, self._runtime.waiter(), self._crashed)
            started.append((task, worker))
        return started

    def _step(self) -> float | None:
        if self._finished:
            return None
        try:
            took = not self._draining and self._take()
        except Closed:
            self._finished = True
            return None
        delay = self._workers[0].step() if not self._side_tasks else _IDLE_S
        if self.error is not None:
            self.subscriber.extend()  # stand still, but keep the stream: a poison record must not go round the group
        self._confirm_done()
        return 0.0 if took else min(delay, _IDLE_S)

    def _take(self) -> bool:
        """Hand the next records to the workers, unless enough are at hand."""
        room = self._prefetch - self._in_flight()
        if room <= 0 or self.error is not None:
            return False
        batch = self.subscriber.poll(0.0, max_records=room)
        with self._lock:
            self._drop_lost()
            progress = self._progress.setdefault(batch.stream, Progress(batch.epoch)) if batch else None
            for record in batch.raw():
                assert progress is not None
                progress.begin(record.offset)
                self._worker_for(record).give(record, batch.epoch)
        if batch:
            for task, _ in self._side_tasks:
                task.wake()
        return bool(batch)

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
        """Asked when a stream is to be handed over: first what is at hand is finished and confirmed."""
        with self._lock:
            progress = self._progress.get(stream)
        if progress is not None and progress.in_flight:
            return True
        self._confirm_done(now=True)
        return False

    def _in_flight(self) -> int:
        with self._lock:
            return sum(progress.in_flight for progress in self._progress.values())

    def _settled(self, record: Record, attempts: int, error: BaseException | None) -> bool:
        if error is not None and not self._give_up(record, attempts, error):
            return False
        with self._lock:
            if record.stream in self._progress:
                self._progress[record.stream].done(record.offset)
        if self._side_tasks:
            self.subscriber.waiter.wake()  # the receiver's own task confirms
        return True

    def _give_up(self, record: Record, attempts: int, error: BaseException) -> bool:
        """The retries are used up. True: go on behind the record."""
        if self._policy.then == "stop":
            self.error = stopped_at(record, attempts, error)
            logger.error("Receiver stands still", exc_info=error, extra={"action": "stopped", "offset": record.offset})
            if self.subscriber.options.on_error is not None:
                self.subscriber.options.on_error("The handler failed", self.error)
            return False
        if self._policy.then == "dead-letter":
            headers = dead_letter_headers(record, self.subscriber.group, attempts, error)
            publisher = self._publisher(self._policy.dead_letter_stream(stream_name(record.stream)))
            publisher.publish(record.value, key=record.key, headers=headers).result(30.0)
            self.subscriber.meter.dead_letters += 1
        return True

    def _publisher(self, stream: str) -> Publisher:
        with self._lock:
            if stream not in self._publishers:
                self._publishers[stream] = self._open_publisher(stream)
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
        self.subscriber.meter.handler_failures += 1

    def _crashed(self, error: BaseException) -> None:
        self.error, self._finished = error, True
        if self.subscriber.options.on_error is not None:
            self.subscriber.options.on_error("The receiver ended", error)
