"""The scheduler's figures with their targets, as rows of one table: `lockstep bench schedule`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from lockstep.bench.compare_servers import Served, Wanted, served
from lockstep.bench.rows import Row, as_data
from lockstep.bench.schedule import callbacks, cron_load, due_events, requests, takeovers
from lockstep.bench.schedule.arrivals import shares
from lockstep.bench.schedule.nodes import Site
from lockstep.bench.schedule.peers import (
    APSCHEDULER,
    CELERY,
    CRONITER,
    DB_SCHEDULER,
    PROCRASTINATE,
    PeerMissing,
    Peers,
    measured,
    sqlalchemy_url,
)
from lockstep.bench.scratch import scratch_bus
from lockstep.dev.errors import ServerNotAvailable
from lockstep.drill import measure
from lockstep.errors import LockstepError

Say = Callable[[str], None]
NO_PEERS = "Other schedulers were not measured: --peers installs them below the cache folder and does."
SLOWER = {APSCHEDULER: 50, PROCRASTINATE: 20, CELERY: 10}
"""How many times fewer events slow peers get."""
RATIOS = {DB_SCHEDULER: 1.5, APSCHEDULER: 10.0, PROCRASTINATE: 10.0, CELERY: 10.0}
_FAULTS = ("lost", "duplicated", "early", "unknown")


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleBench:
    """What to measure. The targets are those for 100,000 events on two cores."""

    events: int = 100_000
    only: tuple[str, ...] = ()
    peers: bool = False
    store: str | None = None
    """A PostgreSQL to use; else one is started for the run."""
    kills: int = 20
    seconds: float = 60.0
    """How long the rows take in which time passes."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.only) - set(PARTS))
        if unknown:
            message = f"there is no row {', '.join(unknown)}; there are {', '.join(PARTS)}"
            raise ValueError(message)
        if self.events < 10:
            message = f"events={self.events} must be at least 10"
            raise ValueError(message)

    @property
    def parts(self) -> list[str]:
        """The parts to be measured, in order."""
        return [name for name in PARTS if not self.only or name in self.only]


