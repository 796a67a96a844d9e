"""Other monitors beside ours: what they are configured with, and what is counted of their notifications."""

from __future__ import annotations

import pytest

from lockstep.bench.monitor import peer_settings, peer_work, peers
from lockstep.bench.monitor.table import NO_PEERS, PARTS, MonitorBench


class Fake(peers.Peer):
    """Tells what fails at once, but for one that it loses and one that it repeats after a kill."""

    settle_s = 0.2

    def __init__(self, services):
        self.services, self.processes, self.lines, self.kills = services, [], [], 0

    def start(self):
        pass

    def kill(self):
        self.kills += 1

    def hand_in(self, results):
        said = [each.output for each in results if each.status]
        if self.kills == 1:
            said = [*said[1:], said[-1]]
            self.kills += 1
        self.lines += said

    def told(self):
        return [*self.lines]


@pytest.fixture
def fake():
    return Fake(peer_work.services_of(8))


def test_missed_and_duplicated_notifications_are_counted(fake):
    found = peer_work._kills(fake, fake.services, 4, 2, lambda _: None)
    assert found == {"changes": 8, "missed": 1, "duplicated": 1}


def test_the_rate_is_until_the_last_one_is_told(fake):
    found = peer_work._rate(fake)
    assert found["results"] == 20 * 320
    assert fake.told() == ["marker"]
    assert found["per_s"] > 0


def test_each_service_has_a_definition(tmp_path):
    services = peer_work.services_of(2)
    assert len({name for _, name in services}) == 80
    assert peer_settings.nagios_objects(tmp_path, services).count("define service{") == 80
    assert peer_settings.icinga(tmp_path, services).count("object Service ") == 80


def test_without_packages_a_peer_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(peers.PeerMissing, match="Nagios 4 can't be had here"):
        peers.unpacked(peers.NAGIOS, {"XDG_CACHE_HOME": str(tmp_path)})
    assert [*tmp_path.rglob("*")] == [tmp_path / "lockstep", tmp_path / "lockstep" / "monitor-peers"]


def test_they_are_measured_on_request_only():
    assert "peers" in PARTS
    assert "peers" not in MonitorBench().parts
    assert "peers" in MonitorBench(peers=True).parts
    assert "--peers" in NO_PEERS
