"""The site of the documentation: its navigation has every page once, and its links lead somewhere. Nothing is built."""

from __future__ import annotations

import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONF = runpy.run_path(str(DOCS / "conf.py"))
PAGES = sorted(DOCS.rglob("*.md"))
OTHERS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
AUTOMODULE = re.compile(r"^\.\. automodule:: (\S+)$", re.MULTILINE)


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def page_name(path: Path) -> str:
    return str(path.relative_to(DOCS).with_suffix(""))


def prepared(page: Path) -> str:
    source = [page.read_text()]
    CONF["prepare"](None, page_name(page), source)
    return source[0]


def toctrees(text: str) -> list[str]:
    found = re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for tree in found for line in tree.splitlines() if line and not line.startswith(":")]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_navigation_has_every_page_once():
    decisions = [f"decisions/{name}" for name in toctrees(prepared(DOCS / "decisions" / "index.md"))]
    found = ["index", *toctrees(prepared(DOCS / "index.md")), *decisions]
    assert sorted(found) == sorted(page_name(page) for page in PAGES)


def test_the_navigation_is_ordered_by_what_a_reader_wants():
    assert list(CONF["parts"]((DOCS / "index.md").read_text())) == [
        "Learn",
        "Do",
        "Look up",
        "Understand",
        "Benchmarks",
        "Decisions",
    ]


def test_a_page_has_one_title_and_no_heading_twice():
    for page in PAGES:
        text = without_code(page.read_text())
        assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1, named(page)
        headings = re.findall(r"^#{2,4} (.+)$", text, re.MULTILINE)
        linked = {link.partition("#")[2] for each in PAGES for link in LINK.findall(each.read_text()) if "#" in link}
        slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        twice = {slug for slug in slugs if slugs.count(slug) > 1}
        assert not twice & linked, f"{named(page)}: a link to {twice & linked} leads to the first of several headings"


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=named)
def test_links_and_their_anchors_resolve(page):
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert not anchor or path.suffix != ".md" or anchor in anchors(path), link


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_site_links_nothing_that_is_not_in_it(page):
    for link in LINK.findall(without_code(prepared(page))):
        if not re.match(r"[a-z]+:|#", link):
            assert (page.parent / link.partition("#")[0]).resolve().is_relative_to(DOCS), link


def test_a_link_to_a_file_outside_of_the_site_becomes_its_name():
    source = [
        "[fail_over.py](../../examples/fail_over.py) and [a model](../../examples/trades/README.md), [x](install.md)"
    ]
    CONF["prepare"](None, "learn/quickstart", source)
    assert source[0] == "`examples/fail_over.py` and a model (`examples/trades/README.md`), [x](install.md)"


def test_every_public_name_of_the_api_reference_has_a_docstring():
    modules = AUTOMODULE.findall((DOCS / "reference" / "api.md").read_text())
    assert "lockstep" in modules
    for name in modules:
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", []):
            item = getattr(module, public)
            if inspect.isclass(item) or inspect.isfunction(item):
                assert inspect.getdoc(item), f"{name}.{public}"


ARCHITECTURE = DOCS / "architecture.md"
PATH = re.compile(r"`((?:src|tests|docs|requirements|benchmarks|examples)/[\w./-]*|pyproject\.toml|Makefile)`")


def changes() -> list[list[str]]:
    text = ARCHITECTURE.read_text().partition("\n## Where do I change X\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" |")] for line in text.splitlines() if line.startswith("| ")
    ][2:]


def test_every_path_that_the_architecture_names_exists():
    paths = PATH.findall(ARCHITECTURE.read_text())
    assert len(paths) > 60
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_package_has_its_place_in_the_architecture():
    source = ROOT / "src" / "lockstep"
    packages = {f"src/lockstep/{path.name}" for path in source.iterdir() if (path / "__init__.py").exists()}
    assert packages <= set(PATH.findall(ARCHITECTURE.read_text()))


def test_at_least_twenty_changes_say_where_to_begin_and_which_test_tells_the_rest():
    rows = changes()
    assert len(rows) >= 20
    for row in rows:
        assert len(row) == 4, row
        assert PATH.search(row[1]), row
        assert PATH.search(row[3]), row


def test_the_glossary_has_each_word_once_in_order_with_one_sentence_and_where_it_appears():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+) \| (\[.+\)) \|$", (DOCS / "glossary.md").read_text(), re.MULTILINE)
    words = [word.lower() for word, *_ in rows]
    assert len(rows) == (DOCS / "glossary.md").read_text().count("\n| **") > 80
    assert words == sorted(set(words))
    for word, said, _ in rows:
        assert said.endswith("."), word
        assert not re.search(r"\.\s", said), f"{word}: more than one sentence"


def test_a_word_of_the_glossary_appears_on_the_pages_that_it_names():
    for line in (DOCS / "glossary.md").read_text().splitlines():
        if line.startswith("| **"):
            words, _, where = [cell.strip(" *") for cell in line.strip("|").split(" | ")]
            for link in LINK.findall(where):
                text = (DOCS / link.partition("#")[0]).read_text().lower()
                assert any(word.rstrip("e").lower() in text for word in words.split(", ")), (words, link)


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    text = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert text, target
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in text[1].splitlines()]


def test_pre_commit_does_what_make_check_does_and_downloads_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    hooks = config["repos"][0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    assert [hook["entry"] for hook in hooks] == recipe("check")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_targets_that_a_page_shows_are_in_the_makefile_with_a_line_of_help(page):
    shown = re.findall(r"^make ([a-z-]+)", (ROOT / page).read_text(), re.MULTILINE)
    assert "check" in shown
    for target in shown:
        assert re.search(rf"^{target}:.*## \S", (ROOT / "Makefile").read_text(), re.MULTILINE), target
