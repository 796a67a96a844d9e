from __future__ import annotations

import argparse

import pytest

from lockstep.bench import compare as compare_report
from lockstep.bench.compare import CompareOptions, Side, check_clients, cost, ratios, rows, tree
from lockstep.bench.compare_fanout import Work, pieces
from lockstep.bench.compare_means import PORTS, address_of
from lockstep.bench.compare_servers import Served, Wanted, parse
from lockstep.bench.compare_shards import figures
from lockstep.bench.compare_shards import rows as shard_rows
from lockstep.bench.numbered import Checker, Numbered
from lockstep.cli.bench import COMPARE, compare, streams
from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, build
from lockstep.cli.parser import parse as parse_line
from lockstep.errors import ExtraMissing, UsageError

FACTS = {"cores": 2}


def side(bus: str, by: str, rate: int, *, lost: int = 0) -> Side:
    counted = {"publishes_per_s": rate // 16, "deliveries_per_s": rate, "lost": lost, "doubled": 0, "reordered": 0,
               "delivery_us": 2.5}  # fmt: skip
    return Side(bus=bus, by=by, settings="as it is", figures=counted, wake_ms={"p50": 1.5, "p99": 9.0, "p999": 9.0},
                others_cores=0.1, server_cores=0.5)  # fmt: skip


SIDES = [
    side("embedded", "lockstep", 5_000_000),
    side("embedded-relaxed", "lockstep", 8_000_000),
    side("kafka", "confluent-kafka", 800_000),
    side("kafka", "lockstep", 1_000_000),
    side("redis", "redis", 200_000),
    side("redis", "lockstep", 100_000),
]


def given(line: str) -> argparse.Namespace:
    noun = Noun(name="bench", purpose="Measure.", verbs=(COMPARE,))
    return parse_line(build((noun,), "1"), ["bench", "compare", *line.split()])


def test_each_bus_is_set_against_its_plain_client_and_the_embedded_one_against_plain_kafka():
    found = {ratio.bus: (ratio.value, ratio.limit, ratio.ok) for ratio in ratios(SIDES)}
    assert found == {
        "embedded": (6.25, 5.0, True),
        "embedded-relaxed": (10.0, 5.0, True),
        "kafka": (1.25, 0.9, True),
        "redis": (0.5, 0.9, False),
    }


def test_the_embedded_bus_is_also_set_against_a_kafka_that_syncs_as_it_does():
    sides = [*SIDES, side("kafka-fsync", "confluent-kafka", 250_000)]
    found = [(ratio.bus, ratio.against, ratio.value) for ratio in ratios(sides) if ratio.bus.startswith("embedded")]
    assert found == [
        ("embedded", "kafka, confluent-kafka", 6.25),
        ("embedded", "kafka-fsync, confluent-kafka", 20.0),
        ("embedded-relaxed", "kafka, confluent-kafka", 10.0),
    ]
    report = tree(FACTS, CompareOptions(), sides)
    assert compare_report.table(report)[0][4] == "6.25 x"
    assert "- embedded by kafka-fsync, confluent-kafka: 20 x (at least 5 x: ok)" in compare_report.markdown(report)


def test_without_kafka_there_is_nothing_to_set_the_embedded_bus_against():
    assert [ratio.bus for ratio in ratios([*SIDES[:2], *SIDES[4:]])] == ["redis"]


def test_the_table_has_a_line_for_each_side_and_says_what_was_missed():
    lines = compare_report.table(tree(FACTS, CompareOptions(), SIDES))
    assert all(len(line) == len(compare_report.HEADINGS) for line in lines)
    assert [line[:2] for line in lines] == [(one.bus, one.by) for one in SIDES]
    assert lines[0][2:7] == ("312,500", "5,000,000", "6.25 x", "≥ 5 x", "ok")
    assert lines[1][4:7] == ("10 x", "≥ 5 x", "ok")
    assert lines[2][4:7] == ("-", "-", "-")
    assert lines[5][4:7] == ("0.5 x", "≥ 0.9 x", "miss")


def test_the_page_holds_the_figures_the_settings_and_the_costs_by_shard():
    costs = figures(2, 1_000_000, 10.0, [(0.5, 12.0), (0.5, 11.0), (1.0, 11.5), (1.0, 11.5)], 3.0)
    found = {**tree(FACTS, CompareOptions(), SIDES), "shards": [{**costs, "others_cores": 0.2}]}
    page = compare_report.markdown(found)
    assert "4 publishers and 16 subscribers" in page
    assert "| kafka | lockstep | 62,500 | 1,000,000 | 1.25 x | ≥ 0.9 x | ok | 2.50 |" in page
    assert "| redis | redis | as it is | 0.5 |" in page
    assert "| 2 | 500,000 | 2.00 | 1.00 | 3.00 | 6.00 | 0.2 |" in page