@dataclass(frozen=True, slots=True)
class Bench:
    """What the parts work with."""

    options: ScheduleBench
    say: Say

    @contextmanager
    def embedded(self) -> Iterator[tuple[Site, Served]]:
        """A new bus on LMDB that holds the rows too."""
        with scratch_bus("fsync") as url:
            yield Site(url), Served("")

    @contextmanager
    def postgresql(self) -> Iterator[tuple[Site, Served]]:
        """A new bus on LMDB, and a PostgreSQL for the rows."""
        with served(Wanted("postgresql", self.options.store), self.say) as server, scratch_bus("fsync") as url:
            yield Site(url, server.url), server

    @contextmanager
    def redis(self) -> Iterator[Served]:
        """A Redis that acknowledges what is on disk."""
        with served(Wanted("redis"), self.say) as server:
            yield server

    @property
    def peers(self) -> Peers:
        """Other schedulers."""
        return Peers.in_cache(self.say)

    def peer(self, name: str, server: Served, work: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
        """What a peer did; None if it is not wanted or can't be had."""
        if not self.options.peers:
            return None
        self.say(name)
        try:
            return measured(server, work)
        except PeerMissing as error:
            self.say(str(error))
            return None


def all_rows(options: ScheduleBench, say: Say) -> Iterator[Row]:
    """Measure everything that is wanted, one after the other. What fails becomes a row that says so."""
    for name in options.parts:
        bench = Bench(options, _with_name(say, name))
        try:
            yield from PARTS[name](bench)
        except ServerNotAvailable as error:
            bench.say(f"left out: {error}")
        except (LockstepError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            bench.say(f"failed: {error}")
            yield Row(name=f"{name}: failed", value=1.0, unit="records", limit=0.0, at_least=False,
                      details={"error": str(error)})  # fmt: skip


def _with_name(say: Say, name: str) -> Say:
    return lambda text: say(f"{name}: {text}")


def run(options: ScheduleBench, progress: Say | None = None) -> dict[str, Any]:
    """Measure; the rows as plain data, with what the figures depend on."""
    chosen = {**asdict(options), "only": list(options.only), "store": None if options.store is None else "given"}
    facts = {**measure.machine(), **chosen}
    rows = list(all_rows(options, progress or (lambda _: None)))
    result = {"machine": facts, "rows": [as_data(row) for row in rows]}
    return result if options.peers else {**result, "peers": NO_PEERS}


def _row(found: dict[str, Any], name: str, value: float, unit: str, **more: Any) -> Row:
    """A row; its first one of a run has all that was found."""
    limit, at_least = more.get("limit"), more.get("at_least", True)
    details = found if more.get("is_first", False) else {}
    return Row(name=name, value=value, unit=unit, limit=limit, at_least=at_least, details=details,
               others_cores=found["others_cores"])  # fmt: skip


def _faultless(found: dict[str, Any], name: str) -> Row:
    kinds = [kind for kind in _FAULTS if kind in found]
    total = sum(int(found[kind]) for kind in kinds)
    return _row(found, f"{name}: {', '.join(kinds)}", total, "records", limit=0.0, at_least=False)


def _lateness(found: dict[str, Any], name: str, limits: dict[str, float], *, is_peer: bool = False) -> Iterator[Row]:
    for at in ("p50", "p99", "max"):
        limit = None if is_peer else limits.get(at)
        yield _row(found, f"{name}: late, {at}", found["late_ms"][at], "ms", limit=limit, at_least=False,
                   is_first=at == "p50")  # fmt: skip


def _now(bench: Bench) -> Iterator[Row]:
    events = bench.options.events
    with bench.embedded() as (site, server):
        found = due_events.due_now(site, server, events, bench.say)
    yield from _rate(found, f"{events:,} due now, LMDB", 20e3)
    with bench.postgresql() as (site, server):
        ours = due_events.due_now(site, server, events, bench.say)
        yield from _rate(ours, f"{events:,} due now, PostgreSQL", 10e3)
        yield from _now_peers(bench, server, ours)
    if bench.options.peers:
        with bench.redis() as server:
            yield from _now_peer(bench, CELERY, server, ours, server.url)


def _rate(found: dict[str, Any], name: str, limit: float | None) -> Iterator[Row]:
    yield _row(found, name, found["per_s"], "/s", limit=limit, is_first=True)
    yield _row(found, f"{name}: processor time of the node for each", found["cpu_us_per_event"], "µs")
    yield _faultless(found, name)


def _now_peers(bench: Bench, server: Served, ours: dict[str, Any]) -> Iterator[Row]:
    events = bench.options.events
    found = bench.peer(
        DB_SCHEDULER, server, lambda: bench.peers.run_db_scheduler(server.url, events, 0, "tuned")
    )  # fmt: skip
    yield from _beside(DB_SCHEDULER, found, ours)
    yield from _now_peer(bench, APSCHEDULER, server, ours, sqlalchemy_url(server.url))
    yield from _now_peer(bench, PROCRASTINATE, server, ours, server.url)


def _now_peer(bench: Bench, name: str, server: Served, ours: dict[str, Any], url: str) -> Iterator[Row]:
    events = max(bench.options.events // SLOWER[name], 10)
    found = bench.peer(name, server, lambda: bench.peers.run_python(name, url, str(events)))
    yield from _beside(name, found, ours)


def _beside(name: str, found: dict[str, Any] | None, ours: dict[str, Any]) -> Iterator[Row]:
    if found is None:
        return
    what = f"{found['events']:,} due now, {name}"
    yield _row(found, what, found["per_s"], "/s", is_first=True)
    if found["per_s"] > 0:
        ratio = round(ours["per_s"] / found["per_s"], 2)
        yield _row(found, f"due now: ours on {ours['store']} by {name}", ratio, "x", limit=RATIOS[name])


def _minute(bench: Bench) -> Iterator[Row]:
    events, seconds = bench.options.events, bench.options.seconds
    limits, name = {"p99": 250.0, "max": 1000.0}, f"{events:,} over {seconds:.0f} s"
    with bench.embedded() as (site, server):
        found = due_events.over_a_minute(site, server, events, bench.say, seconds)
    yield from _lateness(found, f"{name}, LMDB", limits)
    yield _faultless(found, f"{name}, LMDB")
    with bench.postgresql() as (site, server):
        found = due_events.over_a_minute(site, server, events, bench.say, seconds)
        yield from _lateness(found, f"{name}, PostgreSQL", limits)
        yield _faultless(found, f"{name}, PostgreSQL")
        for setting in ("tuned", "default"):
            peer = bench.peer(
                DB_SCHEDULER, server,
                lambda: bench.peers.run_db_scheduler(server.url, events, round(seconds * 1000), setting),  # noqa: B023
            )  # fmt: skip
            if peer is not None:
                yield from _lateness(peer, f"{name}, {DB_SCHEDULER}, {setting}", {}, is_peer=True)


def _instant(bench: Bench) -> Iterator[Row]:
    events = bench.options.events // 2
    name = f"{events:,} in one instant, {due_events.NODES} nodes"
    with bench.embedded() as (site, server):
        found = due_events.in_one_instant(site, server, events, bench.say)
    yield from _lateness(found, name, {"max": 5000.0})
    yield _row(found, f"{name}: a node's share off an equal one", found["off"] * 100, "%", limit=20.0, at_least=False)
    yield _faultless(found, name)
    if bench.options.peers:
        with bench.postgresql() as (_, server):
            peer = bench.peer(
                DB_SCHEDULER, server,
                lambda: bench.peers.run_db_scheduler(server.url, events, 0, "tuned", due_events.NODES),
            )  # fmt: skip
        if peer is not None:
            yield from _lateness(peer, f"{name}, {DB_SCHEDULER}", {}, is_peer=True)
            off = shares(peer["by_node"])["off"] * 100
            yield _row(peer, f"{name}, {DB_SCHEDULER}: a node's share off an equal one", off, "%")


def _crons(bench: Bench) -> Iterator[Row]:
    count = bench.options.events * 10
    with bench.embedded() as (site, server):
        found = cron_load.many_crons(site, server, count, bench.say, bench.options.seconds)
    name = f"{count:,} crons"
    yield _row(found, f"{name}: a node starts with them", found["load_s"], "s", limit=15.0, at_least=False,
               is_first=True)  # fmt: skip
    yield _row(found, f"{name}: processor time a second", found["cpu_ms_per_s"], "ms", limit=50.0, at_least=False)
    yield _row(found, f"{name}: put", found["put_per_s"], "/s")
    nothing = Served("")
    for peer, arguments in ((CRONITER, (str(count),)), (APSCHEDULER, ("crons", str(count // 100)))):
        other = bench.peer(peer, nothing, lambda: bench.peers.run_python(peer, *arguments))  # noqa: B023
        if other is not None:
            what = f"{other['events']:,} crons, {peer}{' in a loop' if peer == CRONITER else ''}"
            yield _row(other, f"{what}: load", other["load_s"], "s", is_first=True)
            yield _row(other, f"{what}: processor time a second", other["cpu_ms_per_s"], "ms")


def _post(bench: Bench) -> Iterator[Row]:
    events = bench.options.events
    singles = max(events // 100, 10)
    for name, ask in (("POST", requests.post), ("from Python", requests.ask)):
        with bench.embedded() as (site, server):
            found = ask(site, server, events, singles, bench.say)
        limits = (8e3, 10.0) if name == "POST" else (None, None)
        yield _row(found, f"{name}, batches of {requests.BATCH:,}", found["per_s"], "/s", limit=limits[0],
                   is_first=True)  # fmt: skip
        yield _row(found, f"{name}, single: p50", found["single_ms"]["p50"], "ms", limit=limits[1], at_least=False)
        yield _row(found, f"{name}, single: p99", found["single_ms"]["p99"], "ms")
        yield _row(found, f"{name}: not accepted", found["lost"], "records", limit=0.0, at_least=False)


def _load(bench: Bench) -> Iterator[Row]:
    if not requests.can_load():
        bench.say(requests.LOAD_LEFT_OUT)
        return
    events = bench.options.events * 10
    with bench.embedded() as (site, server):
        found = requests.load_file(site, server, events, bench.say)
    name = f"load of {events:,} with Spark"
    yield _row(found, f"{name}, with the JVM", found["seconds"], "s", limit=120.0, at_least=False, is_first=True)
    yield _row(found, f"{name}: not stored", found["lost"], "records", limit=0.0, at_least=False)
    with bench.embedded() as (site, server):
        loop = requests.post(site, server, max(events // 20, 10), 10, bench.say)
    scaled = round(events / loop["per_s"], 1)
    yield _row(loop, f"{events:,} in a POST loop, from a rate over {loop['events']:,}", scaled, "s", is_first=True)


def _start(bench: Bench) -> Iterator[Row]:
    events = bench.options.events * 10
    age_s = due_events.BACKLOG_AGE_S if bench.options.seconds >= 60 else 0.0
    with bench.embedded() as (site, server):
        found = due_events.start_with_backlog(site, server, events, bench.say, age_s)
    name = f"start with {events:,} unfired"
    yield _row(found, f"{name}: first after", found["first_s"], "s", limit=3.0, at_least=False, is_first=True)
    yield _row(found, f"{name}: then", found["per_s"], "/s", limit=10e3)
    yield _row(found, f"{name}: fresh events meanwhile late, p99", found["fresh_late_ms"]["p99"], "ms", limit=1000.0,
               at_least=False)  # fmt: skip
    yield _faultless(found, name)


def _kill(bench: Bench) -> Iterator[Row]:
    with bench.embedded() as (site, server):
        found = takeovers.kill_owners(site, server, bench.options.kills, bench.say)
    name = f"kill -9 of an owner at {found['rate']:,}/s, {found['kills']} times"
    yield _row(found, f"{name}: silence, p50", found["silence_s"]["p50"], "s", is_first=True)
    yield _row(found, f"{name}: silence, p99", found["silence_s"]["p99"], "s", limit=2.5, at_least=False)
    yield _faultless(found, name)
    if bench.options.peers:
        yield from _kill_peer(bench)


def _kill_peer(bench: Bench) -> Iterator[Row]:
    over_s = 20
    with bench.postgresql() as (_, server):
        events = takeovers.RATE * over_s
        peer = bench.peer(
            DB_SCHEDULER, server,
            lambda: bench.peers.run_db_scheduler(
                server.url, events, over_s * 1000, "default", takeovers.NODES, kill_after_s=over_s / 2
            ),
        )  # fmt: skip
        if peer is None:
            return
        held = takeovers.held_by_the_dead(server.url)
    peer = {**peer, "held_by_the_dead": held}
    name = f"kill -9 of one of 3 at {takeovers.RATE:,}/s, {DB_SCHEDULER}, its defaults"
    yield _row(peer, f"{name}: executions that wait for its heartbeat to expire", held, "executions", is_first=True)


def _http(bench: Bench) -> Iterator[Row]:
    with bench.embedded() as (site, server):
        found = callbacks.callbacks(site, server, max(bench.options.events // 4, 10), bench.say)
    yield from _rate(found, f"{found['events']:,} HTTP callbacks, one node", 2.5e3)


PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "now": _now,
    "minute": _minute,
    "instant": _instant,
    "crons": _crons,
    "post": _post,
    "load": _load,
    "start": _start,
    "kill": _kill,
    "http": _http,
}
"""What `only` may name, in the order of the table."""
