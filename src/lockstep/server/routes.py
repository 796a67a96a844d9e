"""Routes by the path as it was sent, so that an escaped slash stays part of a tenant or id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import parse_qsl, unquote

from lockstep.errors import BadArgument
from lockstep.server.access import Role
from lockstep.server.bodies import Reply
from lockstep.server.errors import MethodNotAllowed, RouteNotFound

PARAMETERS_MAX = 32
QUERY_NAMES = frozenset({"debug"})


class Work(Enum):
    """Where a handler runs."""

    INLINE = "inline"
    """On the event loop: it answers from memory."""
    READ = "read"
    """In a thread for reads."""
    CHANGE = "change"
    """In a thread for requests that wait for answers of the scheduler."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a handler."""

    path: str
    names: Mapping[str, str] = field(default_factory=dict)
    """The parts of the path that vary, unescaped."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def whole(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query, within bounds."""
        text = self.query.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most):
            reason = f"it must be a whole number from {least} to {most}"
            raise BadArgument(name=name, value=text, reason=reason)
        return int(text)


Handle = Callable[[Call], Reply]


@dataclass(frozen=True, slots=True)
class Text:
    """An example of an answer that is no JSON."""

    text: str
    media_type: str


class ByName(dict[str, Any]):
    """An example of an object whose properties are names, each with a value of the same shape."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """A method and path with its handler and what OpenAPI says of it.

    {name} stands for one part of a path; {name*}, at its end, for all that is left.
    """

    method: str
    path: str
    handle: Handle
    summary: str
    work: Work = Work.READ
    tag: str = "bigben"
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the query, with what they mean."""
    body: Any = None
    """An example of the request's body."""
    body_type: str = "application/json"
    answers: Mapping[int, Any] = field(default_factory=dict)
    """An example of the answer for each status."""
    strict: bool = True
    """Refuse parameters of the query that are not known."""
    role: Role | None = None
    """What a caller of `lockstep serve` needs; by default an operator changes and a viewer looks."""

    @property
    def needs(self) -> Role:
        """The role that is needed where callers have roles."""
        return self.role or (Role.VIEWER if self.method == "GET" else Role.OPERATOR)

    @property
    def parts(self) -> list[str]:
        """The path's parts."""
        return self.path.split("/")[1:]


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = list(routes)
        self._by_size: dict[int, list[tuple[Sequence[str], list[Route]]]] = {}
        self._open_ended: list[tuple[Sequence[str], list[Route]]] = []
        by_path: dict[str, list[Route]] = {}
        for route in self.routes:
            by_path.setdefault(route.path, []).append(route)
        for routes_of_path in sorted(by_path.values(), key=lambda found: found[0].path.count("{")):
            parts = routes_of_path[0].parts
            if parts[-1].endswith("*}"):
                self._open_ended.append((parts, routes_of_path))
            else:
                self._by_size.setdefault(len(parts), []).append((parts, routes_of_path))

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """Return the route, and the names in the path; RouteNotFound or MethodNotAllowed."""
        path = raw_path.decode("latin-1")
        given = [_unescaped(part) for part in path.split("/")[1:]] if path.startswith("/") else []
        allowed: list[str] = []
        for parts, routes in [*self._by_size.get(len(given), []), *self._open_ended]:
            names = _names(parts, given)
            if names is None:
                continue
            for route in routes:
                if route.method == method:
                    return route, names
            allowed += [route.method for route in routes]
        if allowed:
            raise MethodNotAllowed(method=method, path=path, allowed=", ".join(sorted(set(allowed))))
        raise RouteNotFound(path=path)


def _names(parts: Sequence[str], given: Sequence[str]) -> dict[str, str] | None:
    names = {}
    if parts[-1].endswith("*}"):
        rest = len(parts) - 1
        given, parts = [*given[:rest], "/".join(given[rest:])], [*parts[:-1], f"{parts[-1][:-2]}}}"]
    if len(parts) != len(given):
        return None
    for part, text in zip(parts, given, strict=True):
        if part.startswith("{"):
            if not text:
                return None
            names[part[1:-1]] = text
        elif part != text:
            return None
    return names


def _unescaped(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise BadArgument(name="path", value=text, reason="it is not UTF-8 when unescaped") from None


def parse_query(raw: bytes, route: Route) -> dict[str, str]:
    """Return the parameters of a query, the first of each name; BadArgument for what is not known."""
    try:
        text = raw.decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError as error:
        raise BadArgument(name="query", value=raw[:80], reason=f"it can't be read: {error}") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if "\0" in value:
            raise BadArgument(name=name, value=value[:80], reason="it must not have NUL characters")
        found.setdefault(name, value)
    unknown = sorted(found.keys() - route.query.keys() - QUERY_NAMES)
    if unknown and route.strict:
        known = ", ".join(route.query) or "none"
        raise BadArgument(name=unknown[0], value=found[unknown[0]], reason=f"unknown parameter; known: {known}")
    return found
