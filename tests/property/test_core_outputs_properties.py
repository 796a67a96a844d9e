"""Out streams against an oracle that keeps every piece and forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core import outlet
from lockstep.core.outlet import Broken, Follow, Lead, Offer, OutletState, Published, Send, Tick
from lockstep.core.outputs import Barrier, Cut, OutState, Verdict, fold

calm = settings(deadline=None, max_examples=150)  # a busy machine is no failure
Piece = tuple[int, int]  # block, number within the block


@dataclass(frozen=True)
class Stream:
    """Everything that will ever be on a stream, in order: every piece of every block."""

    pieces: tuple[Piece, ...]
    last_of: dict[int, int]

    def state(self, count: int) -> OutState:
        """How far the stream is out when `count` pieces are."""
        if count == 0:
            return OutState()
        block, piece = self.pieces[count - 1]
        return OutState(block, 0 if piece == self.last_of[block] else piece + 1)

    def count(self, state: OutState) -> int:
        return next(n for n in range(len(self.pieces) + 1) if self.state(n) == state)

    def ends(self, start: int) -> list[int]:
        """Where a frame that begins at piece `start` may end: one piece of a long block, or whole blocks."""
        found = []
        for end in range(start + 1, len(self.pieces) + 1):
            found.append(end)
            block, piece = self.pieces[end - 1]
            if piece != self.last_of[block]:  # it goes on in the next frame
                break
        return found

    def cut(self, start: int, end: int) -> Cut:
        (first, part), (last, piece) = self.pieces[start], self.pieces[end - 1]
        earlier = [block for block, _ in self.pieces if block < first]
        return Cut(first, last, earlier[-1] if earlier else 0, part, piece != self.last_of[last])


@st.composite
def streams(draw) -> Stream:
    pieces: list[Piece] = []
    last_of, block = {}, 0
    for _ in range(draw(st.integers(1, 8))):
        block += draw(st.sampled_from([1, 1, 1, 2, 5]))  # empty blocks are not written
        last_of[block] = draw(st.sampled_from([0, 0, 0, 1, 3]))
        pieces += [(block, piece) for piece in range(last_of[block] + 1)]
    return Stream(tuple(pieces), last_of)


def draw_cut(data, stream: Stream) -> tuple[int, int]:
    start = data.draw(st.integers(0, len(stream.pieces) - 1))
    return start, data.draw(st.sampled_from(stream.ends(start)))


@calm
@given(streams(), st.data())
def test_the_fold_knows_what_the_oracle_knows(stream, data) -> None:
    state, got = OutState(), 0
    for _ in range(data.draw(st.integers(1, 30))):
        # Given any frame: a copy, one that overlaps, one after a hole, or the next one
        near = data.draw(st.booleans()) and got < len(stream.pieces)
        start = got if near else draw_cut(data, stream)[0]
        end = data.draw(st.sampled_from(stream.ends(start)))
        # When it is folded
        state, verdict = fold(state, stream.cut(start, end))
        # Then the verdict is what a look at all pieces says, and so is the state
        if end <= got:
            assert verdict is Verdict.COPY
        elif start > got:
            assert verdict is Verdict.GAP
        else:
            assert verdict is (Verdict.NEW if start == got else Verdict.PARTLY)
            got = end
        assert state == stream.state(got)


@calm
@given(streams(), streams(), st.data())
def test_a_frame_of_another_history_never_moves_the_state_to_where_it_can_not_be(stream, other, data) -> None:
    # Given a stream that is out somewhere, and a frame of a stream that differs
    state = stream.state(data.draw(st.integers(0, len(stream.pieces))))
    cut = other.cut(*draw_cut(data, other))
    # When the frame counts
    after, verdict = fold(state, cut)
    # Then it names what is out: as the block before it, or as a block within it
    if verdict in (Verdict.NEW, Verdict.PARTLY):
        assert state.last == cut.previous or cut.first <= state.last <= cut.last
    else:
        assert after == state


class Engine:
    """A leader that publishes all pieces, cut as it likes, over a log that loses and doubles."""

    def __init__(self, name: str, stream: Stream) -> None:
        self.stream = stream
        self.state = OutletState(name, OutState())
        self.read = 0

    def step(self, event: outlet.Event) -> list[outlet.Action]:
        self.state, actions = outlet.step(self.state, event)
        return actions

    def offer(self, data) -> list[outlet.Action]:
        at = self.stream.count(self.state.out)
        if at == len(self.stream.pieces) or not outlet.ready(self.state):
            return []
        start = at
        if not self.state.out.part and at and data.draw(st.booleans()):  # a block that is out, once more
            start = data.draw(st.integers(0, at - 1))
        return self.step(Offer(self.stream.cut(start, data.draw(st.sampled_from(self.stream.ends(start))))))


def out(stream: Stream, log: list[Cut | Barrier]) -> int:
    """How many pieces a reader has that keeps them all."""
    got = 0
    for record in log:
        if isinstance(record, Cut):
            start = stream.count(outlet_before(record))
            end = next(n for n in stream.ends(start) if stream.cut(start, n) == record)
            got = max(got, end) if start <= got else got
    return got


def outlet_before(cut: Cut) -> OutState:
    return OutState(cut.first, cut.part) if cut.part else OutState(cut.previous)


@calm
@given(streams(), st.data())
def test_leaders_that_come_and_go_publish_every_piece_once(stream, data) -> None:
    log: list[Cut | Barrier] = []
    engines, epoch, now = [Engine("e1", stream), Engine("e2", stream)], 0, 0.0
    for _ in range(data.draw(st.integers(5, 40))):
        engine, now = data.draw(st.sampled_from(engines)), now + 0.3
        what = data.draw(st.sampled_from(["lead", "follow", "read", "read", "offer", "offer", "tick", "tick"]))
        actions: list[outlet.Action] = []
        if what == "lead":  # the other one may not know it yet
            epoch += 1
            actions = engine.step(Lead(epoch))
        elif what == "follow":
            actions = engine.step(Follow())
        elif what == "offer":
            actions = engine.offer(data)
        elif what == "tick":
            actions = engine.step(Tick(now))
        elif engine.read < len(log):
            engine.read += 1
            actions = engine.step(outlet.Observed(log[engine.read - 1]))
        for action in actions:
            assert not isinstance(action, Broken)
            if isinstance(action, Send):
                log += [action.record] * data.draw(st.sampled_from([0, 1, 1, 2]))
            if isinstance(action, Published):  # whoever says so has read it
                assert fold(stream.state(out(stream, log)), action.cut)[1] is Verdict.COPY
    # When one leads undisturbed
    engine = engines[0]
    engine.step(Lead(epoch + 1))
    for _ in range(4 * len(stream.pieces) + 4):
        now += 1.0
        log += [a.record for a in [*engine.offer(data), *engine.step(Tick(now))] if isinstance(a, Send)]
        for record in log[engine.read :]:
            engine.step(outlet.Observed(record))
        engine.read = len(log)
    # Then everything is out, in order
    assert out(stream, log) == len(stream.pieces)
    assert engine.state.out == stream.state(len(stream.pieces))
