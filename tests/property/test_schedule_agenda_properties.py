"""The life of an event against a model that knows nothing but the sentences of the table."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core import agenda
from lockstep.core.agenda import ENDED, UNFIRED, Event, Option, Remove, Replay, Status, Upsert
from lockstep.core.ladder import Ladder

START = 1_700_000_000_000
LADDER = Ladder(limit_ms=20_000)
EPOCH = 7


@dataclass
class Model:
    """One event as a bag of words; None of it is the product's."""

    state: str = "NONE"
    at: int = 0
    key: str = ""
    payload: bytes | None = None
    option: Option = Option.FULL_EVENT
    due: int = 0
    born: int = 0
    tries: int = 0
    first: int | None = None

    def upsert(self, request: Upsert, now: int) -> str:
        if self.state != "NONE" and self.at == request.at:
            if self.state in ("WAITING", "RETRY"):
                self.option = request.option
                self.payload = self.payload if request.payload is None else request.payload
                return "UPDATED"
            return "TRIGGERED"
        conflict = " 409" if self.state == "FIRING" else ""
        word = "ACCEPTED" if self.state == "NONE" else "UPDATED"
        lapsed = request.at < now
        self.__init__("WAITING", request.at, request.event_id, request.payload, request.option)  # type: ignore[misc]
        self.due, self.born = (now if lapsed else request.at), now
        return ("TRIGGERED" if lapsed else word) + conflict

    def remove(self) -> str:
        if self.state == "NONE":
            return "UNKNOWN"
        if self.state == "FIRING":
            return "TRIGGERED 409"
        self.state = "NONE"
        return "DELETED"

    def replay(self, now: int) -> str:
        if self.state == "NONE":
            return "UNKNOWN"
        if self.state != "FAILED":
            return "ERROR 409"
        self.state, self.due, self.born, self.tries = "WAITING", now, now, 0
        return "UPDATED"

    def old(self, now: int) -> bool:
        return now > max(self.at, self.born) + 20_000

    def fire(self, now: int, to_stream: bool) -> str | None:
        if self.state not in ("WAITING", "RETRY") or self.due > now:
            return None
        if self.old(now):
            self.state = "FAILED"
            return "missed"
        self.tries += 1
        self.first = now if self.first is None else self.first
        self.state = "DONE" if to_stream else "FIRING"
        return f"fired {self.key}"

    def result(self, outcome: str, now: int) -> None:
        if self.state != "FIRING":
            return
        wait = {1: 1, 2: 2, 3: 4, 0: 53}[self.tries % 4] * 1000
        if outcome == "taken":
            self.state = "DONE"
        elif outcome == "refused" or self.old(now + wait):
            self.state = "FAILED"
        else:
            self.state, self.due = "RETRY", now + wait


class Product:
    """The same through lockstep.core.agenda."""

    def __init__(self) -> None:
        self.event: Event | None = None

    def ask(self, request: agenda.Request, now: int) -> str:
        step = agenda.apply(self.event, request, now)
        self.event = step.event
        code = "" if step.answer.code is None else f" {step.answer.code}"
        return step.answer.verdict.value + code

    def fire(self, now: int, to_stream: bool) -> str | None:
        event = self.event
        if event is None or event.status not in UNFIRED or event.due > now:
            return None
        if agenda.is_too_old(event, now, LADDER):
            self.event = agenda.missed(event, now)
            return "missed"
        self.event = agenda.published(event, now, EPOCH) if to_stream else agenda.claimed(event, now, EPOCH)
        return f"fired {event.event_id}"

    def result(self, outcome: str, now: int) -> None:
        event = self.event
        if event is None or event.status is not Status.FIRING:
            return
        if outcome == "taken":
            self.event = agenda.delivered(event, now)
        elif outcome == "refused":
            self.event = agenda.refused(event, now, "no")
        else:
            self.event = agenda.failed(event, now, "not now", LADDER)


payloads = st.sampled_from([None, b"", b"one", b"two"])
upserts = st.tuples(st.just("upsert"), st.integers(-3, 6), payloads, st.sampled_from(list(Option)))
steps = st.lists(
    st.one_of(
        upserts,
        st.tuples(st.just("remove")),
        st.tuples(st.just("replay")),
        st.tuples(st.just("fire"), st.booleans()),
        st.tuples(st.just("result"), st.sampled_from(["taken", "refused", "failed"])),
        st.tuples(st.just("later"), st.sampled_from([1, 500, 1000, 3000, 30_000])),
        st.tuples(st.just("set back"), st.sampled_from([1, 2000])),
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(steps)
def test_the_life_of_an_event_is_that_of_the_model(given_steps) -> None:
    model, product, now = Model(), Product(), START
    answered: list[tuple[object, str, str]] = []
    for number, (word, *more) in enumerate(given_steps):
        if word == "later":
            now += more[0]
        elif word == "set back":
            now -= more[0]
        elif word == "upsert":
            request = Upsert("t", "e", START + more[0] * 1000, f"id-{number}", more[1], option=more[2])
            answered.append((word, model.upsert(request, now), product.ask(request, now)))
        elif word == "remove":
            answered.append((word, model.remove(), product.ask(Remove("t", "e"), now)))
        elif word == "replay":
            answered.append((word, model.replay(now), product.ask(Replay("t", "e"), now)))
        elif word == "fire":
            answered.append((word, str(model.fire(now, more[0])), str(product.fire(now, more[0]))))
        else:
            model.result(more[0], now)
            product.result(more[0], now)
        event = product.event
        assert model.state == ("NONE" if event is None else event.status.name), given_steps[: number + 1]
        assert event is None or (event.event_id, event.at, event.payload, event.option, event.attempt) == (
            model.key, model.at, model.payload, model.option, model.tries
        )  # fmt: skip
        assert event is None or event.triggered == model.first
    assert [expected for _, expected, _ in answered] == [found for _, _, found in answered]


@settings(max_examples=200)
@given(steps)
def test_an_event_fires_once_for_each_id_unless_it_is_tried_again(given_steps) -> None:
    product, now, fired = Product(), START, list[str]()
    for number, (word, *more) in enumerate(given_steps):
        before = product.event
        if word == "later":
            now += more[0]
        elif word == "upsert":
            product.ask(Upsert("t", "e", START + more[0] * 1000, f"id-{number}", more[1], option=more[2]), now)
        elif word in ("remove", "replay"):
            product.ask(Remove("t", "e") if word == "remove" else Replay("t", "e"), now)
        elif word == "fire" and (told := product.fire(now, True)) not in (None, "missed"):
            # Never early, and never what is not there any more
            assert before is not None
            assert before.at <= now
            fired.append(str(told))
        # An event that ended says when, and no other does
        assert product.event is None or (product.event.ended is not None) == (product.event.status in ENDED)
    # Streams take what they get, so each id is there at most once
    assert len(fired) == len(set(fired))
