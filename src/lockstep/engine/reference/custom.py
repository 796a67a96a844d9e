"""Custom windows: a class of the user's makes rows and notices, and keeps state in pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, unquote
from zlib import crc32

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.event import Event, Flag, Opcode, Row
from lockstep.engine.events.schema import is_writable
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.windows import CustomWindow
from lockstep.engine.reference.custom_window import Change, Delete, Notice, PagedWindow, Setup, Window
from lockstep.engine.reference.functional import KeptRows, Key, kept, key_of, restored
from lockstep.engine.reference.operator import Moment, Operator, Tree
from lockstep.engine.reference.operator import Notice as PlacedNotice
from lockstep.engine.reference.user_code import UserCode, load_name, shown

_ROW_PAGES = 256
_PAGE, _ROWS, _CLOCK, _STATE = "page.", "rows.", "clock", "state"
"""How pages are called: the user's, those of the rows, the one of the clock; and the only one of a small window."""
_NAME_MAX = 500
_NOTICE_MAX, _WORD_MAX = 1 << 18, 512
"""Bytes of a notice, and of its kind, key and names of headers: its record then fits into a message of any bus."""
_HEADERS_MAX = 100


class CustomOperator(Operator):
    """Calls the class."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        window = node.window
        assert isinstance(window, CustomWindow), "made by kind"
        self.code = UserCode(f"The class {window.module}.{window.class_}", node)
        self._inputs = [
            (parent.name, {name: place for place, name in enumerate(schema.names)})
            for parent, schema in zip(node.parents, node.inputs, strict=True)
        ]
        self._fields = {name: place for place, name in enumerate(node.schema.names)}
        self._tick_us = window.tick_us
        self._begin(window)

    def _begin(self, window: CustomWindow) -> None:
        """A new object, without state."""
        self.window: Window = self.code.call(None, window_class(self.node), _setup(self.node, window))
        if not hasattr(self.window, "setup"):
            self.code.fail(None, "its __init__ does not call super().__init__(setup)")
        self.rows = PagedRows(self.node)
        self._beats, self._ticked = 0, False
        self._pages: set[str] = set()
        self._changed: set[str] = set()

    def on_change(self, port: int, event: Event, old: Row | None, moment: Moment, out: list[Event]) -> None:
        """Hand a change over, and take what comes back."""
        self._at(moment)
        source, places = self._inputs[port]
        change = Change(source, event.opcode, event.values, old, places)
        self._take(self.code.answers(event, self.window.on_event, change), event, moment, out)

    def on_tick(self, moment: Moment, out: list[Event]) -> None:
        """Tell the class that its time has come."""
        if self._tick_us is None or moment.clock_us // self._tick_us <= self._beats:
            return
        self._beats, self._ticked = moment.clock_us // self._tick_us, True
        self._at(moment)
        cause = f"tick,{moment.clock_us}"
        answers = self.code.answers(cause, self.window.on_tick, moment.clock_us, moment.is_lagging)
        self._take(answers, cause, moment, out)

    def _at(self, moment: Moment) -> None:
        self.code.block = self.window.block = moment.block
        self.window.time_us = moment.known_us

    def call_batch(self, batch: Any) -> Any:
        """What the column form makes of a batch."""
        assert self.window.on_batch is not None, "asked of windows with a column form"
        self._note_change()
        return self.code.call(None, self.window.on_batch, batch)

    def _note_change(self) -> None:
        """A window without pages may have changed whenever it was called."""
        if not isinstance(self.window, PagedWindow):
            self._changed.add(_STATE)

    def _take(self, answers: list[Any], cause: Event | str, moment: Moment, out: list[Event]) -> None:
        self._note_change()
        for made in answers:
            if isinstance(made, Notice):
                moment.notify(self.placed(made, cause, moment.block))
                continue
            answer = self.event_of(made, cause)
            found = self.rows.resolve(*answer)
            if isinstance(found, str):
                self.refuse(answer, found, f"{self.code.what} made it", moment)
            else:
                out.extend(found)

    def event_of(self, made: Any, cause: Event | str | None) -> Event:
        """A row or a delete as an event."""
        if isinstance(made, Delete):
            made = Event(Opcode.DELETE, Flag.NORMAL, self._row(made.row, cause))
        elif isinstance(made, Mapping):
            made = self._row(made, cause)
        return self.code.checked(made, cause, Opcode.UPSERT)

    def _row(self, made: Any, cause: Event | str | None) -> Row:
        if not isinstance(made, Mapping):
            return made  # type: ignore[no-any-return]  # what is no row is found when it is checked
        unknown = [name for name in made if name not in self._fields]
        if unknown:
            self.code.fail(cause, f"it gave a row with {shown(unknown[0])}, which is no field of the schema")
        return tuple([made.get(name) for name in self._fields])

    def placed(self, made: Notice, cause: Event | str | None, block: int) -> PlacedNotice:
        """A notice of the class as one of a block, if it is sound."""
        headers = made.headers if isinstance(made.headers, Mapping) else None
        words = [made.kind, made.key, *(headers or {}).keys()]
        texts = [*words, *(headers or {}).values()]
        is_sound = all(isinstance(text, str) and is_writable(text) for text in texts)
        if headers is None or not is_sound or not made.kind or not isinstance(made.body, bytes):
            wanted = "kind and key must be texts, body bytes, and headers texts by name"
            self.code.fail(cause, f"it gave {shown(made)}; {wanted}")
        if any(len(word.encode()) > _WORD_MAX for word in words):
            wanted = f"kind, key and names of headers may have {_WORD_MAX} bytes each"
            self.code.fail(cause, f"it gave {shown(made)}; {wanted}")
        if len(headers) > _HEADERS_MAX:
            self.code.fail(cause, f"it gave a notice with {len(headers)} headers; at most {_HEADERS_MAX} are allowed")
        own = made.id
        if own is not None and not (
            isinstance(own, str) and own and own.isprintable() and len(own.encode()) <= _WORD_MAX
        ):
            wanted = f"an id must be printable text of 1 to {_WORD_MAX} bytes"
            self.code.fail(cause, f"it gave {shown(made)}; {wanted}")
        size = len(made.body) + sum(len(text.encode()) for text in texts)
        if size > _NOTICE_MAX:
            self.code.fail(cause, f"it gave a notice of {size} bytes; at most {_NOTICE_MAX} are allowed")
        return PlacedNotice(
            block, self.node.path, made.kind, key=made.key, headers=tuple(headers.items()), body=made.body, id=own
        )

    def changed_pages(self) -> Iterator[tuple[str, Tree | None]]:
        """The pages of state that changed since the last call; None: the page is gone."""
        if self._ticked:
            self._ticked = False
            yield _CLOCK, self._beats
        yield from self.rows.changed_pages()
        changed, self._changed = self._changed | self._marked(), set()
        for name in sorted(changed):
            yield _PAGE + quote(name, safe=""), self._page(name)

    def load_pages(self, pages: Mapping[str, Tree]) -> None:
        """Go on from all pages."""
        for name, tree in pages.items():
            if name == _CLOCK:
                self._beats = tree
            elif name.startswith(_ROWS):
                self.rows.load_page(tree)
            else:
                self._load_page(unquote(name.removeprefix(_PAGE)), tree)

    def dump(self) -> Tree:
        """Everything at once."""
        self._changed |= self._marked()
        pages = {name: self._page(name) for name in sorted(self._pages | self._changed)}
        found = {name: page for name, page in pages.items() if page is not None}
        return {"beats": self._beats, "rows": self.rows.dump(), "pages": found, "block": self.code.block}

    def load(self, state: Tree) -> None:
        """Go on from a dumped state, in a new object."""
        assert isinstance(self.node.window, CustomWindow), "made by kind"
        self._begin(self.node.window)
        self._beats, self.code.block = state["beats"], state["block"]
        self.rows.load(state["rows"])
        for name, page in state["pages"].items():
            self._load_page(name, page)

    def _marked(self) -> set[str]:
        marked = self.window.take_marked() if isinstance(self.window, PagedWindow) else set()
        for name in marked:
            if not isinstance(name, str) or not is_writable(name) or not 0 < len(name) <= _NAME_MAX:
                self.code.fail(None, f"it marked a page {shown(name)}; a name is a text of 1 to {_NAME_MAX} characters")
        return marked

    def _page(self, name: str) -> Tree | None:
        if isinstance(self.window, PagedWindow):
            made = self.code.call(None, self.window.dump_page, name)
        else:
            made = self.code.call(None, self.window.dump)
        page = self.code.kept(made)
        self._pages.discard(name) if page is None else self._pages.add(name)
        return page

    def _load_page(self, name: str, page: Tree) -> None:
        self._pages.add(name)
        if isinstance(self.window, PagedWindow):
            self.code.call(None, self.window.load_page, name, page)
        else:
            self.code.call(None, self.window.load, self.code.kept(page))


class PagedRows(KeptRows):
    """Rows by key that know which of their pages changed."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._paged = self._rows = _PagedDict()

    def changed_pages(self) -> Iterator[tuple[str, Tree | None]]:
        """The pages with rows that changed since the last call."""
        changed, self._paged.changed = self._paged.changed, set()
        for number in sorted(changed):
            rows = [kept(row) for row in self._paged.pages[number].values()]
            yield f"{_ROWS}{number}", rows or None

    def load_page(self, tree: Tree) -> None:
        """Take a page over."""
        for row in map(restored, tree):
            self._rows[key_of(self._schema, row)] = row
        self._paged.changed.clear()

    def load(self, state: Tree) -> None:
        """Go on from all rows."""
        self.load_page(state)


