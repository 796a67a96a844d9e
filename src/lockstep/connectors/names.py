"""How message buses name the topics of a window, as failover clusters of SAS Event Stream Processing do. Pure.

    topic_name("rmq", WindowPath("esp:5555", "trades", "q", "Source"), IN)    esp:5555/trades/q/Source/I
    topic_name("kafka", ...)                                                  esp_5555.trades.q.Source.I
    topic_name("tva", ...)                                                    SAS.ENGINES.esp:5555.trades.q.Source.IN

The host and port of a client's URL name a cluster of engines, not a machine: nobody listens there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import parse_qsl, unquote

from lockstep.errors import BadArgument

IN, OUT = "I", "O"
SCHEME = "dfESP://"
_LONG = {IN: "IN", OUT: "OUT"}


@dataclass(frozen=True, slots=True)
class WindowPath:
    """A window of a project in a cluster; `cluster` is HOST:PORT, or what stands for it."""

    cluster: str
    project: str
    query: str
    window: str


@dataclass(frozen=True, slots=True)
class WindowUrl:
    """What a client's URL says."""

    path: WindowPath
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def cluster_name(host_port: str) -> str:
    """The first part of stream names: HOST:PORT with an underscore in place of the colon."""
    return host_port.strip().replace(":", "_")


def topic_name(bus: str, path: WindowPath, direction: str, *, engine: str | None = None) -> str:
    """The topic of a window on a bus; Tervela names it by the engine, others by host and port."""
    if bus in ("rmq", "sol"):
        return "/".join((path.cluster, path.project, path.query, path.window, direction))
    if bus == "kafka":
        return ".".join((cluster_name(path.cluster), path.project, path.query, path.window, direction))
    if bus == "tva":
        name = engine or path.cluster
        return ".".join(("SAS.ENGINES", name, path.project, path.query, path.window, _LONG[direction]))
    raise _unknown(bus)


def meta_name(bus: str, host_port: str) -> str:
    """Where clients of a cluster ask for metadata."""
    if bus in ("rmq", "sol"):
        return f"{host_port}/M"
    if bus == "kafka":
        return f"{cluster_name(host_port)}.M"
    if bus == "tva":
        return f"SAS.META.{host_port}"
    raise _unknown(bus)


def meta_inbox(engine: str) -> str:
    """Tervela's inbox for requests to a cluster."""
    return f"{engine}_meta"


def presence_name(exchange: str) -> str:
    """RabbitMQ's exchange on which engines see each other."""
    return f"{exchange}_failoverpresence"


def parse_window_url(text: str) -> WindowUrl:
    """dfESP://HOST:PORT/PROJECT/QUERY/WINDOW?snapshot=false."""
    head, _, query = text.strip().partition("?")
    if not head.lower().startswith(SCHEME.lower()):
        raise _bad(text)
    parts = head[len(SCHEME) :].split("/")
    host, _, port = parts[0].rpartition(":")
    if len(parts) != 4 or not all(parts) or not host or not (port.isascii() and port.isdigit()):
        raise _bad(text)
    options = {name.lower(): value for name, value in parse_qsl(query, keep_blank_values=True)}
    return WindowUrl(WindowPath(parts[0], *map(unquote, parts[1:])), MappingProxyType(options))


def _bad(text: str) -> BadArgument:
    return BadArgument(name="url", value=text, reason="write dfESP://HOST:PORT/PROJECT/QUERY/WINDOW")


def _unknown(bus: str) -> BadArgument:
    return BadArgument(name="bus", value=bus, reason="choose kafka, rmq, sol or tva")
