"""Records on topics of Kafka clusters, for tenants of type MESSAGING that name `bootstrap.servers`.

The key of a record is the event's id, the value is the body, and the headers are those of an HTTP callback. An event is
TAKEN when all replicas in sync have it: acks=all and idempotence are set whatever a tenant asks for.

A tenant may set the properties of `ALLOWED`, in the words of librdkafka; those of `IGNORED` are accepted from clients
for Java and have no effect. Everything else is refused. So a tenant can't have this process load a library, run a
command, read a file or fetch a URL: certificates and keys are given as text (`ssl.ca.pem`, `ssl.certificate.pem`,
`ssl.key.pem`), and logins are PLAIN or SCRAM. Names of brokers are resolved by the client, so their addresses are not
checked; hosts in `bootstrap.servers` must be on the list of allowed hosts if there is one.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lockstep.errors import BadArgument, ExtraMissing
from lockstep.net.addresses import never_called
from lockstep.schedule import bodies
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Done, Outcome, redact, secret_texts
from lockstep.schedule.delivery.queue import Answer, DeliveryQueue, QueueLimits
from lockstep.schedule.tenants import Tenant, masked_url

try:
    from confluent_kafka import KafkaError, KafkaException, Producer
except ModuleNotFoundError as missing:
    raise ExtraMissing(extra="kafka", package="confluent_kafka") from missing

ALLOWED = frozenset({
    "bootstrap.servers", "client.id", "client.dns.lookup", "broker.address.family",
    "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password",
    "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem", "ssl.key.password", "ssl.cipher.suites",
    "compression.type", "compression.codec", "compression.level", "linger.ms", "queue.buffering.max.ms",
    "batch.size", "batch.num.messages", "message.max.bytes", "max.request.size", "partitioner",
    "request.timeout.ms", "delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms", "socket.keepalive.enable",
    "socket.nagle.disable", "socket.connection.setup.timeout.ms", "connections.max.idle.ms", "metadata.max.age.ms",
    "retry.backoff.ms", "retry.backoff.max.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
})  # fmt: skip
"""Properties that a tenant may set."""
IGNORED = frozenset({
    "acks", "request.required.acks", "enable.idempotence", "retries", "message.send.max.retries",
    "max.in.flight.requests.per.connection", "max.in.flight", "key.serializer", "value.serializer", "buffer.memory",
    "max.block.ms", "send.buffer.bytes", "receive.buffer.bytes",
})  # fmt: skip
"""Properties that are accepted for compatibility and have no effect."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MESSAGE_BYTES = 64 << 20
"""The largest record that is sent unless a tenant says otherwise; the topic may take less."""
_OWN = frozenset({"topic"})
_TIME_OUTS = ("delivery.timeout.ms", "message.timeout.ms")
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:\w+://)?(?P<host>\[[^\]]+\]|[^:/\s]+)(?::\d{1,5})?")
_PLANS = 10_000
_AT_ONCE, _AT_ONCE_PER_TENANT = 20_000, 5_000
_POLL_S = 0.2
_GRACE_S = 3.0
"""The client looks for what is overdue once a second."""
_FLUSH_S = 1.0

Settings = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a tenant's events are sent; tenants with the same settings share a producer."""

    props: Any
    topic: str
    settings: Settings
    key: tuple[tuple[str, str], ...]
    secrets: tuple[str, ...]


