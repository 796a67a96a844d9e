"""Options of RabbitMQ as Sensu has them: one hash, a URL, or a list of either; and in which order they are tried."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from lockstep.monitor.transport.errors import BadBroker

PORT, TLS_PORT = 5672, 5671
CONNECT_S = 20.0
HEARTBEAT_S = 30
PREFETCH = 1
SERVER_PREFETCH = 1000
"""Of servers that are not told otherwise: what they have taken is stored and acknowledged many at a time."""
PREFETCH_MAX = 65_535


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a RabbitMQ is, and how one comes in."""

    host: str = "127.0.0.1"
    port: int = PORT
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    prefetch: int = PREFETCH
    heartbeat: int = HEARTBEAT_S
    durable: bool = False
    """Queues and exchanges outlast consumers and restarts, messages are written to disk."""
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    authorities: str | None = None
    tls: bool = False
    management: str | None = None
    """URL of the management plugin, which knows which node is the master of a queue."""

    @property
    def place(self) -> str:
        """Host, port and virtual host, as text."""
        return f"{self.host}:{self.port}{'' if self.vhost == '/' else '/' + self.vhost}"

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS."""
        if not self.tls:
            return None
        context = ssl.create_default_context(cafile=self.authorities)
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


def brokers_of(options: Any, prefetch: int = PREFETCH) -> list[Broker]:
    """The brokers that options name; BadBroker if they can't be understood. `prefetch` is that of those without one."""
    if options is None:
        return [Broker(prefetch=prefetch)]
    if isinstance(options, list):
        if not options:
            raise BadBroker(broker="[]", reason="the list is empty")
        return [broker for option in options for broker in brokers_of(option, prefetch)]
    if isinstance(options, str):
        return [_of_url(part.strip(), prefetch) for part in options.split(",")]
    if isinstance(options, Mapping):
        return [_of_hash(options, prefetch)]
    raise BadBroker(broker=repr(options)[:80], reason="it is neither a hash, nor a URL, nor a list of them")


def _of_url(url: str, prefetch: int) -> Broker:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise BadBroker(broker="of a URL", reason=str(error)) from None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise BadBroker(broker=f"{parts.scheme}://{parts.hostname or ''}", reason="a URL begins with amqp://HOST")
    tls = parts.scheme == "amqps"
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    place: dict[str, Any] = {"host": parts.hostname, "port": port or (TLS_PORT if tls else PORT)}
    if parts.path not in ("", "/"):
        place["vhost"] = unquote(parts.path[1:])
    if parts.username:
        place["user"] = unquote(parts.username)
        place["password"] = unquote(parts.password or "")
    for name in ("prefetch", "heartbeat"):
        if name in options and options[name].isdigit():
            options[name] = int(options[name])
    if "durable" in options:
        options["durable"] = {"true": True, "false": False}.get(options["durable"], options["durable"])
    return _of_hash({**options, **place, **({"ssl": {}} if tls else {})}, prefetch)


_WANTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "host": (lambda value: isinstance(value, str) and bool(value), "must be a string"),
    "port": (lambda value: _is_whole(value) and 0 < value < 65_536, "must be a port"),
    "vhost": (lambda value: isinstance(value, str), "must be a string"),
    "user": (lambda value: isinstance(value, str), "must be a string"),
    "password": (lambda value: isinstance(value, str), "must be a string"),
    "prefetch": (lambda value: _is_whole(value) and 0 <= value <= PREFETCH_MAX, f"must be 0 to {PREFETCH_MAX}"),
    "heartbeat": (lambda value: _is_whole(value) and 0 <= value <= 3600, "must be 0 to 3600 seconds"),
    "durable": (lambda value: isinstance(value, bool), "must be true or false"),
    "management": (lambda value: isinstance(value, str) and value.startswith("http"), "must be a URL of HTTP"),
}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _of_hash(options: Mapping[str, Any], prefetch: int) -> Broker:
    found: dict[str, Any] = {"prefetch": prefetch}
    place = str(options.get("host", "127.0.0.1"))
    for name, (holds, reason) in _WANTED.items():
        value = options.get(name)
        if value is None:
            continue
        if not holds(value):
            shown = "its value" if name == "password" else repr(value)
            raise BadBroker(broker=place, reason=f"{name} = {shown}: it {reason}")
        found[name] = value
    tls = options.get("ssl")
    if tls is not None and tls is not False:
        members = tls if isinstance(tls, Mapping) else {}
        files = {
            "certificate": members.get("cert_chain_file"),
            "key": members.get("private_key_file"),
            "authorities": members.get("ca_file"),
        }
        found |= {"tls": True, "port": found.get("port", TLS_PORT), **files}
    return Broker(**found)


class Turn:
    """Whom to try next: all brokers once in a shuffled order, then in another one, and so on."""

    def __init__(
        self,
        brokers: Sequence[Broker],
        shuffle: Callable[[list[Broker]], None],
        prefer: Callable[[Sequence[Broker]], str | None] = lambda _: None,
    ) -> None:
        """`prefer` names the host that comes first, for example the one where the master of the queues is."""
        self._brokers, self._shuffle, self._prefer = list(brokers), shuffle, prefer
        self._left: list[Broker] = []

    def next(self) -> Broker:
        """The next one."""
        if not self._left:
            self._left = list(self._brokers)
            self._shuffle(self._left)
            first = self._prefer(self._brokers) if len(self._brokers) > 1 else None
            self._left.sort(key=lambda broker: broker.host != first if first else False)
        return self._left.pop(0)


def pauses() -> Callable[[], float]:
    """How long to wait before each try to connect again: 2 s, and 2 s more each time, at most 20 s."""
    tried = 0

    def next_pause() -> float:
        nonlocal tried
        tried += 1
        return min(2.0 * tried, CONNECT_S)

    return next_pause
