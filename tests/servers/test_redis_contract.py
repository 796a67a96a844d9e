"""The whole contract against a real Redis."""

from __future__ import annotations

import uuid

import pytest

from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import LogContract


class TestRedisContract(LogContract):
    @pytest.fixture
    def url(self, redis_server):
        return f"{redis_server.url}?prefix={uuid.uuid4().hex}"

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
