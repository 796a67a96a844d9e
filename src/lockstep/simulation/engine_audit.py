"""The last look at a bus that lost records: the output is right, or an engine reported that it may not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.core.sequence import Entry, Mark, chain
from lockstep.simulation import checks
from lockstep.simulation.engine_checks import Oracle
from lockstep.simulation.engine_model import checksum

if TYPE_CHECKING:
    from lockstep.simulation.engine_sim import EngineSim


def audit(sim: EngineSim) -> None:
    """Compare what subscribers got with what follows from the logs as they are now."""
    if sim.book.errors:
        return
    oracle, error = _replay(sim)
    if error:  # the next engine to replay the logs meets it
        sim.book.visible("newcomer", error)
        return
    for subscriber in sim.subscribers:
        for name, pieces in subscriber.delivered.items():
            anew = subscriber.places[name].anew  # of what came before it was told that something is missing
            wrong = [piece for piece in pieces[anew:] if not oracle.has(name, piece)]
            if wrong:
                sim.world.report(checks.SILENT_LOSS, f"{subscriber.host.me} got {name} {wrong[0]}")
    states = {engine.fold.windows.state for engine in sim.engines}
    if states != {oracle.windows.state}:
        sim.world.report(checks.SILENT_LOSS, f"engines are at {states}, a newcomer would be at {oracle.windows.state}")


def _replay(sim: EngineSim) -> tuple[Oracle, str]:
    """What a newcomer would make of the logs, or why it would refuse them."""
    oracle, digest = Oracle.of(sim.inputs, list(sim.outs)), ""
    in_force: tuple[int, str] = (0, "")
    for record in sim.sequence.records:
        if isinstance(record, Mark):
            in_force = (record.epoch, record.owner) if record.epoch > in_force[0] else in_force
            continue
        problem = _problem(sim, oracle, record, in_force, digest)
        if problem:
            return oracle, problem
        if (record.epoch, record.owner) == in_force and record.number == len(oracle.entries) + 1:
            oracle.take(sim.decision(record.body))
            digest = chain(digest, record)
    return oracle, "a message is missing before another" if oracle.refused else ""


def _problem(sim: EngineSim, oracle: Oracle, entry: Entry, in_force: tuple[int, str], digest: str) -> str:
    number = len(oracle.entries) + 1
    if (entry.epoch, entry.owner) != in_force:
        return f"number {entry.number} has no mark" if entry.epoch >= in_force[0] else ""
    if entry.number > number:
        return f"number {number} is not there"
    if entry.number < number or not sim.world.variant.digests:
        return ""
    if entry.after != digest:
        return f"number {number} was made after something else"
    decision = sim.decision(entry.body)
    return "" if checksum(oracle.input_of(decision)) == decision.crc else f"the input of number {number} changed"
