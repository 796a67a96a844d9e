"""What a cron's row says of ticks that fired, against a set of them; and rows in columns."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.agenda import Form
from lockstep.core.ticks import Misfire, Overlap, Policy
from lockstep.cron import parse
from lockstep.schedule import cron_ticks
from lockstep.schedule.cron_columns import CronColumns, Crons
from lockstep.schedule.cron_ticks import SPANS_MAX, after_ticks, decided, has_fired
from lockstep.schedule.rows import CronRow

START = 1_700_000_000
EACH_TEN = CronRow(tenant="t", id="c", type="QUARTZ", expression="0/10 * * * * ?", since=START)
NEAR_S = 60


@settings(max_examples=100)
@given(st.data())
def test_no_tick_fires_twice_however_the_clock_jumps(data) -> None:
    # Given a cron whose owner's clock runs, jumps ahead, and is set back to any second
    policy = Policy(misfire=data.draw(st.sampled_from(list(Misfire))), grace_s=data.draw(st.integers(0, 100)))
    row, mark, second = replace(EACH_TEN, policy=policy), START, START
    fired, skipped = list[int](), set[int]()
    for step in data.draw(st.lists(st.sampled_from([1, 7, 30, 500, 3000, -20, -400, -2500]), max_size=25)):
        second = max(second + step, START - 3000)
        if second < mark - NEAR_S:
            row, mark = cron_ticks.set_back(row, second), second
        if data.draw(st.integers(0, 9)) == 0:  # it is set up again
            row = replace(row, executed=None, fired=cron_ticks.closed(row))
        if second <= mark:
            continue
        for one in Crons([row]).due(mark, second)[1]:
            made = decided(row, one.seconds, second, one.seconds[-1])
            row = after_ticks(row, made, is_jump=second - mark > NEAR_S)
            fired += [decision.first for decision in made if decision.skipped is None]
            skipped |= {at for decision in made if decision.skipped for at in one.seconds
                        if decision.first <= at <= decision.last}  # fmt: skip
        mark = second
    # Then no tick fired twice, and the row knows all that fired
    assert len(set(fired)) == len(fired)
    assert all(has_fired(row, at) for at in fired)
    assert len(row.fired) <= 2 * SPANS_MAX + 1


def test_after_one_excursion_only_what_fired_counts_as_fired() -> None:
    # Given a cron that fired, and a clock that was a day ahead for half a minute
    row = replace(EACH_TEN, executed=(START + 100) * 1000)
    seconds = list(range(START + 110, START + 86_400, 10))
    assert parse(row.expression, row.type) is not None
    made = decided(row, seconds, seconds[-1], seconds[-1])
    row = after_ticks(row, made, is_jump=True)
    early = [decision.first for decision in made if decision.skipped is None]
    # Then what was skipped may fire later, and nothing else
    free = [at for at in seconds if not has_fired(row, at)]
    assert free == [at for at in seconds if at not in early]
    # And a span that is far away stays apart from others, however many there are
    for number in range(1, 30):
        row = replace(row, fired=cron_ticks.closed(row), executed=(START + 100 + 20 * number) * 1000)
        row = replace(row, fired=(*row.fired, START + 100 + 20 * number))
    assert not has_fired(row, START + 40_000)
    assert all(has_fired(row, at) for at in early)


texts = st.text(min_size=1, max_size=5)
rows = st.builds(
    CronRow, tenant=texts, id=texts, type=st.sampled_from(["UNIX", "QUARTZ"]), expression=texts,
    tz=st.sampled_from(["UTC", "Europe/Berlin"]), dst=st.sampled_from(["once", "literal"]),
    policy=st.builds(Policy, misfire=st.sampled_from(list(Misfire)), grace_s=st.integers(0, 9),
                     overlap=st.sampled_from(list(Overlap))),
    jitter_s=st.integers(0, 3), paused=st.booleans(), payload=st.none() | st.binary(max_size=3),
    form=st.sampled_from(list(Form)),
    log_granularity=st.sampled_from([None, "DAYS"]), retention=st.integers(0, 2),
    retention_units=st.sampled_from(["DAYS", "HOURS"]), since=st.integers(-5, 2**40), updated=st.integers(0, 2**50),
    executed=st.none() | st.integers(-5, 2**50), caught_up=st.integers(0, 2), running=st.none() | texts,
    fired=st.sampled_from([(), (1,), (1, 2, 3)]),
).map(lambda row: row if row.payload is not None else replace(row, form=Form.TEXT))  # fmt: skip


@settings(max_examples=30)
@given(st.lists(rows, max_size=4), st.data())
def test_columns_give_back_the_rows_that_were_put(given_rows, data) -> None:
    columns, model = CronColumns(), list[CronRow]()
    for row in given_rows:
        slot = data.draw(st.integers(0, len(model)))
        columns.put(slot, row)
        model[slot : slot + 1] = [row]
    assert [columns.row(slot) for slot in range(len(model))] == model
    for slot, row in enumerate(model):
        assert columns.since(slot) == row.since
        assert columns.ticks_like(slot, row)
        assert not columns.ticks_like(slot, replace(row, tz="UTC" if row.tz != "UTC" else "Europe/Berlin"))
