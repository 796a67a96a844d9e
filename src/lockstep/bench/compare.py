"""The same work on the embedded bus, and on each server with its own client and with Lockstep, side by side in one run.

Servers run one after the other, each with a short run before it counts: a JVM that has just started is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from lockstep.bench import measure
from lockstep.bench.compare_fanout import Work, fan_out
from lockstep.bench.compare_means import OURS, PLAIN_KAFKA_FSYNC, PORTS, load, plain
from lockstep.bench.compare_servers import Served, Shares, Wanted, served
from lockstep.bench.compare_waking import wake_latency
from lockstep.bench.rows import Row
from lockstep.bench.scratch import scratch_bus
from lockstep.errors import ExtraMissing

EMBEDDED, LOCKSTEP = "embedded", "lockstep"
EMBEDDED_RELAXED = "embedded-relaxed"
"""As safe as a Kafka that is alone: acknowledged records survive a killed process, not a power cut."""
KAFKA, KAFKA_FSYNC = "kafka", "kafka-fsync"
"""A topic as the broker makes it, and one that it syncs to disk before it acknowledges, as the embedded bus does."""
EMBEDDED_BY_KAFKA, OURS_BY_PLAIN = 5.0, 0.9
CLIENTS = {
    "kafka": "confluent-kafka", "rabbitmq": "rstream", "redis": "redis", "hazelcast": "hazelcast-python-client",
}  # fmt: skip
_PACKAGES = {"kafka": "confluent_kafka", "rabbitmq": "rstream", "redis": "redis", "hazelcast": "hazelcast"}
_PEERS = {EMBEDDED: (KAFKA, KAFKA_FSYNC), EMBEDDED_RELAXED: (KAFKA,)}
_WARM_RECORDS, _WARM_S = 50_000, 1.5

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareOptions:
    """What to compare."""

    buses: tuple[Wanted, ...] = tuple(map(Wanted, PORTS))
    work: Work = field(default_factory=Work)
    wakes: int = 200
    """Single records for the latency of waking up."""

    def __post_init__(self) -> None:
        if self.wakes < 1:
            message = f"wakes={self.wakes} must be at least 1"
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One means on one bus, as it was measured."""

    bus: str
    by: str
    """lockstep, or the name of the plain client."""
    settings: str
    figures: dict[str, Any]
    wake_ms: dict[str, float]
    others_cores: float
    """What everything but this run and its server kept busy."""
    server_cores: float

    @property
    def is_plain(self) -> bool:
        """Whether this is the vendor's client alone."""
        return self.by != LOCKSTEP

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.bus}, {self.by}"

    @property
    def wrong(self) -> int:
        """Records lost, duplicated or out of order."""
        return sum(int(self.figures[what]) for what in ("lost", "doubled", "reordered"))

    def tree(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "bus": self.bus, "by": self.by, "settings": self.settings, **self.figures, "wake_ms": self.wake_ms,
            "others_cores": self.others_cores, "server_cores": self.server_cores,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """How much more one side delivered than another, and how much it has to."""

    bus: str
    against: str
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether the target is met."""
        return self.value >= self.limit

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.bus}, {LOCKSTEP}: deliveries by those of {self.against}"

    def tree(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "bus": self.bus, "against": self.against, "ratio": self.value, "target": self.limit, "ok": self.ok,
        }  # fmt: skip


def ratios(sides: Sequence[Side]) -> list[Ratio]:
    """Ours by the plain client on each bus; embedded by plain Kafka, if that was measured.

    The embedded bus that syncs is also set against a Kafka that does.
    """
    clients = {side.bus: side for side in sides if side.is_plain}
    found = []
    for side in sides:
        for bus in _PEERS.get(side.bus, (side.bus,)):
            peer = clients.get(bus)
            if not side.is_plain and peer is not None:
                value = round(side.figures["deliveries_per_s"] / peer.figures["deliveries_per_s"], 2)
                limit = EMBEDDED_BY_KAFKA if side.bus in _PEERS else OURS_BY_PLAIN
                found.append(Ratio(bus=side.bus, against=peer.name, value=value, limit=limit))
    return found


def run(options: CompareOptions, progress: Say | None = None) -> dict[str, Any]:
    """Measure everything; returns the figures as plain data."""
    facts = measure.machine()
    return tree(facts, options, list(all_sides(options, progress or (lambda _: None))))


def tree(facts: dict[str, Any], options: CompareOptions, sides: Sequence[Side]) -> dict[str, Any]:
    """What was measured, as JSON."""
    work = options.work
    return {
        "machine": facts,
        "work": {"publishers": work.publishers, "subscribers": work.subscribers, "size": work.size,
                 "records": work.records, "seconds": work.seconds, "run_records": work.run_records,
                 "ahead_records": work.ahead_records},
        "sides": [side.tree() for side in sides],
        "ratios": [ratio.tree() for ratio in ratios(sides)],
    }  # fmt: skip


def rows(sides: Sequence[Side]) -> Iterator[Row]:
    """The same as rows of the table of all benchmarks."""
    for side in sides:
        rate = side.figures["deliveries_per_s"]
        found = (
            Row(name=f"{side.name}: deliveries", value=rate, unit="/s", details=side.tree()),
            Row(name=f"{side.name}: lost, doubled, reordered", value=side.wrong, unit="records", limit=0.0,
                at_least=False, details={}),
            Row(name=f"{side.name}: publish to the end of the read, p50", value=side.wake_ms["p50"], unit="ms",
                details={}),
        )  # fmt: skip
        yield from (replace(row, others_cores=side.others_cores) for row in found)
    for ratio in ratios(sides):
        yield Row(name=ratio.name, value=ratio.value, unit="x", limit=ratio.limit, details=ratio.tree())


def cost(figures: dict[str, Any], server_s: float) -> dict[str, float]:
    """Processor time of a delivery, clients and server together; of a server that is not ours, nothing is known."""
    spent = figures["cpu_s"] + server_s
    return {"server_cpu_s": round(server_s, 3), "delivery_us": round(spent / figures["delivered"] * 1e6, 3)}


def check_clients(buses: Sequence[Wanted]) -> None:
    """ExtraMissing, before anything is started, if the client of a bus is not installed."""
    for wanted in buses:
        if find_spec(_PACKAGES[wanted.bus]) is None:
            raise ExtraMissing(extra=wanted.bus, package=_PACKAGES[wanted.bus])


def all_sides(options: CompareOptions, say: Say) -> Iterator[Side]:
    """Measure one after the other."""
    check_clients(options.buses)
    for bus, durability in ((EMBEDDED, "fsync"), (EMBEDDED_RELAXED, "relaxed")):
        with scratch_bus(durability) as url:
            yield _measure(bus, OURS, Served(url), options, say)
    for wanted in options.buses:
        with served(wanted, say) as server:
            _warm_up(wanted.bus, server, options.work)
            for means in (plain(wanted.bus), OURS):
                yield _measure(wanted.bus, means, server, options, say)
            if wanted.bus == KAFKA:
                yield _measure(KAFKA_FSYNC, PLAIN_KAFKA_FSYNC, server, options, say)


def _warm_up(bus: str, server: Served, work: Work) -> None:
    small = min(work.records, _WARM_RECORDS)
    fan_out(plain(bus), server.url, replace(work, publishers=1, subscribers=2, records=small, seconds=_WARM_S))


def _measure(bus: str, means: str, server: Served, options: CompareOptions, say: Say) -> Side:
    by = LOCKSTEP if means == OURS else CLIENTS[bus.removesuffix("-fsync")]
    say(f"{bus}, {by}")
    shares, before = Shares(server), server.cpu_s()
    figures = fan_out(means, server.url, options.work)
    figures |= cost(figures, server.cpu_s() - before)
    cores = shares.cores()
    return Side(
        bus=bus,
        by=by,
        settings=load(means).SETTINGS if means == OURS else f"{by} {version(by)}: {load(means).SETTINGS}",
        figures=figures,
        wake_ms=wake_latency(means, server.url, options.wakes),
        **cores,
    )
