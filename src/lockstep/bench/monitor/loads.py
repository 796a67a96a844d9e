"""A fleet that sends results all the time: how many a server takes, how late it shows them, what each costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import lockstep
from lockstep.bench.monitor.probes import LagProbe
from lockstep.bench.monitor.servers import Json, ServerProcess, leader, servers, site
from lockstep.bench.processes import Crew, Link
from lockstep.drill import measure
from lockstep.monitor.agent.swarm import Plan, Swarm

Say = Callable[[str], None]
NAME = "monitor"
SETTINGS: Json = {
    "handlers": {
        "default": {
            "type": "udp",
            "socket": {"host": "127.0.0.1", "port": 9},  # the port of `discard`: nobody listens
            "filters": ["occurrences"],
        }
    }
}
"""As fleets have them: a handler is told of the third failure in a row, and then again twice an hour."""
OCCURRENCES, REFRESH_S = 3, 1800
_WAIT_S = 60.0
_LOOK_S = 0.2


def swarm(link: Link, url: str, plan: Plan, seconds: float) -> Json:
    """Be the agents of a plan for so long, or until told to end."""
    with lockstep.connect(url) as bus:
        agents = Swarm(bus, NAME, plan)
        link.ready()
        told = agents.run(seconds, is_over=link.is_over)
        return {**told, "cpu_s": round(measure.cpu_s(), 2)}


def fleet_plan(clients: int, checks: int, interval_s: float, failing: float) -> Plan:
    """A fleet whose checks have occurrences and refresh."""
    members = f',"occurrences":{OCCURRENCES},"refresh":{REFRESH_S}'
    return Plan(clients=clients, checks=checks, interval_s=interval_s, failing=failing, members=members)


def under_load(runner: str, plan: Plan, seconds: float, say: Say, count: int = 1) -> Json:
    """What servers make of a fleet. Measured is from the time on at which each check was sent twice."""
    warm_s = min(2 * plan.interval_s, seconds / 2)
    with site(runner, SETTINGS) as place:
        say("starting servers")
        names = [f"server-{number + 1}" for number in range(count)]
        with servers(place, names) as started, lockstep.connect(place.url) as bus, Crew() as crew:
            active = leader(started)
            crew.start(swarm, place.url, plan, seconds)
            others = measure.Others()
            crew.go()
            with closing(LagProbe(bus, NAME, lambda: active.client)) as lag:
                time.sleep(warm_s)
                say(f"measuring for {seconds - warm_s:.0f} s")
                before = _state(started, active)
                time.sleep(seconds - warm_s)
                after = _state(started, active)
                sent = crew.answer(0, _WAIT_S + seconds)
                lags = lag.figures(before["at"])
                errors = lag.errors
            caught_up_s = _caught_up(active, sent["results"])
            return {
                **_figures(before, after), "lag_s": lags, "sent": sent["results"], "sent_per_s": sent["results_per_s"],
                "failing": sent["failing"], "swarm_cpu_s": sent["cpu_s"], "swarm_late_s": sent["behind_s"],
                "caught_up_s": caught_up_s, "lost": sent["results"] - _swarm_results(active), "look_errors": errors,
                "servers": count, "runner": runner, "others_cores": _others(others, before, after, sent),
            }  # fmt: skip


def _others(others: measure.Others, before: Json, after: Json, sent: Json) -> float:
    """Cores that neither the servers nor the agents took."""
    seconds = max(after["at"] - before["at"], 1e-9)
    ours = float((after["cpu_s"] - before["cpu_s"]) / seconds + sent["cpu_s"] / max(sent["seconds"], 1e-9))
    return round(max(0.0, others.cores() - ours), 2)


def _state(started: list[ServerProcess], active: ServerProcess) -> Json:
    counters = active.counters()
    return {
        "at": time.monotonic(), "cpu_s": sum(each.cpu_s() for each in started),
        "results": counters.get("results", 0), "handled": counters.get("handled", 0),
    }  # fmt: skip


def _figures(before: Json, after: Json) -> Json:
    seconds, results = after["at"] - before["at"], after["results"] - before["results"]
    cpu_s = after["cpu_s"] - before["cpu_s"]
    return {
        "seconds": round(seconds, 1), "results": results, "per_s": round(results / seconds, 1),
        "handled": after["handled"] - before["handled"], "cpu_s": round(cpu_s, 2),
        "cpu_us_per_result": round(cpu_s / max(results, 1) * 1e6, 1), "cpu_cores": round(cpu_s / seconds, 2),
    }  # fmt: skip


def _caught_up(active: ServerProcess, sent: int) -> float:
    """How long it takes until all results are counted; what was not by then is lost, and counted as such."""
    began = time.monotonic()
    while _swarm_results(active) < sent and time.monotonic() - began < _WAIT_S:
        time.sleep(_LOOK_S)
    return round(time.monotonic() - began, 1)


def _swarm_results(active: ServerProcess) -> int:
    """Results counted without those of the probe, which are its last number's, as it sends them alone."""
    counted = int(active.counters().get("results", 0))
    return counted - int(active.client.get("results", "bench-probe", "probe")["check"]["output"])


def rate_of(plan: Plan) -> float:
    """Results a second."""
    return plan.clients * plan.checks / plan.interval_s
