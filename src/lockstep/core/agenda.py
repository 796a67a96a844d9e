"""The life of a scheduled event: what requests, due times and deliveries make of it, and what is answered.

Only the owner of an event's shard makes a step, and each step is a function of the event as stored, the request and the
owner's clock. So a cancel and a fire that come at the same moment are decided here, once.

    WAITING --due--> FIRING --2xx--> DONE
       ^                |--4xx--> FAILED
       |                '--else-> RETRY --due--> FIRING ...            too old: FAILED
       '-- another instant, from any state

An event for a stream is published in the same transaction as its row, so it goes from WAITING to DONE in one step.
Times are milliseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

from lockstep.core.ladder import Ladder

BAD_REQUEST, CONFLICT, SERVER_ERROR = 400, 409, 500
MISSED = "missed the backlog limit"


class Status(IntEnum):
    """Where an event is in its life."""

    WAITING = 0
    FIRING = 1
    RETRY = 2
    DONE = 3
    FAILED = 4


UNFIRED = frozenset({Status.WAITING, Status.RETRY})
ENDED = frozenset({Status.DONE, Status.FAILED})


class Option(IntEnum):
    """What is delivered: the event as JSON, or its payload alone."""

    FULL_EVENT = 0
    PAYLOAD_ONLY = 1


class Form(IntEnum):
    """What the bytes of a payload are."""

    TEXT = 0
    JSON = 1
    BYTES = 2


@dataclass(slots=True, unsafe_hash=True)
class Event:
    """One event as its shard's owner stores it. Never changed, but replaced.

    Not frozen, like all that is made for each event or request here: making a frozen one takes ten times as long.
    """

    tenant: str
    id: str
    event_id: str
    """Given by the request that set its time; a delivery carries it, so that a receiver can drop copies."""
    at: int
    """When it is to fire."""
    due: int
    """When the next step is due."""
    status: Status = Status.WAITING
    payload: bytes | None = None
    form: Form = Form.TEXT
    option: Option = Option.FULL_EVENT
    lapsed: bool = False
    """Its time had passed when it was requested; also a tick that is fired again. It is late from its request on."""
    accepted: int = 0
    """When it was taken in with this time; it is not too old before this plus the ladder's limit."""
    attempt: int = 0
    triggered: int | None = None
    """When it was first fired."""
    ended: int | None = None
    """When it became DONE or FAILED."""
    error: str | None = None
    epoch: int = 0
    """The epoch in which it was last claimed for a delivery."""
    tick: bool = False
    """It is a tick of a cron, which is tried for one round only."""

    @property
    def expires_from(self) -> int:
        """From when its keep time counts: when it ended; not before its own time, even if the clock was set back."""
        return self.due if self.ended is None else max(self.ended, self.at)

    def late_ms(self, fired: int) -> int:
        """Return how late it is if it fires at an instant: from its time on, or from its request if that had passed."""
        return max(fired - (self.accepted if self.lapsed else self.at), 0)


class Verdict(StrEnum):
    """What is answered to a request."""

    ACCEPTED = "ACCEPTED"
    UPDATED = "UPDATED"
    DELETED = "DELETED"
    TRIGGERED = "TRIGGERED"
    UNKNOWN = "UNKNOWN"
    """There is no such event."""
    ERROR = "ERROR"


@dataclass(slots=True, unsafe_hash=True)
class Upsert:
    """Have an event fire at an instant, or change the one that has this id."""

    tenant: str
    id: str
    at: int
    event_id: str
    """For the event if it is new or gets another instant."""
    payload: bytes | None = None
    form: Form = Form.TEXT
    option: Option = Option.FULL_EVENT


@dataclass(frozen=True, slots=True)
class Remove:
    """Take an event away."""

    tenant: str
    id: str


@dataclass(frozen=True, slots=True)
class Replay:
    """Fire a FAILED event again, from the first try."""

    tenant: str
    id: str


Request = Upsert | Remove | Replay


@dataclass(slots=True, unsafe_hash=True)
class Answer:
    """What became of a request: `event` is the one it concerned, as it is afterwards or was before it was removed."""

    verdict: Verdict
    event: Event | None = None
    code: int | None = None
    message: str | None = None


@dataclass(slots=True, unsafe_hash=True)
class Step:
    """An event after a request, None if it is gone; what is answered; and a word for the history, if it is news."""

    event: Event | None
    answer: Answer
    news: str | None = None


def apply(event: Event | None, request: Request, now: int, *, lapse_ms: int = 0) -> Step:
    """Return what a request makes of an event. What lies before `now` plus `lapse_ms` has lapsed and fires at once."""
    match request:
        case Upsert():
            return _upsert(event, request, now, lapse_ms)
        case Remove():
            return _remove(event)
        case Replay():
            return _replay(event, now)


