"""One readable line for each thing that happens, to replay a failing seed by eye."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.core.group import Beat, Claim, Confirm, Leave, Release, Reset, Snapshot
from lockstep.core.outputs import Barrier
from lockstep.core.sequence import Entry, Mark

LEGEND = """\
# time      simulated seconds since the start of the seed
# process   name.incarnation; w: publisher, p: group member, e: engine
# event     LOG <- RECORD: what became of an append
#             @N landed at offset N; lost; late; refused; doubled; "not told": landed, acknowledgement lost
#           fault KIND: what befell the process; boot: a new incarnation; stops cleanly, active again
#           assigned, revoked, yield SEAT#EPOCH: what the member was told by core.member
#           handed SEAT#EPOCH @N VALUE: a record given to the handler
#           told ...: what the simulated user was promised
#           ANOMALY NAME: the observer found a promise broken
"""


@dataclass(slots=True)
class Trace:
    """Collects lines if `on`; otherwise costs nothing."""

    on: bool = False
    lines: list[str] = field(default_factory=list)

    def add(self, now: float, who: str, what: str) -> None:
        """One event."""
        self.lines.append(f"{now:8.2f}  {who:<6}  {what}")

    def text(self) -> str:
        """The legend and every line."""
        return LEGEND + "".join(f"{line}\n" for line in self.lines)


def show(record: object) -> str:
    """A record in a few words."""
    match record:
        case Beat(_, number, _, held):
            return f"beat {number} [{' '.join(f'{seat}#{epoch}' for seat, epoch in held.items())}]"
        case Claim(_, seat, epoch, seen, start):
            return f"claim {seat}#{epoch} seen={seen}" + ("" if start is None else f" start={start}")
        case Release(_, seat, epoch):
            return f"release {seat}#{epoch}"
        case Confirm(_, seat, epoch, offset):
            return f"confirm {seat}#{epoch} upto={offset}"
        case Reset(seat, start, request):
            return f"reset {seat} start={start} request={request}"
        case Leave(member, seen):
            return f"leave {member} seen={seen}"
        case Snapshot(upto):
            return f"snapshot upto={upto}"
        case Mark(epoch, owner):
            return f"mark #{epoch} {owner}"
        case Barrier(epoch, owner):
            return f"barrier #{epoch} {owner}"
        case Entry(epoch, _, number, _, body):
            return f"entry #{epoch} number={number} {body}"
        case _:
            return str(record)
