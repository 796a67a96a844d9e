"""Where a subscriber connector goes on: behind what its target has, as far as the window's stream still holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lockstep.connectors.errors import OutputForgot, TargetAhead
from lockstep.connectors.notes import Note, Notes
from lockstep.engine.runtime.sequence.reader import head_of, values_between
from lockstep.events.connection import ProjectEvents
from lockstep.events.positions import Position
from lockstep.events.tailing import begin_of
from lockstep.log.port import Log

IS_NEW, BEGUN, AHEAD = "is_new", "begun", "ahead"
"""Marks in a note: nothing was sent yet; the target was opened; the target has what this project did not send."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Where to go on: behind block `sent`, reading from the noted position or, if that is too far, from the start."""

    sent: int
    from_start: bool = False
    with_rows: bool = False
    """The rows that the window holds come first: they were not sent yet."""


def resume(told: int | None, note: Note, *, snapshot: bool) -> Resume:
    """What the target told counts; where it can't tell, the note. A target that lost something gets it again."""
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
    """TargetAhead if the target has a block that this project has not published: numbers began anew.

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
    """The last block on the window's stream; None if nothing tells, as all of it was trimmed."""
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
