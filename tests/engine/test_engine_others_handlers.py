"""Procedural and notification windows."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from others_bench import SECOND, UB, Bench, D, I, N, R, gone, ins, node_of, run, upd

from lockstep.engine.errors import BadExpression, ModelInvalid, UserCodeFailed
from lockstep.engine.events.event import Event, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.schemas import output_schema
from lockstep.engine.model.windows import (
    Channel,
    ContextProperty,
    NotificationWindow,
    ProceduralWindow,
    SmtpServer,
)
from lockstep.engine.reference.notification import NotificationOperator
from lockstep.engine.reference.user_code import ProceduralOperator

INPUT = "id*:int64,name:string,price:double"
TOTALS = "name*:string,total:double"


def running_total(event, state):
    """A handler: the sum of prices by name."""
    _, name, price = event.values
    if event.opcode is not Opcode.DELETE:
        state[name] = state.get(name, 0.0) + price
        yield Event(Opcode.UPSERT, event.flags, (name, state[name]))


def echo(event, state):
    return [Event(event.opcode, event.flags, event.values[1:])]


def rows(event, state):
    return [event.values[1:]]


def nothing(event, state):
    return None


def broken(event, state):
    yield (event.values[1], 1.0)
    raise ValueError("the price is wrong")


def wrong_type(event, state):
    return [("a", 1)]


def wrong_shape(event, state):
    return [("a",)]


def not_rows(event, state):
    return ["text"]


def not_iterable(event, state):
    return 5


def one_row(event, state):
    return ("a", 1.0)


def one_event(event, state):
    return Event(I, N, ("a", 1.0))


def tuple_of_rows(event, state):
    return (("a", 1.0), ("b", 2.0))


def half_a_character(event, state):
    return [("\ud800", 1.0)]


def leaves(event, state):
    sys.exit(3)


def keeps_half_a_character(event, state):
    state["seen"] = "\ud800"


def keeps_a_set(event, state):
    state["seen"] = {1}


NOT_CALLABLE = 5


class Counting:
    def on_event(self, event, state):
        state["count"] = state.get("count", 0) + 1
        return [(event.values[1], float(state["count"]))]


class WithoutOnEvent:
    pass


def procedural(handler, indexed=True, module=__name__):
    window = ProceduralWindow(name="p", schema=Schema.parse(TOTALS), module=module, handler=handler)
    return lambda: ProceduralOperator(node_of(window, TOTALS, INPUT, indexed=indexed))


def test_a_handler_makes_rows_and_keeps_state():
    bench = Bench(procedural("running_total"))
    assert bench.take(ins(1, "a", 2.0)) == [Event(I, N, ("a", 2.0))]
    bench.restart()
    assert bench.take(upd((1, "a", 3.0), (1, "a", 2.0), flags=R)) == [
        Event(UB, R, ("a", 5.0)),
        Event(D, R, ("a", 2.0)),
    ]
    assert bench.take(gone(1, "a", 3.0)) == []
    assert bench.take([]) == []
    assert bench.tick(SECOND) == []


def test_opcodes_of_a_handler_are_resolved_by_key():
    bench = Bench(procedural("echo"))
    bench.take(ins(1, "a", 1.0))
    assert bench.take(upd((1, "a", 2.0), (1, "a", 1.0))) == [Event(UB, N, ("a", 2.0)), Event(D, N, ("a", 1.0))]
    assert bench.take(ins(2, "a", 9.0) + gone(3, "b", 1.0) + ins(4, None, 1.0)) == []
    assert bench.reasons() == ["duplicate-key", "unknown-key", "null-key"]
    assert bench.take(gone(1, "a", 2.0)) == [Event(D, N, ("a", 2.0))]


def test_without_an_index_opcodes_pass_as_they_are():
    bench = Bench(procedural("echo", indexed=False))
    assert bench.take(upd((1, "a", 2.0), (1, "a", 1.0))) == [Event(Opcode.UPDATE, N, ("a", 2.0))]


def test_a_row_is_inserted_and_nothing_is_nothing():
    assert Bench(procedural("rows")).take(ins(1, "a", 1.0)) == [Event(I, N, ("a", 1.0))]
    assert Bench(procedural("nothing")).take(ins(1, "a", 1.0)) == []


def test_a_class_with_on_event_is_a_handler():
    bench = Bench(procedural("Counting"))
    bench.take(ins(1, "a", 0.0))
    bench.restart()
    assert bench.take(ins(2, "b", 0.0)) == [Event(I, N, ("b", 2.0))]


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("broken", "ValueError: the price is wrong"),
        ("wrong_type", "it gave 1 for total, which is a double"),
        ("wrong_shape", "it gave a row of 1 fields, but the schema has 2"),
        ("not_rows", "it gave 'text', which is neither an event nor a row"),
        ("not_iterable", "it gave 5; give back a list of rows"),
        ("one_row", "it gave ('a', 1.0); give back a list of rows"),
        ("one_event", "it gave Event("),
        ("half_a_character", r"it gave '\ud800' for name, which UTF-8 can't write"),
        ("leaves", "SystemExit: 3"),
    ],
)
def test_a_handler_that_fails_is_named_with_window_block_and_event(handler, reason):
    bench = Bench(procedural(handler))
    bench.tick(1)
    with pytest.raises(UserCodeFailed) as caught:
        bench.take(ins(7, "a", 1.0))
    told = str(caught.value)
    assert f"The handler {__name__}.{handler} of window cq/p failed on block 2, event (7, 'a', 1.0): {reason}" in told


@pytest.mark.parametrize(
    ("handler", "module", "reason"),
    [
        ("missing", __name__, "can't be loaded: the module has no missing"),
        ("x", "no_such_module_here", "cq/p: the module no_such_module_here can't be loaded.* must be on PYTHONPATH"),
        ("x", "handlers_that_leave", "the module handlers_that_leave can't be loaded: SystemExit: 4"),
    ],
)
def test_a_handler_that_is_not_there_is_a_fault_of_the_model(tmp_path, monkeypatch, handler, module, reason):
    (tmp_path / "handlers_that_leave.py").write_text("import sys\nsys.exit(4)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelInvalid, match=reason):
        procedural(handler, module=module)()


@pytest.mark.parametrize(
    ("handler", "reason"),
    [("WithoutOnEvent", "can't be loaded"), ("NOT_CALLABLE", "neither a function nor a class")],
)
def test_what_can_not_be_a_handler_is_refused(handler, reason):
    with pytest.raises(UserCodeFailed, match=reason):
        procedural(handler)()


def test_a_tuple_of_rows_is_as_good_as_a_list():
    assert len(Bench(procedural("tuple_of_rows")).take(ins(1, "a", 1.0))) == 2


def test_state_that_can_not_be_kept_is_refused():
    bench = Bench(procedural("keeps_a_set"))
    bench.take(ins(1, "a", 1.0))
    with pytest.raises(UserCodeFailed, match=r"its state holds \{1\}, which can't be kept"):
        bench.operator.dump()


def test_state_that_utf8_can_not_write_is_refused():
    bench = Bench(procedural("keeps_half_a_character"))
    bench.take(ins(1, "a", 1.0))
    with pytest.raises(UserCodeFailed, match="which can't be kept"):
        bench.operator.dump()


def test_a_dump_is_not_changed_by_what_comes_later():
    bench = Bench(procedural("running_total"))
    bench.take(ins(1, "a", 1.0))
    kept = bench.operator.dump()
    bench.take(ins(2, "a", 1.0))
    assert kept["state"] == {"a": 1.0}


SMTP = SmtpServer(host="mail.example.org", port=2525, user="me", password_variable="MAIL_PASSWORD")


def notification(*channels, functions=(), schema=None, **options):
    window = NotificationWindow(name="n", smtp=SMTP, channels=channels, functions=functions, schema=schema, **options)
    made = output_schema(window, [Schema.parse(INPUT)])
    return lambda: NotificationOperator(node_of(window, made, INPUT))


def channel(**options):
    texts = {"sender": "me@example.org", "to": "$name@example.org", "subject": "Price of $name", "body": "$price, $$5"}
    return Channel(kind="email", **{**texts, **options})


def recipient(event):
    return event.values[5]


def test_a_message_is_a_row_and_a_notice():
    bench = Bench(notification(channel(deliver="gt($price,10)")))
    assert bench.take(ins(1, "a", 5.0)) == []
    assert bench.notices == []
    (event,) = bench.take(ins(2, "b", 15.5))
    row = dict(zip(bench.operator.node.schema.names, event.values, strict=True))
    assert (event.opcode, row["number"], row["recipient"], row["subject"], row["body"]) == (
        I,
        1,
        "b@example.org",
        "Price of b",
        "15.5, $5",
    )
    (notice,) = bench.notices
    content = dict(notice.content)
    assert (notice.block, notice.window, notice.kind) == (2, "cq/n", "email")
    assert (content["host"], content["port"], content["user"]) == ("mail.example.org", "2525", "me")
    assert (content["password_variable"], content["recipient"]) == ("MAIL_PASSWORD", "b@example.org")
    assert content["number"] == "1"


def test_updates_tell_and_leaving_rows_do_not():
    bench = Bench(notification(channel()))
    assert len(bench.take(upd((1, "a", 2.0), (1, "a", 1.0), flags=R))) == 1
    assert bench.take(gone(1, "a", 2.0) + gone(2, "b", 2.0, flags=R)) == []
    assert bench.take([]) == []


def test_within_the_throttle_interval_a_recipient_is_told_once():
    bench = Bench(notification(channel(throttle_us=10 * SECOND), channel(name="loud", to="x@example.org")))
    bench.tick(100 * SECOND)
    assert len(bench.take(ins(1, "a", 1.0))) == 2
    bench.tick(109 * SECOND)
    # The same recipient waits, another one does not, and the other channel has no throttle
    bench.restart()
    told = [recipient(event) for event in bench.take(ins(2, "a", 1.0) + ins(3, "b", 1.0))]
    assert told == ["x@example.org", "b@example.org", "x@example.org"]
    bench.tick(110 * SECOND)
    assert [recipient(event) for event in bench.take(ins(4, "a", 1.0))] == ["a@example.org", "x@example.org"]
    assert [dict(notice.content)["number"] for notice in bench.notices] == [str(number) for number in range(1, 8)]


def test_who_was_told_before_the_first_tick_counts_as_told_at_that_tick():
    bench = Bench(notification(channel(throttle_us=10 * SECOND)))
    assert len(bench.take(ins(1, "a", 1.0) + ins(2, "a", 1.0))) == 1
    bench.restart()
    bench.tick(1_000_000 * SECOND)
    assert bench.take(ins(3, "a", 1.0)) == []
    bench.tick(1_000_009 * SECOND)
    assert bench.take(ins(4, "a", 1.0)) == []
    bench.tick(1_000_010 * SECOND)
    assert len(bench.take(ins(5, "a", 1.0))) == 1


def test_the_first_tick_may_bring_a_row_to_tell():
    bench = Bench(notification(channel(throttle_us=10 * SECOND)))
    assert len(bench.take(ins(1, "a", 1.0))) == 1
    assert bench.tick(1_000_000 * SECOND, ins(2, "a", 1.0)) == []


def test_every_recipient_is_told_once_and_nobody_is_counted():
    bench = Bench(notification(channel(to="a@example.org; b@example.org, a@example.org")))
    assert [recipient(event) for event in bench.take(ins(1, "x", 1.0))] == ["a@example.org", "b@example.org"]
    silent = Bench(notification(channel(to=" ")))
    assert silent.take(ins(1, "x", 1.0)) == []
    assert silent.reasons() == ["no-recipient"]


def test_phone_numbers_go_through_their_gateway():
    bench = Bench(notification(Channel(kind="sms", sender="me@example.org", to="555", gateway="sms.example.org")))
    assert recipient(bench.take(ins(1, "x", 1.0))[0]) == "555@sms.example.org"
    assert bench.notices[0].kind == "sms"


def test_a_test_channel_makes_rows_only():
    bench = Bench(notification(channel(test=True)))
    assert len(bench.take(ins(1, "x", 1.0))) == 1
    assert bench.notices == []


def test_headers_stay_on_one_line_and_functions_fill_texts():
    functions = (("cry", "toUpper($name)"), ("first", "listItem(#words,0)"))
    words = (ContextProperty(name="words", kind="list", text="$name", outer="/"),)
    made = notification(
        channel(to="x@example.org", subject="$cry\n$first", body="a\nb"), functions=functions, properties=words
    )
    (event,) = Bench(made).take(ins(1, "a/b", 1.0))
    assert event.values[-2:] == ("A/B a", "a\nb")


def test_unknown_names_are_refused_unless_something_stands_in():
    with pytest.raises(BadExpression, match="there is no field 'nam'"):
        notification(channel(body="$nam"))()
    bench = Bench(notification(channel(body="<$nam> <$name>", unresolved="?")))
    assert bench.take(ins(1, None, 1.0))[0].values[-1] == "<?> <>"


def test_a_declared_schema_adds_names():
    schema = Schema.parse("alias:string")
    bench = Bench(notification(channel(body="<$alias>"), schema=schema))
    assert bench.take(ins(1, "a", 1.0))[0].values[-1] == "<>"


STEPS = st.lists(
    st.one_of(
        st.integers(1, 60).map(lambda second: second * SECOND),
        st.builds(lambda number, name: ins(number, name, 1.0), st.integers(1, 9), st.sampled_from(["a", "b"])),
    ),
    max_size=16,
)
CASES = [
    procedural("running_total"),
    procedural("Counting"),
    notification(channel(throttle_us=10 * SECOND), channel(to="z@example.org", throttle_us=3 * SECOND)),
]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CASES), STEPS, st.integers(0, 16))
def test_a_restart_changes_nothing(made, steps, cut):
    assert run(made, steps, cut) == run(made, steps)
