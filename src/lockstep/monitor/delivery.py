"""Carries out notices of the fleet: hands an event to a handler of the settings, in the form that its mutator makes.

Commands, addresses and secrets of handlers stand in the settings of each server and nowhere else. A command that
fails is not run again, as it may have done its work; its item goes to the dead letters, where it is seen and can be
sent back. What could not be reached is tried again with pauses.
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from importlib.metadata import entry_points
from tempfile import TemporaryFile
from typing import Any, Protocol

from lockstep.carriers.command import Command, CommandGroup, end_of
from lockstep.carriers.http import HttpPost
from lockstep.carriers.mail import MailSender
from lockstep.carriers.stream import ToStream
from lockstep.errors import DeliveryRefused, ServerUnreachable
from lockstep.net.addresses import AddressRules
from lockstep.runtime import logger
from lockstep.streams.client import Lockstep
from lockstep.streams.outbox import Item

TRIES_AGAIN = 75
"""A command that ends with EX_TEMPFAIL is run again; with anything else but 0 its item is a dead letter."""
COMMAND_S, SOCKET_S = 60.0, 10.0
MUTATED_BYTES_MAX = 16 << 20
_SAID_MAX = 300
HANDLERS, MUTATORS, FILTERS = "lockstep.monitor.handlers", "lockstep.monitor.mutators", "lockstep.monitor.filters"
"""Entry points of extensions: functions that take an event."""
Json = dict[str, Any]
Deliver = Callable[[Item, Json, Json], None]
"""Carries out an item, whose body is what the mutator made, for a definition of a handler and an event."""


class Pipes(Protocol):
    """The transport, as far as handlers publish to it."""

    def publish(self, kind: str, pipe: str, message: bytes) -> None:
        """Publish a message to an exchange of a kind."""


class HandlerDelivery:
    """A handler of a carrier, for notices of kind `handle`."""

    def __init__(
        self,
        bus: Lockstep,
        settings: Callable[[], Mapping[str, Any]],
        environment: Mapping[str, str],
        pipes: Pipes | None = None,
        *,
        rules: AddressRules | None = None,
    ) -> None:
        self._bus, self._settings, self._environment, self._pipes = bus, settings, environment, pipes
        self._rules = rules or AddressRules(allow_loopback=True)  # addresses come from the settings of this server
        self._commands = CommandGroup()
        self._deliver: Mapping[str, Deliver] = {
            "pipe": self._pipe, "tcp": self._tcp, "udp": self._udp, "transport": self._transport, "http": self._http,
            "stream": self._stream, "mail": self._mail, "python": self._python, "extension": self._python,
        }  # fmt: skip

    def __call__(self, item: Item) -> None:
        """Hand one event to one handler."""
        name, event, filters = _read(item)
        if any(self._is_filtered(each, event) for each in filters):
            return
        settings = self._settings()
        handler = (settings.get("handlers") or {}).get(name)
        if not isinstance(handler, Mapping):
            raise DeliveryRefused(reason=f"this server has no handler {name!r} in its settings")
        deliver = self._deliver.get(str(handler.get("type", "extension")))
        if deliver is None:
            raise DeliveryRefused(reason=f"handler {name!r} is of the type {handler.get('type')!r}, which is not known")
        body = self._mutated(str(handler.get("mutator", "json")), event, settings, item)
        deliver(replace(item, body=body), {**handler, "name": name}, event)

    def close(self) -> None:
        """Kill commands that are still running: their items are in doubt, and another server runs them again."""
        self._commands.close()

    # mutators and filters

    def _mutated(self, name: str, event: Json, settings: Mapping[str, Any], item: Item) -> bytes:
        """What the handler gets of an event."""
        if name in ("json", "ruby_hash"):
            return encode(event)
        if name == "only_check_output":
            return str((event.get("check") or {}).get("output", "")).encode("utf-8", "replace")
        mutator = (settings.get("mutators") or {}).get(name)
        if isinstance(mutator, Mapping) and isinstance(mutator.get("command"), str):
            return self._piped(name, mutator, event, item)
        made = _extension(MUTATORS, name)(event)
        return made if isinstance(made, bytes) else str(made).encode("utf-8", "replace")

    def _piped(self, name: str, mutator: Mapping[str, Any], event: Json, item: Item) -> bytes:
        """What a mutator's command writes for the event on its standard input."""
        environment = {**self._environment, "LOCKSTEP_DELIVERY_ID": item.id}
        command = ["/bin/sh", "-c", mutator["command"]]
        with TemporaryFile() as errors:
            process = self._commands.start(command, environment, stdout=subprocess.PIPE, stderr=errors.fileno())
            try:
                made, _ = process.communicate(encode(event), timeout=_timeout(mutator, COMMAND_S))
            except subprocess.TimeoutExpired:
                raise DeliveryRefused(reason=f"mutator {name!r} ran for too long") from None
            finally:
                self._commands.end(process)
            if process.returncode:
                said = end_of(errors, _SAID_MAX)
                raise DeliveryRefused(reason=f"mutator {name!r} ended with {process.returncode}: {said}")
        if len(made) > MUTATED_BYTES_MAX:
            raise DeliveryRefused(reason=f"mutator {name!r} wrote more than {MUTATED_BYTES_MAX} bytes")
        return made

    def _is_filtered(self, name: str, event: Json) -> bool:
        """Whether a filter extension holds an event back: it answers with 0 then, as in Sensu."""
        try:
            function = _extension(FILTERS, name)
        except DeliveryRefused:
            logger.warning("Filter %r is not known; the event passes", name, extra={"action": "filter_unknown"})
            return False
        return bool(function(event) == 0)

    # handlers

    def _pipe(self, item: Item, handler: Json, _event: Json) -> None:
        command = ["/bin/sh", "-c", handler["command"]]
        timeout = _timeout(handler, COMMAND_S)
        run = Command(
            command, environment=self._environment, timeout_s=timeout, tried_again=(TRIES_AGAIN,),
            group=self._commands, told=lambda item, status, text: _log_output(handler["name"], item, status, text),
        )  # fmt: skip
        run(item)

    def _tcp(self, item: Item, handler: Json, _event: Json) -> None:
        if not item.body:
            return
        host, port = _address(handler)
        try:
            with closing(socket.create_connection((host, port), _timeout(handler, SOCKET_S))) as connection:
                connection.sendall(item.body)
        except OSError as error:
            raise ServerUnreachable(server=f"{host}:{port}", reason=_reason(error)) from None

    def _udp(self, item: Item, handler: Json, _event: Json) -> None:
        host, port = _address(handler)
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as sender:
                sender.sendto(item.body, address)
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise DeliveryRefused(reason=f"{len(item.body)} bytes do not fit into a datagram") from None
            raise ServerUnreachable(server=f"{host}:{port}", reason=_reason(error)) from None

    def _transport(self, item: Item, handler: Json, _event: Json) -> None:
        pipe = handler.get("pipe") or {}
        if not item.body:
            return
        if self._pipes is None:
            raise DeliveryRefused(reason=f"handler {handler['name']!r} needs a transport, and this server has none")
        self._pipes.publish(str(pipe.get("type")), str(pipe.get("name")), item.body)

    def _http(self, item: Item, handler: Json, _event: Json) -> None:
        headers = {"Content-Type": "application/json", **(handler.get("headers") or {})}
        post = HttpPost(
            str(handler.get("url")), headers=headers, secret=handler.get("secret"),
            timeout_s=_timeout(handler, SOCKET_S), addresses=self._rules,
        )  # fmt: skip
        post(item)

    def _stream(self, item: Item, handler: Json, _event: Json) -> None:
        ToStream(self._bus, str(handler.get("stream")), name=handler["name"])(item)

    def _mail(self, item: Item, handler: Json, event: Json) -> None:
        client, check = event.get("client") or {}, event.get("check") or {}
        subject = f"{str(event.get('action', 'create')).upper()} {client.get('name')}/{check.get('name')}"
        fields = {
            "sender": handler.get("from", "lockstep@localhost"), "host": handler.get("host", "127.0.0.1"),
            "port": handler.get("port", 25), "user": handler.get("user"),
            "password_variable": handler.get("password_variable"), "subject": subject,
            "body": item.body.decode(errors="replace"),
        }  # fmt: skip
        texts = {name: str(value) for name, value in fields.items() if value is not None}
        send = MailSender(self._environment, texts, timeout_s=_timeout(handler, SOCKET_S))
        to = handler.get("to")
        if isinstance(to, list) and len(to) != 1:
            raise DeliveryRefused(
                reason=f"handler {handler['name']!r} needs one address in 'to'; use a set for several"
            )
        send(replace(item, body=encode({"recipient": to[0] if isinstance(to, list) else to})))

    def _python(self, item: Item, handler: Json, event: Json) -> None:
        _extension(HANDLERS, str(handler.get("function") or handler["name"]))(event, item)


