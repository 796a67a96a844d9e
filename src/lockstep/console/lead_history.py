"""Who led projects, kept on a stream of its own: the marks on sequence logs are trimmed, and reports are few."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from lockstep.errors import LockstepError, StreamNotFound, Trimmed
from lockstep.log.batch import BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.port import Bus, Log
from lockstep.runtime import Runtime

STREAM = "console.leads"
CONFIG = StreamConfig(capacity=100_000)
KEPT_MAX = 200
"""Epochs of a project that a server holds; the stream has more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PastLead:
    """One epoch: who led, where, and since when; None for what is not known."""

    epoch: int
    incarnation: str
    at_ns: int | None = None
    engine: str | None = None
    host: str | None = None

    def with_more(self, other: PastLead) -> PastLead:
        """The same with what another one knows besides."""
        return replace(
            self, at_ns=other.at_ns if self.at_ns is None else self.at_ns,
            engine=self.engine or other.engine, host=self.host or other.host,
        )  # fmt: skip


class LeadHistory:
    """The leaders of projects, as any server has seen them. Safe to share between threads."""

    def __init__(self, bus: Bus, runtime: Runtime) -> None:
        self._bus, self._runtime = bus, runtime
        self._producer, self._sequence = runtime.new_id(), 0
        self._log: Log | None = None
        self._next = 0
        self._known: dict[str, dict[int, PastLead]] = {}
        """Keyed by the identity of a project's sequence log: a log created again is another project."""
        self._lock = threading.Lock()

    def merged(self, sequence: str, found: Sequence[PastLead], most: int) -> list[PastLead]:
        """What was found and what is kept, the newest first; what is new of it is kept from now on."""
        with self._lock:
            with suppress(LockstepError):  # the bus is away or can't be written: what was found is shown all the same
                self._follow()
                self._keep(sequence, found)
            known = dict(self._known.get(sequence, {}))
        for lead in found:
            known[lead.epoch] = _joined(known.get(lead.epoch), lead)
        return [known[epoch] for epoch in sorted(known, reverse=True)][:most]

    def _keep(self, sequence: str, found: Sequence[PastLead]) -> None:
        known = self._known.get(sequence, {})
        joined = [_joined(known.get(lead.epoch), lead) for lead in found if lead.incarnation]
        news = [lead for lead in joined if known.get(lead.epoch) != lead]
        if not news:
            return
        if self._log is None:
            self._log = self._bus.create(STREAM, CONFIG)
        values = [json.dumps({"sequence": sequence, **asdict(lead)}).encode() for lead in news]
        now = self._runtime.wall_ns()
        self._log.append([pack(values, producer=self._producer, sequence=self._sequence, created_ns=now)])
        self._sequence += len(values)
        self._follow()

    def _follow(self) -> None:
        """Take what servers have kept since the last look."""
        try:
            self._log = self._log or self._bus.open(STREAM)
            self._next = max(self._next, self._log.bounds().first)
            while entries := self._log.read(self._next):
                for entry in entries:
                    view = BatchView(entry.base, entry.data, STREAM)
                    for value in view.values():
                        self._take(json.loads(value))
                    self._next = view.end
        except StreamNotFound:  # none was kept yet
            self._log = None
        except Trimmed:  # between the two calls; the next look goes on from what is left
            return

    def _take(self, record: Mapping[str, object]) -> None:
        fields = dict(record)
        leads = self._known.setdefault(str(fields.pop("sequence")), {})
        lead = PastLead(**fields)  # type: ignore[arg-type]  # it was written by `_keep`
        leads[lead.epoch] = _joined(leads.get(lead.epoch), lead)
        for epoch in sorted(leads)[:-KEPT_MAX]:
            del leads[epoch]


def _joined(known: PastLead | None, found: PastLead) -> PastLead:
    """Merge two records of one epoch; where they differ, the marks on the log win."""
    return found if known is None or known.incarnation != found.incarnation else found.with_more(known)
