"""A gate by an exclusive queue on RabbitMQ: the engine that is served may lead.

The queue has a single active consumer: the broker serves the first that came, and when that one is gone the next in
order of arrival. To be served is to have a token. The token says nothing, and there may be a spare one in the queue.
Its holder puts a new one there and lets the old one go all the time: that the next one comes back proves that it is
still the one who is served, and no delivery is open for so long that the broker takes its consumer for dead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lockstep.engine.gates.port import Gate, needed
from lockstep.errors import ServerRefused, ServerUnfit, ServerUnreachable
from lockstep.log.network.address import Address
from lockstep.runtime import Runtime, logger

KINDS = ("classic", "quorum")
_OPEN_S = 10.0
_LOOK_S = 0.05
"""How long a step listens to the broker before it checks for requests of the engine."""
_RETRY_S, _RETRY_MOST_S = 0.1, 2.0
_STOP_S = 3 * _OPEN_S
_TOP_UP = 5
"""An engine without a token puts one there every so many beats, in case the queue was purged; the queue keeps one."""
_TOKEN = b"token"
_NEVER = float("-inf")


def open_semaphore(address: Address, queue: str, kind: str, runtime: Runtime) -> SemaphoreGate:
    """Connect and make the queue if it is missing; the engine is not in line yet."""
    gate = SemaphoreGate(Broker(address, queue, kind), runtime)
    gate.connect()
    return gate


class Broker:
    """The queue of the semaphore: how to connect, and what is done there."""

    def __init__(self, address: Address, queue: str, kind: str) -> None:
        self._pika = needed("pika", "rabbitmq")
        self.heartbeat_s = max(1, math.ceil(address.timeout_s))  # the protocol knows whole seconds only
        self._address, self._queue = address, queue
        self._arguments = {"x-queue-type": kind, "x-single-active-consumer": True, "x-max-length": 1}
        self.trouble = (self._pika.exceptions.AMQPError, OSError)
        self.shown = f"{address.safe_url} queue {queue}"

    def connect(self) -> Any:
        """A connection, over which the queue was seen to be there and to be one of this kind."""
        errors = self._pika.exceptions
        try:
            connection = self._pika.BlockingConnection([self._parameters(*host) for host in self._address.hosts])
        except (errors.ProbableAuthenticationError, errors.ProbableAccessDeniedError, errors.AuthenticationError) as no:
            raise ServerRefused(server=self.shown, reason=_words(no)) from no
        except self.trouble as error:
            raise ServerUnreachable(server=self.shown, reason=_words(error)) from error
        try:
            channel = connection.channel()
            self._declare(channel)
            channel.close()
        except errors.ChannelClosedByBroker as error:
            connection.close()
            setting = f"the queue {self._queue}: remove it, name another one, or allow this user to use it"
            raise ServerUnfit(server=self.shown, reason=_words(error), setting=setting) from error
        except self.trouble as error:
            raise ServerUnreachable(server=self.shown, reason=_words(error)) from error
        return connection

    def stand(self, connection: Any, on_token: Any, on_cancel: Any) -> Any:
        """A channel that stands in line, at its end."""
        channel = connection.channel()
        self._declare(channel)
        channel.basic_qos(prefetch_count=1)
        channel.add_on_cancel_callback(on_cancel)
        self.put_token(channel)
        channel.basic_consume(self._queue, on_token)
        return channel

    def put_token(self, channel: Any) -> None:
        """Put one more token; of the tokens that no engine holds, the queue keeps the newest."""
        channel.basic_publish("", self._queue, _TOKEN)

    def _declare(self, channel: Any) -> None:
        channel.queue_declare(self._queue, durable=True, arguments=self._arguments)

    def _parameters(self, host: str, port: int) -> Any:
        address, pika = self._address, self._pika
        password = address.password.reveal() if address.password else "guest"
        return pika.ConnectionParameters(
            host, port, address.path or "/", pika.PlainCredentials(address.user or "guest", password),
            heartbeat=self.heartbeat_s, socket_timeout=_OPEN_S, stack_timeout=_OPEN_S,
            blocked_connection_timeout=_OPEN_S, ssl_options=self._ssl(host),
        )  # fmt: skip

    def _ssl(self, host: str) -> Any:
        tls = self._address.tls
        if tls is None:
            return None
        ssl = needed("ssl", "rabbitmq")
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
        return self._pika.SSLOptions(context, host)


@dataclass(slots=True)
class Turn:
    """How a token goes round: had, let go, and had again. Times are the engine's own."""

    beat_s: float
    lease_s: float
    """How long after it was last heard an engine is sure not to be taken for dead."""
    tag: int | None = None
    """The delivery it has now."""
    let_go_at: float | None = None
    """When it let the one before go, if that was its own wish."""
    due: float = _NEVER
    sure_until: float = _NEVER

    def got(self, tag: int, now: float) -> None:
        """A token came. The first proves little, as it may have lain around; it is let go at once for another."""
        self.tag = tag
        if self.let_go_at is None:
            self.due = now
            return
        self.sure_until, self.due = self.let_go_at + self.lease_s, self.let_go_at + self.beat_s

    def let_go(self, now: float) -> int:
        """The delivery to let go of."""
        assert self.tag is not None
        tag, self.tag, self.let_go_at = self.tag, None, now
        return tag

    @property
    def is_served(self) -> bool:
        """Whether it has a token, or is between two of them."""
        return self.tag is not None or self.let_go_at is not None


