"""A comparison for people: the table of the command, the page of the documentation, and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
