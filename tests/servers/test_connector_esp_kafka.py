"""dfesp_fs_adapter -l kafka with a real Kafka: kafka.cfg, the cluster's streams, and publishers that stand in."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "connectors"))
from connector_worlds import World, csv, model

from lockstep.esp import fs_adapter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG = """kafka
{{
hostport = "{servers}"
globalconfig = "enable.sparse.connections=false"
}}
sas
{{
hotfailover = true
failovergroup = "feed"
numbufferedmsgs = "100"
}}
"""


def test_a_file_goes_to_the_cluster_of_the_url(kafka_server, tmp_path, monkeypatch):
    # Given a project of a cluster on Kafka, and a client's file beside the data
    cluster = f"esp{uuid4().hex[:8]}"
    servers = kafka_server.url.removeprefix("kafka://").partition("?")[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kafka.cfg").write_text(CONFIG.format(servers=servers))
    (tmp_path / "in.csv").write_text(csv(*range(1, 51)))
    world = World(f"kafka://{servers}", model(), f"{cluster}_5555")
    world.state()
    # When the same file is published twice, as by one that takes over
    for _ in range(2):
        words = ["-k", "pub", "-h", f"dfESP://{cluster}:5555/desk/q/Trades", "-f", "in.csv", "-t", "csv", "-l", "kafka"]
        assert fs_adapter.main(words) == 0
    # Then it is there once, in the topic that the document names
    assert world.taken() == list(range(1, 51))
    assert f"{cluster}_5555.desk.q.Trades.I" in world.bus.names()
    world.close()
