"""Pages: Jinja templates over the data of views, with filters for times, sizes and numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lockstep.console import charts
from lockstep.console.port import View
from lockstep.server.bodies import Reply
from lockstep.streams.views import setting

HTML = "text/html; charset=utf-8"
_UNITS = ("B", "KB", "MB", "GB", "TB")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")
_PREVIEW = 240
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


class Pages:
    """Renders templates; everything is escaped except the output of filters."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("lockstep.console"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.filters.update(
            time=time_element, size=size_text, span=span_text, number=number_text, part=part_of_path, json=json_text,
            link=link, setting=setting, story=story, menu_page=menu_page, preview=preview,
             count=count_text,
        )  # fmt: skip
        self._environment.globals.update(line_chart=charts.line_chart, sparkline=charts.sparkline, graph=charts.graph)

    def page(self, template: str, context: Mapping[str, Any]) -> str:
        """A whole page."""
        return self._environment.get_template(template).render({**context, "base": "base.html"})

    def content(self, template: str, context: Mapping[str, Any]) -> str:
        """Only the part that follows changes."""
        return self._environment.get_template(template).render({**context, "base": "fragment.html"})


def page_reply(text: str, status: int = 200) -> Reply:
    """A page as it is answered."""
    return Reply(text.encode("utf-8", "replace"), status, HTML)


def time_element(ms: int | float | None, *, none: str = "-") -> Markup:
    """A time; the script shows it as UTC, local or relative, as the viewer has chosen. Without one it is UTC."""
    if ms is None:
        return Markup('<span class="none">{}</span>').format(none)
    try:
        text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):
        return Markup("<span>{} ms</span>").format(ms)
    return Markup('<time datetime="{}">{}</time>').format(text, text.replace("T", " "))


def story(sentence: str) -> Markup:
    """A sentence whose times, as 2027-01-31T04:00:00Z, are shown as the viewer has chosen."""
    parts, end = [], 0
    for found in _MOMENT.finditer(sentence):
        moment = datetime.fromisoformat(found.group())
        parts += [escape(sentence[end : found.start()]), time_element(moment.timestamp() * 1000)]
        end = found.end()
    return Markup("").join([*parts, escape(sentence[end:])])


def count_text(count: int | None, one: str, many: str = "") -> str:
    """A number and its noun, in singular or plural."""
    return f"{number_text(count)} {noun(count, one, many)}"


def noun(count: int | None, one: str, many: str = "") -> str:
    """A noun in singular or plural."""
    return one if count == 1 else many or f"{one}s"


def preview(value: str) -> str:
    """The beginning of a text, in one line."""
    return " ".join(value[: 2 * _PREVIEW].split())[:_PREVIEW]


def menu_page(path: str, pages: Sequence[View]) -> str:
    """The page of a menu that a path is below; empty if it is below none, or in the menu itself."""
    above = (
        []
        if path in {page.path for page in pages}
        else [page.path for page in pages if path.startswith(f"{page.path}/")]
    )
    return max(above, key=len, default="")


def size_text(count: int | float | None) -> str:
    """Format a number of bytes."""
    if count is None:
        return "-"
    value = float(count)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError(count)


def span_text(seconds: float | None) -> str:
    """Format a duration in a readable unit."""
    if seconds is None:
        return "-"
    for length, unit in _SPANS:
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f}".removesuffix(".0") + " s" if abs(seconds) >= 1 else f"{seconds * 1000:.0f} ms"


def number_text(value: Any) -> str:
    """A number with separators; a dash for what is not known, which is not zero."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def part_of_path(text: Any) -> str:
    """A name as one part of a path."""
    return quote(str(text), safe="")


def json_text(tree: Any) -> str:
    """Format plain data as indented JSON."""
    return json.dumps(tree, indent=2, ensure_ascii=False, default=str)


def link(path: str, query: Mapping[str, Any], **changes: Any) -> str:
    """A path with its query, some of it changed; None leaves a parameter out."""
    merged = {name: value for name, value in {**query, **changes}.items() if value not in (None, "")}
    return f"{path}?{urlencode(merged)}" if merged else path


def crumbs(path: str) -> Sequence[tuple[str, str]]:
    """The pages above a page, as text and link."""
    parts = path.strip("/").split("/")
    return [(part, "/" + "/".join(parts[: number + 1])) for number, part in enumerate(parts[:-1])]
