"""BigBen's configuration: bigben.yaml, its overrides, the environment, and keys given at start.

Keys given at start (--set, BigBen's -D) override the environment, which overrides files, of which later ones override
those before; then come the defaults. Maps are merged key by key, nested or written with dots, and lists are united.
`${name:-default}` is replaced by the value of a name. Keys that have no meaning here are accepted, and can be listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from lockstep.core.ladder import SECOND_MS, Ladder
from lockstep.errors import BadArgument, BadConfig, PathMissing

MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS
NODES_MAX = 256
"""Nodes that one command starts."""
PORT, SCAN, LAPSE = "app.server.port", "events.schedule.scan.interval.minutes", "events.receiver.lapse.offset.minutes"
RETRIES, DELAY = "events.processor.max.retries", "events.processor.initial.delay"
MULTIPLIER, BACKLOG = "events.processor.backoff.multiplier", "buckets.backlog.check.limit"
KEEP, INSTANCES, ENABLED = "events.keep.days", "num.instances", "events.scheduler.enabled"
CONSUMERS, KAFKA_ENABLED = "kafka.consumers", "kafka.module.enabled"
TIMEOUT, HOSTS, PORTS = "delivery.timeout.seconds", "delivery.allowed.hosts", "delivery.allowed.ports"
PRIVATE, PROCESSORS = "delivery.allow.private", "delivery.processors."
USED = frozenset({
    PORT, SCAN, LAPSE, RETRIES, DELAY, MULTIPLIER, BACKLOG, KEEP, INSTANCES, ENABLED, CONSUMERS, KAFKA_ENABLED, TIMEOUT,
    HOSTS, PORTS, PRIVATE,
})  # fmt: skip
DEFAULTS: dict[str, Any] = {
    PORT: 8080, SCAN: 1, LAPSE: 0, RETRIES: 3, DELAY: 1, MULTIPLIER: 2, BACKLOG: 1440, KEEP: 30, INSTANCES: 1,
    ENABLED: True, TIMEOUT: 10, HOSTS: [], PORTS: [], PRIVATE: True,
}  # fmt: skip
"""The defaults of BigBen for the keys that count here, and of ours: events.keep.days, num.instances, delivery."""
ACCEPTED = (
    "events.num.shard.submitters", "events.receiver.shard.size", "events.receiver.delete", "events.submit",
    "events.processor.eager.loading", "events.tasks", "buckets.background", "cron", "task.executor",
    "generic.future.max.get.time", "kafka", "cassandra", "hz", "modules", "messaging.producer.factory.class",
    "domain.entity.provider.class", "system.properties", "app",
)  # fmt: skip
"""Beginnings of BigBen's other keys."""
ENVIRONMENT = {"SERVER_PORT": PORT, "NUM_INSTANCES": INSTANCES}
"""Names of BigBen's scripts. APP_CONTAINER_NAME, HZ_PORT, LOGS_DIR, ... have no meaning here."""
_ALIASES = (("event.processor.", "events.processor."), ("events.backlog.check.limit", BACKLOG))
GROUP = "bigben-inbound"
_CONSUMER = re.compile(
    r"auto\.offset\.reset|session\.timeout\.ms|heartbeat\.interval\.ms|max\.poll\.interval\.ms|client\.id"
    r"|(?:security|sasl|ssl)\..+"
)
"""Settings of consumers that mean the same in every client of Kafka."""
_REFERENCE = re.compile(r"\$\{([^{}:]+)(?::-([^{}]*))?\}")
_DEPTH_MAX = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Inflow:
    """Topics of Kafka whose records are requests."""

    topics: tuple[str, ...]
    servers: str
    group: str
    consumers: int
    settings: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Keys with dots, and their values. `given` are those that a user set, in files or at start."""

    values: Mapping[str, Any]
    given: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def loaded(cls, files: Sequence[str], system: Sequence[str], environ: Mapping[str, str]) -> Settings:
        """Return the settings of files, of KEY=VALUE given at start, and of the environment."""
        values, given = dict(DEFAULTS), set[str]()
        for name in files:
            found = flattened(_read(name))
            given |= found.keys()
            values = merged(values, found)
        start = dict(_pair(text) for text in system)
        named = dict(_from_environment(values, environ))
        values = {**values, **named, **{_key(name): _scalar(text) for name, text in start.items()}}
        given |= {_key(name) for name in start}
        lookup = {**{key: str(value) for key, value in values.items() if value is not None}, **environ, **start}
        return cls(values={key: _substituted(value, lookup) for key, value in values.items()}, given=frozenset(given))

    def get(self, key: str) -> Any:
        """Return the value of a key; BadArgument if there is none, or if it is null."""
        if key not in self.values:
            raise BadArgument(name="setting", value=key, reason=f"no property with name: {key}")
        if self.values[key] is None:
            raise BadArgument(name="setting", value=key, reason=f"property '{key}' has a 'null' value")
        return self.values[key]

    @property
    def port(self) -> int:
        """The port of the API."""
        return self._whole(PORT, most=65_535)

    @property
    def instances(self) -> int:
        """How many nodes are started."""
        return self._whole(INSTANCES, least=1, most=NODES_MAX)

    @property
    def is_node(self) -> bool:
        """Whether nodes work, rather than serve the API only."""
        return self._truth(ENABLED)

    def ladder(self) -> Ladder:
        """Return how failed deliveries are tried again."""
        return Ladder(
            max_retries=self._whole(RETRIES),
            initial_delay_ms=round(self._number(DELAY) * SECOND_MS),
            multiplier=self._number(MULTIPLIER, least=1),
            round_ms=self._whole(SCAN, least=1) * MINUTE_MS,
            limit_ms=self._whole(BACKLOG) * MINUTE_MS,
        )

    def node_fields(self) -> dict[str, Any]:
        """Return the fields of NodeOptions that the settings give."""
        return {
            "ladder": self.ladder(),
            "keep_ms": round(self._number(KEEP) * DAY_MS),
            "lapse_ms": round(self._number(LAPSE) * MINUTE_MS),
        }

    def courier_fields(self) -> dict[str, Any]:
        """Return the fields of CourierOptions that the settings give."""
        return {
            "timeout_s": self._number(TIMEOUT, least=0.001),
            "allowed_hosts": tuple(str(host) for host in self._list(HOSTS)),
            "allowed_ports": tuple(_port(port) for port in self._list(PORTS)),
            "allow_private": self._truth(PRIVATE),
            "processors": {
                key.removeprefix(PROCESSORS): _class(key, value)
                for key, value in self.values.items()
                if key.startswith(PROCESSORS)
            },
        }

    def inflows(self) -> list[Inflow]:
        """Return the topics of Kafka that are to be read; none unless they are named."""
        if self.values.get(KAFKA_ENABLED) is False:
            return []
        listed = self.values.get(CONSUMERS) or []
        if not isinstance(listed, list) or not all(isinstance(item, Mapping) for item in listed):
            raise BadConfig(field=CONSUMERS, value=listed, reason="it must be a list of maps")
        found = [_inflow({**flattened(item), **flattened(_config(item))}) for item in listed]
        return [inflow for inflow in found if inflow is not None]

    def ignored_lines(self) -> list[str]:
        """Return sentences that name the given keys without a meaning here; at most two."""
        others = sorted(key for key in self.given - USED if not key.startswith(PROCESSORS))
        known = [key for key in others if key.startswith(ACCEPTED)]
        unknown = [key for key in others if not key.startswith(ACCEPTED)]
        lines = [("Accepted for compatibility, ignored", known), ("Unknown settings, ignored", unknown)]
        return [f"{what}: {', '.join(keys)}." for what, keys in lines if keys]

    def _truth(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise BadConfig(field=key, value=value, reason="it must be true or false")
        return value

    def _list(self, key: str) -> list[Any]:
        """A list, or the parts of a text between commas."""
        value = self.get(key)
        if isinstance(value, list):
            return value
        return [part for part in (text.strip() for text in str(value).split(",")) if part]

    def _whole(self, key: str, *, least: int = 0, most: int = 10**9) -> int:
        value = self._number(key, least=least)
        if value != int(value) or value > most:
            raise BadConfig(field=key, value=self.get(key), reason=f"it must be a whole number from {least} to {most}")
        return int(value)

    def _number(self, key: str, *, least: float = 0) -> float:
        value = self.get(key)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if isinstance(value, bool) or not least <= number <= 10**9:
            raise BadConfig(field=key, value=value, reason=f"it must be a number of at least {least:g}")
        return number


def _port(given: Any) -> int:
    text = str(given)
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and 0 < int(text) <= 65_535):
        raise BadConfig(field=PORTS, value=given, reason="a port is a whole number from 1 to 65535")
    return int(text)


def _class(key: str, place: Any) -> type:
    """The class that the operator names as MODULE:CLASS."""
    module, _, name = str(place).partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:  # a module may raise anything
        reason = f"it could not be loaded: {type(error).__name__}: {error}"
        raise BadConfig(field=key, value=place, reason=reason) from error
    if not isinstance(found, type):
        raise BadConfig(field=key, value=place, reason="it must be MODULE:CLASS")
    return found


def _config(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a consumer's settings that is for Kafka's client."""
    config = item.get("config") or {}
    if not isinstance(config, Mapping):
        raise BadConfig(field=f"{CONSUMERS}.config", value=config, reason="it must be a map")
    return config


