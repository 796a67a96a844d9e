"""The bus on a real Hazelcast runs the suite that every bus runs; see lockstep.testing.contract."""

from __future__ import annotations

import uuid

import pytest

import lockstep.log.hazelcast.driver  # noqa: F401 - the client warns when it is imported, and this keeps that quiet
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import LogContract


class TestHazelcastContract(LogContract):
    @pytest.fixture
    def url(self, hazelcast_server):
        return f"{hazelcast_server.url}?prefix=t{uuid.uuid4().hex}."

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
