"""The window of producers against a set of everything ever seen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.producers import Window, admit

calm = settings(deadline=None, max_examples=150)  # a busy machine is no failure
producers = st.sampled_from([b"p", b"q", b"r"])


@st.composite
def batches_with_copies(draw) -> list[tuple[bytes, int, int]]:
    """Contiguous batches of several producers, with earlier ones sent again at any later time."""
    sent: list[tuple[bytes, int, int]] = []
    following = {b"p": 0, b"q": 0, b"r": 0}
    for _ in range(draw(st.integers(0, 25))):
        if sent and draw(st.booleans()):
            sent.append(draw(st.sampled_from(sent)))
        else:
            producer, count = draw(producers), draw(st.integers(1, 4))
            sent.append((producer, following[producer], count))
            following[producer] += count
    return sent


@calm
@given(batches_with_copies())
def test_every_number_is_admitted_once_and_in_order(batches) -> None:
    window, seen, admitted = Window(), set(), []
    for producer, first, count in batches:
        window, front = admit(window, producer, first, count)
        # What the window drops is exactly what a set has seen
        numbers = [(producer, number) for number in range(first, first + count)]
        assert [number in seen for number in numbers] == [True] * front + [False] * (count - front)
        seen.update(numbers)
        admitted += numbers[front:]
    for producer in (b"p", b"q", b"r"):
        assert [number for name, number in admitted if name == producer] == sorted(n for p, n in seen if p == producer)


@calm
@given(batches_with_copies(), st.integers(1, 2))
def test_a_window_never_outgrows_its_limit_and_keeps_the_most_recent(batches, limit) -> None:
    window, recent = Window(limit=limit), []
    for producer, first, count in batches:
        window, front = admit(window, producer, first, count)
        if front < count:
            recent = [*(name for name in recent if name != producer), producer][-limit:]
    assert list(window.last) == recent


@calm
@given(producers, st.integers(0, 50), st.integers(0, 60), st.integers(0, 20))
def test_one_batch_against_counting_one_by_one(producer, last, first, count) -> None:
    window, front = admit(Window({producer: last}), producer, first, count)
    assert front == sum(number <= last for number in range(first, first + count))
    assert window.last[producer] == (last if front == count else first + count - 1)
