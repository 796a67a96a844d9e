"""Which bus and which cluster are meant: by the connectors of a model, or by a client's configuration file. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from lockstep.cli.connection import BUS_VARIABLE
from lockstep.connectors.names import IN, OUT, WindowPath, cluster_name, topic_name
from lockstep.connectors.properties import PUBLISH, SUBSCRIBE, read_properties
from lockstep.engine.model.checks import is_publisher
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.parts import Connector
from lockstep.esp.command import Sections
from lockstep.esp.errors import ClusterUnclear, ConfigFileWrong, FailoverIncomplete

STREAM_PORT = "LOCKSTEP_RABBITMQ_STREAM_PORT"
STREAM_PORT_DEFAULT = "5552"
KINDS = {"rmq": "rmq", "rabbitmq": "rmq", "kafka": "kafka"}
_YES = ("true", "1", "yes", "enabled")
_SHARED = {
    "rmq": ("urlhostport", "rmqhost", "rmqport", "rmquserid", "rmqvhost", "rmqstreamport"),
    "kafka": ("urlhostport", "kafkahostport"),
}
"""What must be the same on all connectors of a cluster."""
_RABBITMQ = "LOCKSTEP_RABBITMQ"
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
    buffered: int = 0
    """How many blocks the connectors want a standby to keep; 0 if they do not say."""


def place_of_model(graph: Graph, environ: Mapping[str, str]) -> Place | None:
    """The failover cluster of a model: its hotfailover connectors for RabbitMQ or Kafka say it. None if it has none."""
    wanted = [one for one in _candidates(graph) if one.wants_failover]
    found = [one for one in wanted if not one.lacks]
    if not found:
        if wanted and not environ.get(BUS_VARIABLE):
            raise FailoverIncomplete(connector=wanted[0].path, reason=wanted[0].lacks)
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
        max(one.buffered() for one in bound),
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
    def wants_failover(self) -> bool:
        return not self.publishes and is_yes(self.properties.get("hotfailover"))

    @property
    def lacks(self) -> str:
        """What keeps it from being a stream of a cluster: blocks with numbers, on the window's own topic."""
        topic, form = self.properties.get(f"{self.kind}topic", ""), self.properties.get(f"{self.kind}type", "csv")
        if not self.properties.get("urlhostport"):
            return "has no urlhostport"
        if form.lower() != "binary":
            return f"its {self.kind}type is {form!r}, not 'binary'"
        return "" if topic in ("", self._topic()) else f"its {self.kind}topic {topic!r} is not {self._topic()!r}"

    def is_bound_to(self, cluster: _Candidate) -> bool:
        mine, its = (one.properties.get("urlhostport", "") for one in (self, cluster))
        return not self.lacks and cluster_name(mine) == cluster_name(its)

    def buffered(self) -> int:
        """Its numbufferedmsgs; ConnectorRefused if it is not as it should be."""
        direction = PUBLISH if self.publishes else SUBSCRIBE
        made = read_properties(self.path, self.connector.kind, direction, self.properties)
        return 0 if self.publishes else made.number("numbufferedmsgs", 0)

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
    host = settings.get("rmqhost") or "127.0.0.1"
    user = settings.get("rmquserid") or environ.get(f"{_RABBITMQ}_USER") or "guest"
    port = environ.get(STREAM_PORT) or settings.get("rmqstreamport") or STREAM_PORT_DEFAULT
    vhost = settings.get("rmqvhost") or "/"
    path = "" if vhost == "/" else f"/{quote(vhost, safe='')}"
    options = {"tls": "true"} if is_yes(settings.get("rmqssl")) else {}
    files = {"ca": "rmqsslcacert", "cert": "rmqsslcert", "key": "rmqsslkey"}
    options |= {name: settings[key] for name, key in files.items() if options and settings.get(key)}
    secrets = _rabbitmq_secrets(settings.get("rmqpassword", ""), environ)
    return f"rabbitmq://{quote(user, safe='')}@{host}:{port}{path}{_query(options)}", secrets


def _rabbitmq_secrets(given: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What is given counts more than the environment, and that more than the server's own guest."""
    password, file = f"{_RABBITMQ}_PASSWORD", f"{_RABBITMQ}_PASSWORD_FILE"
    if not given:
        return {} if environ.get(password) or environ.get(file) else {password: "guest"}
    return {password: given, **({file: ""} if environ.get(file) else {})}


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
