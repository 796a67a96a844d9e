"""Hosts whose clocks differ, on real servers: no writer's clock decides what is too old."""

from __future__ import annotations

import uuid

import pytest

from lockstep.log.config import StreamConfig
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer, values

HOUR_S = 3600.0
APPENDS = 210
"""More than a writer makes before it gives room back to the server."""


class SkewedRuntime(ThreadRuntime):
    """A host whose wall clock is ahead."""

    def __init__(self, ahead_s):
        super().__init__()
        self._ahead_ns = round(ahead_s * 1e9)

    def wall_ns(self):
        return super().wall_ns() + self._ahead_ns


@pytest.mark.parametrize("kind", ["kafka", "rabbitmq", "redis", "hazelcast"])
@pytest.mark.parametrize("ahead_s", [2 * HOUR_S, -2 * HOUR_S])
def test_a_host_with_a_wrong_clock_hides_nothing_from_others(request, kind, ahead_s):
    server = request.getfixturevalue(f"{kind}_server")
    url = f"{server.url}{'&' if '?' in server.url else '?'}prefix=t{uuid.uuid4().hex[:12]}."
    bus, wrong = open_bus(url, ThreadRuntime()), open_bus(url, SkewedRuntime(ahead_s))
    try:
        log = bus.create("orders", StreamConfig(capacity=None, retain_age_s=HOUR_S))
        log.append([Producer("a").batch(b"first")])
        other, producer = wrong.open("orders"), Producer("b")
        for _ in range(APPENDS):
            other.append([producer.batch(b"wrong")])
        log.append([Producer("c").batch(b"last")])
        assert values(bus.open("orders")) == [b"first", *[b"wrong"] * APPENDS, b"last"]
    finally:
        bus.close()
        wrong.close()
