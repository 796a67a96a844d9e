"""Gates between events and handlers: order, filters, expressions, silences; and why a notification came or did not."""

from __future__ import annotations

import json
import random
import re
from datetime import UTC, datetime

import pytest
from monitor_worlds import START_S, World

from lockstep.monitor.core.expressions import Scope, holds
from lockstep.monitor.core.methods import ExpressionInvalid
from lockstep.monitor.core.patterns import Automaton, compiled, fits_glob


def world_of(handler=None, *, filters=None, handlers=None, **more):
    named = handlers or {"default": {"type": "pipe", **(handler or {})}}
    world = World({"handlers": named, "filters": filters or {}, **more})
    world.keepalive()
    return world


def gates(world, check="disk", client="web-1"):
    """Verdicts of the only handler: gate and whether it let the event through."""
    (one,) = world.table[f"why/{client}/{check}"]["handlers"]
    return [(gate["gate"], gate["passed"]) for gate in one["gates"]]


def reason(world, check="disk"):
    (one,) = world.table[f"why/web-1/{check}"]["handlers"]
    return one["gates"][-1]["reason"]


# Handlers


def test_handlers_of_a_check_sets_and_names_that_nobody_knows():
    handlers = {
        "mail": {"type": "pipe"},
        "chat": {"type": "tcp"},
        "team": {"type": "set", "handlers": ["mail", "inner"], "filters": ["none"]},
        "inner": {"type": "set", "handlers": ["chat", "mail", "deep"]},
        "deep": {"type": "set", "handlers": ["mail"]},
    }
    world = world_of(handlers=handlers)
    world.result(status=1, handlers=["team", "mail", "ghost"])
    assert [name for name, *_ in world.handled()] == ["mail", "chat"]
    told = {one["handler"]: one["gates"][-1]["reason"] for one in world.table["why/web-1/disk"]["handlers"]}
    assert told["ghost"] == "the settings have no handler of this name"
    assert "nested deeper than two" in told["deep"]
    world.result(name="cpu", status=1)
    assert world.table["why/web-1/cpu"]["handlers"][0]["handler"] == "default"
    world.result(name="mem", status=1, handler="chat")
    assert world.handled()[-1][0] == "chat"


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({"handlers": []}, []),
        ({"handlers": [], "handler": "default"}, []),
        ({"handlers": None, "handler": "default"}, ["default"]),
        ({"handlers": False, "handler": None}, ["default"]),
        ({"handler": ""}, []),
    ],
)
def test_an_empty_list_of_handlers_is_nobody(check, told):
    world = world_of()
    world.result(status=1, **check)
    assert [name for name, *_ in world.handled()] == told
    assert world.event() is not None


def test_an_empty_list_of_filters_is_none():
    world = world_of({"filters": [], "filter": "never"}, filters={"never": {"attributes": {}, "negate": True}})
    world.result(status=1)
    assert len(world.handled()) == 1


def test_the_lane_of_a_notice_and_what_it_carries():
    world = world_of({"filter": "mine"})
    world.result(status=2)
    (notice,) = world.notices
    assert (notice.kind, notice.key, notice.headers) == ("handle", "web-1/disk/default", {"handler": "default"})
    body = json.loads(notice.body)
    assert body["event"] == world.event()
    assert body["filters"] == ["mine"]  # the settings have none of this name: whoever carries it out may


def test_safe_mode_results_are_not_handled():
    world = world_of()
    world.result(status=3, handle=False)
    assert world.handled() == []
    assert gates(world) == [("enabled", False)]


@pytest.mark.parametrize(("wanted", "told"), [(["critical"], [2, 0]), (["warning", "ok"], [1, 0]), (["unknown"], [])])
def test_severities_and_the_resolve_that_0_26_lost(wanted, told):
    world = world_of({"severities": wanted})
    for status in (1, 2, 2, 0):
        world.result(status=status)
    statuses = [status for _, _, status, _ in world.handled()]
    assert list(dict.fromkeys(statuses)) == told


# Filters


