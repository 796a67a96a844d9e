"""How `make docs` makes a site of these pages: MyST reads them, Furo shows them, autodoc adds the Python API.

The order of the site is that of `index.md`: each of its sections is a part of the navigation, with the pages it links.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent

project = "Lockstep"
author = "The Lockstep authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns: list[str] = []
html_theme = "furo"
html_title = "Lockstep"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
add_module_names = False
highlight_language = "text"

PARTS = ("Learn", "Do", "Look up", "Understand", "Benchmarks", "Decisions")
_LINK = re.compile(r"\]\(([^)#\s]+)\.md\)")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")
_FENCE = re.compile(r"^```(\w+) (?:run|pytest)$", re.MULTILINE)
_CSV = re.compile(r"^```csv$", re.MULTILINE)


def parts(index: str) -> dict[str, list[str]]:
    """The pages of each part of the site, in the order of the index."""
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", index, re.MULTILINE | re.DOTALL))
    return {part: _LINK.findall(sections[part]) for part in PARTS}


def toctree(pages: list[str], caption: str = "") -> str:
    """A hidden table of contents, which puts pages into the navigation."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *pages, "```", ""])


def prepare(_: Any, page: str, source: list[str]) -> None:
    """Add the navigation to the two indexes, and name files that are not in the site instead of linking them."""
    text = _CSV.sub("```text", _FENCE.sub(r"```\1", source[0]))
    text = _OUTSIDE.sub(lambda link: _named(page, link), text)
    if page == "index":
        text += "".join(toctree(pages, part) for part, pages in parts(source[0]).items())
    if page == "decisions/index":
        text += toctree(_LINK.findall(source[0]))
    source[0] = text


def _named(page: str, link: re.Match[str]) -> str:
    target = (DOCS / page).parent.joinpath(link[2].partition("#")[0]).resolve()
    if target.is_relative_to(DOCS):
        return link[0]
    name = target.relative_to(DOCS.parent)
    return f"`{name}`" if link[1].strip("`") in (name.name, str(name)) else f"{link[1]} (`{name}`)"


def shorten(_: Any, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """Keep the first paragraph of a module's docstring: what follows is an example in plain text."""
    if what == "module" and "" in lines:
        del lines[lines.index("") :]


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", shorten)
