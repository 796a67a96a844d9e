"""A subscriber connector at work: blocks of a window, each once and in order, from where its target is."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from lockstep.connectors.errors import OutputForgot, TargetAhead
from lockstep.connectors.port import Note, Notes, Pace, Target
from lockstep.engine.runtime.sequence.reader import head_of, values_between
from lockstep.events.connection import ProjectEvents
from lockstep.events.positions import Position
from lockstep.events.subscriber import Block, Subscription, begin_of
from lockstep.log.port import Log
from lockstep.runtime import logger

MOST = 500
"""Blocks that are sent together."""
_WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Which of the window's blocks to send; `buffered` is how many a standby was expected to keep."""

    window: str
    snapshot: bool = False
    collapse: bool = False
    rmretdel: bool = False
    buffered: int | None = None


def prepare(project: ProjectEvents, window: str, notes: Notes) -> None:
    """Before an engine leads for the first time: note where the out stream ends, so that nothing is left out."""
    if notes.last() is None:
        with project.subscribe(window) as subscription:
            position = subscription.position
        notes.write(Note(position.last or 0, {"position": asdict(position), IS_NEW: True}))


class Sending:
    """Sends blocks as they are published."""

    def __init__(
        self, project: ProjectEvents, connector: str, target: Target, notes: Notes, pace: Pace, options: SendOptions
    ) -> None:
        self._connector, self._target, self._notes, self._pace = connector, target, notes, pace
        self._options, self._project = options, project
        note = notes.last()
        if note is None:
            prepare(project, options.window, notes)
            note = notes.last()
        assert note is not None
        start = resume(target.open(note), note, snapshot=options.snapshot)
        check_target(project, connector, options.window, notes, note, start.sent)
        self.sent = start.sent
        """The last block that is at the target."""
        self._noted: Position | None = None
        self._subscription = self._subscribed(note, start)
        self.read = 0
        """The last block that was read, and sent unless it was filtered out."""
        self._target_block, self._gap = self._published(), 0
        self._is_synced = self._target_block <= self.sent
        if not self._is_synced:
            words = "Standby sending buffered messages, last message id = %d, current message id = %d (%s)"
            logger.info(words, self.sent, self._target_block, connector, extra={"action": "takeover"})

    def step(self) -> bool:
        """Send what is available; returns False, as a window never ends."""
        blocks = self._blocks()
        if not blocks:
            self._sync(None)
            self.read = self._subscription.position.last or 0
            self._target.idle()
            self._note(self._subscription.position)  # what lies there without a block may be trimmed as well
            return False
        fresh = [block for block in blocks if len(block.batch) and (block.number > self.sent or block.is_snapshot)]
        self._pace.check()
        if fresh:
            self._target.send(fresh)
            self.sent, self._gap = fresh[-1].number, self._gap + len(fresh)
        self._note(blocks[-1].position)
        self.read = blocks[-1].number
        self._sync(blocks[-1].number)
        return False

    def close(self) -> None:
        """Close the subscriber and the target."""
        self._subscription.close()
        self._target.close()

    def _blocks(self) -> list[Block]:
        first = self._subscription.next_block(timeout=_WAIT_S)
        found = [] if first is None else [first]
        while found and len(found) < MOST and (block := self._subscription.next_block(timeout=0)) is not None:
            found.append(block)
        return found

    def _subscribed(self, note: Note, start: Resume) -> Subscription:
        options = self._options
        wish: dict[str, Any] = {"collapse": options.collapse, "rmretdel": options.rmretdel}
        if start.with_rows:
            return self._project.subscribe(options.window, snapshot=True, **wish)
        position = position_of(self._project.output(options.window).log, self._connector, note, start)
        return self._project.subscribe(options.window, after=position, **wish)

    def _published(self) -> int:
        source = self._project.output(self._options.window)
        return source.beat().last.get(source.node.path, 0)

    def _note(self, position: Position) -> None:
        if position == self._noted:
            return
        more = {"position": asdict(position), "sent": self.sent, **self._target.mark()}
        self._notes.write(Note(position.last or 0, more))
        self._noted = position

    def _sync(self, number: int | None) -> None:
        if self._is_synced or (number is not None and number < self._target_block):
            return
        self._is_synced, options = True, self._options
        words = "Standby synced, current message id = %d (%s)"
        logger.info(words, self._target_block, self._connector, extra={"action": "takeover"})
        if options.buffered is not None and self._gap > options.buffered:
            words = "Connector %s had %d messages to send, and numbufferedmsgs = %d; nothing was lost"
            logger.warning(words, self._connector, self._gap, options.buffered, extra={"action": "buffer"})


IS_NEW, BEGUN, AHEAD = "is_new", "begun", "ahead"
"""Marks in a note: nothing was sent yet; the target was opened; the target has what this project did not send."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to go on: after block `sent`, reading from the noted position or, if that is too far, from the start."""

    sent: int
    from_start: bool = False
    with_rows: bool = False
    """The rows that the window holds come first: they were not sent yet."""


def resume(told: int | None, note: Note, *, snapshot: bool) -> Resume:
    """Resume from what the target reports, else from the note; a target that lost blocks gets them again."""
    noted = int(note.more.get("sent", note.at))
    is_new = bool(note.more.get(IS_NEW))
    if snapshot and is_new and (told is None or told < note.at):
        return Resume(note.at, with_rows=True)
    if told is None:
        return Resume(note.at)
    if told < noted and not is_new:
        return Resume(told, from_start=True)
    return Resume(max(told, note.at if is_new else told))


def check_target(project: ProjectEvents, connector: str, window: str, notes: Notes, note: Note, sent: int) -> None:
    """Raise TargetAhead if the target has a block that this project has not published: numbers started over.

    That is noted. Else the connector would go on as soon as the stream has caught up, and what is below would be lost.
    """
    is_first = bool(note.more.get(IS_NEW)) and not note.more.get(BEGUN)
    found, last = note.more.get(AHEAD, (None, None))
    if found != sent:
        last = note.at if is_first else _last_block(project, window)
    if last is not None and sent > last:
        if found != sent:
            notes.write(Note(note.at, {**note.more, AHEAD: (sent, last)}))
        stream = project.output(window).log.name
        raise TargetAhead(connector=connector, sent=sent, stream=stream, last=last)
    if is_first:
        notes.write(Note(note.at, {**note.more, BEGUN: True}))


def position_of(log: Log, connector: str, note: Note, start: Resume) -> Position:
    """Where to read on: as noted, or at the start of the stream if it holds everything that was not sent yet."""
    position, first = Position.of(note.more["position"]), log.bounds().first
    if not start.from_start and position.identity == log.identity and position.offset >= first:
        return position
    done = start.sent if start.from_start else max(start.sent, note.at)
    before = _before_first(log)
    if before is not None and before > done:
        raise OutputForgot(connector=connector, sent=done, stream=log.name, before=before, first=done + 1)
    return replace(begin_of(log), last=done)


def _last_block(project: ProjectEvents, window: str) -> int | None:
    """Return the last block on the window's stream; None if it is unknown because all of it was trimmed."""
    with project.subscribe(window) as subscription:
        return subscription.position.last


def _before_first(log: Log) -> int | None:
    """The last block that is not on a stream any more, or not all of it; None if there is nothing on it."""
    bounds = log.bounds()
    for _, value in values_between(log, bounds.first, bounds.next):
        head = head_of(value)
        if head is not None:
            return head.first if head.part else head.previous or 0
    return None
