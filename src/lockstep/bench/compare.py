"""The same work on the embedded bus and on each server, with its own client and ours; and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lockstep.bench.compare_fanout import Work, fan_out
from lockstep.bench.compare_means import OURS, PLAIN_KAFKA_FSYNC, PORTS, load, plain
from lockstep.bench.compare_servers import Served, Shares, Wanted, served
from lockstep.bench.compare_waking import wake_latency
from lockstep.bench.rows import Row
from lockstep.bench.scratch import scratch_bus
from lockstep.drill import measure
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


HEADINGS = ("bus", "by", "published/s", "delivered/s", "by plain", "target", "", "processor µs", "wake p50 ms",
            "wake p99 ms", "wrong", "others' cores")  # fmt: skip
_OURS, _PLAIN = "#2a7f62", "#8a8f98"

_INTRO = """# Buses: measured

The same work on each bus, in one run on one machine: {publishers} publishers and {subscribers} subscribers, each a
process of its own, on one stream, records of {size} bytes. Every subscriber gets every record, and checks its number. A
publisher sends runs of {run_records:,} records, waits until all of a run are acknowledged, and waits for the slowest
subscriber when all are {ahead_records:,} records ahead of it. Publishing ends after {records:,} records or {seconds:g}
seconds; the clock stops when the last subscriber has the last record.

The plain side is the vendor's own client, written as its users would for the same promises: acknowledged, in order, in
the client's own batches, a message for each record. Lockstep packs many records into a message, which the user of a
plain client would have to do by hand; how much of the difference comes from that was not measured.

"by plain" is the deliveries by those of the plain client on the same server; for the embedded bus, by those of plain
Kafka, which syncs nothing. The list below the table also sets it against a topic that the broker syncs at every append
(`kafka-fsync`). "processor µs" is the processor time of clients and server for each delivery; waiting for a core that
others use is not in it. "wake" is from the call that publishes one record to the return of the read in another process
that waits for it. "wrong" is what was lost, duplicated or out of order. The embedded bus, Redis and `kafka-fsync` write
to disk (fsync) before they acknowledge; Kafka, RabbitMQ and the embedded bus with `durability=relaxed` gave it to
the system, Hazelcast has it in memory. Each server is alone, without copies on other machines.

"others' cores" is how many cores everything but the run and its server kept busy meanwhile: a row with more than a
little there says as much about the neighbours.
"""

_SHARDS = """## By the number of shards

Lockstep on one Kafka broker: a publisher and a subscriber, each a process, for each shard; each event is read once. The
costs are processor time for each event."""


def table(found: dict[str, Any]) -> list[tuple[str, ...]]:
    """A line for each side, under HEADINGS."""
    ratios = {ratio["bus"]: ratio for ratio in reversed(found["ratios"])}  # of several the first
    return [_line(side, ratios.get(side["bus"]) if side["by"] == "lockstep" else None) for side in found["sides"]]


def _line(side: dict[str, Any], ratio: dict[str, Any] | None) -> tuple[str, ...]:
    compared = ("-", "-", "-")
    if ratio is not None:
        compared = (f"{ratio['ratio']:g} x", f"≥ {ratio['target']:g} x", "ok" if ratio["ok"] else "miss")
    wrong = side["lost"] + side["doubled"] + side["reordered"]
    return (
        side["bus"], side["by"], f"{side['publishes_per_s']:,}", f"{side['deliveries_per_s']:,}", *compared,
        f"{side['delivery_us']:.2f}",
        f"{side['wake_ms']['p50']:.2f}", f"{side['wake_ms']['p99']:.2f}", f"{wrong:,}", f"{side['others_cores']:g}",
    )  # fmt: skip


def markdown(found: dict[str, Any]) -> str:
    """The page, without where it was measured."""
    lines = [_INTRO.format(**found["work"]), _row(HEADINGS), _row(["---"] * len(HEADINGS))]
    lines += [_row(line) for line in table(found)]
    lines += ["", *(f"- {line}" for line in embedded_ratios(found))]
    lines += ["", "![Deliveries a second on each bus](buses.png)", "", "## What each side is set to", ""]
    lines += [_row(("bus", "by", "settings", "server's cores")), _row(["---"] * 4)]
    lines += [_row((side["bus"], side["by"], side["settings"], f"{side['server_cores']:g}")) for side in found["sides"]]
    return "\n".join([*lines, *_shards(found.get("shards", [])), ""])


def embedded_ratios(found: dict[str, Any]) -> list[str]:
    """What the embedded bus was set against, a line each."""
    return [_ratio_line(ratio) for ratio in found["ratios"] if ratio["bus"].startswith("embedded")]


def _ratio_line(ratio: dict[str, Any]) -> str:
    said = "ok" if ratio["ok"] else "missed"
    return f"{ratio['bus']} by {ratio['against']}: {ratio['ratio']:g} x (at least {ratio['target']:g} x: {said})"


def _shards(found: Sequence[dict[str, Any]]) -> list[str]:
    """What an event costs with one shard and with several."""
    if not found:
        return []
    heads = ("shards", "events/s", "publisher, µs", "subscriber, µs", "server, µs", "together, µs", "others' cores")
    lines = ["", *_SHARDS.splitlines(), "", _row(heads), _row(["---"] * len(heads))]
    for one in found:
        costs = [f"{one[name]:.2f}" for name in ("publisher_us", "subscriber_us", "server_us", "event_us")]
        lines.append(_row((str(one["shards"]), f"{one['events_per_s']:,}", *costs, f"{one['others_cores']:g}")))
    return lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw(found: dict[str, Any], path: Path) -> None:
    """Deliveries a second as bars, as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    sides = found["sides"]
    rates = [side["deliveries_per_s"] for side in sides]
    figure, ax = plt.subplots(figsize=(11, 1.4 + 0.4 * len(sides)))
    colours = [_OURS if side["by"] == "lockstep" else _PLAIN for side in sides]
    bars = ax.barh(range(len(sides)), rates, color=colours, height=0.7)
    ax.bar_label(bars, [f"{rate:,}" for rate in rates], fontsize=9, padding=4)
    ax.set_yticks(range(len(sides)), [f"{side['bus']}, {side['by']}" for side in sides], fontsize=9)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.margins(x=0.18)
    ax.spines[["top", "right"]].set_visible(False)
    work = found["work"]
    ax.set_title(
        f"Deliveries a second, {work['publishers']} x {work['subscribers']} x {work['size']} bytes (log scale)",
        loc="left",
        fontsize=11,
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