@pytest.mark.parametrize(
    ("definition", "passes", "words"),
    [
        ({"attributes": {"client": {"name": "web-1"}}}, True, "all attributes match"),
        ({"attributes": {"client": {"name": "web-2"}}}, False, 'client.name is "web-1", not "web-2"'),
        ({"attributes": {"client": {"name": "web-1"}}, "negate": True}, False, "drops what matches"),
        ({"attributes": {"check": {"status": "2"}}}, True, ""),
        ({"attributes": {"check": {"status": "eval: value > 1"}}}, True, ""),
        ({"attributes": {"occurrences": "eval: value == 1 || value % 60 == 0"}}, True, ""),
        ({"attributes": {"occurrences": "eval: value > :::check.need|5:::"}}, False, "is false"),
        ({"attributes": {"check": {"name": ":::check.name:::"}}}, False, ""),
        ({"attributes": {"check": {"none": "eval: value > 1"}}}, False, "has no value"),
        ({"attributes": {"check": {"none": "eval: value =="}}}, False, "has no value"),
        ({"attributes": {"client": {"missing": None}}}, True, ""),
        ({"attributes": {"client": {"missing": {"a": 1}}}}, False, ""),
        (
            {"attributes": {}, "negate": True, "when": {"days": {"monday": [{"begin": "0:00", "end": "23:59"}]}}},
            True,
            "does not apply at this time",
        ),
        (
            {"attributes": {}, "negate": True, "when": {"days": {"thursday": [{"begin": "0:00", "end": "1:00"}]}}},
            False,
            "",
        ),
    ],
)
def test_native_filters(definition, passes, words):
    world = world_of({"filter": "f"}, filters={"f": definition})
    world.result(status=2)
    assert bool(world.handled()) is passes
    assert words in json.dumps(world.table["why/web-1/disk"], ensure_ascii=False).replace('\\"', '"')


def test_filters_in_order_the_first_that_drops_ends():
    filters = {"a": {"attributes": {}}, "b": {"attributes": {}, "negate": True}, "c": {"attributes": {}}}
    world = world_of({"filters": ["a", "b", "c"]}, filters=filters)
    world.result(status=1)
    assert gates(world) == [("filter a", True), ("filter b", False)]


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({}, [1, 31]),
        ({"occurrences": 3}, [3, 33]),
        ({"occurrences": "3", "refresh": "600", "interval": 60}, [3, 13, 23, 33]),
        ({"interval": 3600}, list(range(1, 35))),
        ({"refresh": 0}, list(range(1, 35))),
        ({"occurrences": "2x", "refresh": "30 s", "interval": 300}, [1, 7, 13, 19, 25, 31]),
        ({"occurrences": 2.7, "refresh": None, "interval": 300}, [1, 7, 13, 19, 25, 31]),
        ({"occurrences": " 2 ", "interval": "60"}, [2, 32]),
        ({"refresh": 120, "interval": 60}, [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33]),
    ],
)
def test_golden_the_filter_occurrences(check, told):
    world = world_of({"filter": "occurrences"})
    found = []
    for number in range(1, 35):
        before = len(world.notices)
        world.result(status=2, **check)
        found += [number] * (len(world.notices) - before)
    assert found == told


def test_a_resolve_passes_the_filter_occurrences_only_if_the_problem_did():
    world = world_of({"filter": "occurrences"})
    for status in (1, 0, 1, 1, 0):
        world.result(status=status, occurrences=2)
    assert [(status, action) for _, _, status, action in world.handled()] == [(1, "create"), (0, "resolve")]


@pytest.mark.parametrize(
    ("on", "passes"),
    [
        ("cpu", False),
        ("db-1/sql", False),
        ("subscription:db/sql", False),
        ("db-2/sql", True),
        ("subscription:x/sql", True),
        ("mem", True),
        (7, True),
    ],
)
def test_dependencies(on, passes):
    world = world_of({"filter": "check_dependencies"})
    world.keepalive("db-1", subscriptions=["db"])
    world.result("db-1", "sql", status=2)
    world.result(name="cpu", status=2)
    world.notices.clear()
    world.result(status=2, dependencies=["ghost", on])
    assert bool(world.handled()) is passes
    assert (f"it depends on {on}" in reason(world)) is not passes


