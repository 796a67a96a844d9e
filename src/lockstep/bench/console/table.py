"""The console's figures with their targets, as rows of one table: `lockstep bench console`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import lockstep
from lockstep.bench.console import pages, processes, viewers
from lockstep.bench.console.world import WorldSize, make_world
from lockstep.bench.processes import Crew
from lockstep.bench.rows import Row, as_data
from lockstep.bench.scratch import scratch_folder
from lockstep.drill import measure
from lockstep.errors import LockstepError

Say = Callable[[str], None]
FIRST_BYTE_S, PAGE_S = 1.0, 0.3
ROUNDS = 3
PROBES_PER_S = 1_000
_WAIT_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsoleBench:
    """What to measure. The targets are those for two cores."""

    viewers: int = 200
    """With a live page each, and a page that they load every `every_s`."""
    every_s: float = 10.0
    seconds: float = 30.0
    """How long the viewers look once all are there; probes are sent for a third of it."""
    size: float = 1.0
    """Of the large world: 1 is 10,000 streams, groups and hosts and 100,000 scheduled events."""
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.only) - set(PARTS))
        if unknown:
            message = f"there is no row {', '.join(unknown)}; there are {', '.join(PARTS)}"
            raise ValueError(message)
        if not 1 <= self.viewers <= 500:
            message = f"viewers={self.viewers} must be from 1 to 500"
            raise ValueError(message)
        if not 0 < self.size <= 10:
            message = f"size={self.size} must be above 0 and at most 10"
            raise ValueError(message)

    @property
    def parts(self) -> list[str]:
        """The parts to be measured, in order."""
        return [name for name in PARTS if not self.only or name in self.only]

    @property
    def world(self) -> WorldSize:
        """The large world."""
        whole = WorldSize()
        names = ("streams", "groups", "hosts", "events", "crons")
        return WorldSize(**{name: max(1_000, round(getattr(whole, name) * self.size)) for name in names})


def all_rows(options: ConsoleBench, say: Say) -> Iterator[Row]:
    """Measure everything that is wanted, one after the other. What fails becomes a row that says so."""
    for name in options.parts:
        try:
            yield from PARTS[name](options, _with_name(say, name))
        except (LockstepError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            say(f"{name}: failed: {error}")
            yield Row(name=f"{name}: failed", value=1.0, unit="records", limit=0.0, at_least=False,
                      details={"error": str(error)})  # fmt: skip


def _with_name(say: Say, name: str) -> Say:
    return lambda text: say(f"{name}: {text}")


def run(options: ConsoleBench, progress: Say | None = None) -> dict[str, Any]:
    """Measure; the rows as plain data, with what the figures depend on."""
    facts = {**measure.machine(), **asdict(options), "only": list(options.only)}
    rows = list(all_rows(options, progress or (lambda _: None)))
    return {"machine": facts, "rows": [as_data(row) for row in rows]}


def _scale(options: ConsoleBench, say: Say) -> Iterator[Row]:
    """First bytes of all pages beside a large world."""
    with scratch_folder() as folder:
        url, making = f"lmdb:{folder / 'bus'}", measure.Others()
        with lockstep.connect(url) as client:
            took = make_world(client, url, folder, options.world, say)
        made_beside = making.cores()
        say("loading pages")
        others = measure.Others()
        with processes.serve(url, folder) as server:
            found = pages.page_times(server.url, ROUNDS)
            cpu_s = server.cpu_s()
            memory, threads = processes.memory_mb(server.pid), processes.threads_of(server.pid)
        cores = others.cores()
    yield Row(name=f"{options.world.text}: made in", value=sum(took.values()), unit="s", details=dict(took),
              others_cores=made_beside)  # fmt: skip
    for kind, label in (("cold_s", "first request after the start"), ("later_s", f"worst of {ROUNDS} later requests")):
        worst = max(found[kind], key=lambda path: found[kind][path])
        yield Row(
            name=f"first byte of the slowest of {len(pages.PAGES)} pages ({worst}), {label}", value=found[kind][worst],
            unit="s", limit=FIRST_BYTE_S, at_least=False, details=found[kind], others_cores=cores,
        )  # fmt: skip
    yield Row(name="memory of the server beside it", value=round(memory), unit="MB",
              details={"threads": threads, "cpu_s": cpu_s}, others_cores=cores)  # fmt: skip


def _load(options: ConsoleBench, say: Say) -> Iterator[Row]:
    """Viewers with live pages, and then probes beside them, while the demo runs."""
    with scratch_folder() as folder:
        say("starting the demo")
        with processes.demo(folder) as demo:
            yield from _viewers(options, demo, say)
            yield from _probes(options, demo, say)


def _viewers(options: ConsoleBench, demo: processes.Command, say: Say) -> Iterator[Row]:
    pid = processes.server_of(demo)
    say(f"{options.viewers} viewers")
    before, others = _State.of(demo, pid), measure.Others()
    with Crew() as crew:
        crew.start(viewers.view, demo.url, options.viewers, options.every_s, options.seconds, viewers.PAGES)
        crew.go()
        found = crew.answer(0, options.seconds + _WAIT_S)
    used = _State.of(demo, pid).since(before)
    threads, memory = processes.threads_of(pid), round(processes.memory_mb(pid))
    details = {**found, **used, "server_threads": threads, "server_mb": memory}
    cores = round(max(0.0, others.cores() - used["server_cores"] - used["demo_cores"]), 2)
    name = f"{options.viewers} viewers with live pages, the demo running"
    yield Row(name=f"{name}: a page, p95", value=found["p95_s"], unit="s", limit=PAGE_S, at_least=False,
              details=details, others_cores=cores)  # fmt: skip
    yield Row(name=f"{name}: requests or live pages that failed", value=found["errors"], unit="records", limit=0.0,
              at_least=False, details={"first": found["first_errors"]}, others_cores=cores)  # fmt: skip
    for part, label in (("server_cores", "the server"), ("demo_cores", "the other processes of the demo")):
        yield Row(name=f"{name}: cores of {label}", value=used[part], unit="cores", details={}, others_cores=cores)
    yield Row(name=f"{name}: memory of the server", value=memory, unit="MB", details={"threads": threads},
              others_cores=cores)  # fmt: skip


def _probes(options: ConsoleBench, demo: processes.Command, say: Say) -> Iterator[Row]:
    pid = processes.server_of(demo)
    seconds = max(1.0, options.seconds / 3)
    say(f"{PROBES_PER_S} requests a second of health and metrics")
    before, others = _State.of(demo, pid), measure.Others()
    with Crew() as crew:
        crew.start(viewers.probe, demo.url, PROBES_PER_S, seconds)
        crew.go()
        found = crew.answer(0, seconds + _WAIT_S)
    used = _State.of(demo, pid).since(before)
    cores = round(max(0.0, others.cores() - used["server_cores"] - used["demo_cores"]), 2)
    name = "/healthz and /metrics, the demo running"
    yield Row(name=f"{name}: answers", value=found["per_s"], unit="/s", limit=0.99 * PROBES_PER_S,
              details={**found, **used}, others_cores=cores)  # fmt: skip
    yield Row(name=f"{name}: errors", value=found["errors"], unit="records", limit=0.0, at_least=False,
              details={"first": found["first_errors"]}, others_cores=cores)  # fmt: skip
    for at in ("p50_ms", "p99_ms"):
        yield Row(name=f"{name}: {at.removesuffix('_ms')}", value=found[at], unit="ms", details={}, others_cores=cores)


@dataclass(frozen=True, slots=True)
class _State:
    """Processor time of the demo's server, and of its other processes."""

    at: float
    server_s: float
    demo_s: float

    @classmethod
    def of(cls, demo: processes.Command, pid: int) -> _State:
        server_s = processes.cpu_of(pid)
        return cls(time.monotonic(), server_s, demo.cpu_s() - server_s)

    def since(self, before: _State) -> dict[str, float]:
        """Cores on average."""
        seconds = self.at - before.at
        return {"server_cores": round((self.server_s - before.server_s) / seconds, 2),
                "demo_cores": round((self.demo_s - before.demo_s) / seconds, 2)}  # fmt: skip


PARTS: dict[str, Callable[[ConsoleBench, Say], Iterator[Row]]] = {"scale": _scale, "load": _load}
