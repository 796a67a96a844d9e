"""Kafka passes the suite of every bus."""

from __future__ import annotations

import uuid

import pytest

from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import LogContract


class TestKafkaContract(LogContract):
    @pytest.fixture
    def url(self, kafka_server):
        return f"{kafka_server.url}?prefix=t{uuid.uuid4().hex[:12]}."

    @pytest.fixture
    def bus(self, url):
        bus = open_bus(url, ThreadRuntime())
        yield bus
        bus.close()

    @pytest.fixture
    def same_bus(self, url, bus):
        other = open_bus(url, ThreadRuntime())
        yield other
        other.close()