def test_notify_change_tells_each_change_once_and_again_after_refresh():
    world = world_of({"notify": "change"})
    statuses = (1, 1, 2, 2, 1, 0)
    for status in statuses:
        world.result(status=status, refresh=300, interval=10)
    assert [status for _, _, status, _ in world.handled()] == [1, 2, 1, 0]
    world.notices.clear()
    for _ in range(40):
        world.result(status=2, refresh=300, interval=10)
        world.wait(10, heard=["web-1"])
    assert len(world.notices) == 2
    assert "unchanged since" in reason(world)
    # As a setting for all, with a check of its own mind
    world = World({"handlers": {"default": {"type": "pipe"}}, "sensu": {"notify": "change"}})
    for _ in range(3):
        world.result(status=2)
        world.result(name="cpu", status=2, notify="each")
    assert [name for _, name, _, _ in world.handled()] == ["disk", "cpu", "cpu", "cpu"]


# Expressions


def scope(value, **event):
    return Scope(value, {"check": event}, datetime(2026, 1, 1, 9, 30, tzinfo=UTC))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("value == 1 || ( value > 1 && value % 60 == 0 )", 120),
        ("value == 'a' or value == \"b\"", "b"),
        ("not value.nil? and !value.empty?", "x"),
        ("value =~ /^web-\\d+$/", "web-12"),
        ("value !~ /DB/i", "web"),
        ("value.match(/b+/)", "abba"),
        ("[1,2,3,4,5].include?(Time.at(value).wday) && Time.at(value).hour.between?(8,17)", START_S + 9 * 3600),
        ("Time.now.hour == 9 && Time.now.wday == 4", None),
        ("(1..5).include?(value)", 5),
        ("value % (1800 / :::check.interval|60:::) == 0", 30),
        ("value == ':::check.team:::-a'", "web-a"),
        ("value[0] == 'a' && value.length == 2", ["a", "b"]),
        ('value["k"] == 1', {"k": 1}),
        ("value.to_i + 1 == 43 && value.downcase.start_with?('42')", "42X"),
        ("-value * 2 <= -4 && 7 / 2 == 3 && -7 / 2 == -4", 2),
        ("value.include?('b') && value.size > 1", "abc"),
        ("!!value", 0),
        ("value == nil", None),
        ("Time.now.to_i - value > 3600 && Time.now.thursday? && Time.now.min == 30", START_S),
        ("(9..17).cover?(Time.now.hour) && !(0...9).include?(Time.now.hour)", None),
        ("%w[warning critical].include?(value) && %w(a b).last == 'b'", "critical"),
        ("value.include? 'prod'", "web-prod-1"),
        ("value.match /prod/", "web-prod-1"),
        ("value == 'a' ? Time.now.hour > 8 : false", "a"),
        ("value == 'a' ? false : (value.nil? ? 1 : nil)", None),
        (
            "value.first == '0' && value.last == '2' && value.uniq.length == 2 && value[0, 2].count == 2",
            ["0", "2", "2"],
        ),
        ("value[0..2] == 'web' && value[-1] == '1' && value[4..-1] == 'a1' && value[0...-3] == 'web'", "web-a1"),
        ("value.max > 2 && value.min == 1 && value.sum == 4 && value.any?", [1, 3]),
        ("value.key?('a') && !value.has_key?('b')", {"a": None}),
        ("value > 1_000 && (value / 7.0).round == 286 && value.even? && (0 - value).abs == value", 2000),
        ("value.start_with?('db', 'web')", "web-1"),
    ],
)
def test_expressions_that_hold(text, value):
    assert holds(text, scope(value, team="web"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "value ==",
        "value == 1 1",
        "system('ls')",
        "value.send(:x)",
        "`ls`",
        "value.instance_eval('1')",
        "$stdout",
        "File",
        "value = 1",
        "value; 1",
        "1 / 0 == 0",
        "value > nil",
        "'a' * 100000000 == 1",
        "value =~ /(?=a)b*c*/",
        "value =~ 'x'",
        "value.first",
        "(" * 100 + "1" + ")" * 100,
        "value == :::check.none:::",
        "9" * 18 + " * " + "9" * 18 + " > 1",
        "value ==" + " 1 +" * 2000 + " 1",
        "[1, 2",
        "value[",
        "value.between?(1)",
        "Time.new.year == 1",
        "value =~ /(a)\\1b*/",
        "__import__('os')",
        "value.__class__ == 1",
        "1 .. ",
        "value.include?",
        "value.start_with?()",
        "value.match nil",
        "value.match('a')",
        "value ? 1",
        "value ? 1 : ",
        "value ? " * 50 + "1" + " : 2" * 50,
        "%w[a",
        "'abc'[0, 1, 2]",
        "5[0]",
        "[1].first(2)",
        "['a'].max == 'a'",
        "Time.at(999999999999999999).hour == 1",
        "Time.at(-999999999999999999).hour == 1",
        "Time.at('x').hour == 1",
        "value == 1234567890123456789012",
        "value =~ /(?L)x/",
        "value =~ /( ?> a + ) +/x",
    ],
)
def test_what_is_no_expression_has_no_value(text):
    with pytest.raises(ExpressionInvalid):
        holds(text, scope(5))


