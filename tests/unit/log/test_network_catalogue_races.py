"""The catalogue as a topic: what others write at the same moment is taken as it comes."""

from __future__ import annotations

import json

from lockstep.log.config import StreamConfig
from lockstep.log.network.catalogue import TopicCatalogue
from lockstep.log.network.wire import Ends, Known, Message


class SharedTopic:
    """A topic to which another process writes right after each message of ours."""

    def __init__(self, *others):
        self._others, self._messages = list(others), []

    def send(self, messages):
        self._messages += messages
        if self._others:
            self._messages.append(json.dumps(self._others.pop(0)).encode())

    def fetch(self, number, max_bytes):
        return [Message(at, data) for at, data in enumerate(self._messages)][number:]

    def ends(self):
        return Ends(0, len(self._messages))


def test_a_stream_that_another_process_deletes_while_it_is_made_was_made():
    catalogue = TopicCatalogue(SharedTopic({"remove": "orders", "identity": "one"}))
    made = catalogue.add(Known("orders", "one", StreamConfig()))
    assert (made.name, made.identity) == ("orders", "one")
    assert catalogue.find("orders") is None
