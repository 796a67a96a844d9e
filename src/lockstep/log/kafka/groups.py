"""Positions of groups as Kafka's own tools see them: offsets of lockstep to numbers of messages, and back."""

from __future__ import annotations

from lockstep.log.batch import peek
from lockstep.log.network.bundles import unbundle
from lockstep.log.network.driver import Topic


def number_of(topic: Topic, position: int, stream: str) -> int:
    """The message that a reader at a position needs next: one that it has read in part is still needed."""
    number, inside = divmod(position, topic.limits.stride)
    if not inside:
        return number
    for message in topic.fetch(number, 1):
        if message.number == number:
            last = unbundle(message.data, number * topic.limits.stride, stream)[-1]
            return number if position < last.base + peek(last.data)[0] else number + 1
    return number + 1


def position_of(topic: Topic, number: int) -> int:
    """The position of a reader that needs a message next."""
    return number * topic.limits.stride