def test_a_token_in_an_expression_is_a_value_and_never_text_of_it():
    event = {"client": {"name": "x' || true || '", "n": "1 || true"}}
    one = Scope("y", event, datetime(2026, 1, 1, tzinfo=UTC))
    assert not holds("value == ':::client.name:::'", one)
    assert not holds("value == :::client.n:::", one)


@pytest.mark.parametrize(
    "pattern",
    ["a" * 300, "(", "(?=(a+)+)", "(?!a)b*c*", "(?>(a+)+b)", r"(a)\1", "(?P<x>a)(?(x)b|c)", "(?:a{0,16}){100}",
     "(?:(?:(?:){999}){999}){999}a*"],
)  # fmt: skip
def test_patterns_that_no_automaton_has_are_refused(pattern):
    assert isinstance(compiled(pattern), str)


@pytest.mark.parametrize(
    "pattern",
    ["(a*)*b", "(a|a)*b", "(a|aa)+b", "((a+)c?)+b", "(x+x+)+y|(a+a+)+b", "a*a*a*a*b", "(?:a?){20}a{20}b", "(?:.*a){9}b",
     r"(?:\w+\s?)+!", "(?:a{0,9}){9}b"],
)  # fmt: skip
def test_patterns_that_python_would_take_years_for_are_told_at_once(pattern):
    found = compiled(pattern)
    assert not isinstance(found, str)
    assert not found.search("a" * 512)
    assert found.search("a" * 500 + "b!")


PARTS = (
    "a", "b", "A", r"\d", r"\w", r"\W", r"\s", ".", "[ab]", "[^a]", "[a-c1]", r"[^\d]", "é", r"\.", " ", "\n", "^", "$",
    r"\A", r"\Z", r"\b",
)  # fmt: skip


def some_pattern(chance, depth):
    what = chance.random() if depth else 0
    if what < 0.35:
        return chance.choice(PARTS)
    inner = some_pattern(chance, depth - 1)
    if what < 0.55:
        return inner + some_pattern(chance, depth - 1)
    if what < 0.65:
        return f"(?:{inner}|{some_pattern(chance, depth - 1)})"
    if what < 0.7:
        return f"(?i:{inner})"
    return f"(?:{inner})" + chance.choice(("*", "+", "?", "*?", "{2}", "{0,2}", "{1,3}?", "{2,}"))


@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_an_automaton_says_what_pythons_matcher_says():
    chance = random.Random(1)
    for _ in range(1500):
        pattern, flags = some_pattern(chance, 4), re.MULTILINE | chance.choice((0, re.IGNORECASE, re.DOTALL))
        own, theirs = Automaton(pattern, flags), re.compile(pattern, flags)
        for _ in range(4):
            text = "".join(chance.choices("aabAB1 \n.éÉc", k=chance.randint(1, 8)))
            assert own.search(text) is (theirs.search(text) is not None), (pattern, flags, text)


@pytest.mark.parametrize(
    ("text", "pattern", "fits"),
    [
        ("web-1", "web-*", True),
        ("web-1", "w?b-1", True),
        ("web-1", "*", True),
        ("web", "web-*", False),
        ("a*b", "a?b", True),
        ("aXbXc", "a*b*c", True),
        ("aXbX", "a*b*c", False),
        ("", "*", True),
        ("x.y", "x?y", True),
        ("x\ny", "x*", True),
    ],
)
def test_globs(text, pattern, fits):
    assert fits_glob(text, pattern) is fits


# Silences