class _PagedDict(MutableMapping[Key, Row]):
    """Rows by key, divided over pages by a checksum of the key."""

    def __init__(self) -> None:
        self.pages: list[dict[Key, Row]] = [{} for _ in range(_ROW_PAGES)]
        self.changed: set[int] = set()

    def __getitem__(self, key: Key) -> Row:
        return self.pages[_page_of(key)][key]

    def __setitem__(self, key: Key, row: Row) -> None:
        number = _page_of(key)
        self.pages[number][key] = row
        self.changed.add(number)

    def __delitem__(self, key: Key) -> None:
        number = _page_of(key)
        del self.pages[number][key]
        self.changed.add(number)

    def __iter__(self) -> Iterator[Key]:
        return (key for page in self.pages for key in page)

    def __len__(self) -> int:
        return sum(map(len, self.pages))


def _page_of(key: Key) -> int:
    return crc32(repr(key).encode()) % _ROW_PAGES


def window_class(node: Node) -> type[Window]:
    """The class of a custom window, if it is there in the version that the model names."""
    window = node.window
    assert isinstance(window, CustomWindow), "asked for custom windows only"
    found = load_name(window.module, window.class_, node.path)
    name = f"{window.module}.{window.class_}"
    if not isinstance(found, type) or not issubclass(found, Window):
        raise _fault(node, f"{name} is not a subclass of lockstep.windows.Window")
    version = getattr(found, "version", None)
    if version != window.version:
        said = "has no version" if version is None else f"has version {version!r}"
        raise _fault(node, f"{name} {said} here, but the model needs version {window.version!r}")
    if missing := sorted(found.__abstractmethods__):
        raise _fault(node, f"{name} has no {' and no '.join(missing)}")
    return found


def check_classes(graph: Graph) -> None:
    """Raise if classes of custom windows are not there, or in another version; all of them are named."""
    faults = []
    for node in graph.nodes:
        if isinstance(node.window, CustomWindow):
            try:
                window_class(node)
            except ModelInvalid as error:
                faults.append(str(error.params["faults"]))
    if faults:
        raise ModelInvalid(name=graph.project.name, count=len(faults), faults="\n".join(faults))


def _fault(node: Node, problem: str) -> ModelInvalid:
    return ModelInvalid(name=node.path, count=1, faults=f"  {node.path}: {problem}")


def _setup(node: Node, window: CustomWindow) -> Setup:
    inputs = {parent.name: schema for parent, schema in zip(node.parents, node.inputs, strict=True)}
    return Setup(node.path, dict(window.properties), node.schema, inputs)
