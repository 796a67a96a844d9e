"""What a RabbitMQ holds for a monitor: channels, exchanges, queues with their masters, bindings; and its set-up."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from lockstep.errors import ServerRefused, ServerUnreachable, UsageError
from lockstep.monitor.transport.brokers import Broker
from lockstep.monitor.transport.port import KEEPALIVES, RESULTS

POLICY, PATTERN = "ha-sensu", f"^({RESULTS}$|{KEEPALIVES}$)"
MIRRORED: Mapping[str, str] = {"ha-mode": "all", "ha-sync-mode": "automatic"}
CONTROL_PLACES = ("/usr/lib/rabbitmq/bin/rabbitmqctl", "/opt/rabbitmq/sbin/rabbitmqctl")
_TIMEOUT_S = 30.0
_FORBIDDEN = (401, 403)
_PROCESS = re.compile(r"<([^<>]+)\.\d+\.\d+\.\d+>")


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel, named by who is at its other end."""

    name: str
    peer: str
    user: str
    prefetch: int
    unacknowledged: int
    consumers: int


@dataclass(frozen=True, slots=True)
class ExchangeView:
    """An exchange."""

    name: str
    kind: str
    durable: bool
    auto_delete: bool


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, the node that all operations on it go through, and those that hold copies."""

    name: str
    messages: int
    consumers: int
    durable: bool
    auto_delete: bool
    master: str
    mirrors: tuple[str, ...]
    policy: str


@dataclass(frozen=True, slots=True)
class BindingView:
    """An exchange and a queue that gets what comes there."""

    exchange: str
    queue: str
    routing_key: str


@dataclass(frozen=True, slots=True)
class Topology:
    """All of a virtual host that a monitor uses; what RabbitMQ itself puts there is left out."""

    channels: tuple[ChannelView, ...]
    exchanges: tuple[ExchangeView, ...]
    queues: tuple[QueueView, ...]
    bindings: tuple[BindingView, ...]

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    def master_of(self, queue: str = RESULTS) -> str | None:
        """The host of the node that is the master of a queue."""
        found = next((view.master for view in self.queues if view.name == queue), "")
        return found.partition("@")[2] or None


class Source(ABC):
    """Who tells what a broker holds, and sets it up."""

    @abstractmethod
    def topology(self) -> Topology:
        """What there is now."""

    @abstractmethod
    def set_policy(self, name: str, pattern: str, definition: Mapping[str, str]) -> None:
        """Set a policy of queues."""


class Control(Source):
    """rabbitmqctl on the machine of a node."""

    def __init__(
        self, *, node: str | None = None, vhost: str = "/", environ: Mapping[str, str], program: str | None = None
    ) -> None:
        self._node, self._vhost, self._environ = node, vhost, environ
        self._program = program or _control_program(environ)

    def topology(self) -> Topology:
        queues = self._listed("list_queues", "-p", self._vhost, "name", "messages", "consumers", "durable",
                              "auto_delete", "policy")  # fmt: skip
        exchanges = self._listed("list_exchanges", "-p", self._vhost, "name", "type", "durable", "auto_delete")
        bindings = self._listed("list_bindings", "-p", self._vhost, "source_name", "destination_name", "routing_key")
        channels = self._listed("list_channels", "name", "user", "vhost", "prefetch_count", "messages_unacknowledged",
                                "consumer_count")  # fmt: skip
        nodes = self._nodes()
        return Topology(
            _channels((row, _peer(row["name"])) for row in channels if row.get("vhost") == self._vhost),
            _exchanges((row["name"], row["type"], row["durable"], row["auto_delete"]) for row in exchanges),
            _queues((row, *nodes.get(row["name"], ("", ()))) for row in queues),
            _bindings((row["source_name"], row["destination_name"], row["routing_key"]) for row in bindings),
        )

    def _nodes(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """The node of the master of each queue, and those of its mirrors.

        They are in the names of Erlang processes, as <rabbit@host.1700000000.531.0>, which the JSON form leaves out.
        """
        lines = self._run("list_queues", "-p", self._vhost, "name", "pid", "slave_pids", "--no-table-headers")
        found = {}
        for line in lines.splitlines():
            name, _, pids = line.partition("\t")
            master, *mirrors = _PROCESS.findall(pids) or [""]
            found[name] = (master, tuple(mirrors))
        return found

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, str]) -> None:
        self._run("set_policy", "-p", self._vhost, "--apply-to", "queues", name, pattern, json.dumps(dict(definition)))

    def _listed(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._run(*words, "--formatter", "json") or "[]")
        return found

    def _run(self, *words: str) -> str:
        node = ("-n", self._node) if self._node else ()
        try:
            done = subprocess.run(  # noqa: S603 - our words for a program of the administrator
                (self._program, "-q", *node, *words),
                env=dict(self._environ), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServerUnreachable(server="RabbitMQ", reason=f"rabbitmqctl: {error}") from error
        if done.returncode:
            reason = " ".join((done.stderr or done.stdout).split())[:300]
            raise ServerUnreachable(server=f"RabbitMQ {self._node or ''}".strip(), reason=f"rabbitmqctl: {reason}")
        return done.stdout


class Management(Source):
    """The HTTP API of the management plugin."""

    def __init__(self, url: str, broker: Broker) -> None:
        self._url, self._vhost = url.rstrip("/"), quote(broker.vhost, safe="")
        login = base64.b64encode(f"{broker.user}:{broker.password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        if urlsplit(url).scheme not in ("http", "https"):
            raise UsageError(reason=f"The management API {url!r} is not a URL of HTTP.")

    def topology(self) -> Topology:
        at = self._vhost
        queues, exchanges = self._get(f"queues/{at}"), self._get(f"exchanges/{at}")
        bindings, channels = self._get(f"bindings/{at}"), self._get(f"vhosts/{at}/channels")
        return Topology(
            _channels((row, str(row.get("connection_details", {}).get("peer_host", ""))) for row in channels),
            _exchanges((row["name"], row["type"], row["durable"], row["auto_delete"]) for row in exchanges),
            _queues((row, row.get("node", ""), tuple(row.get("slave_nodes") or ())) for row in queues),
            _bindings((row["source"], row["destination"], row["routing_key"]) for row in bindings),
        )

    def set_policy(self, name: str, pattern: str, definition: Mapping[str, str]) -> None:
        body = {"pattern": pattern, "definition": dict(definition), "apply-to": "queues"}
        self._ask(f"policies/{self._vhost}/{quote(name, safe='')}", json.dumps(body).encode())

    def _get(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._ask(path))
        return found

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        method = "GET" if body is None else "PUT"
        request = urllib.request.Request(f"{self._url}/api/{path}", body, self._headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked to be HTTP
                found: bytes = answer.read()
        except urllib.error.HTTPError as error:
            kind = ServerRefused if error.code in _FORBIDDEN else ServerUnreachable
            raise kind(server=f"management API {self._url}", reason=f"{error.code} {error.reason}") from error
        except OSError as error:
            raise ServerUnreachable(server=f"management API {self._url}", reason=str(error)) from error
        return found


def set_up(source: Source) -> None:
    """Have the queues of keepalives and results mirrored to all nodes of a cluster, as Sensu wants them."""
    source.set_policy(POLICY, PATTERN, MIRRORED)


def permissions(vhost: str, server: str = "sensu", agent: str = "sensu-agent") -> list[str]:
    """Commands that let servers do everything, and keep agents from reading keepalives and results.

    An agent declares exchanges, and so has to be allowed to configure them. To read those two queues, or to bind a
    queue of its own to their exchanges, it would need to read what has these names.
    """
    others = f"^(?!({KEEPALIVES}|{RESULTS})$)"
    return [
        f"rabbitmqctl add_vhost {vhost}",
        f"rabbitmqctl add_user {server} PASSWORD",
        f"rabbitmqctl set_permissions -p {vhost} {server} '.*' '.*' '.*'",
        f"rabbitmqctl add_user {agent} PASSWORD",
        f"rabbitmqctl set_permissions -p {vhost} {agent} '.*' '.*' '{others}'",
    ]


def _control_program(environ: Mapping[str, str]) -> str:
    """Where it is; the one in the PATH of Debian changes its user and forgets HOME, so that one is the last choice."""
    found = next((place for place in CONTROL_PLACES if os.access(place, os.X_OK)), None)
    found = found or shutil.which("rabbitmqctl", path=environ.get("PATH"))
    if not found:
        reason = "rabbitmqctl is not installed here: run this on a node of RabbitMQ, or name its management API."
        raise UsageError(reason=reason)
    return found


def _peer(channel: str) -> str:
    """The host at the other end of a channel, from its name: 10.0.0.1:53274 -> 10.0.0.2:5672 (1)."""
    return channel.partition(" -> ")[0].rpartition(":")[0]


def _channels(rows: Iterable[tuple[Mapping[str, Any], str]]) -> tuple[ChannelView, ...]:
    found = (
        ChannelView(
            str(row.get("name", "")),
            peer,
            str(row.get("user", "")),
            int(row.get("prefetch_count") or 0),
            int(row.get("messages_unacknowledged") or 0),
            int(row.get("consumer_count") or 0),
        )
        for row, peer in rows
    )
    return tuple(sorted(found, key=lambda view: view.name))


def _queues(rows: Iterable[tuple[Mapping[str, Any], str, tuple[str, ...]]]) -> tuple[QueueView, ...]:
    found = (
        QueueView(
            str(row["name"]),
            int(row.get("messages") or 0),
            int(row.get("consumers") or 0),
            bool(row.get("durable")),
            bool(row.get("auto_delete")),
            master,
            mirrors,
            str(row.get("policy") or ""),
        )
        for row, master, mirrors in rows
    )
    return tuple(sorted(found, key=lambda view: view.name))


def _exchanges(rows: Iterable[tuple[str, str, bool, bool]]) -> tuple[ExchangeView, ...]:
    found = (ExchangeView(*row) for row in rows if row[0] and not row[0].startswith("amq."))
    return tuple(sorted(found, key=lambda view: view.name))


def _bindings(rows: Iterable[tuple[str, str, str]]) -> tuple[BindingView, ...]:
    found = (BindingView(*row) for row in rows if row[0])  # each queue is bound to the nameless exchange
    return tuple(sorted(found, key=lambda view: (view.exchange, view.queue)))


def host_of_master(brokers: Sequence[Broker]) -> str | None:
    """The host where the master of `results` is, as brokers tell that name their management API; None if none does."""
    for broker in brokers:
        if broker.management is None:
            continue
        try:
            return Management(broker.management, broker).topology().master_of()
        except (ServerUnreachable, ServerRefused):
            continue  # another node may tell
    return None
