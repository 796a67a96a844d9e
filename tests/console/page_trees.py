"""The HTML of a page as a tree, read strictly: an element that is not closed, or closed twice, is an error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})


@dataclass(eq=False)
class Element:
    name: str
    attributes: dict[str, str]
    parent: Element | None = None
    parts: list[Element | str] = field(default_factory=list)

    def all(self, *names: str) -> Iterator[Element]:
        """Elements below this one, in their order."""
        for part in self.parts:
            if isinstance(part, Element):
                if not names or part.name in names:
                    yield part
                yield from part.all(*names)

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")

    @property
    def text(self) -> str:
        return " ".join("".join(part if isinstance(part, str) else part.text for part in self.parts).split())

    def above(self) -> Iterator[Element]:
        if self.parent is not None:
            yield self.parent
            yield from self.parent.above()

    def __str__(self) -> str:
        return f"<{self.name} {self.attributes}> {self.text[:60]}"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.top = self.at = Element("", {})

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        names = [key for key, _ in attributes]
        assert len(names) == len(set(names)), f"<{name}> has an attribute twice: {names}"
        made = Element(name, {key: value or "" for key, value in attributes}, self.at)
        self.at.parts.append(made)
        if name not in VOID:
            self.at = made

    def handle_startendtag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.at.parts.append(Element(name, {key: value or "" for key, value in attributes}, self.at))

    def handle_endtag(self, name: str) -> None:
        assert self.at.name == name, f"</{name}> ends {self.at}, line {self.getpos()[0]}"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.parts.append(data)


def tree_of(html: str) -> Element:
    """The whole page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.at is reader.top, f"{reader.at} is not closed"
    return reader.top
