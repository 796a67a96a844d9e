"""Windows whose answer depends on a wall clock are named, with those below them."""

from __future__ import annotations

import pytest
from validation_models import SECOND, chain, project, sliding, source, summing, trades_model

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.guard import clock_dependence, clock_of
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import (
    Channel,
    ComputeWindow,
    CopyWindow,
    CounterWindow,
    FilterWindow,
    FunctionalWindow,
    JoinField,
    JoinWindow,
    NotificationWindow,
    Pattern,
    PatternEvent,
    PatternOutput,
    PatternWindow,
    Retention,
    SmtpServer,
    Splitter,
    TransposeWindow,
    UnionWindow,
)


def uses(model):
    return clock_dependence(compile_project(model))


def compute(text):
    return ComputeWindow(name="w", schema=Schema.parse("ID*:int32,x:double"), fields=(text,))


def pattern(logic, test="price > 1", output=PatternOutput(node="e", field="ID"), **more):  # noqa: B008 - it is frozen
    event = PatternEvent(name="e", source="src", expression=test)
    one = Pattern(events=(event,), logic=logic, output=(output,), **more)
    return PatternWindow(name="w", schema=Schema.parse("id*:int32"), patterns=(one,))


def notification(**options):
    channel = Channel(kind="email", sender="a@example.org", to="b@example.org", **options)
    return NotificationWindow(name="w", smtp=SmtpServer(host="localhost"), channels=(channel,))


def functional(text):
    return FunctionalWindow(name="w", schema=Schema.parse("ID*:int32,x:int64"), functions=(("x", text),))


def transpose(**options):
    names = {"tag_name": "symbol", "tag_values": ("price",), "tags_included": ("A",), "group_by": ("venue",)}
    return TransposeWindow(name="w", mode="wide", **names, **options)


def timed(text):
    return summing("w", expression=text)


def test_time_fields_are_safe():
    assert uses(trades_model()) == []


@pytest.mark.parametrize(
    "window",
    [
        CopyWindow(name="w", retention=Retention(kind="bycount_sliding", limit=3)),
        CopyWindow(name="w"),
        compute("price * 2"),
        FilterWindow(name="w", expression="price > 1"),
        pattern("fby(e, e)"),
        pattern("fby{1 hour}(e, e)", time_fields=(("time", "src"),)),
        functional("$ID"),
        transpose(),
    ],
)
def test_windows_without_a_clock_are_not_named(window):
    assert uses(chain(source(), window)) == []


@pytest.mark.parametrize(
    ("window", "why", "remedy"),
    [
        (CopyWindow(name="w", retention=sliding(field=None)), "no time field", "date or stamp field"),
        (CopyWindow(name="w", pulse_us=SECOND), "pulse-interval", "Take pulse-interval away"),
        (CopyWindow(name="w", splitter=Splitter(expression="todouble(now()) > 5")), "now()", "time field"),
        (CounterWindow(name="w"), "rates and intervals", "aggregate window"),
        (compute("todouble(now())"), "reads the clock with now()", "time field"),
        (compute("todouble(today())"), "reads the clock with today()", "time field"),
        (FilterWindow(name="w", expression="time < now()"), "now()", "time field"),
        (timed("ESP_aSumTimed(price, 10)"), "sumtimed", "retention on a time field"),
        (pattern("fby{1 hour}(e, e)"), "without time fields", "time field for each source"),
        (notification(), "carry the model's clock", "compare"),
        (notification(throttle_us=SECOND), "throttle-interval", "compare"),
        (pattern("e", test="time < now()"), "reads the clock with now()", "time field"),
        (pattern("e", test="price > 1 and t == today()"), "reads the clock with today()", "time field"),
        (pattern("e", output=PatternOutput(expression="toint(todouble(now()))")), "now()", "time field"),
        (pattern("e", output=PatternOutput(node="e", expression="toint(todouble(now()) + price)")), "now()", "field"),
        (transpose(clear_us=SECOND), "clear-timeout", "away"),
    ],
)
def test_windows_with_a_clock_are_named(window, why, remedy):
    (use,) = uses(chain(source(), window))
    assert use.path == "q/w"
    assert why in use.why
    assert remedy in use.remedy


@pytest.mark.parametrize(
    ("window", "clock"),
    [
        (notification(), "model clock"),
        (pattern("fby{1 hour}(e, e)"), "model clock"),
        (pattern("e", test="time < now()"), "model clock"),
        (pattern("fby{1 hour}(e, e)", time_fields=(("time", "src"),)), "field time"),
        (pattern("e", test="time < now()", time_fields=(("time", "src"),)), "model clock"),
        (pattern("e"), "none"),
    ],
)
def test_the_clock_of_a_window(window, clock):
    assert clock_of(compile_project(chain(source(), window)).nodes[-1]) == clock


def test_functions_that_read_the_clock_are_found():
    from lockstep.engine.reference.function_library import CALLS

    clocks = [call.name for call in CALLS.values() if call.reads_clock]
    assert clocks
    for name in clocks:
        (use,) = uses(chain(source(), functional(f"{name}()")))
        assert f"{name}()" in use.why
    assert uses(chain(source(), functional(f"stringLength('{clocks[0]}()')"))) == []


def test_a_source_may_depend_on_the_clock():
    (use,) = uses(project(source(retention=sliding(field=None))))
    assert use.path == "q/src"


def test_joins_are_looked_into():
    fields = (JoinField(name="ID", source="l_ID"), JoinField(name="at", expression="now()"))
    window = JoinWindow(name="j", conditions=(("ID", "ID"),), fields=fields)
    (use,) = uses(project(source("a"), source("b"), window, links=["a j", "b j"]))
    assert use.path == "q/j"


def test_what_is_made_of_such_a_window_is_named_too():
    # Given a counter-like copy beside a sound one, and a union of both
    late = CopyWindow(name="late", retention=sliding(field=None))
    windows = (source(), late, CopyWindow(name="sound"), UnionWindow(name="u"), summing("sum"))
    model = project(*windows, links=["src late", "src sound", "late u", "sound u", "u sum"])
    # Then all below it are named, with the way back
    found = {use.path: use for use in uses(model)}
    assert list(found) == ["q/late", "q/u", "q/sum"]
    assert "q/late" in found["q/u"].why
    assert "q/u" in found["q/sum"].why
    assert found["q/u"].remedy == "Fix q/late."
