"""One member of a group at work: it keeps reading the group's log, beats, claims, confirms and yields.

All decisions are made by `core.member`; this module only carries them out. Liveness comes from the background task,
progress from the caller's polls: a long-running handler keeps its streams until `max_processing_s`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from lockstep.core import member as core
from lockstep.core.group import Claim, Confirm, GroupState, Record, Snapshot
from lockstep.core.member import Assigned, Drained, MemberState, Observed, Revoked, Send, SetActive, Tick, Timing, Yield
from lockstep.errors import AppendUncertain, Fenced, NotFound, ServerUnreachable, TimedOut, Trimmed, Unavailable
from lockstep.log.port import Log, LogWaiter, Transaction
from lockstep.runtime import Runtime, Waiter, logger
from lockstep.streams.grouplog import GroupLog, holder
from lockstep.streams.options import GroupOptions

IDLE_LEASES = 3
"""For so many leases a member has nothing to do before it says so."""


def seat_name(log: Log) -> str:
    """A stream that is deleted and made anew is another seat: old positions mean nothing in it."""
    chance = log.identity.partition("-")[2] or log.identity  # an identity may say in front of what kind it is
    return f"{log.name}@{chance[:12]}"


class GroupMember:
    """Takes part in a group: owns seats and confirms. `starts` gives the first offset of a stream never read."""

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
        rank: int = 0,
        active: bool = True,
        shares_work: bool = False,
    ) -> None:
        """`shares_work`: a member without a stream is worth a warning; in an election one owner is meant."""
        self.id = runtime.new_id().hex()
        self.options = options
        self._grouplog, self._waiter, self._logs, self._runtime = grouplog, waiter, logs, runtime
        self._starts, self._changed, self._on_error = starts, changed, on_error
        self._pumping, self._depth = threading.RLock(), 0
        self._reports: list[tuple[str, BaseException | None]] = []
        self.error: BaseException | None = None
        """Why this member can't go on, if it can't."""
        self._confirms: dict[str, Confirm] = {}
        """What is to be written, kept until it was read back: an append may fail."""
        self._refused: dict[str, Confirm] = {}
        """What was written too late and did not count, until the caller asks."""
        self._confirms_lock = threading.Lock()
        self._confirm_due = 0.0
        self._look_due = runtime.monotonic() + options.lease_s
        self._yield_until: dict[str, float] = {}
        self._polled_at = runtime.monotonic()
        self._stalled, self._told_idle = False, not shares_work
        self._idle_since: float | None = None
        self._failing: tuple[float, Unavailable] | None = None
        now = runtime.monotonic()
        self._state = MemberState(
            self.id,
            tuple(logs),
            timing=Timing(beat=options.beat_s, lease=options.lease_s),
            group=grouplog.load(),
            silence_from=now,
            beat_due=now,
            active=active,
            rank=rank,
        )
        waiter.watch(grouplog.log)
        self._task = runtime.spawn(f"lockstep-group-{grouplog.group}", self._step, waiter, self._crashed)

    @property
    def grouplog(self) -> GroupLog:
        """The group's log."""
        return self._grouplog

    def log(self, seat: str) -> Log:
        """The log that a seat is about."""
        return self._logs[seat]

    @property
    def group_state(self) -> GroupState:
        """What the group's log said when it was read last."""
        return self._state.group

    def held(self) -> dict[str, int]:
        """The seats this member may work on right now, with the epoch of each: its fencing token."""
        state, now = self._state, self._runtime.monotonic()
        mine = {name: core.holds(state, name, now) for name in state.held if name not in state.yielding}
        return {name: epoch for name, epoch in mine.items() if epoch is not None}

    def holds(self, seat: str, epoch: int) -> bool:
        """True while this member may work on the seat in that epoch, yielding included."""
        return core.holds(self._state, seat, self._runtime.monotonic()) == epoch

    def is_owner(self, seat: str, epoch: int) -> bool:
        """As holds, after the group's log was read to its end."""
        with self._working():
            self._read()
        return self.holds(seat, epoch)

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
        """Return when the confirmation was read back and counted; Fenced if another member owns the stream by then."""
        end = self._runtime.monotonic() + timeout
        self.confirm(seat, epoch, offset)
        while True:
            with self._working():
                self._confirm_due = 0.0
                self._pump()
            state = self._state.group.seat(seat)
            if (state.epoch, state.owner) != (epoch, self.id):
                self._refused.pop(seat, None)  # the caller gets the error here
                raise self._fenced(seat, epoch)
            if state.confirmed is not None and state.confirmed >= offset:
                return
            if self._runtime.monotonic() >= end:
                raise TimedOut(what=f"Confirming offset {offset}", seconds=timeout)
            self._changed.wait(0.01)

    def flush(self, seat: str, timeout: float) -> None:
        """Return when everything confirmed of a seat counts; Fenced if it never will."""
        with self._pumping:
            waiting = self._confirms.get(seat)
        if waiting is not None:
            self.confirm_now(seat, waiting.epoch, waiting.offset, timeout)
        refused = self._refused.pop(seat, None)
        if refused is not None:
            raise self._fenced(seat, refused.epoch)

    def _fenced(self, seat: str, epoch: int) -> Fenced:
        reason = "another member owns it now"
        return Fenced(member=self.id, group=self._grouplog.group, stream=seat, epoch=epoch, reason=reason)

    def drained(self, seat: str) -> None:
        """The work on a yielded seat is done: write what is confirmed, then hand it over."""
        with self._working():
            self._confirm_due = 0.0
            self._write_confirms()
            self._yield_until.pop(seat, None)
            self._do(Drained(seat, self._runtime.monotonic()))
            self._pump()

    def set_active(self, active: bool) -> None:
        """Take part, or hand everything over and only watch."""
        with self._working():
            self._stalled = False
            self._do(SetActive(active, self._runtime.monotonic()))
        self._waiter.wake()

    @property
    def is_active(self) -> bool:
        """Whether this member takes part."""
        return self._state.active

    def close(self) -> None:
        """Leave the group: everything confirmed is written, everything held is released."""
        try:
            self._task.stop()
            with self._working():
                self._do(SetActive(False, self._runtime.monotonic()))
                for seat in list(self._state.held):
                    self.drained(seat)
        except (Unavailable, NotFound) as error:  # the others find out by its silence, or there is no group any more
            logger.warning(
                "Left group %s without writing to its log; %d confirmations are lost and their records come again: %s",
                self._grouplog.group, len(self._confirms), error,
                extra={"action": "group_leave", "reason": str(error)},
            )  # fmt: skip
        finally:
            self._waiter.close()
            self._grouplog.close()

    @contextmanager
    def _working(self) -> Iterator[None]:
        """One thread acts for the member at a time. Callbacks of users run after the lock is released."""
        with self._pumping:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            reports: list[tuple[str, BaseException | None]] = []
            if not self._depth:  # else the lock is not let go yet
                reports, self._reports = self._reports, []
        for summary, error in reports:
            try:
                self._on_error(summary, error)
            except Exception:  # noqa: BLE001 - it is the user's, and must not end the member
                logger.exception("An error callback failed", extra={"action": "callback_failed"})

    def _report(self, summary: str, error: BaseException | None = None) -> None:
        self._reports.append((summary, error))

    def _step(self) -> float:
        try:
            delay = self._pump_and_rest()
        except Unavailable as error:  # a full disk, a lost answer: it may pass, and silence until then is fair
            self._failing = (self._failing or (self._runtime.monotonic(), error))[0], error
            logger.warning(
                "A member of group %s could not work: %s", self._grouplog.group, error,
                extra={"action": "group_retry", "reason": str(error)},
            )  # fmt: skip
            return self.options.lease_s / 4
        self._failing = None
        return delay

    def trouble(self) -> Unavailable | None:
        """Why the group's log can't be read or written, if that lasts longer than a lease."""
        failing = self._failing
        if failing is None or self._runtime.monotonic() - failing[0] < self.options.lease_s:
            return None
        return failing[1]

    def _pump_and_rest(self) -> float:
        with self._working():
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
            self._tidy()
        self._read()
        if not self._told_idle:
            self._tell_idle(now)

    def _tell_idle(self, now: float) -> None:
        """Say once that there are more members than streams or shards, so that this one has nothing to do."""
        state = self._state
        owners = [state.group.seat(seat).owner for seat in state.wants]
        if state.held or not state.active or None in owners:
            self._idle_since = None
            return
        live = [name for name, seats in core.live_members(state, now).items() if set(seats) & set(state.wants)]
        if len(live) <= len(state.wants) or self.id not in live:
            self._idle_since = None
            return
        self._idle_since = now if self._idle_since is None else self._idle_since
        if now - self._idle_since < IDLE_LEASES * self.options.lease_s:  # one that was killed counts for a lease
            return
        self._told_idle = True
        logger.warning(
            "Group %s has %d members for %d streams or shards, so this member has nothing to do until another leaves. "
            "To share the work among more members, create the stream with more shards (StreamConfig(shards=...)).",
            self._grouplog.group, len(live), len(state.wants),
            extra={"action": "member_idle", "group": self._grouplog.group},
        )  # fmt: skip

    def _tidy(self) -> None:
        try:
            self._grouplog.tidy(self._state.group)
        except AppendUncertain:
            return  # a snapshot is a convenience; the next one will do

    def _read(self) -> None:
        try:
            found = self._read_again() if self._has_lost() else self._grouplog.read_new()
        except Trimmed:  # this member slept while the others wrote a snapshot and trimmed
            found = self._read_again()
        for at, record in found:
            self._do(Observed(at, record, self._runtime.monotonic()))

    def _read_again(self) -> list[tuple[int, Record]]:
        """Go by what the log says now; nothing of it is new, but it has to be looked at the seats again."""
        known = self._grouplog.load()
        self._state = replace(self._state, group=known)
        return [(known.upto, Snapshot(known.upto, known))]

    def _has_lost(self) -> bool:
        """Whether the bus lost what was read: asked once in a lease, as members that disagree may wait for ever."""
        now = self._runtime.monotonic()
        is_due = now >= self._look_due
        if is_due:
            self._look_due = now + self.options.lease_s
        if not self._grouplog.has_lost(look=is_due):
            return False
        logger.warning(
            "The bus lost the end of the log of group %s; going by what is left. Records that were confirmed there "
            "come again.", self._grouplog.group, extra={"action": "group_log_lost", "group": self._grouplog.group},
        )  # fmt: skip
        return True

    def _do(self, event: core.Event) -> None:
        self._state, actions = core.step(self._state, event)
        records: list[Record] = []
        for action in actions:
            match action:
                case Send(record):
                    records.append(self._with_start(record))
                case Assigned():
                    self._changed.wake()
                case Revoked(seat, _):
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
        except (AppendUncertain, ServerUnreachable) as error:
            # Every record is idempotent, and what is needed is sent again by later ticks.
            logger.warning("Group record not acknowledged", extra={"action": "group_append", "reason": str(error)})

    def _with_start(self, record: Record) -> Record:
        """The first owner ever decides where the group begins, and that is kept with its claim."""
        if not isinstance(record, Claim) or self._state.group.seat(record.seat).resume is not None:
            return record
        log = self._logs[record.seat]
        start = self._starts(log)
        if log.config.protect:  # before the claim: nothing is confirmed yet, and nothing may go
            self._protect({record.seat: start})
            start = max(start, log.bounds().first)
        return replace(record, start=start)

    def _write_confirms(self) -> None:
        now = self._runtime.monotonic()
        with self._confirms_lock:
            if not self._confirms or now < self._confirm_due:
                return
            due = dict(self._confirms)
        self._confirm_due = now + self.options.confirm_s
        self._append(list(due.values()))
        self._read()
        self._protect(dict.fromkeys(due))
        for seat, confirm in due.items():
            self._check_counted(seat, confirm)

    def _check_counted(self, seat: str, confirm: Confirm) -> None:
        state = self._state.group.seat(seat)
        is_owner = (state.epoch, state.owner) == (confirm.epoch, self.id)
        if is_owner and (state.confirmed is None or state.confirmed < confirm.offset):
            return  # not read back: the append was lost or is late, so it is sent again
        with self._confirms_lock:
            if self._confirms.get(seat) is confirm:  # else a higher one took its place
                del self._confirms[seat]
        if not is_owner:
            self._refused[seat] = confirm
            self._report(f"Confirmation of offset {confirm.offset} of {seat} did not count: another member owns it")

    def _protect(self, starts: Mapping[str, int | None]) -> None:
        """Tell protected streams what the group still needs: what its log says, else where it would begin."""
        protected = {seat: start for seat, start in starts.items() if self._logs[seat].config.protect}
        if not protected:
            return

        def hold(changes: Transaction) -> None:
            state = self._grouplog.state_in(changes, self._state.group)
            for seat, start in protected.items():
                needed = state.seat(seat).resume
                needed = start if needed is None else needed
                if needed is not None:
                    changes.hold(self._logs[seat].name, holder(self._grouplog.group), needed)

        bus = self._grouplog.bus
        if bus.promises.atomic:
            bus.atomic(hold)
            return
        for seat, start in protected.items():
            needed = self._state.group.seat(seat).resume
            self._logs[seat].hold(holder(self._grouplog.group), start if needed is None else needed)

    def _watch_progress(self, now: float) -> None:
        for seat, until in list(self._yield_until.items()):
            if now >= until:
                self._yield_until.pop(seat)
                self._report(f"Work on {seat} did not finish within {self.options.revoke_s} s; handed over")
                self._do(Drained(seat, now))
        if not self._state.held or now - self._polled_at < self.options.max_processing_s:
            return
        others = core.live_members(self._state, now).items()
        wanted = {seat for name, seats in others if name != self.id for seat in seats}
        if wanted & self._state.held.keys() and self._state.active:
            self._stalled = True
            self._do(SetActive(False, now))

    def _crashed(self, error: BaseException) -> None:
        self.error = error
        self._changed.wake()
        self._on_error("The group member stopped", error)