def _log_output(handler: str, item: Item, status: int, text: str) -> None:
    """Log what a command wrote, as Sensu does: as an error if the command failed."""
    extra = {"action": "handler_output", "handler": handler, "delivery": item.id, "status": status, "output": text}
    logger.log(logging.ERROR if status else logging.INFO, "Output of handler %s: %s", handler, text, extra=extra)


def encode(tree: Any) -> bytes:
    """An event as JSON."""
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _read(item: Item) -> tuple[str, Json, list[str]]:
    """The handler, the event and the filters that are left to the server."""
    try:
        tree = json.loads(item.body)
        name, event, filters = tree["handler"], tree["event"], tree.get("filters", [])
    except (ValueError, KeyError, TypeError) as error:
        raise DeliveryRefused(reason=f"it is no notice of the fleet: {type(error).__name__}") from None
    return str(name), event, [str(each) for each in filters]


def _extension(group: str, name: str) -> Callable[..., Any]:
    """An extension that is installed, by its name; no other code can be named."""
    found = [entry for entry in entry_points(group=group) if entry.name == name]
    if not found:
        raise DeliveryRefused(reason=f"no extension {name!r} of {group} is installed here")
    loaded: Callable[..., Any] = found[0].load()
    return loaded


def _timeout(definition: Mapping[str, Any], usual: float) -> float:
    value = definition.get("timeout")
    return float(value) if isinstance(value, int | float) and value > 0 else usual


def _address(handler: Json) -> tuple[str, int]:
    place = handler.get("socket") or handler
    return str(place.get("host", "127.0.0.1")), int(place.get("port", 0))


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
