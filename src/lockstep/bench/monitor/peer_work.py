"""The work that other monitors do beside ours: results, changes of state, and changes while they are killed."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from lockstep.bench.monitor.own_peer import OWN, Lockstep
from lockstep.bench.monitor.peers import KINDS, Peer, Result, running
from lockstep.bench.scratch import scratch_folder
from lockstep.drill import measure

Say = Callable[[str], None]
Json = dict[str, Any]
NAMES = (OWN, *KINDS)
CHECKS, LATE, CHANGES = 40, 50, 10
"""Services of a host; changes of which the lateness is measured; changes around each kill."""
_TURNS, _BATCH = 20, 1_000
_LOOK_S, _DONE_S, _EVERY_S, _WARM_S = 0.005, 120.0, 0.1, 2.0


def services_of(hosts: int) -> list[tuple[str, str]]:
    """Names of hosts and services; a service's name is its own in the fleet."""
    return [(f"host-{host:03d}", f"check-{host:03d}-{number:02d}") for host in range(hosts) for number in range(CHECKS)]


def measured(name: str, hosts: int, kills: int, runner: str, say: Say) -> Json:
    """What a monitor makes of the work."""
    services = services_of(hosts)
    with scratch_folder() as folder, _running(name, folder, services, runner) as peer:
        others = measure.Others()
        time.sleep(_WARM_S)
        say("results")
        found = _rate(peer)
        say(f"{LATE} changes")
        found |= {"late_s": _lateness(peer, services[1 : LATE + 1])}
        rest = services[LATE + 1 :]
        found |= _kills(peer, rest, min(CHANGES, len(rest) // max(kills, 1)), kills, say)
        return {**found, "services": len(services), "kills": kills, "others_cores": others.cores()}


@contextmanager
def _running(name: str, folder: Path, services: Sequence[tuple[str, str]], runner: str) -> Iterator[Peer]:
    if name in KINDS:
        with running(name, folder, services, os.environ) as peer:
            yield peer
        return
    with closing(Lockstep(folder, services, runner)) as own:
        own.start()
        yield own


def _rate(peer: Peer) -> Json:
    """Results a second: all services OK again and again, then one that fails, until that is told."""
    cpu_s, began = peer.cpu_s(), time.monotonic()
    results = [Result(host, name, 0, "fine") for host, name in peer.services] * _TURNS
    for at in range(0, len(results), _BATCH):
        peer.hand_in(results[at : at + _BATCH])
    _until(peer.is_idle)
    peer.hand_in([Result(*peer.services[0], 2, "marker")])
    _until(lambda: "marker" in peer.told())
    seconds = time.monotonic() - began
    used = peer.cpu_s() - cpu_s
    return {
        "results": len(results), "seconds": round(seconds, 2), "per_s": round(len(results) / seconds, 1),
        "cpu_us_per_result": round(used / len(results) * 1e6, 1), "memory_mb": round(_memory_mb(peer), 1),
    }  # fmt: skip


def _lateness(peer: Peer, services: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Seconds from handing in a change to its notification."""
    handed: dict[str, float] = {}
    late: dict[str, float] = {}
    end = time.monotonic() + _DONE_S
    waiting = [Result(*each, 2, f"late-{number}") for number, each in enumerate(services)]
    due = time.monotonic()
    while len(late) < len(services) and time.monotonic() < end:
        if waiting and time.monotonic() >= due:
            result, due = waiting.pop(0), due + _EVERY_S
            handed[result.output] = time.monotonic()
            peer.hand_in([result])
        now = time.monotonic()
        for output in peer.told():
            if output in handed and output not in late:
                late[output] = now - handed[output]
        time.sleep(_LOOK_S)
    return measure.percentiles(list(late.values()) or [float("nan")])


def _kills(peer: Peer, services: Sequence[tuple[str, str]], changes: int, kills: int, say: Say) -> Json:
    """Changes, a kill between them, and the rest of them after it is up again."""
    sent: list[str] = []
    for kill in range(kills):
        say(f"kill {kill + 1} of {kills}")
        part = services[kill * changes : (kill + 1) * changes]
        results = [Result(*each, 2, f"change-{kill}-{number}") for number, each in enumerate(part)]
        peer.hand_in(results[: changes // 2])
        time.sleep(_EVERY_S * (kill % CHANGES))  # at another moment of its rounds each time
        peer.kill()
        peer.start()
        peer.hand_in(results[changes // 2 :])
        sent += [result.output for result in results]
    told = _settled(peer, sent)
    return {
        "changes": len(sent), "missed": sum(told[output] == 0 for output in sent),
        "duplicated": sum(max(0, told[output] - 1) for output in sent),
    }  # fmt: skip


def _settled(peer: Peer, sent: Sequence[str]) -> Counter[str]:
    """What was told, once nothing more comes."""
    wanted = set(sent)
    count, since = -1, time.monotonic()
    while time.monotonic() - since < peer.settle_s:
        told = peer.told()
        if len(told) != count:
            count, since = len(told), time.monotonic()
        time.sleep(_EVERY_S)
    return Counter(output for output in told if output in wanted)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _DONE_S
    while not condition():
        if time.monotonic() > end:
            message = "results were not taken in time"
            raise TimeoutError(message)
        time.sleep(_LOOK_S)


def _memory_mb(peer: Peer) -> float:
    """Resident memory of all its processes; pages that they share count for each."""
    return sum(_resident_kb(pid) for pid in peer.pids()) / 1024


def _resident_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
