"""What keeps windows that change the shape of rows or run functions from running, and their schemas."""

from __future__ import annotations

from dataclasses import replace

import pytest
from validation_models import SECOND, chain, project, source, told

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.validation import compile_project, faults
from lockstep.engine.model.windows import (
    Channel,
    ContextProperty,
    CounterWindow,
    EventLoop,
    FunctionalWindow,
    NotificationWindow,
    ProceduralWindow,
    RemoveStateWindow,
    SmtpServer,
    TransposeWindow,
)


def schema_of(model, name):
    return str(compile_project(model).find(name).schema)


FACT = "id*:int32,symbol:string,price:double"


class TestTranspose:
    INPUT = "id*:int64,tag*:string,value:double,at:stamp"

    def wide(self, **more):
        options = {"tag_name": "tag", "tag_values": ("value", "at"), "tags_included": ("pitch", "roll"), **more}
        return chain(source(schema=self.INPUT), TransposeWindow(name="t", mode=options.pop("mode", "wide"), **options))

    def long(self, schema="id*:int64,pitch_value:double,roll_value:double", **more):
        options = {"tag_name": "tag", "tag_values": ("value",), "tags_included": ("pitch", "roll"), **more}
        return chain(source(schema=schema), TransposeWindow(name="t", mode="long", **options))

    def test_wide_rows_have_a_field_for_each_tag_and_value(self):
        expected = "id*:int64,tag*:string,pitch_value:double,pitch_at:stamp,roll_value:double,roll_at:stamp"
        assert schema_of(self.wide(), "t") == expected
        assert schema_of(self.wide(group_by=("id",)), "t") == expected

    def test_long_rows_have_the_number_of_the_tag_in_their_key(self):
        assert schema_of(self.long(), "t") == "id*:int64,tagNum*:int32,tag:string,value:double"

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"mode": "broad"}, "'broad' is no mode"),
            ({"tag_name": "tg"}, "tag field 'tg' does not exist"),
            ({"tag_name": "value"}, "tag field 'value' is a double"),
            ({"tag_values": ("valu",)}, "tag value 'valu' does not exist"),
            ({"tag_values": ()}, "tag-values is empty"),
            ({"tags_included": ()}, "tags-included is empty"),
            ({"tags_included": ("a", "a")}, "names 'a' twice"),
            ({"tags_included": ("a b",)}, "'a b' can't begin a field name"),
            ({"group_by": ("nobody",)}, "groups by 'nobody'"),
            ({"clear_us": 0}, "clear-timeout is 0"),
        ],
    )
    def test_faults(self, options, problem):
        assert problem in told(self.wide(**options))

    def test_faults_of_the_long_form(self):
        assert "no field 'roll_value'" in told(self.long("id*:int64,pitch_value:double"))
        assert "differ in type" in told(self.long("id*:int64,pitch_value:double,roll_value:int32"))
        assert "makes a field 'value', and another" in told(self.long(tag_name="value"))
        assert "makes a field 'id', and another" in told(self.long(tag_name="id"))
        assert faults(self.long(group_by=("id",))) == []

    def test_a_wide_one_makes_no_field_that_is_there(self):
        model = chain(
            source(schema="id*:int64,tag:string,value:double,a_value:double"),
            TransposeWindow(name="t", mode="wide", tag_name="tag", tag_values=("value",), tags_included=("a",)),
        )
        assert "makes a field 'a_value', and another" in told(model)


class TestRemoveState:
    def test_numbers_the_events_and_drops_the_key(self):
        model = chain(source(schema=FACT), RemoveStateWindow(name="r", add_log_fields=True))
        expected = "eventNumber*:int64,originalOC:string,originalFL:string,id:int32,symbol:string,price:double"
        assert schema_of(model, "r") == expected
        plain = chain(source(schema=FACT), RemoveStateWindow(name="r", remove=("updates", "retentionDeletes")))
        assert schema_of(plain, "r") == "eventNumber*:int64,id:int32,symbol:string,price:double"

    def test_faults(self):
        text = told(chain(source(), RemoveStateWindow(name="r", remove=("update",))))
        assert "removes 'update'" in text
        assert "Did you mean 'updates'?" in text
        clash = chain(source(schema="eventNumber*:int64"), RemoveStateWindow(name="r"))
        assert "a field 'eventNumber', which it makes itself" in told(clash)


def test_a_counter_counts_any_inputs():
    model = project(source("a"), source("b", "x*:string"), CounterWindow(name="n"), links=["a n", "b n"])
    assert schema_of(model, "n").startswith("input*:string,totalCount:int64,totalSeconds:double,totalRate:double")
    bad = chain(source(), CounterWindow(name="n", count_us=0, clear_us=-1))
    assert "count-interval is 0" in told(bad)
    assert "clear-interval is -1" in told(bad)