class SemaphoreGate(Gate):
    """A thread of its own does everything that may wait."""

    def __init__(self, broker: Broker, runtime: Runtime) -> None:
        self._broker, self._runtime = broker, runtime
        self._beat_s = broker.heartbeat_s / 4
        self._connection: Any = None
        self._channel: Any = None
        self._turn = self._new_turn()
        self._wanted = self._leaving = self._cancelled = False
        self._top_up_at, self._retry_s, self._was_active = _NEVER, _RETRY_S, False
        self._crash: BaseException | None = None

    def connect(self) -> None:
        """Begin; an error if the broker can't be reached or used within a bound."""
        self._connection = self._broker.connect()
        self._task = self._runtime.spawn("lockstep-gate", self._step, self._runtime.waiter(), self._crashed)

    def enter(self) -> None:
        """Stand in line, at its end; one that stands there stays where it is."""
        self._wanted = True

    def leave(self) -> None:
        """Leave the line, so that the next may try; `enter` begins at its end."""
        if self._wanted:
            self._wanted, self._leaving = False, True

    def may_lead(self) -> bool:
        """Whether this engine may try to lead; False while that is not sure."""
        turn, is_wanted = self._turn, self._wanted and not self._leaving
        return is_wanted and turn.is_served and self._runtime.monotonic() < turn.sure_until

    def state(self) -> str:
        """Where it stands, for people; no secrets."""
        return f"{self._broker.shown}: {self._state()}"

    def _state(self) -> str:
        if self._connection is None:
            return "suspended, not connected"
        if not self._wanted:
            return "not in line"
        if self.may_lead():
            return "active"
        return "unsure" if self._turn.is_served else "standby"

    def check(self) -> None:
        """Raise what ended it, if anything did."""
        if self._crash is not None:
            raise self._crash

    def close(self) -> None:
        """Leave for good and let go of the connection."""
        self._wanted = False
        self._task.stop(_STOP_S)
        self._disconnect()

    def _step(self) -> float:
        try:
            if self._connection is None:
                self._connection = self._broker.connect()
            self._work()
            self._connection.process_data_events(time_limit=min(_LOOK_S, self._beat_s))
        except (*self._broker.trouble, ServerUnreachable, ServerRefused, ServerUnfit) as error:
            self._disconnect()
            reason = {"action": "gate", "reason": str(error)}
            logger.info("The queue of the election can't be reached: standby", extra=reason)
            delay, self._retry_s = self._retry_s, min(2 * self._retry_s, _RETRY_MOST_S)
            return delay
        self._retry_s = _RETRY_S
        self._tell()
        return 0.0

    def _work(self) -> None:
        if self._leaving or self._cancelled or not self._wanted:
            self._drop()
        if not self._wanted:
            return
        now = self._runtime.monotonic()
        if self._channel is None:
            self._channel = self._broker.stand(self._connection, self._on_token, self._on_cancel)
            self._top_up_at = now + _TOP_UP * self._beat_s
        if self._turn.tag is not None and now >= self._turn.due:
            self._broker.put_token(self._channel)
            self._channel.basic_ack(self._turn.let_go(now))
        elif self._turn.tag is None and now >= self._top_up_at:
            self._top_up_at = now + _TOP_UP * self._beat_s
            self._broker.put_token(self._channel)

    def _drop(self) -> None:
        """Leave the line. Leaving from now on is seen the next time: the wish is taken before it is granted."""
        channel, self._channel, self._turn = self._channel, None, self._new_turn()
        self._leaving = False
        if channel is not None:
            channel.close()  # what it has goes back to the queue, and to the next
        self._cancelled = False

    def _on_token(self, _channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self._turn.got(method.delivery_tag, self._runtime.monotonic())

    def _on_cancel(self, _method: Any) -> None:
        """The broker ended the consumer: the queue was removed, or its node went away."""
        self._cancelled = True

    def _tell(self) -> None:
        is_active = self.may_lead()
        if is_active != self._was_active:
            self._was_active = is_active
            logger.info("Flow %s", "active" if is_active else "inactive", extra={"action": "gate"})

    def _disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        self._turn = self._new_turn()
        self._tell()
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except self._broker.trouble as error:  # it is gone already
                logger.debug("The broker was left without a word: %r", error, extra={"action": "gate"})

    def _new_turn(self) -> Turn:
        return Turn(self._beat_s, float(self._broker.heartbeat_s))

    def _crashed(self, error: BaseException) -> None:
        self._crash, self._turn = error, self._new_turn()


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