def test_the_cost_of_a_delivery_is_that_of_clients_and_server():
    found = cost({"cpu_s": 1.5, "delivered": 1_000_000}, 0.5)
    assert found == {"server_cpu_s": 0.5, "delivery_us": 2.0}


def test_what_is_lost_makes_a_row_that_is_not_met():
    made = list(rows([side("redis", "lockstep", 10, lost=2)]))
    assert [(row.value, row.ok) for row in made if row.unit == "records"] == [(2, False)]


def test_costs_by_shard_are_rows_of_events_and_of_processor_time():
    costs = figures(1, 1_000, 0.0, [(0.001, 2.0), (0.001, 1.0)], 0.0)
    made = list(shard_rows([{**costs, "others_cores": 0.0}]))
    assert [(row.name, row.value) for row in made] == [
        ("kafka, lockstep, 1 shard: events", 500),
        ("kafka, lockstep, 1 shard: cost of an event", 2.0),
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kafka", (Wanted("kafka"),)),
        ("redis,hazelcast", (Wanted("redis"), Wanted("hazelcast"))),
        ("redis://a:1,kafka", (Wanted("redis", "redis://a:1"), Wanted("kafka"))),
        ("kafka://a:1,b:2,redis", (Wanted("kafka", "kafka://a:1,b:2"), Wanted("redis"))),
        ("kafka://a:1,b:2,redis://c:3", (Wanted("kafka", "kafka://a:1,b:2"), Wanted("redis", "redis://c:3"))),
    ],
)
def test_buses_are_named_or_given_as_urls_with_commas_of_their_own(text, wanted):
    assert parse(text) == wanted


@pytest.mark.parametrize("text", ["", "kafak", "kafka,", "redis,b:2", "lmdb:folder", "amqp://a:1"])
def test_what_is_no_bus_to_compare_is_refused(text):
    with pytest.raises(UsageError, match="is no bus to compare"):
        parse(text)


def test_all_buses_are_compared_unless_some_are_named():
    assert CompareOptions().buses == tuple(map(Wanted, PORTS))


@pytest.mark.parametrize(
    "wrong", [{"records": 3}, {"publishers": 0}, {"subscribers": 0}, {"seconds": 0.0}, {"size": 10}]
)
def test_work_that_cannot_be_done_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Work(**wrong)


def test_small_work_is_cut_into_runs_that_fit():
    assert (Work(records=400).run_records, Work(records=400).runs) == (100, 1)
    assert (Work(records=50_000).run_records, Work(records=50_000).runs) == (2_500, 5)


def test_records_of_several_publishers_are_cut_where_one_ends():
    first, second = Numbered(0, 16, 100).next_run(), Numbered(1, 16, 100).next_run()
    values = first[:30] + second[:1] + first[30:] + second[1:]
    assert list(pieces(values)) == [(0, 30), (30, 31), (31, 101), (101, 200)]
    assert list(pieces([])) == []


def test_every_record_of_mixed_runs_is_checked():
    first, second = Numbered(0, 16, 100), Numbered(1, 16, 100)
    checker = Checker(2, 16, 100)
    one, other = first.next_run(), second.next_run()
    values = one[:60] + other[:50] + one[61:] + other[50:]
    for start, stop in pieces(values):
        checker.check(values[start:stop])
    assert checker.result([100, 100]) == {"lost": 1, "doubled": 0, "reordered": 0}


def test_the_address_for_a_plain_client_is_that_of_the_url():
    address = address_of("rabbitmq://anna:secret@there:1234?amqp_port=5")
    assert (address.hosts, address.user) == ((("there", 1234),), "anna")
    assert "secret" not in repr(address)


def test_a_client_that_is_not_installed_is_named_before_anything_is_started(monkeypatch):
    monkeypatch.setattr("lockstep.bench.compare.find_spec", lambda _: None)
    with pytest.raises(ExtraMissing, match=r"lockstep-events\[redis\]"):
        check_clients([Wanted("redis")])


def test_a_server_of_the_user_has_no_processes_of_ours():
    assert Served("redis://there:1").cpu_s() == 0.0


@pytest.mark.parametrize("line", ["--bus kafak", "--records 1", "--size 7", "--publishers 1000"])
def test_wrong_usage_of_the_command_is_told_before_anything_is_started(line):
    with pytest.raises(UsageError):
        compare(given(line), Output())


def test_a_bus_that_one_process_sees_is_refused():
    wanted = argparse.Namespace(
        bus="memory:x", publishers=1, subscribers=1, size=100, seconds=1.0, durability="fsync", objects=False,
        codec="none", folder=None,
    )  # fmt: skip
    with pytest.raises(UsageError, match="seen by one process only"):
        streams(wanted, Output())
