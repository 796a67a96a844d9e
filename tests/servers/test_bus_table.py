"""The table in docs/reference/buses.md is what the buses say of themselves, each over a real server."""

from __future__ import annotations

import uuid
from pathlib import Path

from lockstep.log.table import capabilities
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "buses.md"


def test_the_table_says_what_buses_say(kafka_server, rabbitmq_server, redis_server, hazelcast_server, tmp_path):
    prefix = f"prefix=t{uuid.uuid4().hex[:12]}."
    servers = {"kafka": kafka_server, "rabbitmq": rabbitmq_server, "redis": redis_server, "hazelcast": hazelcast_server}
    urls = {"memory": "memory:", "lmdb": f"lmdb:{tmp_path / 'bus'}"}
    urls |= {name: f"{each.url}{'&' if '?' in each.url else '?'}{prefix}" for name, each in servers.items()}
    buses = {name: open_bus(url, ThreadRuntime()) for name, url in urls.items()}
    try:
        assert capabilities(buses) in PAGE.read_text()
    finally:
        for bus in buses.values():
            bus.close()
