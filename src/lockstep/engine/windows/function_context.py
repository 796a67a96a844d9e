"""What a function can see while it is evaluated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from lockstep.engine.events.types import Value
from lockstep.engine.windows.function_documents import Element, Unreadable, read_json, read_xml

MAX_TEXT = 1_000_000
"""No function makes or searches a longer text."""


@dataclass(slots=True)
class Context:
    """One event: its fields and the results so far by name, its properties, and where it comes from."""

    values: dict[str, Value] = field(default_factory=dict)
    properties: dict[str, Value] = field(default_factory=dict)
    input: str = ""
    window: str = ""
    """The path of the window that makes events."""
    opcode: str = "I"
    flags: str = "N"
    clock_us: int = 0
    block: int = 0
    counter: int = 0
    """How many events the window has made, this one included."""
    number: int = 0
    """How many events it has made of the input event, this one included."""
    draws: int = 0
    """How many numbers and names were drawn for this event."""
    complaints: list[str] = field(default_factory=list)
    """What could not be read, or was beyond a limit; the result was null."""
    _read: dict[tuple[str, str], Any] = field(default_factory=dict)

    def draw(self) -> bytes:
        """Sixteen bytes that look random, and are the same wherever the event is made."""
        self.draws += 1
        place = f"{self.window}\n{self.block}\n{self.counter}\n{self.draws}"
        return blake2b(place.encode(), digest_size=16).digest()

    def json(self, text: str) -> Any:
        """A JSON document; None if it can't be read."""
        return self._document("json", text, read_json)

    def xml(self, text: str) -> Element | None:
        """An XML document; None if it can't be read."""
        found = self._document("xml", text, read_xml)
        return found if isinstance(found, Element) else None

    def _document(self, kind: str, text: str, read: Callable[[str], Any]) -> Any:
        # Several functions ask the same field, so a document is read once for each event.
        if (kind, text) not in self._read:
            try:
                self._read[kind, text] = read(text)
            except Unreadable as error:
                self.complain(str(error))
                self._read[kind, text] = None
        return self._read[kind, text]

    def complain(self, detail: str) -> None:
        """Say why a result is null though the model is right."""
        self.complaints.append(detail)

    def allows(self, length: int) -> bool:
        """Whether a text may be that long; it complains if not."""
        if length > MAX_TEXT:
            self.complain(f"a text is longer than {MAX_TEXT} characters")
        return length <= MAX_TEXT
