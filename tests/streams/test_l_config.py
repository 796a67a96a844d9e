"""Part L: a stream's configuration is stored with it, and everybody who opens it gets the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import in_parallel, publish

from lockstep import GroupOptions, PublisherOptions, StreamConfig, SubscriberOptions
from lockstep.errors import BadConfig, BadName, ConfigMismatch, StreamNotFound, TimedOut

OTHER = {
    "capacity": 7,
    "retain_bytes": 1000,
    "retain_age_s": 60.0,
    "protect": True,
    "protect_bytes": 5000,
    "max_record_bytes": 100,
    "compression": "lz4",
    "shards": 2,
    "sync_replicas": 2,
    "async_replicas": 1,
}
DIFFERENT = {name: value for name, value in OTHER.items() if not name.endswith("sync_replicas")}


@pytest.mark.parametrize("field", DIFFERENT)
def test_l1_another_configuration_is_refused_by_name(world, bus, field):
    # Given a stream with settings
    stored = StreamConfig(capacity=99)
    bus.create("orders", stored)
    other = replace(stored, **{field: OTHER[field]})
    # When somebody opens it with another configuration, in any way
    for attempt in (
        lambda node: node.create("orders", other),
        lambda node: node.publisher("orders", config=other),
        lambda node: node.subscriber("orders", config=other),
    ):
        with pytest.raises(ConfigMismatch, match=f"'orders' has {field} = "):
            attempt(world.node())
    # Then it is what it was, and the same configuration is welcome
    assert bus.config("orders") == stored
    assert bus.create("orders", StreamConfig(capacity=99)) == stored
    assert bus.create("orders", replace(stored, sync_replicas=1)) == stored, "copies wanted change nothing in a stream"
    assert bus.create("orders") == stored, "who gives none gets the stored one"


def test_l1_a_stream_that_a_reader_made_first_takes_the_settings_of_the_producer(world, bus):
    with bus.subscriber("orders"), bus.subscriber("sharded", config=StreamConfig(shards=2)):
        producer = world.node()
        producer.publisher("orders", config=StreamConfig(capacity=7, max_record_bytes=1000)).close()
        producer.create("sharded", StreamConfig(shards=2, capacity=7))
        assert world.node().config("orders") == StreamConfig(capacity=7, max_record_bytes=1000)
        assert world.node().config("sharded/1").capacity == 7
        with pytest.raises(ConfigMismatch, match="has capacity = 7, not 8"):
            producer.create("orders", StreamConfig(capacity=8))
        with pytest.raises(ConfigMismatch, match=r"shards = 1, not 4.*can't be altered"):
            producer.create("orders", StreamConfig(shards=4))


def test_l1_a_stream_can_be_altered_and_every_process_follows(world, bus):
    bus.create("orders", StreamConfig(capacity=None))
    with bus.publisher("orders") as publisher:
        publisher.publish_many([b"x"] * 10).wait(10)
        assert world.node().alter("orders", capacity=3).capacity == 3
        assert world.node().config("orders").capacity == 3
        if bus.url.startswith("redis"):  # its handles look once a second
            world.runtime.waiter().wait(1.1)
        publisher.publish(b"y").result(10)
    assert len(take_all(bus, "orders")) == 3
    with pytest.raises(BadConfig, match=r"shards = 2 .*'orders' was created with 1"):
        bus.alter("orders", shards=2)
    with pytest.raises(BadConfig, match="did you mean retain_age_s"):
        bus.alter("orders", retain_age=5)
    with pytest.raises(StreamNotFound):
        bus.alter("payments", capacity=3)


def take_all(bus, stream):
    with bus.subscriber(stream, initial="earliest") as subscriber:
        return list(subscriber.records(idle_s=0.05))


@pytest.mark.real_servers
def test_l1_of_two_who_make_a_stream_at_once_one_decides(threads):
    configs, refused = [StreamConfig(capacity=number) for number in (1, 2, 3)], []

    def make(config):
        try:
            threads.node().create("orders", config)
        except ConfigMismatch:
            refused.append(config)

    in_parallel(*[lambda config=config: make(config) for config in configs])
    assert len(refused) == 2
    assert threads.node().config("orders") not in refused


def test_l2_a_stream_is_opened_as_it_was_made(world, bus):
    config = StreamConfig(capacity=7, compression="zstd")
    bus.create("orders", config)
    assert world.node().config("orders") == config
    publish(world.node(), "orders", *[b"x"] * 20)
    assert bus.bounds("orders").count == 7


def test_l2_a_missing_stream_is_made_with_the_configuration_given(bus):
    bus.publisher("orders", config=StreamConfig(capacity=7))
    assert bus.config("orders").capacity == 7
    with pytest.raises(StreamNotFound, match="payments"):
        bus.publisher("payments", create=False)
    with pytest.raises(StreamNotFound):
        bus.config("payments")


def test_l2_one_can_wait_for_somebody_else_to_make_it(threads):
    waiting, found = threads.node(), []
    in_parallel(
        lambda: found.append(waiting.wait_for("orders", timeout=20)),
        lambda: threads.node().create("orders", StreamConfig(capacity=7)),
    )
    assert found == [StreamConfig(capacity=7)]


def test_l2_waiting_has_an_end(virtual):
    with pytest.raises(TimedOut, match="'orders'"):
        virtual.node().wait_for("orders", timeout=5.0)
    assert virtual.runtime.monotonic() == pytest.approx(5.0, abs=0.1)


@pytest.mark.real_servers
def test_l2_streams_are_listed_and_deleted(world, bus):
    bus.create("orders", StreamConfig(shards=2))
    bus.create("payments")
    with bus.subscriber("payments", group="g"):
        assert bus.streams() == ["orders", "payments"], "neither shards nor groups are streams"
    bus.delete("orders")
    assert world.node().streams() == ["payments"]
    with pytest.raises(StreamNotFound):
        bus.delete("orders")
    with pytest.raises(BadName):
        bus.create("no such/name")


@pytest.mark.parametrize("field", OTHER)
def test_l3_every_setting_survives_plain_data_files_and_variables(tmp_path, field):
    config = StreamConfig(**{field: OTHER[field]})
    assert StreamConfig.from_dict(config.to_dict()) == config
    text = OTHER[field] if isinstance(OTHER[field], str) else str(OTHER[field]).lower()
    quoted = f'"{text}"' if isinstance(OTHER[field], str) else text
    lines = {"toml": f"{field} = {quoted}", "yaml": f"{field}: {quoted}", "json": f'{{"{field}": {quoted}}}'}
    for kind, line in lines.items():
        (tmp_path / f"config.{kind}").write_text(line)
        assert StreamConfig.from_file(tmp_path / f"config.{kind}") == config
    assert StreamConfig.from_env({f"LOCKSTEP_STREAM_{field.upper()}": text, "PATH": "/"}) == config
    assert f"{field}={OTHER[field]!r}" in repr(config)


@pytest.mark.parametrize(
    "settings", [{"capacity": 0}, {"shards": 0}, {"compression": "rar"}, {"size": 1}, {"capacity": "many"}]
)
def test_l3_nonsense_is_refused_by_name(settings):
    with pytest.raises(BadConfig, match=next(iter(settings))):
        StreamConfig.from_dict(settings)


@pytest.mark.parametrize("kind", [PublisherOptions, SubscriberOptions, GroupOptions])
def test_options_show_what_they_are_and_can_t_be_changed(kind):
    options = kind()
    for name in kind.__dataclass_fields__:
        assert f"{name}=" in repr(options)
        with pytest.raises(AttributeError):
            setattr(options, name, 1)
