"""What a drill makes of what it saw."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from lockstep.cli.drill import DRILL, run
from lockstep.cli.output import Output
from lockstep.cli.parser import build, parse
from lockstep.drill import report
from lockstep.drill import run as drill_run
from lockstep.drill.arrivals import Arrival, Injected, Takeover, takeover
from lockstep.drill.check import Difference
from lockstep.drill.options import DrillOptions, Fault
from lockstep.drill.result import Measured, evaluate
from lockstep.drill.run import give_out
from lockstep.engine.data.models import DOCUMENT

ROWS = {"trades/Source": 100, "trades/Sum": 7}
BEGIN = 1000.0


def note(seconds: float, first: int, last: int) -> Arrival:
    return Arrival(BEGIN + seconds, first, last, last - first + 1, last, 0, 0)


def killed(*, at: float = 2.0, kind: Fault = Fault.KILL, taken: tuple[Takeover, ...] = ()) -> Injected:
    return Injected(kind, BEGIN + at, "e1", 40, 40, list(taken), settled_at=BEGIN + 9.0)


def took(at: float = 2.8, last: int = 45) -> Takeover:
    return Takeover(BEGIN + at, "e2", 2, last, 60, 0.25)


def measured(**changes) -> Measured:
    """A kill at 40 of 100 blocks; 45 were out, five of them arrived after it."""
    fault = killed(taken=(took(),))
    whole = Measured(
        options=DrillOptions(events=100, repeat=1, rate=10.0),
        began_at=BEGIN,
        ended_at=BEGIN + 10.0,
        arrivals=[note(1.0, 1, 40), note(2.1, 41, 45), note(2.9, 46, 60), note(10.0, 61, 100)],
        faults=[fault],
        takeovers=fault.takeovers,
        expected=ROWS,
        counts={"e1": ROWS, "e2": ROWS},
        buffer_peak=20,
        difference=None,
        size=5_000,
    )
    return replace(whole, **changes)


def test_all_is_well():
    found = evaluate(measured())
    assert found.ok
    tree = json.loads(json.dumps(found.tree()))
    assert tree["identical"] is True
    assert tree["silence_s"] == {"p50": 0.9, "p99": 0.9, "max": 0.9}  # not 0.1: that was sent before the kill
    assert (tree["lost"], tree["doubled"], tree["takeovers"], tree["false_takeovers"]) == (0, 0, 1, 0)
    assert (tree["events"], tree["blocks"], tree["rate"], tree["seconds"], tree["drain_s"]) == (
        100,
        100,
        10,
        10.0,
        0.25,
    )
    assert tree["counts"] == {name: {"Source": 100, "Sum": 7} for name in ("expected", "e1", "e2")}
    assert tree["faults"] == [
        {
            "kind": "kill", "at": 2.0, "events": 40, "engine": "e1", "by": "e2", "last": 45, "current": 60,
            "silence_s": 0.9, "drained_s": 0.25, "in_step_s": None, "stopped_again": 0,
        }
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"difference": Difference(7, "a", "b")}, "differs from that of an undisturbed run in line 7"),
        ({"arrivals": [note(1.0, 1, 40), note(2.9, 46, 100)]}, "5 blocks lost"),
        ({"arrivals": [note(1.0, 1, 40), note(2.9, 40, 100)]}, "1 blocks doubled"),
        ({"arrivals": [note(1.0, 2, 40), note(1.0, 1, 1), note(2.9, 41, 100)]}, "1 blocks out of order"),
        ({"counts": {"e1": ROWS, "e2": {**ROWS, "trades/Sum": 6}}}, "e2 has 6 rows in trades/Sum, not 7"),
        ({"faults": [killed()], "takeovers": []}, "no engine took over after fault 1"),
        ({"faults": [], "takeovers": []}, "1 faults could not be done"),
    ],
)
def test_what_is_not_as_it_must_be_is_named(changes, words):
    found = evaluate(measured(**changes))
    assert not found.ok
    assert any(words in anomaly for anomaly in found.anomalies), found.anomalies
    assert words in report.verdict(found)
    assert words in report.summary("kill", found)


def test_a_million_trades_must_have_the_counts_of_the_document():
    wrong = {**DOCUMENT, "trades/Aggregate24HR": 3_607}
    options = DrillOptions(events=1_000_000, fault=Fault.NONE)
    found = evaluate(
        measured(
            options=options,
            arrivals=[note(1.0, 1, 1_000_000)],
            faults=[],
            takeovers=[],
            expected=wrong,
            counts={"e1": wrong},
        )
    )
    assert found.anomalies == ("e1 has 3,607 rows in trades/Aggregate24HR, not 3,608",)


def test_a_takeover_after_the_death_of_a_standby_has_no_reason():
    fault = killed(kind=Fault.STANDBY, taken=(took(),))
    found = evaluate(measured(faults=[fault], takeovers=fault.takeovers))
    assert found.tree()["false_takeovers"] == 1
    assert found.tree()["unexplained"] == [{"at": 2.8, "engine": "e2", "epoch": 2}]
    assert found.faults[0].by is None
    assert report.facts(found)["takeovers"] == "1, 1 of them without a fault: e2 at 2.8 s"
    assert found.ok  # a waste of time, not of data


def test_a_second_takeover_after_a_kill_has_no_reason_either():
    taken = (took(), took(3.5, last=50))
    found = evaluate(measured(faults=[killed(taken=taken)], takeovers=taken))
    assert [item.at for item in found.unexplained] == [BEGIN + 3.5]
    assert found.faults[0].last == 45


def test_a_worker_may_cost_the_lead_but_need_not():
    for taken in ((), (took(),)):
        fault = killed(kind=Fault.WORKER, taken=taken)
        assert evaluate(measured(faults=[fault], takeovers=fault.takeovers)).ok


def test_the_silence_of_a_hand_over_is_the_longest_wait_near_it():
    fault = killed(kind=Fault.HANDOVER, taken=(took(),))
    notes = [note(1.0, 1, 40), note(2.1, 41, 45), note(2.4, 46, 60), note(2.5, 61, 100)]
    found = evaluate(measured(faults=[fault], takeovers=fault.takeovers, arrivals=notes))
    assert found.faults[0].silence_s == 0.3


def test_where_nothing_was_left_to_be_sent_there_is_no_silence_to_speak_of():
    fast = DrillOptions(events=100, repeat=None)
    notes = [note(1.0, 1, 45), note(9.5, 46, 100)]  # the publisher went on when all were in step, at 9
    found = evaluate(measured(options=fast, arrivals=notes, faults=[killed(taken=(took(),))] * 2))
    assert found.faults[0].silence_s is None
    assert found.silences() is None


def test_takeovers_belong_to_the_last_fault_before_them():
    faults = [killed(at=2.0), killed(at=5.0)]
    takeovers = [took(1.0), took(2.8), took(5.0), took(6.0)]
    give_out(takeovers, faults)
    assert [fault.takeovers for fault in faults] == [[takeovers[1]], [takeovers[2], takeovers[3]]]


def test_what_an_engine_says_of_its_takeover():
    line = {"event": "role", "role": "active", "epoch": 3, "last": 184211, "current": 259306, "drained_s": 0.41}
    assert takeover(5.0, "e2", line) == Takeover(5.0, "e2", 3, 184_211, 259_306, 0.41)
    assert takeover(5.0, "e2", {"role": "active", "last": None}) == Takeover(5.0, "e2", 0, 0, 0, 0.0)


def test_tables_for_people():
    found = evaluate(measured())
    assert report.fault_rows(found.faults) == [["kill", "e1", "40", "e2", "45", "60", "0.900", "0.250", None]]
    assert len(report.FAULT_HEADINGS) == 9
    assert report.count_headings(found) == ("window", "undisturbed", "e1", "e2")
    assert report.count_rows(found) == [["Source", "100", "100", "100"], ["Sum", "7", "7", "7"]]
    facts = report.facts(found)
    assert facts["identical"] == "yes, 5,000 bytes"
    assert facts["blocks"] == "0 lost, 0 duplicated, 0 out of order"
    assert facts["takeovers"] == "1, 0 of them without a fault"
    assert report.difference_lines(found) == []
    assert report.verdict(found).startswith("The subscriber's file is the same")


def test_the_first_difference_is_shown_with_both_lines():
    found = evaluate(measured(difference=Difference(1_234, "I,N,A", None)))
    assert report.difference_lines(found) == [
        "The first difference is in line 1,234:",
        "  expected  I,N,A",
        "  found     (the file has ended)",
    ]
    assert report.facts(found)["identical"] == "NO"


@pytest.mark.slow
def test_the_picture_is_a_png(tmp_path):
    from lockstep.drill.plot import can_draw, draw

    assert can_draw()
    draw(evaluate(measured()), tmp_path / "new" / "drill.png")
    assert (tmp_path / "new" / "drill.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("difference", "code"), [(None, 0), (Difference(7, "a", "b"), 1)])
def test_the_command_ends_with_one_if_anything_differs(monkeypatch, difference, code):
    found = evaluate(measured(difference=difference))
    monkeypatch.setattr(drill_run, "run_drill", lambda wanted, telling: found)
    out = io.BytesIO()
    assert run(parse(build((DRILL,), "1"), ["drill"]), Output(json=False, quiet=True, out=out)) == code
    shown = out.getvalue().decode()
    assert ("The first difference is in line 7" in shown) == (code == 1)
    assert ("FAILED: the file differs" in shown) == (code == 1)
