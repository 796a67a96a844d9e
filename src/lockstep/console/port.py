"""The types at the border: views that are looked at, acts that change something, and what is asked of them.

A view gives plain data. REST answers with that data, and the page of the same path draws it. An act has a preview,
which tells what it would do, and is carried out when it is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lockstep.console.names import NameIndex
from lockstep.errors import BadArgument
from lockstep.runtime import Runtime
from lockstep.server.access import ANONYMOUS, Principal, Role
from lockstep.server.bodies import JSON, Reply
from lockstep.streams.client import Lockstep

Tree = Mapping[str, Any]
ROWS, ROWS_MAX = 50, 500
TRUE, _FALSE = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


class Kind(Enum):
    """How the text of a parameter is read."""

    TEXT = "text"
    WHOLE = "whole"
    FLAG = "flag"
    CHOICE = "choice"
    LONG = "long"
    """A text of many lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One value of a query, a form or a JSON body."""

    name: str
    label: str = ""
    help: str = ""
    kind: Kind = Kind.TEXT
    default: Any = ""
    least: int = 0
    most: int = 10**15
    choices: tuple[str, ...] = ()
    required: bool = False
    characters_max: int = 4096
    is_scope: bool = False
    """It says which of several is meant, as which scheduler: links to acts, and the page after one, carry it."""
    option: str = ""
    """The option of the view's or act's command that says the same; empty where it has none."""

    def read(self, given: Any) -> Any:
        """The value of what was sent; BadArgument says what is wrong with it."""
        if given is None or given == "":
            if self.required:
                raise BadArgument(name=self.name, value=given, reason="it is needed")
            return self.default
        if self.kind is Kind.WHOLE:
            return self._whole(given)
        if self.kind is Kind.FLAG:
            return self._flag(given)
        if not isinstance(given, str):
            raise BadArgument(name=self.name, value=given, reason="it must be a text")
        if len(given) > self.characters_max or "\0" in given:
            reason = f"it must be a text of at most {self.characters_max} characters without NUL"
            raise BadArgument(name=self.name, value=given[:80], reason=reason)
        if self.kind is Kind.CHOICE and given not in self.choices:
            raise BadArgument(name=self.name, value=given, reason=f"it must be one of {', '.join(self.choices)}")
        return given

    def _whole(self, given: Any) -> int:
        text = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
        body = text[1:] if isinstance(text, str) and text.startswith("-") else text
        is_number = isinstance(body, str) and body.isascii() and body.isdecimal() and len(body) < 19
        if not is_number or not self.least <= int(text) <= self.most:
            reason = f"it must be a whole number from {self.least} to {self.most}"
            raise BadArgument(name=self.name, value=given, reason=reason)
        return int(text)

    def _flag(self, given: Any) -> bool:
        if isinstance(given, bool):
            return given
        text = str(given).lower()
        if text not in TRUE + _FALSE:
            raise BadArgument(name=self.name, value=given, reason="it must be true or false")
        return text in TRUE


DRY_RUN = Parameter(name="dry_run", kind=Kind.FLAG, default=False, help="say what it would do, and change nothing")
SEARCH = Parameter(name="q", label="Search", help="rows whose name contains this text")
PAGE = Parameter(name="page", label="Page", kind=Kind.WHOLE, default=1, least=1, most=10**6, help="which page, from 1")
SIZE = Parameter(
    name="size", label="Rows", kind=Kind.WHOLE, default=ROWS, least=1, most=ROWS_MAX, help="rows of a page"
)
PAGED = (SEARCH, PAGE, SIZE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One request, with its names and values read and checked."""

    path: str
    names: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path that vary."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Each parameter, as given or by default."""
    given: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the query as they were sent."""
    principal: Principal = ANONYMOUS
    address: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """A file that an act gives, in place of plain data."""

    name: str
    media_type: str
    data: bytes
    about: Tree = field(default_factory=dict)
    """What the audit log notes of it."""

    def reply(self) -> Reply:
        """As it is answered: to be stored, not to be shown."""
        told = {"Content-Disposition": f'attachment; filename="{self.name}"'}
        return Reply(self.data, media_type=self.media_type, headers=told)


Load = Callable[["Asked"], Tree]
Run = Callable[["Asked"], Tree | Download]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Something to look at: GET /api/v1PATH answers with its data, GET PATH is its page."""

    path: str
    title: str
    summary: str
    load: Load
    template: str
    parameters: tuple[Parameter, ...] = ()
    role: Role = Role.VIEWER
    cli: str = ""
    """The command that shows the same, with {names} of the path and of parameters."""
    example: Any = None
    """An example of the data, for the OpenAPI document."""
    is_live: bool = True
    """Whether its page follows changes."""
    is_personal: bool = False
    """Whether it shows who asks, so that callers of one role don't share what is rendered."""

    @property
    def area(self) -> str:
        """The first part of the path: what scopes of credentials name."""
        return self.path.split("/")[1] or "home"


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """Something that changes: POST /api/v1PATH does it, GET PATH has a form, which shows the preview first."""

    path: str
    title: str
    summary: str
    run: Run
    preview: Load
    """Return what the action would do: `effect` is a sentence, `rows` may hold values before and after."""
    fields: tuple[Parameter, ...] = ()
    role: Role = Role.OPERATOR
    confirm: str = ""
    """The name of the path's part that must be repeated for a destructive act; empty for others."""
    cli: str = ""
    answers: str = JSON
    """The media type of what is answered when it is done."""
    done: str = "/"
    """The page to show afterwards, with {names} of the path."""

    @property
    def area(self) -> str:
        """As of a view."""
        return self.path.split("/")[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """Something that is wrong now: what, why, since when, and what to do next."""

    severity: str
    """critical or warning."""
    title: str
    reason: str
    link: str
    command: str
    area: str
    since_ms: int | None = None

    def tree(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Trend:
    """Values of the last minutes, for a chart of the home page."""

    label: str
    unit: str
    values: Sequence[float | None]
    every_s: float
    """The time between two values."""
    at_ms: int | None
    """When the last one was measured."""
    link: str

    def tree(self) -> dict[str, Any]:
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Pillar:
    """What one part of the platform puts into the console."""

    name: str
    title: str
    views: Sequence[View]
    acts: Sequence[Act] = ()
    problems: Callable[[], Sequence[Problem]] = tuple
    """Returns the current problems with a bounded number of calls, as the home page asks all pillars."""
    figures: Callable[[], Sequence[tuple[str, str, str]]] = tuple
    """Figures of the home page: label, value, link."""
    metrics: Callable[[], Iterable[Any]] = tuple
    """Families for /metrics, bounded in labels."""
    parts: Callable[[], Iterable[Mapping[str, Any]]] = tuple
    """What it looks at, for /readyz: kind, name, role, leader, epoch, and the reason if something is wrong."""
    trends: Callable[[], Sequence[Trend]] = tuple
    """Charts of the home page."""

    @property
    def pages(self) -> list[View]:
        """The views that can be opened without knowing a name: what menus list."""
        return [view for view in self.views if "{" not in view.path]

    def has(self, path: str) -> bool:
        """Whether a page is one of this pillar's."""
        area = path.split("/")[1] if path.count("/") else ""
        return area in {view.area for view in self.views} and area != ""


@dataclass(frozen=True, slots=True)
class Site:
    """What all pillars share."""

    client: Lockstep
    runtime: Runtime
    cluster: str
    names_s: float = 0.0
    """How old the names of streams and groups that pages show may be."""
    names: NameIndex = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", NameIndex(self.client, self.runtime, self.names_s))

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return self.runtime.wall_ns() // 10**6


def sorted_by(names: Sequence[str], sort: str, value: Callable[[str], float | None]) -> list[str]:
    """Names in the order that is asked for: name, -name, or by a value, the largest first, what is not known last."""
    if sort.removeprefix("-") == "name":
        return sorted(names, reverse=sort == "-name")
    known = {name: value(name) for name in names}
    return sorted(names, key=lambda name: (known[name] is None, -(known[name] or 0.0), name))


def paged(names: Sequence[str], asked: Asked) -> tuple[list[str], dict[str, Any]]:
    """The names of one page, after the search; and what the page says of itself."""
    wanted = asked.values["q"].lower()
    found = [name for name in names if wanted in name.lower()] if wanted else list(names)
    size, page = asked.values["size"], asked.values["page"]
    pages = max(1, -(-len(found) // size))
    page = min(page, pages)
    shown = found[(page - 1) * size : page * size]
    return shown, {"page": page, "pages": pages, "size": size, "total": len(found), "all": len(names)}
