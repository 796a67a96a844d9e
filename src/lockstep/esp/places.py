"""Which bus and which cluster are meant: by the connectors of a model, or by a client's configuration file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from lockstep.connectors.names import IN, OUT, WindowPath, cluster_name, topic_name
from lockstep.engine.model.checks_connectors import is_publisher
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.parts import Connector
from lockstep.esp.config_file import Sections
from lockstep.esp.errors import ClusterUnclear, ConfigFileWrong

STREAM_PORT = "LOCKSTEP_RABBITMQ_STREAM_PORT"
STREAM_PORT_DEFAULT = "5552"
KINDS = {"rmq": "rmq", "rabbitmq": "rmq", "kafka": "kafka"}
_YES = ("true", "1", "yes", "enabled")
_SHARED = {
    "rmq": ("urlhostport", "rmqhost", "rmqport", "rmquserid", "rmqvhost", "rmqstreamport"),
    "kafka": ("urlhostport", "kafkahostport"),
}
"""What must be the same on all connectors of a cluster."""
_KAFKA_TLS = {"ssl.ca.location": "ca", "ssl.certificate.location": "cert", "ssl.key.location": "key"}


@dataclass(frozen=True, slots=True)
class Place:
    """A bus and a cluster on it. `secrets` go into the environment, so that no URL and no log has them."""

    url: str
    cluster: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    bound: frozenset[str] = frozenset()
    """Connectors (query/window/name) whose topics are streams of this bus, so that nothing has to be copied."""
    zookeeper: str = ""
    """HOST:PORT of the election that the connectors ask for, if they do."""


def place_of_model(graph: Graph, environ: Mapping[str, str]) -> Place | None:
    """The failover cluster of a model: its hotfailover connectors for RabbitMQ or Kafka say it. None if it has none."""
    found = [one for one in _candidates(graph) if one.is_failover]
    if not found:
        return None
    first = found[0]
    for other in found[1:]:
        _check_same(first, other)
    bound = [one for one in _candidates(graph) if one.kind == first.kind and one.is_bound_to(first)]
    for other in bound:
        _check_same(first, other)
    place = _rabbitmq(first.properties, environ) if first.kind == "rmq" else _kafka(first.properties)
    url, secrets = place
    return Place(
        url,
        cluster_name(first.properties["urlhostport"]),
        secrets,
        frozenset(one.path for one in bound),
        next((one.properties["zookeeperhostport"] for one in found if one.properties.get("zookeeperhostport")), ""),
    )


def place_of_file(transport: str, sections: Sections, cluster: str, environ: Mapping[str, str], file: str) -> Place:
    """The bus that a client's rabbitmq.cfg or kafka.cfg names."""
    if transport == "kafka":
        settings = {f"kafka{name}": value for name, value in sections.get("kafka", {}).items()}
        if not settings.get("kafkahostport"):
            raise ConfigFileWrong(file=file, place="", reason="its section kafka names no hostport")
        url, secrets = _kafka(settings)
        return Place(url, cluster, secrets)
    named = {
        **sections.get("", {}),
        **sections.get("sas", {}),
        **sections.get("rmq", {}),
        **sections.get("rabbitmq", {}),
    }
    settings = {f"rmq{name.removeprefix('rmq')}": value for name, value in named.items()}
    if not settings.get("rmqhost"):
        raise ConfigFileWrong(file=file, place="", reason="its section rabbitmq names no host")
    url, secrets = _rabbitmq(settings, environ)
    return Place(url, cluster, secrets)


def is_yes(text: str | None) -> bool:
    """Whether a setting is on."""
    return (text or "").strip().lower() in _YES


