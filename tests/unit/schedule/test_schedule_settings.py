"""BigBen's configuration: names, precedence, references, and what is wrong with it."""

from __future__ import annotations

import pytest

from lockstep.core.ladder import Ladder
from lockstep.errors import BadArgument, BadConfig, PathMissing
from lockstep.schedule.delivery.port import CourierOptions
from lockstep.schedule.settings import DEFAULTS, Settings, flattened, merged


@pytest.fixture
def load(tmp_path):
    def loaded(*texts, system=(), **environ):
        files = []
        for number, text in enumerate(texts):
            files.append(tmp_path / f"{number}.yaml")
            files[-1].write_text(text)
        return Settings.loaded([str(file) for file in files], system, environ)

    return loaded


def test_defaults_are_bigbens(load):
    settings = load()
    assert (settings.port, settings.instances, settings.is_node) == (8080, 1, True)
    assert settings.ladder() == Ladder()
    assert settings.node_fields() == {"ladder": Ladder(), "keep_ms": 30 * 86_400_000, "lapse_ms": 0}
    assert settings.ignored_lines() == []


def test_start_overrides_environment_overrides_files_override_defaults(load):
    file, over = "app.server.port: 1\nevents.processor.max.retries: 1", "app: {server: {port: 2}}"
    assert load(file).port == 1
    assert load(file, over).port == 2
    assert load(over, file).port == 1
    assert load(file, over, SERVER_PORT="3").port == 3
    assert load(file, over, system=["app.server.port=4"], SERVER_PORT="3").port == 4
    assert load(file, over, system=["app.server.port=4"]).ladder().max_retries == 1


def test_names_of_the_environment(load):
    assert load(NUM_INSTANCES="3").instances == 3
    assert load(EVENTS_PROCESSOR_MAX_RETRIES="7").ladder().max_retries == 7
    assert load(**{"events.processor.max.retries": "8"}).ladder().max_retries == 8
    assert load(SERVER_PORT="", APP_SERVER_PORT="", NUM_INSTANCES="").port == 8080
    assert load(NUM_INSTANCES="").instances == 1
    assert "nobody.asked" not in load(NOBODY_ASKED="1").values


def test_names_of_the_readme_are_aliases(load):
    ladder = load("event.processor.max.retries: 5\nevents: {backlog: {check: {limit: 10}}}").ladder()
    assert (ladder.max_retries, ladder.limit_ms) == (5, 600_000)
    assert load(system=["event.processor.initial.delay=0.5"]).ladder().initial_delay_ms == 500


def test_all_keys_that_count_reach_the_node(load):
    text = """
    events:
      processor: {max.retries: 2, initial.delay: 3, backoff.multiplier: 4}
      receiver.lapse.offset.minutes: 5
      schedule.scan.interval.minutes: 6
      keep.days: 0.5
      scheduler.enabled: false
    buckets.backlog.check.limit: 7
    """
    settings = load(text)
    assert settings.node_fields() == {
        "ladder": Ladder(max_retries=2, initial_delay_ms=3000, multiplier=4.0, round_ms=360_000, limit_ms=420_000),
        "keep_ms": 43_200_000, "lapse_ms": 300_000,
    }  # fmt: skip
    assert settings.is_node is False
    assert settings.ignored_lines() == []


