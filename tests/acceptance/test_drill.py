"""The drill itself, with stand-ins for engines: it proves what it says, finds what is broken, and cleans up."""

from __future__ import annotations

from pathlib import Path

import pytest
from drill_engine import stand_in_command

from lockstep.drill import processes
from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.processes import members
from lockstep.drill.report import difference_lines
from lockstep.drill.run import run_drill
from lockstep.errors import TimedOut, Unavailable
from lockstep.streams.client import connect

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(300)]
EVENTS, RATE = 6_000, 3_000.0


class Heard:
    """Listens, and keeps what was said."""

    def __init__(self, interrupt_at: str | None = None) -> None:
        self.said: list[str] = []
        self._interrupt_at = interrupt_at

    def say(self, text: str) -> None:
        self.said.append(text)
        if self._interrupt_at is not None and self._interrupt_at in text:
            raise KeyboardInterrupt

    def show(self, text: str) -> None:
        assert "events" in text


@pytest.fixture(autouse=True)
def sessions(monkeypatch):
    """Whatever is started must be gone at the end."""
    started: list[int] = []
    before = processes.Child.__init__

    def remember(self, *arguments, **options) -> None:
        before(self, *arguments, **options)
        started.append(self.pid)

    monkeypatch.setattr(processes.Child, "__init__", remember)
    yield started
    assert [member for pid in started for member in members(pid)] == []


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


def drill(cache, telling=None, **options):
    wanted = DrillOptions(**{"events": EVENTS, "rate": RATE, **options})
    return run_drill(wanted, telling or Heard(), cache=cache, command=stand_in_command)


@pytest.mark.parametrize(
    ("faults", "takeovers", "started"),
    [("kill,kill", 2, 6), ("standby,publisher,subscriber", 0, 7), pytest.param("both", 2, 8, marks=pytest.mark.soak)],
)
def test_the_file_is_the_same_whatever_is_killed(cache, faults, takeovers, started, sessions):
    telling, kinds = Heard(), [Fault(name) for name in faults.split(",")]
    result = drill(cache, telling, fault=kinds[0], then=tuple(kinds[1:]))
    assert result.anomalies == ()
    tree = result.tree()
    assert (tree["identical"], tree["lost"], tree["doubled"], tree["blocks"]) == (True, 0, 0, EVENTS)
    assert tree["counts"]["e1"] == tree["counts"]["e2"] == tree["counts"]["expected"]
    done = ["both", "both"] if faults == "both" else faults.split(",")
    assert [found["kind"] for found in tree["faults"]] == done
    assert tree["takeovers"] == takeovers
    if faults == "kill,kill":
        one, other = tree["faults"]
        assert (one["engine"], other["engine"]) == (other["by"], one["by"])  # there and back
        assert 0 < one["last"] < other["last"] < EVENTS
        assert all(found["silence_s"] > 0 for found in tree["faults"])
    assert len(sessions) == started
    assert any("killed with -9" in text for text in telling.said)


@pytest.mark.soak
def test_one_engine_of_three_and_blocks_of_seven_events(cache):
    result = drill(cache, engines=3, block=7, repeat=1)
    assert result.anomalies == ()
    assert result.tree()["blocks"] == -(-EVENTS // 7)
    assert set(result.tree()["counts"]) == {"expected", "e1", "e2", "e3"}


def test_a_wrong_price_is_found_and_shown(cache, monkeypatch):
    monkeypatch.setenv("STAND_IN", "wrong")
    result = drill(cache, repeat=1)
    assert not result.ok
    assert result.tree()["identical"] is False
    head, expected, found = difference_lines(result)
    assert "The first difference is in line" in head
    assert expected.split()[1] != found.split()[1]
    assert expected.split(",")[2] == found.split(",")[2]  # the same symbol


@pytest.mark.soak
def test_a_wrong_count_is_found(cache, monkeypatch):
    monkeypatch.setenv("STAND_IN", "miscount")
    result = drill(cache, fault=Fault.NONE)
    assert len(result.anomalies) == 2
    assert "rows in trades/Aggregate24HR, not" in result.anomalies[0]


def test_a_missing_block_ends_the_drill_with_the_words_of_the_subscriber(cache, monkeypatch):
    monkeypatch.setenv("STAND_IN", "gap")
    with pytest.raises(Unavailable, match=r"subscriber \(pid \d+\) ended with code 1(.|\n)*OUTPUT_BROKEN"):
        drill(cache, repeat=1)


@pytest.mark.soak
def test_an_engine_that_never_takes_over_is_not_waited_for_for_ever(cache, monkeypatch):
    monkeypatch.setenv("STAND_IN", "mute")
    monkeypatch.setattr("lockstep.drill.faults.QUIET_S_MAX", 2.0)
    with pytest.raises(TimedOut, match="takeover") as failed:
        drill(cache, repeat=1)
    assert "e2, last words" in failed.value.__notes__[0]


def test_an_engine_that_can_not_start_is_shown_with_its_words(cache):
    def broken(name, **given):
        return [*stand_in_command(name, **given)[:2], "--nonsense"]

    with pytest.raises(Unavailable, match=r"An engine ended by itself: e\d(.|\n)*usage"):
        run_drill(DrillOptions(events=100), Heard(), cache=cache, command=broken)


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("Starting", marks=pytest.mark.soak),
        "the events begin",
        "killed with -9",
        pytest.param("in step", marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_at_any_moment_leaves_nothing_behind(cache, moment, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        drill(cache, Heard(interrupt_at=moment))
    assert list(tmp_path.iterdir()) == []


def test_a_bus_of_somebody_elses_is_left_as_it_was(cache, tmp_path, sessions):
    url, telling = f"lmdb:{tmp_path / 'bus'}", Heard()
    with connect(url) as client:
        client.create("orders")
        assert drill(cache, telling, bus=url, fault=Fault.NONE, events=1_500).ok
        assert client.bus.names() == ["orders"]
    assert len(sessions) == 4
    assert not any("killed with -9" in text for text in telling.said)


def test_what_is_to_be_kept_is_kept(cache, tmp_path):
    assert drill(cache, keep=tmp_path / "kept", fault=Fault.NONE, events=1_500).ok
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"bus", "trades.yaml", "e1.log", "e2.log", "aggregate24hr.csv", "arrivals"} <= kept
