"""Letters of a shard that wait in Cassandra: relayed in their order, and removed by few tombstones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from lockstep.errors import LockstepError
from lockstep.schedule.store.cassandra_rows import EARLIEST, Index
from lockstep.schedule.store.cassandra_session import Session
from lockstep.schedule.store.outbox import Outbox, Refusals, unsealed

RELAYED_AT_ONCE = 100


class StoredOutbox:
    """The letters that one seat of a shard has sent: rows in the order of their sequence."""

    def __init__(self, session: Session, outbox: Outbox, scheduler: str, shard: int, index: Index) -> None:
        self._session, self._outbox = session, outbox
        self._place = (scheduler, shard, *index)

    def relay(self, start: int, known: Mapping[str, LockstepError]) -> Refusals:
        """Relay letters from a place on, but for logs that are known to refuse; return the logs of what is left."""
        refused, left = dict(known), Refusals()
        kept: int | None = None
        """The place of the last letter that is kept."""
        is_more = True
        while is_more:
            found = self._session.run("outbox", (*self._place, start, RELAYED_AT_ONCE))
            if not found:
                break
            logs = [row[1].decode() for row in found]
            sent = [(row, log) for row, log in zip(found, logs, strict=True) if log not in refused]
            published = self._outbox.publish([unsealed(log, row[2]) for row, log in sent], stored=True)
            refused |= published.refused
            left |= {log: refused[log] for log in logs if log in refused}
            kept = self._forget(found, {sent[place][0][0] for place in published.taken}, kept)
            if published.failure is not None:
                raise published.failure
            start, is_more = found[-1][0] + 1, len(found) == RELAYED_AT_ONCE
        return left

    def _forget(self, rows: Sequence[tuple[Any, ...]], gone: set[int], kept: int | None) -> int | None:
        """Remove letters that were relayed: all between two that are kept by one tombstone. Return the last one kept.

        The next tombstone after the same letter covers this one, so that a letter may be kept for days.
        """
        for is_gone, part in groupby(rows, lambda row: row[0] in gone):
            run = list(part)
            if is_gone:
                written = max(row[3] for row in run)
                after = EARLIEST if kept is None else kept
                self._session.run("relayed", (written, *self._place, after, run[-1][0]))
            else:
                kept = run[-1][0]
        return kept