class KafkaCourier:
    """Delivers events to topics of Kafka clusters; `done` is called from the courier's own thread."""

    def __init__(self, options: CourierOptions | None = None) -> None:
        self._options = options or CourierOptions()
        self._rules = self._options.addresses
        self._plans: dict[str, _Plan] = {}
        self._senders: dict[tuple[tuple[str, str], ...], _Sender] = {}
        self._retired: set[_Sender] = set()
        self._running: set[_Sender] = set()
        self._sweeping = False
        limits = QueueLimits(
            total=_AT_ONCE, per_tenant=_AT_ONCE_PER_TENANT, waiting_s=self._options.queue_timeout_s,
            pending=self._options.pending,
        )  # fmt: skip
        self._queue = DeliveryQueue("lockstep-kafka-courier", self._send, self._end, limits)

    def check(self, tenant: Tenant) -> None:
        """Raise BadArgument for properties that are not allowed or that the client does not take."""
        plan = self._planned(tenant)
        try:
            _closed(Producer(_whole(plan.settings, self._options, _Note())))
        except (KafkaException, ValueError, TypeError) as error:
            reason = redact(_text(error.args[0]), plan.secrets)
            raise BadArgument(name="props", value="***", reason=reason) from None

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin a delivery."""
        self._queue.submit(delivery, done)

    def forget(self, tenant: str) -> None:
        """Give up what was prepared for a tenant; its producer is closed when no other tenant has the same."""
        self._plans.pop(tenant, None)
        self._queue.call(partial(self._leave, tenant))

    def close(self) -> None:
        """End what is under way, with FAILED, and close all producers."""
        self._queue.close()

    def _planned(self, tenant: Tenant) -> _Plan:
        props = tenant.props
        topic = str(props.get("topic"))
        if not _TOPIC.fullmatch(topic):
            reason = "it must be 1 to 249 letters, digits, dots, dashes or underscores"
            raise BadArgument(name="topic", value=topic, reason=reason)
        self._check_servers(str(props.get("bootstrap.servers")))
        settings = _settings(props)
        return _Plan(props, topic, settings, tuple(sorted(settings.items())), secret_texts(props))

    def _check_servers(self, servers: str) -> None:
        for server in servers.split(","):
            found = _SERVER.fullmatch(server.strip())
            if found is None:
                reason = "it must be HOST:PORT,HOST:PORT"
                raise BadArgument(name="bootstrap.servers", value=masked_url(servers), reason=reason)
            host = found["host"].strip("[]")
            is_listed = not self._rules.allowed_hosts or self._rules.host(host) is None
            refusal = never_called(host) if is_listed else f"host {host} is not one of the allowed hosts"
            if refusal is not None:
                raise BadArgument(name="bootstrap.servers", value=masked_url(servers), reason=refusal)

    def _plan(self, tenant: Tenant) -> _Plan:
        plan = self._plans.get(tenant.tenant)
        if plan is None or plan.props is not tenant.props:
            plan = self._planned(tenant)
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[tenant.tenant] = plan
        return plan

    async def _send(self, delivery: Delivery) -> Answer:
        try:
            plan = self._plan(delivery.tenant)
        except BadArgument as error:
            return Outcome.REFUSED, f"Not sent: {error.params['name']} is not valid: {error.params['reason']}."
        sender = self._sender(plan, delivery.tenant.tenant)
        if sender is None:
            return Outcome.FAILED, f"Not sent: {self._options.kafka_producers} producers of Kafka are busy."
        sender.under_way += 1
        try:
            outcome, text = await self._produced(sender, plan, delivery)
        finally:
            sender.under_way -= 1
            sender.used_at = asyncio.get_running_loop().time()
            if sender in self._retired:
                self._retire(sender)
        return outcome, None if text is None else redact(text, plan.secrets)

    async def _produced(self, sender: _Sender, plan: _Plan, delivery: Delivery) -> Answer:
        event = delivery.event
        value, headers = bodies.body(event), bodies.record_headers(event, dry_run=delivery.dry_run)
        place = f"topic {plan.topic} at {plan.settings['bootstrap.servers']}"
        try:
            async with asyncio.timeout(self._options.timeout_s + _GRACE_S):
                await asyncio.shield(sender.ready)  # others wait for it too
                error = await sender.produce(plan.topic, event.id.encode(), value, list(headers))
        except TimeoutError:
            return Outcome.FAILED, f"No answer for {place} within {self._options.timeout_s:g} s."
        except BufferError:
            return Outcome.FAILED, f"Not sent to {place}: the producer's buffer is full."
        except KafkaException as raised:
            error = raised.args[0]
        if error is None:
            return Outcome.TAKEN, None
        if error.code() in _TOO_LARGE:
            return Outcome.REFUSED, f"A record of {len(value)} bytes is too large for {place}."
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._retire(sender)
        why = f"; last error: {sender.note.text}" if sender.note.text else ""
        return Outcome.FAILED, f"Not stored in {place}: {_text(error)}{why}"

    def _sender(self, plan: _Plan, tenant: str) -> _Sender | None:
        """The producer of a plan, made if need be; None if there are as many as may be, and all are busy."""
        sender = self._senders.get(plan.key)
        if sender is None:
            if len(self._senders) >= self._options.kafka_producers and not self._retire_one():
                return None
            note = _Note()
            sender = _Sender(partial(Producer, _whole(plan.settings, self._options, note)), note, self._retire)
            self._senders[plan.key] = sender
            self._running.add(sender)
            sender.ended.add_done_callback(lambda _: self._running.discard(sender))
            self._sweep_later()
        sender.tenants.add(tenant)
        return sender

    def _retire_one(self) -> bool:
        idle = [sender for sender in self._senders.values() if not sender.under_way]
        if idle:
            self._retire(min(idle, key=lambda sender: sender.used_at))
        return bool(idle)

    def _retire(self, sender: _Sender) -> None:
        """Use a producer for nothing new, and close it when nothing of it is under way."""
        for key, found in list(self._senders.items()):
            if found is sender:
                del self._senders[key]
        if sender.under_way:
            self._retired.add(sender)
        else:
            self._retired.discard(sender)
            sender.stop()

    def _leave(self, tenant: str) -> None:
        for sender in list(self._senders.values()):
            if tenant in sender.tenants:
                sender.tenants.discard(tenant)
                if not sender.tenants:
                    self._retire(sender)

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(self._options.kafka_idle_s / 4, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        before = asyncio.get_running_loop().time() - self._options.kafka_idle_s
        for sender in list(self._senders.values()):
            if not sender.under_way and sender.used_at < before:
                self._retire(sender)
        if self._senders:
            self._sweep_later()

    async def _end(self) -> None:
        running = list(self._running)
        for sender in running:
            sender.stop()
        await asyncio.gather(*(sender.ended for sender in running))


@dataclass(slots=True)
class _Note:
    """The last error that a client reported, to explain a time-out."""

    text: str = ""

    def take(self, error: Any) -> None:
        self.text = _text(error)


class _Sender:
    """A producer and its thread, which makes it and serves it; all else happens on the event loop's thread."""

    def __init__(self, make: Callable[[], Any], note: _Note, on_end: Callable[[_Sender], None]) -> None:
        self.note = note
        self.tenants: set[str] = set()
        self.under_way = 0
        self._loop = asyncio.get_running_loop()
        self.used_at = self._loop.time()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._make, self._on_end = make, on_end
        self._producer: Any = None
        self._stopping = threading.Event()
        self._open: set[asyncio.Future[Any]] = set()
        self._reports: list[tuple[asyncio.Future[Any], Any]] = []
        threading.Thread(target=self._serve, name="lockstep-kafka-producer", daemon=True).start()

    def produce(self, topic: str, key: bytes, value: bytes, headers: list[Any]) -> asyncio.Future[Any]:
        """Hand a record to the producer; the future gets the error of its delivery, None if it was stored."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._producer.produce(
            topic, value, key, headers=headers, on_delivery=lambda error, _: self._reports.append((future, error))
        )
        self._open.add(future)
        return future

    def stop(self) -> None:
        self._stopping.set()

    def _serve(self) -> None:
        try:
            self._producer = self._make()
        except Exception as error:  # noqa: BLE001 - every caller that waits for the producer gets it
            self._loop.call_soon_threadsafe(self._end, error)
            return
        self._loop.call_soon_threadsafe(_set, self.ready, None)
        try:
            while not self._stopping.is_set():
                self._producer.poll(_POLL_S)
                self._hand_over()
            self._producer.purge()
            self._producer.flush(_FLUSH_S)
            self._hand_over()
        except KafkaException as error:
            self.note.take(error.args[0])
        finally:
            _closed(self._producer)
            self._loop.call_soon_threadsafe(self._end, None)

    def _hand_over(self) -> None:
        reports, self._reports = self._reports, []
        if reports:
            self._loop.call_soon_threadsafe(self._settle, reports)

    def _settle(self, reports: list[tuple[asyncio.Future[Any], Any]]) -> None:
        for future, error in reports:
            self._open.discard(future)
            _set(future, error)

    def _end(self, error: Exception | None) -> None:
        """The thread has ended: because it was stopped, or because there is no producer any more."""
        if error is not None and not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # marked as retrieved, even if no caller waits for it
        for future in self._open:
            _set(future, KafkaError(KafkaError._DESTROY))
        self._on_end(self)
        _set(self.ended, None)


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _settings(props: Mapping[str, Any]) -> dict[str, str]:
    """Return what a tenant sets; BadArgument for a property that is not allowed."""
    found = {}
    for name, value in props.items():
        if name in IGNORED or name in _OWN:
            continue
        if name not in ALLOWED:
            reason = f"this property of Kafka producers is not allowed{_HINTS.get(name.partition('.')[0], '')}"
            raise BadArgument(name="props", value=name, reason=reason)
        if not isinstance(value, (str, int, float)):
            raise BadArgument(name="props", value=name, reason="its value must be text, a number or a boolean")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        found["message.max.bytes" if name == "max.request.size" else name] = text
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        if name in found and found[name] not in MECHANISMS:
            raise BadArgument(name=name, value=found[name], reason=f"it must be one of {', '.join(MECHANISMS)}")
    return found


_HINTS = {
    "ssl": "; give certificates and keys as text in ssl.ca.pem, ssl.certificate.pem and ssl.key.pem",
    "sasl": "; give sasl.mechanism, sasl.username and sasl.password",
}


def _whole(settings: Settings, options: CourierOptions, note: _Note) -> dict[str, Any]:
    """Return the settings of a producer; what makes an acknowledgement reliable is set last."""
    most_ms = int(options.timeout_s * 1000)
    given = {name: text for name, text in settings.items() if name not in _TIME_OUTS}
    wanted_ms = [int(settings[name]) for name in _TIME_OUTS if settings.get(name, "").isdigit() and int(settings[name])]
    return {
        "client.id": "lockstep",
        "partitioner": "murmur2_random",  # that of clients for Java: a key is in the partition where they look for it
        "message.max.bytes": MESSAGE_BYTES,
        **given,
        "message.timeout.ms": min([most_ms, *wanted_ms]),
        "acks": "all",
        "enable.idempotence": True,
        "log_level": 0,
        "error_cb": note.take,
    }


def _closed(producer: Any) -> None:
    producer.purge()
    producer.close()


def _text(error: Any) -> str:
    return str(error.str()) if isinstance(error, KafkaError) else str(error)
