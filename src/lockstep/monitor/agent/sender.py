"""What goes to the servers: numbered, kept until it is accepted, sent in order by one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from lockstep.errors import LockstepError, UsageError
from lockstep.monitor.agent.machine import Json
from lockstep.monitor.agent.spool import Spool
from lockstep.monitor.core.documents import encode
from lockstep.monitor.transport.port import DIRECT, KEEPALIVES, RESULTS, Outgoing
from lockstep.runtime import logger

BATCH, BATCH_BYTES = 500, 1 << 20
PAUSE_S, PAUSE_MAX_S = 0.5, 10.0
_IDLE_S = 5.0


class Publishes(Protocol):
    """The part of a transport that a sender needs."""

    def publish_many(self, messages: Sequence[Outgoing]) -> None:
        """Send messages in their order; an error may leave any first part of them accepted."""


class Sender:
    """Numbers messages and hands them to the transport.

    Keepalives and results are numbered each for themselves, as a broker does not keep their order together: `_agent`
    names the agent's start and the pipe, `_n` counts from 1. A result is in the spool before `result` returns. Of
    keepalives only the last one waits: an older one says nothing more.
    """

    def __init__(self, transport: Publishes, spool: Spool, start_id: str) -> None:
        self._transport, self._spool, self._start_id = transport, spool, start_id
        self._numbers = {KEEPALIVES: 0, RESULTS: 0}
        self._keepalive: bytes | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._hurry = threading.Event()
        self.failed = False
        """Whether the last try to send failed."""
        self.refused = 0
        """Messages that no transport takes."""

    def keepalive(self, document: Json) -> None:
        """Send a keepalive; one that still waits is replaced."""
        with self._changed:
            self._keepalive = self._numbered(KEEPALIVES, document)
            self._changed.notify_all()

    def result(self, document: Json) -> None:
        """Send a result: kept until it is accepted."""
        with self._changed:
            self._spool.append(self._numbered(RESULTS, document))
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Results that are not sent yet."""
        with self._changed:
            return len(self._spool)

    @property
    def is_busy(self) -> bool:
        """Whether anything waits to be sent."""
        with self._changed:
            return self._keepalive is not None or len(self._spool) > 0

    @property
    def dropped(self) -> int:
        """Results that were given up."""
        return self._spool.dropped + self.refused

    def _numbered(self, pipe: str, document: Json) -> bytes:
        """The message with its number; the check stays last, as servers read such results with less work."""
        self._numbers[pipe] += 1
        number = {"_agent": f"{self._start_id}-{pipe[0]}", "_n": self._numbers[pipe]}
        check = {"check": document["check"]} if "check" in document else {}
        return encode({**{name: value for name, value in document.items() if name != "check"}, **number, **check})

    # the thread that sends

    def run(self) -> None:
        """Send what comes until closed."""
        pause = PAUSE_S
        while not self._closing:
            with self._changed:
                if not self._closing and self._keepalive is None and not len(self._spool):
                    self._changed.wait(_IDLE_S)
            if self.send_next():
                pause = PAUSE_S
                continue
            self._hurry.wait(pause)
            self._hurry.clear()
            pause = min(pause * 2, PAUSE_MAX_S)

    def hurry(self) -> None:
        """Try again now: the transport is back."""
        self._hurry.set()

    def close(self) -> None:
        """Have `run` end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._hurry.set()

    def send_next(self) -> bool:
        """Send what waits, as far as it fits into a batch; False if that failed."""
        with self._changed:
            keepalive, results = self._keepalive, self._spool.first(BATCH, BATCH_BYTES)
        messages = [] if keepalive is None else [Outgoing(DIRECT, KEEPALIVES, keepalive)]
        messages += [Outgoing(DIRECT, RESULTS, body) for body in results]
        if not messages:
            return True
        if not self._sent(messages):
            with self._changed:
                self._spool.sync()
            return False
        with self._changed:
            if self._keepalive is keepalive:
                self._keepalive = None
            if results:
                self._spool.remove(len(results))
        return True

    def _sent(self, messages: Sequence[Outgoing]) -> bool:
        """True when all are accepted, or can't ever be."""
        try:
            self._transport.publish_many(messages)
        except UsageError as error:
            if len(messages) > 1:
                return all(self._sent([message]) for message in messages)
            self.refused += 1
            logger.warning("A message was dropped: %s", error, extra={"action": "message_refused"})
        except LockstepError as error:
            if not self.failed:
                logger.warning("Results wait in the spool: %s", error, extra={"action": "sending_failed"})
            self.failed = True
            return False
        if self.failed:
            self.failed = False
            logger.info("Results are sent again", extra={"action": "sending_again"})
        return True


def start_thread(run: Callable[[], None], on_crash: Callable[[BaseException], None]) -> threading.Thread:
    """A daemon thread for a sender; what ends it before its time is handed on."""

    def watched() -> None:
        try:
            run()
        except BaseException as error:  # the thread ends here, and its owner is told why
            on_crash(error)
            raise

    thread = threading.Thread(target=watched, name="lockstep-monitor-sender", daemon=True)
    thread.start()
    return thread
