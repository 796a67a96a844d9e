"""One leader at a time says what the input is; a newer one takes over, and nothing of the older one counts."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
from run_worlds import frame, put, recent_graph, sums_graph, two_sources_graph

from lockstep.core.sequence import Entry, Mark
from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.errors import InputChanged, LogShortened, LogTooShort, SequenceBroken
from lockstep.engine.model.graph import Graph
from lockstep.engine.runtime.sequence import sequencer as sequencer_module
from lockstep.engine.runtime.sequence.entries import Decision, SequencePosition, counted, encode
from lockstep.engine.runtime.sequence.model_statement import inputs_of
from lockstep.engine.runtime.sequence.reader import RangeReader, values_between
from lockstep.engine.runtime.sequence.sequencer import Sequencer, SequencerOptions
from lockstep.engine.runtime.sequence.streams import ProjectStreams, sources
from lockstep.log.memory import MemoryBroker
from lockstep.testing.virtual import VirtualRuntime

STREAMS = ProjectStreams(cluster="c", project="p")


class Lab:
    """The logs of a project, and as many leaders as a test likes."""

    def __init__(self, graph: Graph | None = None) -> None:
        self.graph = graph or sums_graph()
        self.runtime = VirtualRuntime()
        self.grid = MemoryBroker()
        self.bus = self.grid.bus(self.runtime)
        STREAMS.create(self.bus, self.graph, frozenset())
        self.inputs = [self.bus.open(STREAMS.input(node)) for node in sources(self.graph)]
        self.log = self.bus.open(STREAMS.sequence)
        self.reader = RangeReader(self.bus, self.graph, STREAMS)

    def sequencer(self, position: SequencePosition | None = None, tick_us: int | None = None, **options) -> Sequencer:
        start = position or self.reader.start()
        inputs = replace(inputs_of(self.bus, STREAMS, self.graph), tick_us=tick_us)
        sequencer = Sequencer(self.log, inputs, self.runtime, SequencerOptions(**options), start)
        sequencer.lead()
        return sequencer

    def decisions(self) -> list[Decision]:
        found = [Decision.of(entry) for _, entry in counted(self.log, self.reader.start().sequence)]
        return [replace(decision, crc=None) for decision in found]


def settle(sequencer: Sequencer) -> None:
    while not sequencer.is_caught_up():
        sequencer.step()


def test_nothing_is_decided_before_the_own_mark_was_read_back():
    lab = Lab()
    put(lab.inputs[0], frame([1]))
    sequencer = lab.sequencer()
    assert not sequencer.leads
    sequencer.step()
    assert sequencer.leads
    assert sequencer.position.number == 0
    settle(sequencer)
    assert lab.decisions() == [Decision({"q/in": 1}, 1, 1)]


@pytest.mark.parametrize("asked", ["nudge", "tick"])
def test_what_was_asked_for_before_leading_does_not_undo_what_the_old_leader_decided_meanwhile(asked):
    # Given a leader, and a successor that is asked for an entry before its mark is on the log
    lab = Lab()
    old = lab.sequencer()
    settle(old)
    new = lab.sequencer()
    new.nudge() if asked == "nudge" else new.tick(5)
    # When the old one decides once more, and then the new one takes over
    put(lab.inputs[0], frame([1, 2]))
    settle(old)
    settle(new)
    # Then readers agree with it, and the input is there once
    assert lab.reader.read(lab.reader.start(), new.position.number).end == new.position
    assert new.position.events == 2


def test_an_input_that_is_always_full_does_not_shut_out_another():
    lab = Lab(two_sources_graph())
    for _ in range(4):
        put(lab.inputs[0], frame([1, 2]))
    put(lab.inputs[1], frame([3]))
    sequencer = lab.sequencer(entry_events=2)
    while not lab.decisions():
        sequencer.step()
    assert lab.decisions()[0].ends == {"q/left": 1, "q/right": 1}


def test_a_second_one_takes_over_and_the_first_one_stops_without_an_entry_that_counts():
    # Given a leader, and another process that takes the project over
    lab = Lab()
    put(lab.inputs[0], frame([1]))
    first = lab.sequencer()
    settle(first)
    second = lab.sequencer()
    second.step()
    assert second.leads
    # When the first one has more to do
    put(lab.inputs[0], frame([2]))
    first.step()
    assert first.is_deposed
    # Then it stops, does not come back, and the second one decides what is left
    ends = lab.log.bounds().next
    assert not first.step()
    assert not first.leads
    assert lab.log.bounds().next == ends
    settle(second)
    assert lab.decisions() == [Decision({"q/in": 1}, 1, 1), Decision({"q/in": 2}, 2, 2)]
    assert second.position.sequence.epoch == 2


def test_an_entry_written_behind_the_mark_of_a_newer_leader_does_not_count():
    # Given a first leader that has proposed, and a second whose mark lands before the entry does
    lab = Lab()
    first = lab.sequencer()
    settle(first)
    lab.sequencer().step()
    put(lab.inputs[0], frame([1]))
    first._propose()
    first._send()
    # Then the entry is on the log, and counts for nobody
    assert lab.decisions() == []
    first.step()
    assert first.is_deposed


def test_of_two_marks_with_one_epoch_the_first_owns_it():
    lab = Lab()
    one, two = lab.sequencer(), lab.sequencer()
    one.step()
    two.step()
    assert two.is_deposed
    assert one.step() is False
    assert one.leads


def test_a_mark_of_an_older_epoch_changes_nothing():
    lab = Lab()
    one = lab.sequencer()
    one.step()
    put(lab.log, encode(Mark(1, "late")))
    one.step()
    assert one.leads


def test_a_new_leader_counts_what_the_old_one_decided_whether_from_the_start_or_from_a_beat():
    lab = Lab(two_sources_graph())
    old = lab.sequencer(entry_events=2)
    middle = old.position
    for round_ in range(4):
        for log in lab.inputs:
            put(log, frame([round_, 100 + round_], client=log.name.encode().ljust(16)[:16], first_id=1 + 2 * round_))
        settle(old)
        old.tick(round_)
        settle(old)
        middle = old.position if round_ == 1 else middle
    # A position travels in a beat as plain values
    beat = SequencePosition.of(middle.tree())
    assert 0 < beat.number < old.position.number
    by_fold, by_beat = lab.sequencer(), lab.sequencer(beat)
    read = lab.reader.read(lab.reader.start(), old.position.number).end
    assert by_fold.position == by_beat.position == read == old.position
    by_beat.step()
    assert by_beat.leads


def test_a_tick_is_lagging_if_its_entry_leaves_input_that_was_there():
    lab = Lab()
    sequencer = lab.sequencer(tick_us=1_000_000, entry_events=4)
    put(lab.inputs[0], *(frame([n]) for n in range(10)))
    for _ in range(20):
        sequencer.step()
        lab.runtime.advance(1.0)
    ticks = [(decision.ends["q/in"], decision.lagging) for decision in lab.decisions() if decision.tick_us]
    assert ticks[:3] == [(4, True), (8, True), (10, None)]
    assert {lagging for end, lagging in ticks if end == 10} == {None}
    # Whoever reads it later sees the same ticks lag
    span = lab.reader.read(lab.reader.start(), sequencer.position.number).span
    assert len(span.lagging) == 2
    assert span.lagging == {block for block, _ in span.ticks[:2]}


def test_a_tick_can_not_speak_for_now_if_the_inputs_were_read_long_ago(monkeypatch):
    lab = Lab()
    sequencer = lab.sequencer(tick_us=1_000_000)
    put(lab.inputs[0], frame([1]))
    slow = sequencer_module.take_frames

    def paused(*args):
        lab.runtime.advance(1.5)
        return slow(*args)

    monkeypatch.setattr(sequencer_module, "take_frames", paused)
    for _ in range(3):
        sequencer.step()
    assert next(decision.lagging for decision in lab.decisions()) is True


def test_a_tick_of_an_older_version_does_not_lag():
    decision = Decision({"q/in": 1}, 2, 1, 5)
    assert '"lagging"' not in decision.body()
    assert Decision.of(Entry(1, "x", 1, "", decision.body())) == decision
    told = Decision({"q/in": 1}, 2, 1, 5, lagging=True)
    assert Decision.of(Entry(1, "x", 1, "", told.body())) == told


def test_ticks_are_numbered_like_blocks_and_come_behind_the_events_of_their_entry():
    lab = Lab()
    sequencer = lab.sequencer(tick_us=1_000_000)
    put(lab.inputs[0], frame([1, 2]))
    for _ in range(4):
        sequencer.step()
    span = lab.reader.read(lab.reader.start(), sequencer.position.number).span
    assert [block for block, _ in span.ticks] == [3]
    assert span.last == sequencer.position.block == 3
    # And the next one comes a heartbeat later, not earlier
    sequencer.step()
    assert sequencer.position.block == 3
    lab.runtime.advance(1.0)
    sequencer.step()
    assert sequencer.position.block == 4


def test_a_nudge_is_an_entry_without_blocks():
    lab = Lab()
    put(lab.inputs[0], frame([1, 2]))
    sequencer = lab.sequencer()
    settle(sequencer)
    before = sequencer.position
    sequencer.nudge()
    settle(sequencer)
    assert sequencer.position.number == before.number + 1
    assert (sequencer.position.block, sequencer.position.ends) == (before.block, before.ends)
    assert lab.reader.read(before, sequencer.position.number).end == sequencer.position


def test_without_a_heartbeat_the_clock_stands_still():
    lab = Lab()
    sequencer = lab.sequencer()
    lab.runtime.advance(60.0)
    sequencer.step()
    sequencer.step()
    assert lab.decisions() == []


def test_time_never_goes_back_even_if_the_machine_says_so():
    lab = Lab(recent_graph())
    sequencer = lab.sequencer(tick_us=1_000_000)
    for _ in range(3):
        sequencer.step()
        sequencer.step()
        lab.runtime.advance(1.0)
        lab.runtime.jump_wall(-3600)
    evaluator, position = Evaluator(lab.graph, wanted=frozenset()), lab.reader.start()
    times = []
    for number in range(1, sequencer.position.number + 1):
        taken = lab.reader.read(position, number)
        evaluator.evaluate(taken.span)
        times.append(evaluator.clock_us)
        position = taken.end
    asked = [time for decision in lab.decisions() if (time := decision.tick_us) is not None]
    assert len(asked) == 3
    assert asked == sorted(set(asked))
    assert times == asked


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [
        ([2, 2, 2, 2], 4, [4, 8]),
        ([2, 2, 2], 5, [4, 6]),
        ([9, 1], 3, [9, 10]),
        ([1, 9, 1], 3, [1, 10, 11]),
    ],
    ids=["filled", "not split", "a larger frame alone", "a larger frame in the middle"],
)
def test_an_entry_takes_whole_frames_up_to_its_bound_and_at_least_one(sizes, room, expected):
    lab = Lab()
    put(lab.inputs[0], *[frame(range(size)) for size in sizes])
    settle(lab.sequencer(entry_events=room))
    assert [decision.events for decision in lab.decisions()] == expected


def test_input_that_is_gone_before_it_was_counted_is_an_error_with_the_range():
    lab = Lab()
    put(lab.inputs[0], frame([1]), frame([2]))
    settle(lab.sequencer())
    lab.inputs[0].trim(1)
    with pytest.raises(LogTooShort, match="from offset 0 on, but it begins at 1"):
        lab.sequencer()


def test_an_input_that_is_not_what_it_was_when_it_was_decided_on_is_seen():
    # Given an entry that was made for other bytes of the same shape
    lab = Lab()
    put(lab.inputs[0], frame([1]))
    leader = lab.sequencer()
    settle(leader)
    other = Lab()
    put(other.inputs[0], frame([2]))
    for _, value in values_between(lab.log, 0, lab.log.bounds().next):
        put(other.log, value)
    # Then nobody computes with it
    with pytest.raises(InputChanged, match="block 1"):
        other.reader.read(other.reader.start(), 1)


def test_a_request_that_was_decided_once_is_not_decided_again():
    lab = Lab()
    leader = lab.sequencer()
    settle(leader)
    for _ in range(2):
        leader.ask(Decision(reset=True, request="r1"))
    settle(leader)
    assert [decision.request for decision in lab.decisions()] == ["r1"]
    assert [decision.reset for _, decision in leader.take_control_entries()] == [True]


def test_a_deposed_leader_leads_again_only_when_told_and_in_a_newer_epoch():
    lab = Lab()
    first = lab.sequencer()
    settle(first)
    second = lab.sequencer()
    second.step()
    first.step()
    assert first.is_deposed
    first.lead()
    first.step()
    assert first.leads
    assert first.epoch == 3


def test_a_follower_that_read_entries_which_the_log_lost_says_so():
    # Given a follower that has read two entries, and a log that loses the second
    lab = Lab()
    put(lab.inputs[0], frame([1]))
    old = lab.sequencer()
    settle(old)
    before = deepcopy(lab.grid.store._tables)
    put(lab.inputs[0], frame([2]))
    settle(old)
    follower = lab.sequencer()
    follower.follow()
    lab.grid.store._tables = before
    # Then it is an error if the log stays shorter than what was read
    follower.step()
    lab.runtime.advance(6.0)
    with pytest.raises(LogShortened, match=r"c\.p\.S ends at offset 2, but it was read up to offset 3 .*block 2"):
        follower.step()


def test_entries_that_do_not_follow_what_was_read_are_an_error():
    # Given the same, where another leader writes in place of what was lost
    lab = Lab()
    put(lab.inputs[0], frame([1]))
    old = lab.sequencer()
    settle(old)
    before = deepcopy(lab.grid.store._tables)
    put(lab.inputs[0], frame([2]))
    settle(old)
    lab.grid.store._tables = before
    put(lab.inputs[0], frame([3]), frame([4]))
    settle(lab.sequencer(entry_events=1))
    with pytest.raises(SequenceBroken, match="lost records"):
        old.step()
