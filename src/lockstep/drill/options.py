"""What a drill is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lockstep.engine.runtime.control.leadership import usual_lease_s
from lockstep.errors import BadArgument

EVENTS = 1_000_000
RATE_LIVE = 5_000.0
"""Events a second where faults are repeated: live, as a feed is."""
HEAD_S, SPACING_S = 15.0, 20.0
"""Seconds of a live run before its first fault, and between two: time for a killed engine to be back in step."""


class Fault(StrEnum):
    """A fault to inject into the running cluster."""

    KILL = "kill"
    """kill -9 of the active engine with its JVM and workers, as when a machine dies."""
    STOP = "stop"
    """SIGSTOP of the active engine for three leases, then SIGCONT."""
    JVM = "jvm"
    """kill -9 of the active engine's JVM alone."""
    WORKER = "worker"
    """kill -9 of one of its Python workers alone."""
    PUBLISHER = "publisher"
    """kill -9 of the publisher, which is started again."""
    SUBSCRIBER = "subscriber"
    """kill -9 of the subscriber, which is started again."""
    HANDOVER = "handover"
    """The lead is given to another engine on purpose."""
    STANDBY = "standby"
    """kill -9 of a standby."""
    BOTH = "both"
    """kill -9 of all engines at once; all are started again."""
    TAKEOVER = "takeover"
    """kill -9 of the active engine, and of the standby while it takes over."""
    PERSIST = "persist"
    """kill -9 of the engine that was just asked to write a snapshot."""
    SLOW = "slow"
    """A standby that gets hardly any time for some seconds."""
    DISK = "disk"
    """The disk is full for the active engine's JVM and workers."""
    SERVER = "server"
    """kill -9 of one process of the bus's server, which is started again."""
    SPARK_WORKER = "spark-worker"
    """kill -9 of one worker of a Spark cluster with its executors, which is started again."""
    NONE = "none"
    """Nothing: what an undisturbed run is like."""

    @property
    def changes_the_lead(self) -> bool:
        """Whether another engine must lead afterwards."""
        return self in (Fault.KILL, Fault.STOP, Fault.JVM, Fault.HANDOVER, Fault.BOTH, Fault.TAKEOVER, Fault.DISK)

    @property
    def may_change_the_lead(self) -> bool:
        """Whether another engine may lead afterwards."""
        return self.changes_the_lead or self in (Fault.WORKER, Fault.SERVER, Fault.SPARK_WORKER)

    @property
    def is_of_a_helper(self) -> bool:
        """Whether it is done to something else than an engine."""
        return self in (Fault.PUBLISHER, Fault.SUBSCRIBER, Fault.SERVER, Fault.SPARK_WORKER)


_EMBEDDED = "lmdb:"
_NEED_TWO = (Fault.STANDBY, Fault.HANDOVER, Fault.TAKEOVER, Fault.PERSIST, Fault.SLOW)


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillOptions:
    """All that can be chosen. None: as it follows from the rest."""

    events: int | None = None
    engines: int = 2
    fault: Fault = Fault.KILL
    then: tuple[Fault, ...] = ()
    """More kinds of faults, which take turns with the first one."""
    repeat: int | None = None
    bus: str | None = None
    block: int = 1
    rate: float | None = None
    keep: Path | None = None
    plot: Path | None = None
    seed: int = 1
    lease_s: float | None = None
    master: str | None = None
    """Where the Sparks of the engines run their tasks; None: in the engines."""
    conf: tuple[tuple[str, str], ...] = ()
    """Settings of Spark."""
    servers: Path | None = None
    """Where `lockstep dev` keeps the servers of which a fault kills a process."""

    def __post_init__(self) -> None:
        for name in ("events", "engines", "repeat", "block"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadArgument(name=name, value=value, reason="it must be at least 1")
        for kind in self.kinds:
            if kind in _NEED_TWO and self.engines < 2:
                raise BadArgument(name="engines", value=self.engines, reason=f"--fault {kind} needs two engines")
        if self.fault is Fault.NONE and self.repeat is not None:
            raise BadArgument(name="repeat", value=self.repeat, reason="--fault none has nothing to repeat")
        if Fault.NONE in self.kinds and self.then:
            raise BadArgument(name="fault", value=",".join(self.kinds), reason="none stands alone")

    @property
    def kinds(self) -> tuple[Fault, ...]:
        """All kinds of faults, in turn."""
        return (self.fault, *self.then)

    @property
    def faults(self) -> int:
        """How many there are: in both directions, or each kind once, if nothing else is said."""
        if self.fault is Fault.NONE:
            return 0
        return self.repeat or max(2, len(self.kinds))

    @property
    def pace(self) -> float | None:
        """Events a second of the publisher; None: as fast as it goes."""
        return RATE_LIVE if self.rate is None and self.repeat is not None else self.rate

    @property
    def total(self) -> int:
        """How many events there are."""
        if self.events is not None:
            return self.events
        if self.repeat is None or self.pace is None:
            return EVENTS
        return round(self.pace * (HEAD_S + SPACING_S * self.repeat))

    @property
    def lease(self) -> float:
        """Seconds of silence after which a standby takes over."""
        return usual_lease_s(self.bus or _EMBEDDED) if self.lease_s is None else self.lease_s

    @property
    def blocks(self) -> int:
        """How many blocks these are."""
        return -(-self.total // self.block)
