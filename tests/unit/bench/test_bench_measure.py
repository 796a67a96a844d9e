from __future__ import annotations

import io
import math

import pytest

from lockstep.bench.rows import Progress, Row, shown
from lockstep.bench.stream_costs import flatness
from lockstep.bench.streams import BenchOptions, Board
from lockstep.drill import measure


def test_a_percentile_is_a_value_that_was_measured():
    values = [float(value) for value in range(1, 1001)]

    assert measure.percentile(values, 50) == 500.0
    assert measure.percentile(values, 99) == 990.0
    assert measure.percentile(values, 99.9) == 999.0
    assert measure.percentile(values, 100) == 1000.0


def test_a_percentile_does_not_depend_on_the_order():
    assert measure.percentile([3.0, 1.0, 2.0], 50) == 2.0


def test_of_one_value_every_percentile_is_that_value_and_of_none_there_is_none():
    assert measure.percentiles([7.0]) == {"p50": 7.0, "p99": 7.0, "p999": 7.0}
    assert math.isnan(measure.percentile([], 50))


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_percentage_out_of_range_is_refused(percent):
    with pytest.raises(ValueError, match="percent"):
        measure.percentile([1.0], percent)


def test_machine_facts_name_no_user_and_no_folder():
    assert set(measure.machine()) == {"cores", "processor", "memory_gb", "kernel", "python", "load_before", "date"}


def test_own_work_is_not_counted_as_that_of_others(monkeypatch):
    # Given a machine that was busy for 3 s within 2 s, of which 1 s was this process
    clock, busy, own = iter([0.0, 2.0, 2.1]), iter([100.0, 103.0, 103.1]), iter([5.0, 6.0, 6.0])
    monkeypatch.setattr(measure.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(measure, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(measure, "_own_s", lambda: next(own))

    others = measure.Others()

    # Then others had one core; and a moment too short to tell changes nothing
    assert others.cores() == 1.0
    assert others.cores() == 1.0


@pytest.mark.parametrize(
    ("value", "text"), [(11_234_567, "11.2 M"), (357_126, "357 k"), (0.388, "0.388"), (1234, "1234"), (0, "0")]
)
def test_numbers_are_shown_with_the_digits_that_matter(value, text):
    assert shown(value) == text


def test_a_row_knows_whether_its_target_is_met():
    fast = Row(name="x", value=11e6, unit="/s", limit=10e6, details={})
    late = Row(name="x", value=1.6, unit="s", limit=1.5, at_least=False, details={})
    open_ended = Row(name="x", value=1.6, unit="s", details={})

    assert (fast.verdict, fast.target, fast.measured) == ("ok", "≥ 10 M /s", "11 M /s")
    assert (late.verdict, late.target) == ("miss", "≤ 1.5 s")
    assert (open_ended.verdict, open_ended.target) == ("-", "-")


def test_flatness_is_the_worst_by_the_best():
    assert flatness([{"us": 2.0}, {"us": 5.0}, {"us": 4.0}], "us") == 2.5


@pytest.mark.parametrize(
    "wrong", [{"size": 10}, {"publishers": 0}, {"publishers": 257}, {"subscribers": 0}, {"seconds": 0}]
)
def test_options_that_cant_be_run_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        BenchOptions(**wrong)


def test_the_capacity_holds_more_than_publishers_can_be_ahead():
    options = BenchOptions(publishers=8)

    assert options.capacity > options.ahead_records + options.publishers * options.run_records


def test_the_board_tells_who_is_behind_and_when_all_is_there():
    board = Board(2, 2)
    board.sent[0], board.sent[1] = 30, 20
    board.received[0], board.received[1] = 50, 10

    assert board.ahead() == 40
    assert not board.is_complete(50)
    board.done[0] = board.done[1] = 1
    assert board.is_complete(50)
    assert not board.is_complete(49)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere():
    terminal, file = Terminal(), io.StringIO()
    for out in (terminal, file):
        progress = Progress(out)
        progress.say("begins")
        progress.show(5, 10)
        progress.end()

    assert "[" + "#" * 20 + "." * 20 + "] 5/10" in terminal.getvalue()
    assert file.getvalue() == "begins\n5/10 published\n"


def test_progress_does_not_flood():
    out = io.StringIO()
    progress = Progress(out)
    for done in range(1000):
        progress.show(done, 1000)

    assert out.getvalue().count("\n") == 1
