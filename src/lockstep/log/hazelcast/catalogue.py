"""The catalogue as a map on the cluster: stream name -> JSON text, changed only by compare-and-set.

    {"identity": "...", "config": {...}, "head": 0, "going": false}

An entry is written after the ring of its stream was marked, and a stream that is being deleted is `going` before its
ring is destroyed. So an entry without a ring means that the records were lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from hazelcast.future import Future

from lockstep.errors import ServerUnreachable
from lockstep.log.config import StreamConfig
from lockstep.log.hazelcast.client import ClusterClient, Unanswered
from lockstep.log.hazelcast.errors import NOT_DONE
from lockstep.log.network.driver import Catalogue, StreamEntry

T = TypeVar("T")
TRIES = 50
"""So often a change is tried that others change under our hands."""


class MapCatalogue(Catalogue):
    """`mark` makes the ring of a stream, `unmark` takes it away."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        mark: Callable[[StreamEntry], None],
        unmark: Callable[[StreamEntry], None],
    ) -> None:
        self._client, self._name = client, name
        self._mark, self._unmark = mark, unmark
        self._map: Any = client.guarded(lambda: client.library.get_map(name), name)

    def find(self, name: str) -> StreamEntry | None:
        text = self._ask(lambda: self._map.get(name))
        return None if text is None else _known(name, text)

    def all(self) -> list[StreamEntry]:
        found = [_known(name, text) for name, text in self._ask(self._map.entry_set)]
        return [known for known in found if known is not None]

    def add(self, known: StreamEntry) -> StreamEntry:
        """The ring first, then the entry."""
        self._mark(known)
        for _ in range(TRIES):
            found = self._tell(lambda: self._map.put_if_absent(known.name, _text(known)))
            if found is None:
                return known
            first = _known(known.name, found)
            if first is not None:
                self._unmark(known)
                return first
            if self._replace(known.name, found, _text(known)):  # somebody died while deleting the one before
                return known
        raise self._contended(known.name)

    def leave(self, known: StreamEntry) -> None:
        """Note that a stream is being deleted: from now on nobody finds it."""
        self._change(known, lambda entry: {**entry, "going": True})

    def remove(self, known: StreamEntry) -> bool:
        for _ in range(TRIES):
            text = self._ask(lambda: self._map.get(known.name))
            if text is None or json.loads(text)["identity"] != known.identity:
                return False
            if self._tell(lambda text=text: self._map.remove_if_same(known.name, text)):  # type: ignore[misc]
                return True
        raise self._contended(known.name)

    def trim(self, known: StreamEntry, head: int) -> None:
        self._change(known, lambda entry: {**entry, "head": max(head, entry["head"])})

    def alter(self, known: StreamEntry, config: StreamConfig) -> None:
        self._change(known, lambda entry: {**entry, "config": config.to_dict()})

    def verify(self) -> None:
        """Nothing to do: nothing is remembered here, every question goes to the map."""

    def close(self) -> None:
        """Nothing of its own."""

    def _change(self, known: StreamEntry, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change an entry, if it is still the one."""
        for _ in range(TRIES):
            text = self._ask(lambda: self._map.get(known.name))
            entry = json.loads(text) if text is not None else None
            if entry is None or entry["identity"] != known.identity:
                return
            changed = change(entry)
            if changed == entry or self._replace(known.name, text, json.dumps(changed)):
                return
        raise self._contended(known.name)

    def _replace(self, name: str, old: str, new: str) -> bool:
        return bool(self._tell(lambda: self._map.replace_if_same(name, old, new)))

    def _ask(self, call: Callable[[], Future[Any]]) -> Any:
        return self._client.ask(call, self._name)

    def _tell(self, call: Callable[[], Future[Any]]) -> Any:
        """Callers read the map again before the next try, so an unknown outcome is only an error."""
        try:
            return self._client.tell(call, self._name, NOT_DONE)
        except Unanswered as error:
            raise ServerUnreachable(server=self._client.server, reason=f"{error} (a change of {self._name})") from error

    def _contended(self, name: str) -> ServerUnreachable:
        return ServerUnreachable(
            server=self._client.server, reason=f"the entry of {name} changed {TRIES} times meanwhile"
        )


def _text(known: StreamEntry) -> str:
    entry = {"identity": known.identity, "config": known.config.to_dict(), "head": known.head, "going": False}
    return json.dumps(entry)


def _known(name: str, text: str) -> StreamEntry | None:
    entry = json.loads(text)
    if entry["going"]:
        return None
    return StreamEntry(name, entry["identity"], StreamConfig.from_dict(entry["config"]), entry["head"])
