"""Follows the changelog of the window `Fleet` and folds it into a view, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from lockstep.engine.errors import HistoryTrimmed, PositionForeign
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Opcode
from lockstep.errors import LockstepError, StreamNotFound
from lockstep.events.connection import ProjectEvents
from lockstep.events.subscribing import Subscription
from lockstep.monitor.view import ANSWER, FleetView, RowChange
from lockstep.runtime import Runtime, logger

WINDOW, SETTINGS = "Fleet", "settings"
_WAIT_S, _AGAIN_S = 0.5, 1.0
_ROWS_AT_ONCE = 50_000


def row_changes(batch: EventBatch) -> Iterator[RowChange]:
    """The rows of a batch of the changelog."""
    ids, kinds, clients, names, bodies = (_texts(batch, each) for each in ("id", "kind", "client", "name", "body"))
    deletes = batch.opcode == int(Opcode.DELETE)
    for place, kind in enumerate(kinds):
        body = None if deletes[place] else bodies[place]
        yield RowChange.of(ids[place], kind, clients[place], names[place], body)


def _texts(batch: EventBatch, name: str) -> list[str]:
    column = batch.column(name)
    return [text or "" for text in column.to_pylist()]


class ChangelogReader:
    """Keeps a view in step with the changelog until it is closed."""

    def __init__(self, project: ProjectEvents, view: FleetView, runtime: Runtime) -> None:
        self._project, self._view, self._runtime = project, view, runtime
        self._answered = threading.Condition()
        self._answers: dict[str, None] = {}
        self._stopping = threading.Event()
        self.settings_told = threading.Event()
        """Set when the view has got settings; the server that looks at them clears it."""
        self.error: LockstepError | None = None
        """What keeps the view from following, while it does."""
        self._thread = threading.Thread(target=self._run, name="lockstep-fleet-view", daemon=True)
        self._thread.start()

    def wait_answer(self, order: str, seconds: float) -> bool:
        """Wait until the answer to an order is in the view; False if it did not come in time."""
        with self._answered:
            return self._answered.wait_for(lambda: order in self._answers, seconds)

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (HistoryTrimmed, PositionForeign):
                logger.warning("The fleet's view is made again", extra={"action": "view_reset"})
                self._view.reset()
            except LockstepError as error:
                self.error = error
                if not isinstance(error, StreamNotFound):  # no engine has published yet
                    logger.warning("The fleet's view can't follow", exc_info=error, extra={"action": "view_waits"})
                self._stopping.wait(_AGAIN_S)

    def _follow(self) -> None:
        position = self._view.position
        with self._project.subscribe(WINDOW, after=position, blocks=True, begin="start") as changelog:
            self.error = None
            while not self._stopping.is_set():
                self._take(changelog)

    def _take(self, changelog: Subscription) -> None:
        """Take what is there, up to some tens of thousands of rows, in one transaction."""
        block = changelog.next_block(_WAIT_S)
        changes: list[RowChange] = []
        while block is not None:
            changes += row_changes(block.batch)
            block = changelog.next_block(0) if len(changes) < _ROWS_AT_ONCE else None
        if not changes:
            return
        self._view.apply(changes, changelog.position.dumps(), self._runtime.wall_ns() // 10**9)
        if any(change.kind == SETTINGS for change in changes):
            self.settings_told.set()
        answers = [change.name for change in changes if change.kind == ANSWER]
        if answers:
            self._note(answers)

    def _note(self, answers: list[str]) -> None:
        with self._answered:
            self._answers |= dict.fromkeys(answers)
            while len(self._answers) > _ROWS_AT_ONCE:
                del self._answers[next(iter(self._answers))]
            self._answered.notify_all()