@dataclass(frozen=True, slots=True)
class _Candidate:
    node: Node
    connector: Connector
    kind: str
    project: str
    properties: Mapping[str, str]

    @property
    def path(self) -> str:
        return f"{self.node.path}/{self.connector.name}"

    @property
    def publishes(self) -> bool:
        return is_publisher(self.node.window, self.connector)

    @property
    def is_failover(self) -> bool:
        wanted = not self.publishes and is_yes(self.properties.get("hotfailover"))
        return wanted and self.is_stream and bool(self.properties.get("urlhostport"))

    @property
    def is_stream(self) -> bool:
        """Whether its messages are blocks with numbers, on the topic that the window has by right."""
        form = self.properties.get(f"{self.kind}type", "csv").lower()
        return form == "binary" and self.properties.get(f"{self.kind}topic", "") in ("", self._topic())

    def is_bound_to(self, cluster: _Candidate) -> bool:
        mine, its = (one.properties.get("urlhostport", "") for one in (self, cluster))
        return self.is_stream and cluster_name(mine) == cluster_name(its)

    def _topic(self) -> str:
        node = self.node
        path = WindowPath(self.properties.get("urlhostport", ""), self.project, node.query, node.window.name)
        return topic_name(self.kind, path, IN if self.publishes else OUT)


def _candidates(graph: Graph) -> Iterator[_Candidate]:
    for node in graph.nodes:
        for connector in node.window.connectors:
            if connector.active and connector.kind in KINDS:
                properties = {name: value.strip() for name, value in connector.properties}
                yield _Candidate(node, connector, KINDS[connector.kind], graph.project.name, properties)


def _check_same(first: _Candidate, other: _Candidate) -> None:
    if other.kind != first.kind:
        raise ClusterUnclear(connector=other.path, name="class", found=other.kind, other=first.path, wanted=first.kind)
    for name in _SHARED[first.kind]:
        found, wanted = other.properties.get(name, ""), first.properties.get(name, "")
        if found and wanted and cluster_name(found) != cluster_name(wanted):
            raise ClusterUnclear(connector=other.path, name=name, found=found, other=first.path, wanted=wanted)


def _rabbitmq(settings: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    host, user = settings.get("rmqhost") or "127.0.0.1", settings.get("rmquserid") or "guest"
    port = environ.get(STREAM_PORT) or settings.get("rmqstreamport") or STREAM_PORT_DEFAULT
    vhost = settings.get("rmqvhost") or "/"
    path = "" if vhost == "/" else f"/{quote(vhost, safe='')}"
    options = {"tls": "true"} if is_yes(settings.get("rmqssl")) else {}
    files = {"ca": "rmqsslcacert", "cert": "rmqsslcert", "key": "rmqsslkey"}
    options |= {name: settings[key] for name, key in files.items() if options and settings.get(key)}
    secrets = {"LOCKSTEP_RABBITMQ_PASSWORD": settings.get("rmqpassword") or "guest"}
    return f"rabbitmq://{quote(user, safe='')}@{host}:{port}{path}{_query(options)}", secrets


def _kafka(settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The brokers; of the client's own settings those that decide whether it gets in."""
    text = settings.get("kafkaglobalconfig", "")
    client = dict(part.strip().partition("=")[::2] for part in text.split(";") if "=" in part)
    options = {name: client[key] for key, name in _KAFKA_TLS.items() if client.get(key)}
    if "SSL" in client.get("security.protocol", "").upper().removeprefix("SASL_"):
        options["tls"] = "true"
    mechanism = client.get("sasl.mechanism") or client.get("sasl.mechanisms")
    options |= {"mechanism": mechanism} if mechanism and mechanism != "PLAIN" else {}
    options |= {"user": client["sasl.username"]} if client.get("sasl.username") else {}
    secrets = {"LOCKSTEP_KAFKA_PASSWORD": client["sasl.password"]} if client.get("sasl.password") else {}
    hosts = settings.get("kafkahostport", "").replace(" ", "")
    return f"kafka://{hosts}{_query(options)}", secrets


def _query(options: Mapping[str, str]) -> str:
    return f"?{urlencode(options)}" if options else ""
