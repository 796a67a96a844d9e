"""The faults injected into a running cluster, and the conditions to meet before the next one."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from lockstep.drill.arrivals import Injected
from lockstep.drill.engines import EngineSeat, Machines, Probe
from lockstep.drill.options import Fault
from lockstep.drill.plan import Planned
from lockstep.drill.processes import jvms, send_signal, workers
from lockstep.drill.report import Telling
from lockstep.drill.stage import QUIET_S_MAX, STEP_S_MAX, Stage
from lockstep.engine.errors import NoStandby
from lockstep.engine.runtime.requests.channel import RequestClient
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.errors import Unavailable

_SILENT: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_LEASES = 3.0
_STOPS_MAX = 20
_ASK_S_MAX = 60.0
_SLOW_S, _SLOW_STOP_S, _SLOW_GO_S = 4.0, 0.25, 0.05
_WRITING_S = 0.1
"""After so long an engine that was asked for a snapshot is at it."""
_WORDS = {
    Fault.KILL: "{}, the active engine, was killed with -9",
    Fault.STOP: "{}, the active engine, was stopped for three leases",
    Fault.JVM: "The JVM of {}, the active engine, was killed with -9",
    Fault.WORKER: "A Python worker of {}, the active engine, was killed with -9",
    Fault.PUBLISHER: "The {} was killed with -9 and started again",
    Fault.SUBSCRIBER: "The {} was killed with -9 and started again",
    Fault.HANDOVER: "{}, the active engine, was told to hand over",
    Fault.STANDBY: "{}, a standby, was killed with -9",
    Fault.BOTH: "{}, all engines, were killed with -9",
    Fault.TAKEOVER: "{}, the active engine and the one that took over, were killed with -9",
    Fault.PERSIST: "{}, a standby, was killed with -9 while it wrote a snapshot",
    Fault.SLOW: "{}, a standby, got hardly any time for some seconds",
    Fault.DISK: "The disk was full for {}, the active engine",
    Fault.SERVER: "{}, a process of the bus's server, was killed with -9",
    Fault.SPARK_WORKER: "{} of the Spark cluster was killed with -9",
}


class Faults:
    """Does one fault after the other to a stage."""

    def __init__(self, stage: Stage, probe: Probe, telling: Telling, machines: Machines) -> None:
        self._stage, self._probe, self._telling, self._machines = stage, probe, telling, machines

    def inject(self, planned: Planned) -> Injected:
        """Do it. A stopped engine goes on before this returns, everything else is left as it is."""
        stage, kind = self._stage, planned.kind
        stage.poll()
        victims = self._victims(kind)
        name = ", ".join(seat.name for seat in victims) or str(kind)
        done = Injected(kind, time.monotonic(), name, stage.seen, stage.block)
        if kind in (Fault.KILL, Fault.STANDBY, Fault.BOTH):
            self._kill(victims)
        elif kind is Fault.STOP:
            done.stopped_again = self._stop(victims[0])
        elif kind in (Fault.JVM, Fault.WORKER):
            self._kill_part(victims[0], kind)
        elif kind is Fault.TAKEOVER:
            self._kill_both_in_turn(victims)
        elif kind is Fault.PERSIST:
            self._kill_at_a_snapshot(victims)
        elif kind is Fault.SLOW:
            self._slow_down(victims[0])
        elif kind is Fault.DISK:
            self._fill_disk(victims[0])
        elif kind is Fault.HANDOVER:
            self._hand_over()
        elif kind in (Fault.SERVER, Fault.SPARK_WORKER):
            name = done.engine = self._machines.kill(kind)
        else:
            self._restart_helper(kind)
        self._telling.say(f"{_WORDS[kind].format(name)} at {done.events:,} events.")
        return done

    def settle(self, done: Injected) -> None:
        """Wait until all is as before: one engine leads, blocks arrive, all engines are there and in step."""
        stage = self._stage
        if done.kind in (Fault.BOTH, Fault.TAKEOVER) or len(stage.seats) == 1:
            self._revive()
        if done.kind.changes_the_lead:
            stage.wait(lambda: self._has_new_leader(done), "waiting for a takeover", QUIET_S_MAX)
        stage.wait(lambda: self._flows(done), "waiting for the next block", QUIET_S_MAX)
        stage.wait(lambda: self._is_whole(done), "waiting until all engines are in step", STEP_S_MAX)
        stage.down.clear()
        done.settled_at = time.monotonic()
        started = [seat.child.started_at for seat in stage.seats if seat.child and seat.child.started_at > done.at]
        done.in_step_s = done.settled_at - min(started) if started else None

    # --- who, and what -------------------------------------------------------------------------------------------

    def _victims(self, kind: Fault) -> list[EngineSeat]:
        stage = self._stage
        if kind.is_of_a_helper:
            return []
        if kind is Fault.BOTH:
            return list(stage.seats)
        stage.wait(lambda: stage.leader() is not None, "waiting for a leader", QUIET_S_MAX)
        leads = stage.leader()
        others = [seat for seat in stage.seats if seat is not leads and seat.is_alive]
        if kind in (Fault.STANDBY, Fault.PERSIST, Fault.SLOW):
            return others[:1]
        return [*([leads] if leads else []), *(others[:1] if kind is Fault.TAKEOVER else [])]

    def _kill(self, victims: Sequence[EngineSeat]) -> None:
        children = [seat.child for seat in victims if seat.child is not None]
        self._stage.down |= {seat.name for seat in victims}
        for child in children:
            child.signal_all(signal.SIGKILL)
        for child in children:
            child.kill()

    def _stop(self, victim: EngineSeat) -> int:
        """Pause it where it holds no lock of the bus: else all processes would wait, and nothing would be shown."""
        assert victim.child is not None
        for again in range(_STOPS_MAX):
            victim.child.pause()
            if self._probe.is_writable():
                time.sleep(_LEASES * self._stage.options.lease)
                victim.child.signal_all(signal.SIGCONT)
                return again
            victim.child.signal_all(signal.SIGCONT)
            self._probe.wait()
        raise Unavailable(reason=f"{victim.name} holds the bus whenever it is stopped.")

    def _kill_part(self, victim: EngineSeat, kind: Fault) -> None:
        assert victim.child is not None
        tree = victim.child.tree()
        found = jvms(tree) if kind is Fault.JVM else workers(tree)
        if not found:
            what = f"No {kind} of {victim.name} was found to be killed"
            raise victim.child.failure(what)
        if kind is Fault.JVM:  # without it the engine may end; a worker is Spark's to replace
            self._stage.down.add(victim.name)
        send_signal(found[-1], signal.SIGKILL)

    def _kill_both_in_turn(self, victims: Sequence[EngineSeat]) -> None:
        self._kill(victims[:1])
        time.sleep(self._stage.options.lease * 1.1)  # by then the next one has claimed, and is at it
        self._kill(victims[1:])

    def _kill_at_a_snapshot(self, victims: Sequence[EngineSeat]) -> None:
        folder = self._stage.area.folder / "snapshots"
        with subprocess.Popen(self._command("persist", "--to", str(folder)), **_SILENT) as asking:  # noqa: S603 - ours
            time.sleep(_WRITING_S)
            self._kill(victims)
            asking.terminate()

    def _slow_down(self, victim: EngineSeat) -> None:
        assert victim.child is not None
        until = time.monotonic() + _SLOW_S
        while time.monotonic() < until:
            victim.child.signal_all(signal.SIGSTOP)
            time.sleep(_SLOW_STOP_S)
            victim.child.signal_all(signal.SIGCONT)
            time.sleep(_SLOW_GO_S)

    def _fill_disk(self, victim: EngineSeat) -> None:
        """Not one byte more in any file: what its workers compute, and what Spark notes, can't be written."""
        assert victim.child is not None
        tree = victim.child.tree()
        found = (*jvms(tree), *workers(tree))
        if not found:
            what = f"No JVM or worker of {victim.name} was found to fill the disk of"
            raise victim.child.failure(what)
        self._stage.down.add(victim.name)
        for pid in found:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))

    def _command(self, verb: str, *more: str) -> list[str]:
        area, project = self._stage.area, self._stage.scene.graph.project.name
        command = [sys.executable, "-m", "lockstep.cli.main", "engine", verb, "--bus", area.url]
        return [*command, "--cluster", area.cluster, "--project", project, "--json", *more]

    def _hand_over(self) -> None:
        """Asked from here: a command of its own would take the time of a core to start, which engines would miss.

        On a busy machine the active engine may refuse, as it has not heard from its standby for too long. Nothing has
        changed then, so it is asked again when that is over.
        """
        stage = self._stage
        streams = ProjectStreams(cluster=stage.area.cluster, project=stage.scene.graph.project.name)
        asker = RequestClient(stage.client.bus, streams, stage.client.runtime)
        stage.wait(lambda: _hands_over(asker), "waiting for a standby that can take over", STEP_S_MAX)

    def _restart_helper(self, kind: Fault) -> None:
        stage = self._stage
        child = stage.publisher if kind is Fault.PUBLISHER else stage.subscriber
        assert child is not None
        child.kill()
        if kind is Fault.PUBLISHER:
            stage.start_publisher()
        else:
            stage.start_subscriber()

    # --- what has to be so again ---------------------------------------------------------------------------------

    def _revive(self) -> None:
        for name in self._machines.revive():
            self._telling.say(f"{name} was started again.")
        for seat in self._stage.seats:
            if seat.name in self._stage.down and not seat.is_alive:
                if seat.child is not None:
                    seat.child.kill()  # child processes that it left behind
                seat.start()
                self._telling.say(f"{seat.name} was started again.")

    def _has_new_leader(self, done: Injected) -> bool:
        leads = self._stage.leader()
        if leads is None or leads.child is None:
            return False
        is_new = leads.child.started_at > done.at and leads.is_ready
        return is_new or any(taken.at > done.at for taken in leads.takeovers)

    def _flows(self, done: Injected) -> bool:
        stage = self._stage
        return any(arrival.at > done.at for arrival in stage.arrivals[-1:]) or stage.block >= stage.options.blocks

    def _is_whole(self, done: Injected) -> bool:
        """Everybody in step, one leads, and who was stopped or handed over knows that it is not he."""
        self._revive()
        stage = self._stage
        if done.kind.changes_the_lead and len(stage.seats) > 1 and sum(seat.leads for seat in stage.seats) != 1:
            return False
        return stage.leader() is not None and all(map(stage.is_in_step, stage.seats))


def _hands_over(asker: RequestClient) -> bool:
    """Ask for a hand-over; False if there is no standby to hand over to."""
    try:
        asker.ask("handover", {}, timeout_s=_ASK_S_MAX)
    except NoStandby:
        return False
    return True