def _upsert(event: Event | None, request: Upsert, now: int, lapse_ms: int) -> Step:
    if event is not None and event.at == request.at:
        return _update(event, request)
    lapsed = request.at < now + lapse_ms
    made = Event(
        tenant=request.tenant, id=request.id, event_id=request.event_id, at=request.at,
        due=now if lapsed else request.at, payload=request.payload, form=request.form, option=request.option,
        lapsed=lapsed, accepted=now,
    )  # fmt: skip
    verdict = Verdict.ACCEPTED if event is None else Verdict.UPDATED
    if lapsed:
        verdict = Verdict.TRIGGERED
    shown = replace(made, triggered=now) if lapsed else made
    answer = Answer(verdict, shown)
    if event is not None and event.status is Status.FIRING:
        answer = replace(answer, code=CONFLICT, message=_already(event))
    return Step(made, answer, None if event is None else "rescheduled")


def _update(event: Event, request: Upsert) -> Step:
    if event.status not in UNFIRED:
        return Step(event, Answer(Verdict.TRIGGERED, event))
    changed = replace(event, option=request.option)
    if request.payload is not None:
        changed = replace(changed, payload=request.payload, form=request.form)
    return Step(changed, Answer(Verdict.UPDATED, changed))


def _remove(event: Event | None) -> Step:
    if event is None:
        return Step(None, Answer(Verdict.UNKNOWN))
    if event.status is Status.FIRING:
        return Step(event, Answer(Verdict.TRIGGERED, event, CONFLICT, _already(event)))
    return Step(None, Answer(Verdict.DELETED, event), "removed")


def _replay(event: Event | None, now: int) -> Step:
    if event is None:
        return Step(None, Answer(Verdict.UNKNOWN))
    if event.status is not Status.FAILED:
        reason = f"only a FAILED event can be replayed; this one is {event.status.name}"
        return Step(event, Answer(Verdict.ERROR, event, CONFLICT, reason))
    again = replace(event, status=Status.WAITING, due=now, accepted=now, attempt=0, ended=None)
    return Step(again, Answer(Verdict.UPDATED, again), "replayed")


def _already(event: Event) -> str:
    return f"already triggered at {event.triggered}"


def is_too_old(event: Event, now: int, ladder: Ladder) -> bool:
    """Return whether an event that is due may no longer be tried."""
    return now > max(event.at, event.accepted) + ladder.limit_ms


def missed(event: Event, now: int) -> Event:
    """Return an event that was not tried in time."""
    error = MISSED if event.error is None else f"{MISSED}; last error: {event.error}"
    return replace(event, status=Status.FAILED, due=now, ended=now, error=error)


def published(event: Event, now: int, epoch: int) -> Event:
    """Return an event that is published to a stream in the transaction that stores this."""
    first = now if event.triggered is None else event.triggered
    return Event(  # not replace(): every event of a stream comes here, and that takes four times as long
        event.tenant, event.id, event.event_id, event.at, now, Status.DONE, event.payload, event.form, event.option,
        event.lapsed, event.accepted, event.attempt + 1, first, now, None, epoch, event.tick,
    )  # fmt: skip


def claimed(event: Event, now: int, epoch: int) -> Event:
    """Return an event whose delivery begins once this is stored."""
    return Event(  # written out as well
        event.tenant, event.id, event.event_id, event.at, now, Status.FIRING, event.payload, event.form, event.option,
        event.lapsed, event.accepted, event.attempt + 1, event.triggered or now, event.ended, event.error, epoch,
        event.tick,
    )  # fmt: skip


def delivered(event: Event, now: int) -> Event:
    """Return an event that its receiver took."""
    return Event(
        event.tenant, event.id, event.event_id, event.at, now, Status.DONE, event.payload, event.form, event.option,
        event.lapsed, event.accepted, event.attempt, event.triggered, now, None, event.epoch, event.tick,
    )  # fmt: skip


def refused(event: Event, now: int, error: str) -> Event:
    """Return an event that its receiver will never take."""
    return replace(event, status=Status.FAILED, due=now, ended=now, error=error)


def failed(event: Event, now: int, error: str, ladder: Ladder) -> Event:
    """Return an event whose delivery failed: it is tried again, unless it is too old by then.

    An event that was tried too early, by a clock that was ahead, waits for its time.
    """
    due = max(now + ladder.delay_ms(max(event.attempt, 1)), event.at)
    over = event.tick and ladder.is_last_of_round(max(event.attempt, 1))
    if over or is_too_old(event, due, ladder):
        return refused(event, now, error)
    return replace(event, status=Status.RETRY, due=due, error=error)