def _inflow(fields: Mapping[str, Any]) -> Inflow | None:
    topics = fields.get("topics")
    if not topics:
        return None
    names = topics.split(",") if isinstance(topics, str) else list(topics)
    servers, count = fields.get("bootstrap.servers"), fields.get("num.consumers", 8)
    if not servers:
        raise BadConfig(field=CONSUMERS, value=topics, reason="no property with name: bootstrap.servers")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise BadConfig(field="num.consumers", value=count, reason="it must be a whole number of at least 1")
    settings = {key: value for key, value in fields.items() if _CONSUMER.fullmatch(key)}
    return Inflow(
        topics=tuple(str(name).strip() for name in names),
        servers=str(servers),
        group=str(fields.get("group.id") or GROUP),
        consumers=count,
        settings=settings,
    )


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested maps as one map with dots in its keys, under BigBen's own names."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{key}.")
        else:
            found[_key(key)] = value
    return found


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return two flat maps as one: the second counts, and lists are united."""
    found = dict(base)
    for key, value in over.items():
        before = found.get(key)
        if isinstance(before, list) and isinstance(value, list):
            value = [*before, *(item for item in value if item not in before)]
        found[key] = value
    return found


def _key(name: str) -> str:
    for alias, key in _ALIASES:
        if name.startswith(alias):
            return key + name.removeprefix(alias)
    return name


def _from_environment(values: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The environment changes keys that exist: by BigBen's names, by the key, or by the key in capitals.

    A variable that is empty counts as not set.
    """
    for name, key in ENVIRONMENT.items():
        if environ.get(name):
            yield key, _scalar(environ[name])
    for key in values:
        for name in (key.replace(".", "_").upper(), key):
            if environ.get(name):
                yield key, _scalar(environ[name])


