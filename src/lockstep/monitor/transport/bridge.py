"""Between a broker and a monitor's streams: keepalives and results come in, requests go out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from lockstep.errors import LockstepError, UsageError
from lockstep.monitor.transport.errors import TransportDown
from lockstep.monitor.transport.port import DIRECT, FANOUT, KEEPALIVES, RESULTS, Message, Outgoing, Transport
from lockstep.monitor.transport.streams import MonitorStreams, input_key, marked
from lockstep.runtime import logger
from lockstep.streams.client import Lockstep
from lockstep.streams.outbox import ID_HEADER

if TYPE_CHECKING:
    from lockstep.streams.record import Record

MESSAGE_BYTES = 4 << 20
"""Larger messages are acknowledged and dropped, with a line in the log; `sensu.server.max_message_size` changes it."""
_BATCH = 1_000
_WAIT_S = 0.5
_PAUSE_S = 1.0
_CLOSE_S = 10.0


class Bridge:
    """Takes what agents send to a broker into the input of a monitor, and its requests to the broker's exchanges.

    A message is acknowledged after its append is durable. Results are read exclusively: of several servers one reads
    them, so that they are appended in the order of the queue, and another one goes on when it ends.
    """

    def __init__(
        self, bus: Lockstep, transport: Transport, name: str = "monitor", *, message_bytes: int = MESSAGE_BYTES
    ) -> None:
        self._bus, self._transport, self._message_bytes = bus, transport, message_bytes
        self._streams = MonitorStreams(name)
        self._waiting: deque[tuple[str, Message]] = deque()
        self._came = threading.Event()
        self._closing = threading.Event()
        self._publisher = bus.publisher(self._streams.input)
        self.taken = self.refused = self.requested = 0
        self._threads = [
            threading.Thread(target=self._take_in, name="lockstep-monitor-bridge-in", daemon=True),
            threading.Thread(target=self._send_out, name="lockstep-monitor-bridge-out", daemon=True),
        ]

    def start(self) -> None:
        """Begin, in the background."""
        for thread in self._threads:
            thread.start()
        for pipe in (KEEPALIVES, RESULTS):
            self._transport.subscribe(DIRECT, pipe, pipe, self._taker(pipe), ack=True, exclusive=pipe == RESULTS)

    def close(self) -> None:
        """Take nothing more, and end; what was not acknowledged stays with the broker."""
        self._closing.set()
        self._came.set()
        for thread in self._threads:
            thread.join(_CLOSE_S)
        with suppress(TransportDown):
            self._transport.unsubscribe()
        self._publisher.close()

    def _taker(self, pipe: str) -> Callable[[Message], None]:
        def take(message: Message) -> None:
            # As many as the broker hands out without an acknowledgement. They are stored also when the connection is
            # lost meanwhile: the queue may be gone with it, and copies are known.
            self._waiting.append((pipe, message))
            self._came.set()

        return take

    # in

    def _take_in(self) -> None:
        while not self._closing.is_set():
            if not self._waiting:
                self._came.wait(_WAIT_S)
                self._came.clear()
                continue
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _BATCH))]
            fit = [(pipe, message) for pipe, message in batch if self._fits(pipe, message)]
            if fit:
                self._store(fit)

    def _store(self, batch: Sequence[tuple[str, Message]]) -> None:
        """Append messages in one step and acknowledge them. Tried again until it is done, or the broker has to wait."""
        tried = False
        while not self._closing.is_set():
            # An append whose outcome is not known may have landed: what is tried again may be a copy.
            values = [marked(each.body) if each.redelivered or tried else each.body for _, each in batch]
            try:
                self._publisher.publish_many(values, keys=[_key(pipe, each.body) for pipe, each in batch]).wait()
            except UsageError as error:
                self._store_each(batch, error)
                return
            except LockstepError as error:
                logger.warning("Messages wait at the broker: %s", error, extra={"action": "bridge_waits"})
                tried = True
                self._closing.wait(_PAUSE_S)
            else:
                self.taken += len(batch)
                for _, message in batch:
                    message.ack()
                return

    def _store_each(self, batch: Sequence[tuple[str, Message]], error: UsageError) -> None:
        """Find the message that no stream takes: it is dropped, so that it does not come for ever."""
        if len(batch) > 1:
            for one in batch:
                self._store([one])
            return
        [(pipe, message)] = batch
        self._refuse(pipe, str(error))
        message.ack()

    def _fits(self, pipe: str, message: Message) -> bool:
        if len(message.body) <= self._message_bytes:
            return True
        self._refuse(pipe, f"{len(message.body)} bytes are more than {self._message_bytes}")
        message.ack()
        return False

    def _refuse(self, pipe: str, reason: str) -> None:
        self.refused += 1
        logger.warning("A message to %s was dropped: %s", pipe, reason, extra={"action": "message_dropped"})

    # out

    def _send_out(self) -> None:
        """Hand requests to the broker; one server at a time does, which the group of the stream decides."""
        subscriber = self._bus.subscriber(self._streams.requests, group=f"{self._streams.name}.bridge")
        try:
            while not self._closing.is_set():
                try:
                    records = subscriber.poll(_WAIT_S)
                    if records:
                        self._request(list(records))
                        subscriber.confirm(records)
                except LockstepError as error:
                    logger.warning("Requests wait: %s", error, extra={"action": "bridge_waits"})
                    self._closing.wait(_PAUSE_S)
        finally:
            subscriber.close()

    def _request(self, records: Sequence[Record]) -> None:
        messages = [outgoing_request(record) for record in records]
        while not self._closing.is_set():
            try:
                self._transport.publish_many(messages)
            except TransportDown:
                self._closing.wait(_PAUSE_S)  # some of them may be sent twice: an agent that runs a check skips it
            else:
                self.requested += len(messages)
                return


def outgoing_request(record: Record) -> Outgoing:
    """A request to a subscription: to a work queue if its name says so, else to all who subscribe."""
    subscription = (record.key or b"").decode(errors="replace")
    kind = DIRECT if subscription.partition(":")[0] in ("direct", "roundrobin") else FANOUT
    found = record.header(ID_HEADER)
    return Outgoing(kind, subscription, record.value, None if found is None else found.decode(errors="replace"))


def _key(pipe: str, body: bytes) -> bytes:
    """The key of a message in the input; of one that can't be read, without a client: the model refuses it."""
    try:
        return input_key(pipe, body, None)
    except ValueError:
        return input_key(pipe, b"", "")