def test_maps_are_merged_and_lists_united(load):
    first = "kafka: {producer.config: {acks: '1', retries: 3}}\nmodules: [{name: a}, {name: b}]"
    second = "kafka.producer.config.acks: all\nmodules: [{name: b}, {name: c}]"
    values = load(first, second).values
    assert values["kafka.producer.config.acks"] == "all"
    assert values["kafka.producer.config.retries"] == 3
    assert values["modules"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert merged({"a": [1, 2]}, {"a": [2, 3], "b": 1}) == {"a": [1, 2, 3], "b": 1}
    assert flattened({"a": {"b.c": {"d": 1}}, "e": {}}) == {"a.b.c.d": 1, "e": {}}


def test_references_are_replaced_from_start_then_environment_then_files(load):
    text = "app.server.port: ${my.port:-9000}\nx: ${my.port:-none}/${HOME_OF:-nowhere}\nlist: ['${y:-1}', 2]"
    assert load(text).port == 9000
    assert load(text).values["x"] == "none/nowhere"
    assert load(text).values["list"] == [1, 2]
    assert load(text + "\nmy.port: 9001").port == 9001
    assert load(text + "\nmy.port: 9001", **{"my.port": "9002"}).port == 9002
    assert load(text + "\nmy.port: 9001", system=["my.port=9003"], **{"my.port": "9002"}).port == 9003
    assert load("a: ${b}\nb: ${c}\nc: 5").values["a"] == 5
    with pytest.raises(BadArgument, match="no property with name: missing"):
        load("a: ${missing}")
    with pytest.raises(BadConfig, match="refers to itself"):
        load("a: ${b}\nb: ${a}")


def test_what_is_absent_or_null_is_said_as_bigben_says_it(load):
    with pytest.raises(BadArgument, match="no property with name: x"):
        load().get("x")
    with pytest.raises(BadArgument, match=r"property 'app\.server\.port' has a 'null' value"):
        load("app.server.port:").port  # noqa: B018
    assert load("x: 1").get("x") == 1


@pytest.mark.parametrize(
    "text",
    [
        "app.server.port: x", "app.server.port: 65536", "app.server.port: true", "app.server.port: 1.5",
        "events.processor.max.retries: -1", "events.schedule.scan.interval.minutes: 0", "num.instances: 0",
        "events.processor.backoff.multiplier: 0.5", "events.scheduler.enabled: maybe", "events.keep.days: [1]",
        "num.instances: 257", f"app.server.port: 1{'0' * 400}", "events.keep.days: .nan", "events.keep.days: .inf",
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(load, text):
    settings = load(text)
    with pytest.raises(BadConfig, match=text.partition(":")[0]):
        (settings.port, settings.instances, settings.is_node, settings.node_fields())


def test_files_that_are_none(load, tmp_path):
    with pytest.raises(PathMissing):
        Settings.loaded([str(tmp_path / "missing.yaml")], [], {})
    with pytest.raises(BadConfig, match="not YAML"):
        load("a: [")
    with pytest.raises(BadConfig, match="must be a map"):
        load("- a")
    with pytest.raises(BadConfig, match="KEY=VALUE"):
        load(system=["=1"])
    assert load("").values == DEFAULTS
    (tmp_path / "u.yaml").write_text("x: 1")
    assert Settings.loaded([f"uri://{tmp_path}/u.yaml"], [], {}).get("x") == 1


def test_keys_without_a_meaning_are_named_once(load):
    settings = load("hz.group: x\ncassandra: {keyspace: y}", "hz.group: z\nfoo.bar: 1", system=["app.server.port=1"])
    assert settings.ignored_lines() == [
        "Accepted for compatibility, ignored: cassandra.keyspace, hz.group.", "Unknown settings, ignored: foo.bar.",
    ]  # fmt: skip


def test_topics_of_kafka(load):
    text = """
    kafka.consumers:
      - {topics: "in, more", num.consumers: 2, max.poll.records: 100,
         config: {bootstrap.servers: "broker:9092", group.id: g, auto.offset.reset: earliest, ssl.ca.location: ca.pem}}
      - {topics: null, num.consumers: 8}
    """
    [inflow] = load(text).inflows()
    assert (inflow.topics, inflow.servers, inflow.group, inflow.consumers) == (("in", "more"), "broker:9092", "g", 2)
    assert inflow.settings == {"auto.offset.reset": "earliest", "ssl.ca.location": "ca.pem"}
    assert load(text, "kafka.module.enabled: false").inflows() == load().inflows() == []
    for wrong in ("kafka.consumers: x", "kafka.consumers: [{topics: a}]",
                  "kafka.consumers: [{topics: a, bootstrap.servers: b, num.consumers: 0}]",
                  "kafka.consumers: [{topics: a, bootstrap.servers: b, config: [c]}]",
                  "kafka.consumers: [{topics: a, bootstrap.servers: b, config: text}]"):  # fmt: skip
        with pytest.raises(BadConfig):
            load(wrong).inflows()


def test_what_deliveries_may_do(load):
    assert CourierOptions(**load().courier_fields()) == CourierOptions()
    text = f"""
    delivery:
      timeout.seconds: 2.5
      allowed: {{hosts: "api.example.com, *.hooks.example", ports: [80, "443"]}}
      allow.private: false
      processors: {{Mine: "{__name__}:Mine", com.example.Mine: "{__name__}:Mine"}}
    """
    settings = load(text)
    assert CourierOptions(**settings.courier_fields()) == CourierOptions(
        timeout_s=2.5, allowed_hosts=("api.example.com", "*.hooks.example"), allowed_ports=(80, 443),
        allow_private=False, processors={"Mine": Mine, "com.example.Mine": Mine},
    )  # fmt: skip
    assert settings.ignored_lines() == []
    assert load(DELIVERY_ALLOWED_HOSTS="a, b").courier_fields()["allowed_hosts"] == ("a", "b")


class Mine:
    """A processor."""


@pytest.mark.parametrize("text", [
    "delivery.timeout.seconds: 0", "delivery.timeout.seconds: x", "delivery.allowed.ports: [70000]",
    "delivery.allowed.ports: http", "delivery.allow.private: maybe", "delivery.processors.P: no_such_module:X",
    "delivery.processors.P: json:dumps", "delivery.processors.P: json", "delivery.processors.P: 5",
])  # fmt: skip
def test_deliveries_that_can_not_be_are_refused_by_name(load, text):
    with pytest.raises(BadConfig, match=text.partition(":")[0]):
        load(text).courier_fields()
