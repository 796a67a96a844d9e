"""What the fleet looks like now, folded from its changelog into LMDB; and orders, answered in it."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

import lmdb

from lockstep.engine.errors import HistoryTrimmed, PositionForeign
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Opcode
from lockstep.errors import LockstepError, StoreBroken, StoreFull, StreamNotFound
from lockstep.events.connection import ProjectEvents
from lockstep.events.subscriber import Subscription
from lockstep.monitor.transport.streams import MonitorStreams
from lockstep.runtime import Runtime, logger
from lockstep.streams.client import Lockstep

TRANSITION, RESULTS, RESULT, ANSWER = "transition", "results", "result", "answer"
HISTORY_S = 90 * 86_400
"""How long transitions are kept."""
ANSWERS_MAX = 10_000
MAP_BYTES = 8 << 30
"""Address space, not disk: the file grows as it is needed."""
_VERSION = b"1"
_PRUNED_AT_ONCE = 1_000
_KEY_MAX = 480
_PLACE = struct.Struct(">QI")
_POSITION, _VERSION_KEY, _ANSWERS = b"position", b"version", b"answers"


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row of the changelog; without a body the row is gone."""

    kind: str
    client: str
    name: str
    body: str | None
    place: tuple[int, int] = (0, 0)
    """Of a transition: its block, and its place among the transitions of the block."""

    @classmethod
    def of(cls, id_: str, kind: str, client: str, name: str, body: str | None) -> RowChange:
        """A change of the row with an id: KIND/CLIENT/NAME, or KIND/REST for rows that belong to no client."""
        if kind != TRANSITION:
            return cls(kind, client, name if client or name else id_.partition("/")[2], body)
        _, block, number = id_.rsplit("/", 2)
        return cls(kind, client, name, body, (int(block), int(number)))


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of rows, as JSON texts, and how many there are in all."""

    bodies: Sequence[bytes]
    total: int


class FleetView:
    """The rows that the fleet's changelog makes. One thread changes it, any number read it."""

    def __init__(self, folder: Path, *, map_bytes: int = MAP_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "view.lmdb"
        self.on_change: Callable[[Sequence[RowChange] | None], None] = _nobody
        """Called with changes after they are stored, by the thread that applies them; with None after a reset."""
        try:
            self._lmdb = self._opened(map_bytes)
        except lmdb.Error as error:
            raise StoreBroken(path=str(self._path), reason=str(error)) from error

    def _opened(self, map_bytes: int) -> lmdb.Environment:
        made = lmdb.open(
            str(self._path), subdir=False, map_size=map_bytes, max_dbs=4, max_readers=512, mode=0o600, metasync=False
        )
        self._rows, self._facts = made.open_db(b"rows"), made.open_db(b"facts")
        self._places, self._ids = made.open_db(b"places"), made.open_db(b"ids", integerkey=True)
        with made.begin(write=True) as changes:
            known = changes.get(_VERSION_KEY, db=self._facts)
            if known not in (None, _VERSION):  # of another version: it is made again
                for table in (self._rows, self._facts, self._places, self._ids):
                    changes.drop(table, delete=False)
            changes.put(_VERSION_KEY, _VERSION, db=self._facts)
        return made

    @property
    def position(self) -> str | None:
        """Where reading of the changelog goes on; None at its start."""
        with self._reading() as rows:
            found = rows.get(_POSITION, db=self._facts)
        return None if found is None else bytes(found).decode()

    def apply(self, changes: Iterable[RowChange], position: str, now_s: int) -> None:
        """Take changes and the position after them, all or nothing."""
        changes = list(changes)
        self._store(changes, position, now_s)
        self.on_change(changes)

    def _store(self, changes: Sequence[RowChange], position: str, now_s: int) -> None:
        try:
            with self._lmdb.begin(write=True) as writing:
                gathered = _Gathered(writing, self._rows, self._places)
                for change in changes:
                    self._take(gathered, change)
                gathered.store()
                self._prune(writing, now_s)
                writing.put(_POSITION, position.encode(), db=self._facts)
        except lmdb.MapFullError:
            raise StoreFull(path=str(self._path)) from None
        except lmdb.Error as error:
            raise StoreBroken(path=str(self._path), reason=str(error)) from error

    def reset(self) -> None:
        """Forget everything: the changelog is another one, or begins anew."""
        with self._lmdb.begin(write=True) as writing:
            for table in (self._rows, self._places, self._ids):
                writing.drop(table, delete=False)
            writing.delete(_POSITION, db=self._facts)
        self.on_change(None)

    def row(self, kind: str, client: str = "", name: str = "") -> Any | None:
        """A row's body as plain data; None if there is none."""
        with self._reading() as rows:
            found = rows.get(_key(kind, client, name), db=self._rows)
            return None if found is None else json.loads(bytes(found))

    def listing(self, kind: str, client: str | None = None, *, offset: int = 0, limit: int | None = None) -> Listing:
        """Rows of a kind, of all clients or of one, by client and name: `limit` of them from `offset` on."""
        bodies: list[bytes] = []
        total = 0
        for body in self._bodies(kind, client):
            if total >= offset and (limit is None or len(bodies) < limit):
                bodies.append(body)
            total += 1
        return Listing(bodies, total)

    def rows(self, kind: str, client: str | None = None) -> Iterator[Any]:
        """Rows of a kind as plain data."""
        return map(json.loads, self._bodies(kind, client))

    def clients(self, kind: str) -> list[str]:
        """The clients that have a row of a kind, in order; the rows themselves are not read."""
        prefix = _prefix(kind, None)
        found: dict[str, None] = {}
        with self._reading() as rows, rows.cursor(db=self._rows) as cursor:
            if cursor.set_range(prefix):
                for key in cursor.iternext(values=False):
                    if bytes(key[: len(prefix)]) != prefix:
                        break
                    found[bytes(key[len(prefix) :]).decode(errors="replace").partition("\0")[0]] = None
        return list(found)

    def transitions(self, client: str | None = None, check: str | None = None, *, limit: int = 100) -> list[Any]:
        """The newest transitions first: of the fleet, a client, or a check of a client."""
        prefix = _index_prefix(client, check)
        found: list[Any] = []
        with self._reading() as rows, rows.cursor(db=self._places) as index:
            more = (index.set_range(prefix + b"\xff" * (_PLACE.size + 1)) and index.prev()) or index.last()
            while more and len(found) < limit and bytes(index.key()).startswith(prefix):
                place = bytes(index.key())[-_PLACE.size :]
                body = rows.get(_transition_key(place), db=self._rows)
                if body is not None and len(index.key()) == len(prefix) + _PLACE.size:
                    found.append(json.loads(bytes(body)))
                more = index.prev()
        return found

    def transitions_after(self, place: tuple[int, int], limit: int) -> list[tuple[tuple[int, int], bytes]]:
        """The oldest transitions after a place, as places (block, number) with JSON texts."""
        prefix = _prefix(TRANSITION, None)
        start = prefix + _PLACE.pack(*place)
        found: list[tuple[tuple[int, int], bytes]] = []
        with self._reading() as rows, rows.cursor(db=self._rows) as cursor:
            more = cursor.set_range(start)
            while more and len(found) < limit and bytes(cursor.key()).startswith(prefix):
                key = bytes(cursor.key())
                if key != start:
                    block, number = _PLACE.unpack(key[-_PLACE.size :])
                    found.append(((block, number), bytes(cursor.value())))
                more = cursor.next()
        return found

    def last_place(self) -> tuple[int, int]:
        """The place of the newest transition; (0, 0) if there is none."""
        prefix = _prefix(TRANSITION, None)
        with self._reading() as rows, rows.cursor(db=self._rows) as cursor:
            more = cursor.prev() if cursor.set_range(prefix + b"\xff" * (_PLACE.size + 1)) else cursor.last()
            if not more or not bytes(cursor.key()).startswith(prefix):
                return 0, 0
            block, number = _PLACE.unpack(bytes(cursor.key())[-_PLACE.size :])
            return block, number

    def close(self) -> None:
        """Let the file go."""
        self._lmdb.close()

    def __enter__(self) -> FleetView:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _reading(self) -> Iterator[lmdb.Transaction]:
        with self._lmdb.begin(buffers=True) as reading:
            yield reading

    def _bodies(self, kind: str, client: str | None) -> Iterator[bytes]:
        prefix = _prefix(kind, client)
        with self._reading() as rows, rows.cursor(db=self._rows) as cursor:
            if not cursor.set_range(prefix):
                return
            for key, body in cursor:
                if bytes(key[: len(prefix)]) != prefix:
                    return
                yield bytes(body)

    def _take(self, gathered: _Gathered, change: RowChange) -> None:
        if change.kind == RESULTS:
            self._take_results(gathered, change)
        elif change.kind == TRANSITION:
            self._take_transition(gathered, change)
        else:
            body = None if change.body is None else change.body.encode()
            gathered.rows[_key(change.kind, change.client, change.name)] = body
            if change.kind == ANSWER and body is not None:
                self._note_answer(gathered, change.name)

    def _take_results(self, gathered: _Gathered, change: RowChange) -> None:
        """The checks of a client that changed within a tick; without a body all of its results are gone."""
        if change.body is None:
            gathered.delete_all(_prefix(RESULT, change.client))
            return
        begin = f'{{"client":{json.dumps(change.client)},"check":'
        for line in change.body.split("\n"):
            name, check = line.split("\t", 1)
            body = f"{begin}{check}}}".encode() if check else None
            gathered.rows[_key(RESULT, change.client, name)] = body

    def _take_transition(self, gathered: _Gathered, change: RowChange) -> None:
        assert change.body is not None, "transitions are never taken back"
        place = _PLACE.pack(*change.place)
        gathered.rows[_transition_key(place)] = change.body.encode()
        for prefix in _index_prefixes(change.client, change.name):
            gathered.places[prefix + place] = b""

    def _note_answer(self, gathered: _Gathered, order: str) -> None:
        """Answers are kept in a ring: the oldest goes when a new one comes."""
        writing = gathered.writing
        number = int(bytes(writing.get(_ANSWERS, b"0", db=self._facts)))
        slot = (number % ANSWERS_MAX).to_bytes(8, "little")
        before = writing.get(slot, db=self._ids)
        if before is not None and bytes(before).decode() != order:
            gathered.rows[_key(ANSWER, "", bytes(before).decode())] = None
        writing.put(slot, order.encode(), db=self._ids)
        writing.put(_ANSWERS, str(number + 1).encode(), db=self._facts)

    def _prune(self, writing: lmdb.Transaction, now_s: int) -> None:
        """Drop transitions older than `HISTORY_S`, some at a time."""
        prefix = _prefix(TRANSITION, None)
        with writing.cursor(db=self._rows) as cursor:
            more = cursor.set_range(prefix)
            for _ in range(_PRUNED_AT_ONCE):
                if not more or not bytes(cursor.key()).startswith(prefix):
                    return
                found = json.loads(bytes(cursor.value()))
                if found["time"] >= now_s - HISTORY_S:
                    return
                place = bytes(cursor.key())[-_PLACE.size :]
                for index in _index_prefixes(found["client"], found["check"]):
                    writing.delete(index + place, db=self._places)
                more = cursor.delete()


def _nobody(_changes: Sequence[RowChange] | None) -> None:
    """What is told to nobody."""


class _Gathered:
    """Changes of one transaction, stored together: of a key only the last one counts. None deletes."""

    def __init__(self, writing: lmdb.Transaction, rows: Any, places: Any) -> None:
        self.writing, self._rows, self._places = writing, rows, places
        self.rows: dict[bytes, bytes | None] = {}
        self.places: dict[bytes, bytes] = {}

    def delete_all(self, prefix: bytes) -> None:
        """Everything whose key begins so goes, also what came before in this transaction."""
        self.store()
        with self.writing.cursor(db=self._rows) as cursor:
            more = cursor.set_range(prefix)
            while more and bytes(cursor.key()).startswith(prefix):
                more = cursor.delete()

    def store(self) -> None:
        """In the order of the keys: neighbours share a page."""
        for key in [key for key, body in self.rows.items() if body is None]:
            self.writing.delete(key, db=self._rows)
        kept = {key: body for key, body in self.rows.items() if body is not None}
        for table, changes in ((self._rows, kept), (self._places, self.places)):
            with self.writing.cursor(db=table) as cursor:
                cursor.putmulti(sorted(changes.items()))
        self.rows.clear()
        self.places.clear()


def _prefix(kind: str, client: str | None) -> bytes:
    return f"{kind}\0".encode() if client is None else f"{kind}\0{client}\0".encode()


def _key(kind: str, client: str, name: str) -> bytes:
    """Where a row is; names that are too long for a key end with a digest."""
    key = f"{kind}\0{client}\0{name}".encode()
    return key if len(key) <= _KEY_MAX else key[: _KEY_MAX - 32] + blake2b(key, digest_size=16).hexdigest().encode()


def _transition_key(place: bytes) -> bytes:
    return _prefix(TRANSITION, None) + place


def _index_prefixes(client: str, check: str) -> tuple[bytes, bytes, bytes]:
    return _index_prefix(None, None), _index_prefix(client, None), _index_prefix(client, check)


def _index_prefix(client: str | None, check: str | None) -> bytes:
    """What index entries begin with: of all transitions, of a client's, of those of a check of a client."""
    if client is None:
        return b"a"
    if check is None:
        return b"c" + _digest(client)
    return b"k" + _digest(f"{client}\0{check}")


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


WINDOW, SETTINGS = "Fleet", "settings"
_WAIT_S, _AGAIN_S = 0.5, 1.0
_ROWS_AT_ONCE = 50_000


def row_changes(batch: EventBatch) -> Iterator[RowChange]:
    """The rows of a batch of the changelog."""
    ids, kinds, clients, names, bodies = (_texts(batch, each) for each in ("id", "kind", "client", "name", "body"))
    deletes = batch.opcode == int(Opcode.DELETE)
    for place, kind in enumerate(kinds):
        body = None if deletes[place] else bodies[place]
        yield RowChange.of(ids[place], kind, clients[place], names[place], body)


def _texts(batch: EventBatch, name: str) -> list[str]:
    column = batch.column(name)
    return [text or "" for text in column.to_pylist()]


class ChangelogReader:
    """Keeps a view in step with the changelog until it is closed."""

    def __init__(self, project: ProjectEvents, view: FleetView, runtime: Runtime) -> None:
        self._project, self._view, self._runtime = project, view, runtime
        self._answered = threading.Condition()
        self._answers: dict[str, None] = {}
        self._stopping = threading.Event()
        self.settings_told = threading.Event()
        """Set when the view has got settings; the server that looks at them clears it."""
        self.error: LockstepError | None = None
        """What keeps the view from following, while it does."""
        self._thread = threading.Thread(target=self._run, name="lockstep-fleet-view", daemon=True)
        self._thread.start()

    def wait_answer(self, order: str, seconds: float) -> bool:
        """Wait until the answer to an order is in the view; False if it did not come in time."""
        with self._answered:
            return self._answered.wait_for(lambda: order in self._answers, seconds)

    def close(self) -> None:
        """Stop following."""
        self._stopping.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except (HistoryTrimmed, PositionForeign):
                logger.warning("The fleet's view is made again", extra={"action": "view_reset"})
                self._view.reset()
            except LockstepError as error:
                self.error = error
                if not isinstance(error, StreamNotFound):  # no engine has published yet
                    logger.warning("The fleet's view can't follow", exc_info=error, extra={"action": "view_waits"})
                self._stopping.wait(_AGAIN_S)

    def _follow(self) -> None:
        position = self._view.position
        with self._project.subscribe(WINDOW, after=position, blocks=True, begin="start") as changelog:
            self.error = None
            while not self._stopping.is_set():
                self._take(changelog)

    def _take(self, changelog: Subscription) -> None:
        """Take what is there, up to some tens of thousands of rows, in one transaction."""
        block = changelog.next_block(_WAIT_S)
        changes: list[RowChange] = []
        while block is not None:
            changes += row_changes(block.batch)
            block = changelog.next_block(0) if len(changes) < _ROWS_AT_ONCE else None
        if not changes:
            return
        self._view.apply(changes, changelog.position.dumps(), self._runtime.wall_ns() // 10**9)
        if any(change.kind == SETTINGS for change in changes):
            self.settings_told.set()
        answers = [change.name for change in changes if change.kind == ANSWER]
        if answers:
            self._note(answers)

    def _note(self, answers: list[str]) -> None:
        with self._answered:
            self._answers |= dict.fromkeys(answers)
            while len(self._answers) > _ROWS_AT_ONCE:
                del self._answers[next(iter(self._answers))]
            self._answered.notify_all()


_STORED_S = 10.0
_ORDER_KEY = b"o:"


class OrderClient:
    """Sends orders, and waits for answers. Safe to share between threads."""

    def __init__(self, bus: Lockstep, streams: MonitorStreams, reader: ChangelogReader) -> None:
        self._bus, self._reader = bus, reader
        self._publisher = bus.publisher(streams.input)

    def send(self, kind: str, fields: Mapping[str, Any]) -> str:
        """Append an order durably; return its id."""
        order = self._bus.runtime.new_id().hex()
        self._append(_ORDER_KEY, {"order": kind, "id": order, **fields})
        return order

    def wait(self, order: str, seconds: float) -> bool:
        """Wait until the view has the answer to an order; False if it does not come in time."""
        return self._reader.wait_answer(order, seconds)

    def close(self) -> None:
        """Send what is left."""
        self._publisher.close()

    def _append(self, key: bytes, document: Mapping[str, Any]) -> None:
        value = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
        self._publisher.publish(value, key=key).result(_STORED_S)
