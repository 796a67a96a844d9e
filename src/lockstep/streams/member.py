"""One member of a group at work: it keeps reading the group's log, beats, claims, confirms and yields.

All decisions are made by `core.member`; this module only carries them out. Liveness comes from the background task,
progress from the caller's polls: a long-running handler keeps its streams until `max_processing_s`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from lockstep.core import member as core
from lockstep.core.group import Claim, Confirm, GroupState, Record, Snapshot, fold
from lockstep.core.member import Assigned, Drained, MemberState, Observed, Revoked, Send, SetActive, Tick, Timing, Yield
from lockstep.errors import AppendUncertain, Fenced, TimedOut, Trimmed
from lockstep.log.port import Log, LogWaiter
from lockstep.runtime import Runtime, Waiter, logger
from lockstep.streams.grouplog import GroupLog
from lockstep.streams.options import GroupOptions


def seat_name(log: Log) -> str:
    """A stream that is deleted and made anew is another seat: old positions mean nothing in it."""
    return f"{log.name}@{log.identity[:12]}"


class GroupMember:
    """See module. `starts` gives the offset at which a stream that nobody ever read is to be begun."""

    def __init__(
        self,
        grouplog: GroupLog,
        waiter: LogWaiter,
        logs: Mapping[str, Log],
        runtime: Runtime,
        options: GroupOptions,
        *,
        starts: Callable[[Log], int],
        changed: Waiter,
        on_error: Callable[[str, BaseException | None], None],
    ) -> None:
        self.id = runtime.new_id().hex()
        self.options = options
        self._grouplog, self._waiter, self._logs, self._runtime = grouplog, waiter, logs, runtime
        self._starts, self._changed, self._on_error = starts, changed, on_error
        self._pumping = threading.RLock()
        self._confirms: dict[str, Confirm] = {}
        self._confirms_lock = threading.Lock()
        self._confirm_due = 0.0
        self._yield_until: dict[str, float] = {}
        self._polled_at = runtime.monotonic()
        self._stalled = False
        self.takeovers = self.revocations = 0
        now = runtime.monotonic()
        self._state = MemberState(
            self.id,
            tuple(logs),
            timing=Timing(beat=options.beat_s, lease=options.lease_s),
            group=grouplog.load(),
            silence_from=now,
            beat_due=now,
        )
        waiter.watch(grouplog.log)
        self._task = runtime.spawn(f"lockstep-group-{grouplog.group}", self._step, waiter, self._crashed)

    @property
    def grouplog(self) -> GroupLog:
        """The group's log."""
        return self._grouplog

    def log(self, seat: str) -> Log:
        """The log behind a seat."""
        return self._logs[seat]

    @property
    def group_state(self) -> GroupState:
        """What the group's log said when it was read last."""
        return self._state.group

    @property
    def _holder(self) -> str:
        return f"group:{self._grouplog.group}"

    def held(self) -> dict[str, int]:
        """The seats this member may work on right now, with the epoch of each: its fencing token."""
        state, now = self._state, self._runtime.monotonic()
        mine = {name: core.holds(state, name, now) for name in state.held if name not in state.yielding}
        return {name: epoch for name, epoch in mine.items() if epoch is not None}

    def holds(self, seat: str, epoch: int) -> bool:
        """True while this member may work on the seat in that epoch, yielding included."""
        return core.holds(self._state, seat, self._runtime.monotonic()) == epoch

    def yielding(self) -> dict[str, int]:
        """Seats whose work at hand has to be finished, confirmed and handed over."""
        state = self._state
        return {name: state.held[name] for name in state.yielding if name in state.held}

    def resume(self, seat: str) -> int | None:
        """Where the group goes on with this seat."""
        return self._state.group.seat(seat).resume

    def confirmed(self, seat: str) -> int | None:
        """The last confirmed offset that counted."""
        return self._state.group.seat(seat).confirmed

    def lease_age(self) -> float | None:
        """Seconds since the lease was last extended, or None if nothing is held."""
        state = self._state
        ends = [state.leases[name] for name in state.held if name in state.leases]
        if not ends:
            return None
        return max(0.0, self._runtime.monotonic() - (min(ends) - state.timing.lease))

    def touch(self) -> None:
        """The caller is making progress."""
        self._polled_at = self._runtime.monotonic()
        if not self._state.active and self._stalled:
            self._stalled = False
            self.set_active(True)

    def confirm(self, seat: str, epoch: int, offset: int) -> None:
        """Have an offset confirmed soon; a higher one replaces it."""
        with self._confirms_lock:
            waiting = self._confirms.get(seat)
            if waiting is None or waiting.epoch != epoch or waiting.offset < offset:
                self._confirms[seat] = Confirm(self.id, seat, epoch, offset)
        self._waiter.wake()

    def confirm_now(self, seat: str, epoch: int, offset: int, timeout: float) -> None:
        """Return when the confirmation was read back and counted; Fenced if it did not count."""
        end = self._runtime.monotonic() + timeout
        self.confirm(seat, epoch, offset)
        while True:
            with self._pumping:
                self._confirm_due = 0.0
                self._pump()
            state = self._state.group.seat(seat)
            if (state.epoch, state.owner) != (epoch, self.id):
                raise Fenced(
                    member=self.id, group=self._grouplog.group, stream=seat, epoch=epoch, reason="another owns it now"
                )
            if state.confirmed is not None and state.confirmed >= offset:
                return
            if self._runtime.monotonic() >= end:
                raise TimedOut(what=f"Confirming offset {offset}", seconds=timeout)
            self._changed.wait(0.01)

    def pending(self, seat: str) -> Confirm | None:
        """The confirmation that waits to be written, or to be written again."""
        with self._pumping:  # one that is being written is neither waiting nor done
            return self._confirms.get(seat)

    def drained(self, seat: str) -> None:
        """The work on a yielded seat is done: write what is confirmed, then hand it over."""
        with self._pumping:
            self._confirm_due = 0.0
            self._write_confirms()
            self._yield_until.pop(seat, None)
            self._do(Drained(seat, self._runtime.monotonic()))
            self._pump()

    def set_active(self, active: bool) -> None:
        """Take part, or hand everything over and only watch."""
        with self._pumping:
            self._do(SetActive(active, self._runtime.monotonic()))
        self._waiter.wake()

    @property
    def is_active(self) -> bool:
        """Whether this member takes part."""
        return self._state.active

    def close(self) -> None:
        """Leave the group: everything confirmed is written, everything held is released."""
        self._task.stop()
        with self._pumping:
            self._do(SetActive(False, self._runtime.monotonic()))
            for seat in list(self._state.held):
                self.drained(seat)
        self._grouplog.close()

    def pump(self) -> None:
        """Read and act now, from the caller's thread."""
        with self._pumping:
            self._pump()

    def fold_in(self, records: Iterable[tuple[int, Record]], state: GroupState) -> GroupState:
        """The group's state with further records, without acting on it."""
        for at, record in records:
            state = fold(state, at, record)
        return state

    def _step(self) -> float:
        with self._pumping:
            self._pump()
            state, now = self._state, self._runtime.monotonic()
            times = [core.next_wake(state), *self._yield_until.values()]
            if self._confirms:
                times.append(self._confirm_due)
        return max(min(times) - now, 0.001)

    def _pump(self) -> None:
        self._read()
        self._write_confirms()
        now = self._runtime.monotonic()
        self._watch_progress(now)
        self._do(Tick(now, caught_up=True, jitter=self._runtime.random()))
        if self._state.held:
            self._grouplog.tidy(self._state.group)
        self._read()

    def _read(self) -> None:
        try:
            found = self._grouplog.read_new()
        except Trimmed:  # this member slept while the others wrote a snapshot and trimmed
            self._state = replace(self._state, group=self._grouplog.load())
            known = self._state.group
            found = [(known.upto, Snapshot(known.upto, known))]  # nothing new, but look at the seats again
        for at, record in found:
            self._do(Observed(at, record, self._runtime.monotonic()))

    def _do(self, event: core.Event) -> None:
        self._state, actions = core.step(self._state, event)
        records: list[Record] = []
        for action in actions:
            match action:
                case Send(record):
                    records.append(self._with_start(record))
                case Assigned():
                    self.takeovers += 1
                    self._changed.wake()
                case Revoked(seat, _):
                    self.revocations += 1
                    self._yield_until.pop(seat, None)
                    self._changed.wake()
                case Yield(seat, _):
                    self._yield_until[seat] = self._runtime.monotonic() + self.options.revoke_s
                    self._changed.wake()
        if records:
            self._append(records)

    def _append(self, records: list[Record]) -> None:
        try:
            self._grouplog.append(records)
        except AppendUncertain as error:  # every record is idempotent, and what is needed is sent again by later ticks
            logger.warning("Group record not acknowledged", extra={"action": "group_append", "reason": str(error)})

    def _with_start(self, record: Record) -> Record:
        """The first owner ever decides where the group begins, and that is kept with its claim."""
        if not isinstance(record, Claim) or self._state.group.seat(record.seat).resume is not None:
            return record
        log = self._logs[record.seat]
        start = self._starts(log)
        if log.config.protect:  # from the start on: nothing is confirmed yet, and nothing may go
            log.hold(self._holder, start)
            start = max(start, log.bounds().first)
        return replace(record, start=start)

    def _write_confirms(self) -> None:
        now = self._runtime.monotonic()
        with self._confirms_lock:
            if not self._confirms or now < self._confirm_due:
                return
            due, self._confirms = self._confirms, {}
        self._confirm_due = now + self.options.confirm_s
        self._append(list(due.values()))
        self._hold(due)
        self._read()
        for seat, confirm in due.items():
            self._check_counted(seat, confirm)

    def _check_counted(self, seat: str, confirm: Confirm) -> None:
        state = self._state.group.seat(seat)
        if (state.epoch, state.owner) == (confirm.epoch, self.id):
            if state.confirmed is None or state.confirmed < confirm.offset:
                with self._confirms_lock:  # not read back: the append was lost or is late, so send it again
                    self._confirms.setdefault(seat, confirm)
            return
        self._on_error(f"Confirmation of offset {confirm.offset} of {seat} did not count: another member owns it", None)

    def _hold(self, confirms: Mapping[str, Confirm]) -> None:
        """Tell protected streams what the group still needs."""
        for seat, confirm in confirms.items():
            log = self._logs[seat]
            if log.config.protect:
                log.hold(self._holder, confirm.offset + 1)

    def _watch_progress(self, now: float) -> None:
        for seat, until in list(self._yield_until.items()):
            if now >= until:
                self._yield_until.pop(seat)
                self._on_error(f"Work on {seat} did not finish within {self.options.revoke_s} s; handed over", None)
                self._do(Drained(seat, now))
        if not self._state.held or now - self._polled_at < self.options.max_processing_s:
            return
        others = core.live_members(self._state, now).items()
        wanted = {seat for name, seats in others if name != self.id for seat in seats}
        if wanted & self._state.held.keys() and self._state.active:
            self._stalled = True
            self._do(SetActive(False, now))

    def _crashed(self, error: BaseException) -> None:
        self._on_error("The group member stopped", error)
