"""The whole contract of the port, on a real RabbitMQ."""

from __future__ import annotations

import pytest

from lockstep.errors import AppendTooLarge
from lockstep.testing.contract import LogContract, Producer
from lockstep.testing.contract_case import KEEP_ALL, values
from lockstep.testing.contract_read import RoundTripContract
from servers.rabbitmq_worlds import opened, own_url, rabbitmq_with
from servers.server_fixtures import started

MEBIBYTE = 1 << 20


@pytest.fixture
def url(rabbitmq_server):
    return own_url(rabbitmq_server)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    server = started(rabbitmq_with("stream.frame_max = 16777216\n"), tmp_path_factory.mktemp("rabbitmq"))
    yield server
    server.destroy()


class Rabbitmq:
    @pytest.fixture
    def bus(self, url):
        bus = opened(url)
        yield bus
        bus.close()

    @pytest.fixture
    def same_bus(self, url, bus):
        other = opened(url)
        yield other
        other.close()


class TestRabbitmqContract(Rabbitmq, LogContract):
    @pytest.mark.parametrize("value", [b"", b"\x00", bytes(range(256)), b"x" * (MEBIBYTE // 5)])
    def test_values(self, log, producer, value):
        """As in the suite, but four values together fit into a frame of a server that nobody has configured."""
        log.append([producer.batch(value), producer.batch(value, value, value)])
        assert values(log) == [value] * 4


class TestRabbitmqWithLargeFrames(Rabbitmq, RoundTripContract):
    @pytest.fixture
    def url(self, large):
        return own_url(large)

    def test_an_append_of_some_megabytes_is_one_message(self, bus, producer):
        log = bus.create("orders", KEEP_ALL)
        large = b"x" * (12 * MEBIBYTE)
        log.append([producer.batch(large)])
        assert values(log) == [large]

    def test_the_limit_is_what_the_server_says(self, bus, producer):
        log = bus.create("orders", KEEP_ALL)
        assert 15 * MEBIBYTE < log.limits.append_bytes < 16 * MEBIBYTE
        with pytest.raises(AppendTooLarge, match=r"stream\.frame_max"):
            log.append([Producer().batch(b"x" * 16 * MEBIBYTE)])
        assert values(log) == []
