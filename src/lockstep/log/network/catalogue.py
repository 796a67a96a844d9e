"""The catalogue as a topic of its own: what was written first counts, and everybody reads the same.

Messages are JSON: {"add": name, "identity": ..., "config": {...}}, {"remove": name, "identity": ...} and
{"trim": name, "identity": ..., "head": offset}. What does not fit what came before it is passed over.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from lockstep.log.config import StreamConfig
from lockstep.log.network.wire import Known, Topic

READ_BYTES = 4 << 20


class TopicCatalogue:
    """See Catalogue."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._lock = threading.Lock()
        self._known: dict[str, Known] = {}
        self._next = 0

    def find(self, name: str) -> Known | None:
        """See Catalogue."""
        with self._lock:
            self._catch_up()
            return self._known.get(name)

    def all(self) -> list[Known]:
        """See Catalogue."""
        with self._lock:
            self._catch_up()
            return list(self._known.values())

    def add(self, known: Known) -> Known:
        """See Catalogue."""
        self._write({"add": known.name, "identity": known.identity, "config": known.config.to_dict()})
        with self._lock:
            if known.name not in self._known:  # the server lost entries, and the numbers of these come again
                self._known, self._next = {}, 0
                self._catch_up()
            return self._known[known.name]

    def remove(self, known: Known) -> bool:
        """See Catalogue."""
        with self._lock:
            self._catch_up()
            is_same = known.name in self._known and self._known[known.name].identity == known.identity
        if is_same:
            self._write({"remove": known.name, "identity": known.identity})
        return is_same

    def trim(self, known: Known, head: int) -> None:
        """See Catalogue."""
        self._write({"trim": known.name, "identity": known.identity, "head": head})

    def close(self) -> None:
        """See Catalogue."""
        with self._lock:
            self._topic.close()

    def _write(self, entry: Mapping[str, Any]) -> None:
        with self._lock:
            self._topic.send([json.dumps(entry).encode()])
            self._catch_up()

    def _catch_up(self) -> None:
        while messages := self._topic.fetch(self._next, READ_BYTES):
            for message in messages:
                fold(self._known, json.loads(message.data))
                self._next = message.number + 1


def fold(known: dict[str, Known], entry: Mapping[str, Any]) -> None:
    """Take one entry in."""
    if "add" in entry:
        name = entry["add"]
        known.setdefault(name, Known(name, entry["identity"], StreamConfig.from_dict(entry["config"])))
        return
    name = entry.get("remove", entry.get("trim"))
    found = known.get(name)
    if found is None or found.identity != entry["identity"]:
        return
    if "remove" in entry:
        del known[name]
    else:
        known[name] = found.trimmed(entry["head"])