def _read(name: str) -> Mapping[str, Any]:
    path = Path(re.sub(r"^(?:file|uri)://", "", name))
    try:
        loaded = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise PathMissing(path=str(path), reason="it does not exist") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadConfig(
            field="--config", value=name, reason=f"it is not YAML: {' '.join(str(error).split())}"
        ) from None
    if loaded is None:
        return {}
    if not isinstance(loaded, Mapping) or not all(isinstance(key, str) for key in loaded):
        raise BadConfig(field="--config", value=name, reason="it must be a map of keys to values")
    return loaded


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise BadConfig(field="--set", value=text, reason="write it as KEY=VALUE")
    return name, value


def _substituted(value: Any, lookup: Mapping[str, str], depth: int = 0) -> Any:
    if isinstance(value, list):
        return [_substituted(item, lookup, depth) for item in value]
    if isinstance(value, Mapping):
        return {key: _substituted(item, lookup, depth) for key, item in value.items()}
    if not isinstance(value, str) or "${" not in value:
        return value
    if depth >= _DEPTH_MAX:
        raise BadConfig(field="setting", value=value, reason="it refers to itself")

    def replaced(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if name in lookup:
            return lookup[name]
        if default is None:
            raise BadArgument(name="setting", value=found[0], reason=f"no property with name: {name}")
        return default

    text = _REFERENCE.sub(replaced, value)
    if text == value:
        return value
    return _substituted(_scalar(text), lookup, depth + 1)


def _scalar(text: str) -> Any:
    """A value as YAML writes it; what is no YAML is text."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
