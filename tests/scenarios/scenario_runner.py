"""Carries out scenario files: commands, and below `----` what they print."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lockstep.core import leader, member, outlet
from lockstep.core.group import Confirm, GroupState, Record, Reset, fold
from lockstep.core.leader import LeaderState
from lockstep.core.member import Assigned, MemberState, Revoked, Send, Yield
from lockstep.core.outlet import OutletState
from lockstep.core.outputs import Barrier, Cut, OutState, Verdict, after, further
from lockstep.core.outputs import fold as fold_out
from lockstep.core.sequence import Entry, Mark, SequenceState
from lockstep.core.sequence import fold as fold_sequence
from lockstep.simulation.trace import show

SEPARATOR = "----"
LONG = "*"  # a body `x*3` makes a block of three pieces


class Frame(NamedTuple):
    """One piece of a block on the out stream: what a cut says of it, and what is in it."""

    cut: Cut
    body: str

    def __str__(self) -> str:
        part = f".{self.cut.part}" if self.cut.part or self.cut.more else ""
        return f"block {self.cut.first}{part} {self.body} after {self.cut.previous}" + " (goes on)" * self.cut.more


@dataclass
class Block:
    """Some commands and what they are expected to print; `lead` is the comment above them."""

    lead: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def text(self) -> str:
        return "\n".join([*self.lead, *self.commands, SEPARATOR, *self.expected, ""])


def parse(text: str) -> list[Block]:
    """Blocks end at the first empty line below their separator."""
    blocks, block, below = [], Block(), False
    for line in [*text.splitlines(), ""]:
        if below and not line:
            blocks.append(block)
            block, below = Block(), False
        elif below:
            block.expected.append(line)
        elif line == SEPARATOR:
            below = True
        elif line.startswith("#") or not line:
            block.lead.append(line)
        else:
            block.commands.append(line)
    assert not block.commands, f"no {SEPARATOR} after {block.commands}"
    return blocks


Sent = Record | Mark | Entry | Frame | Barrier


class Runner:
    """A group log with members, and a sequence log with engines, which publish a block for every entry.

    tick NAME TIME [lost|late] [behind]   let time pass; what it sends lands, is lost, or waits for `land`
    read NAME TIME [upto=N]               read the log, to its end or to an offset
    drain NAME SEAT TIME [lost|late]      the work on a yielded seat is done
    stop NAME TIME                        step back cleanly
    confirm NAME SEAT#EPOCH OFFSET [late] reset SEAT START REQUEST [late]
    land                                  what waits lands now
    holds NAME SEAT TIME                  may it work?
    seats                                 what the log says
    won NAME EPOCH, lost NAME, propose NAME BODY, lead NAME TIME [lost|late], follow NAME, sequence
                                          the same for engines on the sequence log
    publish NAME TIME [lost|late]         send the barrier, or what is next, to the out stream
    read-out NAME                         read the out stream to its end
    eager NAME                            from now on it breaks a rule: it computes what is only acknowledged
    subscriber                            what somebody gets who reads the out stream
    """

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.sequence: list[Mark | Entry] = []
        self.members: dict[str, MemberState] = {}
        self.engines: dict[str, LeaderState] = {}
        self.waiting: list[tuple[str, Sent]] = []
        self.outs: list[Frame | Barrier] = []
        self.outlets: dict[str, OutletState] = {}
        self.read_to: dict[str, int] = {}
        self.computed: dict[str, dict[int, str]] = {}
        self.eager: set[str] = set()
        self.out: list[str] = []

    def run(self, block: Block) -> list[str]:
        self.out = []
        for command in block.commands:
            name, *words = command.split()
            getattr(self, f"do_{name.replace('-', '_')}")(*words)
        return self.out or ["ok"]

    def do_members(self, *words: str) -> None:
        names, seats = words[: words.index("want")], words[words.index("want") + 1 :]
        self.members = {name: MemberState(name, seats) for name in names}

    def do_engines(self, *names: str) -> None:
        self.engines = {name: LeaderState(name) for name in names}
        self.outlets = {name: OutletState(name, OutState()) for name in names}
        self.computed = {name: {} for name in names}

    def do_eager(self, name: str) -> None:
        self.eager.add(name)

    def do_tick(self, name: str, now: str, *how: str) -> None:
        self._step(name, member.Tick(float(now), "behind" not in how), how)

    def do_drain(self, name: str, seat: str, now: str, *how: str) -> None:
        self._step(name, member.Drained(seat, float(now)), how)

    def do_stop(self, name: str, now: str) -> None:
        self._step(name, member.SetActive(False, float(now)), ())

    def do_read(self, name: str, now: str, upto: str = "") -> None:
        end = int(upto.removeprefix("upto=")) + 1 if upto else len(self.log)
        for at in range(self.members[name].group.upto + 1, end):
            self._step(name, member.Observed(at, self.log[at], float(now)), ())

    def do_confirm(self, name: str, generation: str, offset: str, *how: str) -> None:
        seat, epoch = generation.split("#")
        self._send("log", name, Confirm(name, seat, int(epoch), int(offset)), how)

    def do_reset(self, seat: str, start: str, request: str, *how: str) -> None:
        self._send("log", "operator", Reset(seat, int(start), request), how)

    def do_land(self) -> None:
        waiting, self.waiting = self.waiting, []
        for log, record in waiting:
            self._send(log, "late", record, ())

    def do_holds(self, name: str, seat: str, now: str) -> None:
        epoch = member.holds(self.members[name], seat, float(now))
        self.out.append(f"{name} does not hold {seat}" if epoch is None else f"{name} holds {seat}#{epoch}")

    def do_seats(self) -> None:
        state = GroupState()
        for at, record in enumerate(self.log):
            state = fold(state, at, record)
        for name, seat in sorted(state.seats.items()):
            self.out.append(f"{name}#{seat.epoch} owner={seat.owner} resume={seat.resume}")

    def do_won(self, name: str, epoch: str) -> None:
        self._lead(name, leader.Won(int(epoch)), ())

    def do_lost(self, name: str) -> None:
        self._lead(name, leader.Lost(), ())

    def do_propose(self, name: str, body: str) -> None:
        self._lead(name, leader.Propose(body), ())

    def do_lead(self, name: str, now: str, *how: str) -> None:
        self._lead(name, leader.Tick(float(now)), how)

    def do_follow(self, name: str) -> None:
        for at in range(self.engines[name].sequence.upto + 1, len(self.sequence)):
            self._lead(name, leader.Observed(at, self.sequence[at]), ())

    def do_sequence(self) -> None:
        state = SequenceState()
        for at, record in enumerate(self.sequence):
            state, counted = fold_sequence(state, at, record)
            self.out.append(f"@{at} {show(record)}: {'counts' if counted else 'does not count'}")

    def do_publish(self, name: str, now: str, *how: str) -> None:
        state = self.engines[name]
        self._out(name, outlet.Lead(state.epoch) if leader.leads(state) else outlet.Follow(), how)
        if outlet.ready(self.outlets[name]) and (frame := self._next(name)):
            self._out(name, outlet.Offer(frame.cut), how)
        self._out(name, outlet.Tick(float(now)), how)

    def do_read_out(self, name: str) -> None:
        for record in self.outs[self.read_to.get(name, 0) :]:
            self._out(name, outlet.Observed(record.cut if isinstance(record, Frame) else record), ())
        self.read_to[name] = len(self.outs)

    def do_subscriber(self) -> None:
        state, counted = OutState(), self._counted()
        for frame in self.outs:
            if isinstance(frame, Frame):
                state, verdict = fold_out(state, frame.cut)
                if verdict is Verdict.NEW:
                    right = counted.get(frame.cut.first, "").split(LONG)[0] == frame.body
                    self.out.append(f"gets {frame}" + ("" if right else ": the sequence says otherwise"))

    def _counted(self) -> dict[int, str]:
        state, found = SequenceState(), {}
        for at, record in enumerate(self.sequence):
            state, counts = fold_sequence(state, at, record)
            if counts and isinstance(record, Entry):
                found[record.number] = record.body
        return found

    def _next(self, name: str) -> Frame | None:
        """The first piece that is computed and not out."""
        out = self.outlets[name].out
        return next((frame for frame in self._frames(name) if further(out, after(frame.cut)) != out), None)

    def _frames(self, name: str) -> list[Frame]:
        found = []
        for number, body in sorted(self.computed[name].items()):
            text, _, pieces = body.partition(LONG)
            last = int(pieces or 1) - 1
            found += [Frame(Cut(number, number, number - 1, part, part < last), text) for part in range(last + 1)]
        return found

    def _out(self, name: str, event: outlet.Event, how: tuple[str, ...]) -> None:
        self.outlets[name], actions = outlet.step(self.outlets[name], event)
        for action in actions:
            match action:
                case outlet.Send(Cut() as cut):
                    self._send("out", name, next(frame for frame in self._frames(name) if frame.cut == cut), how)
                case outlet.Send(barrier):
                    self._send("out", name, barrier, how)
                case outlet.Published(cut):
                    self.out.append(f"{name} knows that block {cut.first} is out" + f" to piece {cut.part}" * cut.more)
                case outlet.Broken(cut, last):
                    self.out.append(f"{name} can't publish block {cut.first} after block {last}")

    def _step(self, name: str, event: member.Event, how: tuple[str, ...]) -> None:
        self.members[name], actions = member.step(self.members[name], event)
        for action in actions:
            match action:
                case Send(record):
                    self._send("log", name, record, how)
                case Assigned(seat, epoch, resume):
                    self.out.append(
                        f"{name} is assigned {seat}#{epoch} from {'the start' if resume is None else resume}"
                    )
                case Revoked(seat, epoch):
                    self.out.append(f"{name} loses {seat}#{epoch}")
                case Yield(seat, epoch):
                    self.out.append(f"{name} is asked to yield {seat}#{epoch}")

    def _lead(self, name: str, event: leader.Event, how: tuple[str, ...]) -> None:
        self.engines[name], actions = leader.step(self.engines[name], event)
        for action in actions:
            match action:
                case leader.Send(record):
                    self._send("sequence", name, record, how)
                case leader.Apply(entry):
                    self.computed[name].setdefault(entry.number, entry.body)
                    self.out.append(f"{name} applies {entry.number} {entry.body}")
                case leader.StepDown(epoch):
                    self.out.append(f"{name} steps down from #{epoch}")

    def _send(self, log: str, who: str, record: Sent, how: tuple[str, ...]) -> None:
        fate = next((word for word in how if word in ("lost", "late")), None)
        if fate == "late":
            self.waiting.append((log, record))
        if fate is not None:
            self.out.append(f"{who}: {show(record)} ({fate})")
            return
        landed: list = {"log": self.log, "sequence": self.sequence, "out": self.outs}[log]
        landed.append(record)
        self.out.append(f"{who}: {show(record)} @{len(landed) - 1}")
        if who in self.eager and isinstance(record, Entry):
            self.computed[who][record.number] = record.body
            self.out.append(f"{who} computes {record.number} {record.body}, which is only acknowledged")