def test_a_handler_must_be_a_python_name():
    schema = Schema.parse("id*:int32")
    good = ProceduralWindow(name="h", schema=schema, module="no.such", handler="f")
    assert faults(chain(source(), good)) == []
    bad = ProceduralWindow(name="h", schema=schema, module="1x", handler="f")
    assert "handler 1x:f is no name" in told(chain(source(), bad))


class TestFunctional:
    def window(self, schema="ID*:int32,text:string", functions=(("text", "$symbol"),), **more):
        window = FunctionalWindow(name="f", schema=Schema.parse(schema), functions=functions, **more)
        return chain(source(), window)

    def test_a_sound_one(self):
        assert faults(self.window()) == []

    def test_functions_are_checked(self):
        assert "q/f function text" in told(self.window(functions=(("text", "nosuchfunction($symbol)"),)))
        assert "q/f function text" in told(self.window(functions=(("text", "$simbol"),)))
        assert "q/f generate" in told(self.window(generate="nosuchfunction($symbol)"))
        assert "Two functions are called 'text'" in told(self.window(functions=(("text", "$symbol"),) * 2))

    def test_key_fields_must_be_filled(self):
        assert "No function and no input field" in told(self.window("number*:int64,text:string"))
        assert faults(self.window("ID*:int64,text:string")) == []  # numbers and texts become each other
        assert "where it is a int32, not a blob" in told(self.window("ID*:blob,text:string"))

    def test_loops_are_of_a_known_kind(self):
        loop = EventLoop(name="items", use="$symbol", item="it", kind="html")
        assert "'html' is no kind of loop" in told(self.window(loops=(loop,)))

    def test_what_a_loop_looks_for_must_be_readable(self):
        def model(**options):
            return self.window(loops=(EventLoop(**{"name": "items", "use": "$symbol", "item": "a(b)", **options}),))

        assert faults(model(group=1)) == []
        assert "has no group 2" in told(model(group=2))
        assert "can't be read" in told(model(item="a("))
        assert "can't be read" in told(model(kind="json", item="a["))
        assert "q/f loop items function text" in told(model(functions=(("text", "$nothing"),)))
        assert faults(model(functions=(("text", "$data"),))) == []

    def test_functions_see_those_above_them(self):
        assert faults(self.window(functions=(("twice", "$ID"), ("text", "$twice")))) == []
        assert "'twice'" in told(self.window(functions=(("text", "$twice"), ("twice", "$ID"))))

    def test_properties_are_of_a_known_kind(self):
        good = ContextProperty(name="words", kind="list", text="$symbol", outer=" ")
        assert faults(self.window(properties=(good,), functions=(("text", "string(#words)"),))) == []
        assert "'tree' is no kind of property" in told(self.window(properties=(replace(good, kind="tree"),)))
        assert "q/f property words" in told(self.window(properties=(replace(good, text="$nothing"),)))

    def test_several_inputs_may_differ(self):
        window = FunctionalWindow(
            name="f", schema=Schema.parse("id*:int64,x:string"), functions=(("id", "$ID"), ("x", "$note"))
        )
        model = project(source("a"), source("b", "ID*:int32,note:string"), window, links=["a f", "b f"])
        assert faults(model) == []


class TestNotification:
    def window(self, *channels, host="localhost", **more):
        smtp = SmtpServer(host=host, port=more.pop("port", 25))
        return chain(source(), NotificationWindow(name="n", smtp=smtp, channels=channels, **more))

    def channel(self, **options):
        given = {"kind": "email", "sender": "a@example.org", "to": "b@example.org", **options}
        return Channel(**given)

    def test_a_sound_one_says_what_was_sent(self):
        model = self.window(self.channel(throttle_us=SECOND))
        assert schema_of(model, "n").startswith("number*:int64,time:stamp,channel:string")

    def test_faults(self):
        assert "no channel" in told(self.window())
        assert "No host" in told(self.window(self.channel(), host=" "))
        assert "Port 0 can't be" in told(self.window(self.channel(), port=0))
        assert "'fax' is no kind of channel" in told(self.window(self.channel(kind="fax")))
        assert "No receiver" in told(self.window(self.channel(to="")))
        assert "No sender" in told(self.window(self.channel(sender="")))
        assert "throttle-interval is 0" in told(self.window(self.channel(throttle_us=0)))
        assert "q/n channel 1 deliver" in told(self.window(self.channel(deliver="nosuch($ID)")))
        assert "q/n channel 1 body" in told(self.window(self.channel(body="Now at $prise.")))
        assert faults(self.window(self.channel(body="Now at $prise.", unresolved="?"))) == []
        assert "Name the mail host" in told(self.window(self.channel(kind="sms", to="5551234")))
        assert "q/n function x" in told(self.window(self.channel(), functions=(("x", "nosuch($ID)"),)))