def silence(world, **entry):
    answer = world.order("silence", entry=entry)
    assert answer["status"] == 201, answer
    return answer["body"]["id"]


@pytest.mark.parametrize(
    ("entry", "id_", "silences"),
    [
        ({"subscription": "linux"}, "linux:*", True),
        ({"subscription": "client:web-1"}, "client:web-1:*", True),
        ({"subscription": "linux", "check": "disk"}, "linux:disk", True),
        ({"check": "disk"}, "*:disk", True),
        ({"check": "cpu"}, "*:cpu", False),
        ({"subscription": "windows"}, "windows:*", False),
        ({"subscription": "client:web-*"}, "client:web-*:*", True),
        ({"check": "d?sk"}, "*:d?sk", True),
        ({"check": "d?s"}, "*:d?s", False),
        ({"id": "m1", "match": {"client.zone": "eu-*", "check.name": "disk"}}, "m1", True),
        ({"id": "m1", "match": {"client.zone": "us-*"}}, "m1", False),
        ({"id": "m1", "match": {"client.subscriptions": "lin*"}}, "m1", True),
        ({"subscription": "linux", "begin": START_S + 100}, "linux:*", False),
        (
            {"subscription": "linux", "when": {"days": {"thursday": [{"begin": "00:00", "end": "01:00"}]}}},
            "linux:*",
            True,
        ),
        (
            {"subscription": "linux", "when": {"days": {"friday": [{"begin": "00:00", "end": "01:00"}]}}},
            "linux:*",
            False,
        ),
    ],
)
def test_what_an_entry_silences(entry, id_, silences):
    world = world_of()
    world.keepalive(zone="eu-1")
    assert silence(world, reason="work", creator="ann", planned=True, **entry) == id_
    world.result(status=1)
    event = world.event()
    assert (event["silenced"], event["silenced_by"]) == (silences, [id_] * silences)
    assert (world.handled() == []) is silences
    row = world.table[f"silence/{id_}"]
    assert (row["reason"], row["creator"], row["planned"], row["timestamp"]) == ("work", "ann", True, START_S)
    assert world.order("silence-clear", entry={"id": id_})["status"] == 204
    assert f"silence/{id_}" not in world.table
    world.result(status=1)
    assert not world.event()["silenced"]


def test_a_handler_may_disregard_silences_and_metrics_are_not_silenced():
    world = world_of({"handle_silenced": True})
    silence(world, subscription="linux")
    world.result(status=1)
    assert gates(world)[0] == ("silenced", True)
    world = world_of()
    silence(world, subscription="linux")
    world.result(type="metric")
    assert len(world.handled()) == 1


def test_entries_expire_counted_from_their_begin():
    world = world_of()
    silence(world, subscription="linux", expire=5)
    silence(world, check="disk", expire=5, begin=world.now + 10)
    assert world.table["silence/*:disk"]["expire_at"] == world.now + 15
    world.wait(5)
    assert "silence/linux:*" not in world.table
    world.wait(9)
    assert "silence/*:disk" in world.table
    world.wait(1)
    assert "silence/*:disk" not in world.table


def test_an_entry_that_ends_with_the_event_goes_and_the_resolve_is_told():
    world = world_of()
    silence(world, subscription="client:web-1", expire_on_resolve=True)
    world.result(status=2)
    world.result(status=0)
    assert [action for *_, action in world.handled()] == ["resolve"]
    assert "silence/client:web-1:*" not in world.table


def test_an_acknowledgement_silences_one_event_until_it_resolves():
    world = world_of()
    assert world.order("ack", client="web-1", check="disk")["status"] == 404
    world.result(status=2)
    answer = world.order("ack", client="web-1", check="disk", by="ann", reason="on it")
    assert answer == {"status": 201, "body": {"id": "client:web-1:disk"}, "time": world.now}
    assert world.table["silence/client:web-1:disk"]["acknowledged"]
    world.notices.clear()
    world.result(status=2)
    world.result(name="cpu", status=2)
    assert [name for _, name, _, _ in world.handled()] == ["cpu"]
    world.result(status=0)
    assert world.handled()[-1][1:] == ("disk", 0, "resolve")
    assert "silence/client:web-1:disk" not in world.table
    assert world.order("ack", client="web-1", check=7)["status"] == 400
