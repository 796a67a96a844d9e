"""The documentation is kept true: its code runs, its links lead somewhere, its tables are what the code says.

A block marked ```python run is executed in a folder of its own; one marked ```python pytest is run by pytest.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from argparse import ArgumentParser
from pathlib import Path

import pytest

import lockstep
from lockstep import errors
from lockstep.cli.commands import NOUNS
from lockstep.cli.main import main as command_line
from lockstep.cli.parser import build, parse
from lockstep.connectors import errors as connector_errors
from lockstep.core import group as group_records
from lockstep.dev import errors as dev_errors
from lockstep.drill import errors as drill_errors
from lockstep.engine import errors as engine_errors
from lockstep.esp import errors as esp_errors
from lockstep.log import batch
from lockstep.log.batch import CODECS
from lockstep.log.embedded.tables import TABLES
from lockstep.log.lmdb.settings import MAP_BYTES_DEFAULT, Settings, StoreOptions
from lockstep.monitor import client as monitor_client
from lockstep.monitor.agent import errors as agent_errors
from lockstep.monitor.settings import errors as settings_errors
from lockstep.monitor.transport import errors as transport_errors
from lockstep.server import errors as server_errors
from lockstep.streams import grouplog
from lockstep.streams.admin import Groups

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FIRST = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PAGES = [*sorted(page for page in DOCS.rglob("*.md") if "benchmarks" not in page.parts), *FIRST]
GUARANTEES = DOCS / "guarantees.md"

BLOCK = re.compile(r"^```python (run|pytest)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def blocks(kind: str) -> list:
    found = []
    for page in PAGES:
        for number, code in enumerate(codes(page, kind), 1):
            found.append(pytest.param(page, code, id=f"{named(page)}-{number}"))
    return found


def codes(page: Path, kind: str) -> list[str]:
    """The code of the blocks of a page, in their order."""
    return [match[2] for match in BLOCK.finditer(page.read_text()) if match[1] == kind]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made where people read them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(page: Path, heading: str) -> str:
    text = page.read_text()
    start = re.search(rf"^#+ {re.escape(heading)}$", text, re.MULTILINE)
    assert start, f"{named(page)} has no section {heading}"
    return re.split(r"^#+ ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables, without their heads and rules; code marks taken off."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    rules = {at for at, cells in enumerate(found) if set("".join(cells)) <= set("-: |")}
    return [cells for at, cells in enumerate(found) if at not in rules and at + 1 not in rules]


def plain(cell: str) -> str:
    return cell.strip().strip("`")


def default_of(item: dataclasses.Field) -> object:
    if repr(item.default) == "not given":
        return "not given"
    return "required" if item.default is dataclasses.MISSING else item.default


def written_default(cell: str) -> object:
    if cell in ("required", "not given"):
        return cell
    return eval(plain(cell), {"__builtins__": {}})  # 8 << 20 reads better than 8388608


# --- code, links and words ---------------------------------------------------------------------------------------


LEARN = DOCS / "learn"
FOLLOWED = (
    ROOT / "README.md",
    LEARN / "quickstart.md",
    LEARN / "first-schedule.md",
    DOCS / "howto" / "share-work-in-a-group.md",
)
"""Pages that a newcomer follows one after the other, in one folder."""


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if codes(page, "run")], ids=named)
def test_the_blocks_of_a_page_run_one_after_the_other_in_one_folder(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for code in codes(page, "run"):
        run_block(page, code)


@pytest.mark.slow
def test_the_first_pages_can_be_followed_in_one_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for page in FOLLOWED:
        for code in codes(page, "run"):
            run_block(page, code)


def run_block(page: Path, code: str) -> None:
    names = {"__name__": "__docs__"}
    exec(compile(code, named(page), "exec"), names)
    assert len(names) > 1, "it defines nothing, so it did nothing"


@pytest.mark.slow
@pytest.mark.parametrize(("page", "code"), blocks("pytest"))
def test_a_block_of_tests_passes(page, code, tmp_path):
    (tmp_path / "test_block.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_block.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_there_are_blocks_to_run():
    assert len(blocks("run")) > 10
    assert len(blocks("pytest")) > 2


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_code_block_is_python_that_parses(page):
    text = page.read_text()
    found = re.findall(r"^```python[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(found) == text.count("\n```python"), "a block is not closed"
    for code in found:
        assert ast.parse(code).body, code


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    for link in LINK.findall(without_code(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{named(page)} links to {link}"
        if anchor:
            assert anchor in anchors(path), f"{named(page)} links to {link}"


def test_every_page_is_reachable_from_the_index():
    seen, open_pages = set(), [DOCS / "index.md"]
    while open_pages:
        page = open_pages.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = [link.partition("#")[0] for link in LINK.findall(page.read_text()) if not re.match(r"[a-z]+:", link)]
        open_pages += [(page.parent / target).resolve() for target in targets if target]
    assert {page for page in PAGES if DOCS in page.parents} <= seen


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.svg")), ids=named)
def test_a_picture_has_words_for_those_who_can_not_see_it(picture):
    text = picture.read_text()
    assert "<title" in text
    assert "<desc" in text


# --- reference ---------------------------------------------------------------------------------------------------

OPTIONS = DOCS / "reference" / "options.md"


@pytest.mark.parametrize(
    "kind",
    [
        lockstep.StreamConfig,
        lockstep.PublisherOptions,
        lockstep.SubscriberOptions,
        lockstep.GroupOptions,
        lockstep.OnFailure,
        lockstep.CarrierOptions,
        lockstep.Delivery,
    ],
)
def test_options_and_their_defaults(kind):
    written = {plain(name): written_default(default) for name, default, *_ in rows(section(OPTIONS, kind.__name__))}
    assert written == {item.name: default_of(item) for item in dataclasses.fields(kind)}


def test_promises_and_their_defaults():
    table = [cells for cells in rows(section(DOCS / "reference" / "urls.md", "Promises")) if len(cells) == 3]
    written = {plain(name): written_default(default) for name, default, _ in table}
    assert written == {item.name: default_of(item) for item in dataclasses.fields(lockstep.Promises)}


def test_receiver_options_and_their_defaults():
    written = {plain(name): written_default(default) for name, default, *_ in rows(section(OPTIONS, "Receiver"))}
    parameters = inspect.signature(lockstep.Receiver).parameters.values()
    assert written == {item.name: item.default for item in parameters if item.kind is item.KEYWORD_ONLY}


def test_fields_of_a_record():
    assert [plain(name) for name, *_ in rows(section(OPTIONS, "Record"))] == list(lockstep.Record._fields)


def test_options_of_an_lmdb_url():
    table = rows(section(DOCS / "reference" / "urls.md", "Options of lmdb"))
    written = {plain(name): plain(default) for name, default, _ in table}
    assert list(written) == [item.name for item in dataclasses.fields(StoreOptions)]
    assert written["durability"] == Settings(identity="").durability
    assert int(written["map_bytes"]) == MAP_BYTES_DEFAULT


def all_errors(kind: type[errors.LockstepError] = errors.LockstepError) -> list[type[errors.LockstepError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in all_errors(child))]


ERROR_MODULES = {
    module.__name__
    for module in (
        *(errors, engine_errors, server_errors, drill_errors, dev_errors, connector_errors, esp_errors),
        *(settings_errors, transport_errors, agent_errors, monitor_client),
    )
}


ENTRY = re.compile(
    r"^### ([A-Z_]+)\n`(\w+)`(?: in `([\w.]+)`)?, below `(\w+)`; exit code (\d)\. (\S.*)\n\n(\S.*)$", re.MULTILINE
)
ERRORS = DOCS / "reference" / "errors.md"


def test_every_error_has_one_entry_with_its_class_its_exit_code_and_what_to_do():
    found = ENTRY.findall(ERRORS.read_text())
    written = {
        code: (name, module or errors.__name__, base, int(number)) for code, name, module, base, number, *_ in found
    }
    assert len(found) == len(written) == len(re.findall(r"^### ", ERRORS.read_text(), re.MULTILINE))
    ours = [kind for kind in all_errors() if kind.__module__ in ERROR_MODULES]
    assert written == {
        kind.code: (kind.__name__, kind.__module__, kind.__mro__[1].__name__, kind.exit_code) for kind in ours
    }


def test_metrics():
    table = rows((DOCS / "reference" / "metrics.md").read_text())
    written = {plain(name): (kind, labels.split(", ")) for name, kind, labels, _ in table}
    with lockstep.connect("memory:") as bus:
        families = {item.name: (item.type, list(item._labelnames)) for item in bus.metrics.collect()}
    assert written == families


def test_metrics_named_in_the_how_to_exist():
    with lockstep.connect("memory:") as bus:
        names = {item.name for item in bus.metrics.collect()}
    for found in re.findall(r"`(lockstep_[a-z_]+)`", (DOCS / "howto" / "prometheus.md").read_text()):
        assert found.removesuffix("_total") in names or found.startswith("lockstep_published")


def test_batch_header():
    table = rows(section(DOCS / "reference" / "batch-format.md", "Header, 64 bytes"))
    codes = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}
    written = "".join(f"{size}s" if kind == "bytes" else codes[kind] for _, size, kind, _ in table)
    assert f"<{written}" == batch.HEADER.format
    at = 0
    for start, size, *_ in table:
        assert int(start) == at
        at += int(size)
    assert at == batch.HEADER.size


def test_batch_flags_and_codecs():
    page = DOCS / "reference" / "batch-format.md"
    flags = {plain(name): int(value) for name, value, _ in rows(section(page, "Body")) if value}
    assert flags == {name: getattr(batch, name) for name in ("VARIED", "TIMES", "KEYS", "HEADERS")}
    written = {int(number): plain(name) for number, name in rows(section(page, "Codecs"))}
    assert written == {codec.number: codec.name for codec in CODECS}


def test_tables_of_the_store():
    written = [plain(name) for name, *_ in rows(section(DOCS / "reference" / "store-layout.md", "Tables"))]
    assert written == list(TABLES)


def test_files_of_the_store_and_their_modes(tmp_path):
    table = rows(section(DOCS / "reference" / "store-layout.md", "Store layout"))
    written = {plain(name): mode for name, _, mode in table}
    folder, copy = tmp_path / "bus", tmp_path / "copy"
    with lockstep.connect(f"lmdb:{folder}?map_bytes={1 << 28}&async_replica={copy}") as bus:
        bus.publisher("orders").publish(b"x").result()
        found = {item.name: item for where in (folder, copy) for item in where.iterdir()}
        assert found.keys() <= {name.partition("/")[0] for name in written}
        assert {f"{path.stat().st_mode & 0o777:o}" for path in (folder, copy, found["bells"])} == {"700"}
        modes = {name: f"{item.stat().st_mode & 0o777:04o}" for name, item in found.items() if item.is_file()}
    assert modes == {name: written[name] for name in modes}


def test_records_of_a_group_log():
    table = rows((DOCS / "reference" / "group-log.md").read_text())
    written = {plain(kind): [plain(name) for name in names.split(", ")] for kind, names, _ in table}
    kinds = [group_records.Beat, group_records.Claim, group_records.Release, group_records.Confirm]
    kinds += [group_records.Reset, group_records.Leave, group_records.Snapshot]
    assert written == {kind.__name__.lower(): [item.name for item in dataclasses.fields(kind)] for kind in kinds}
    assert set(written) == set(grouplog._KINDS)
    every = f"{grouplog.SNAPSHOT_EVERY:,} records"
    assert f"Every {every}" in (DOCS / "reference" / "group-log.md").read_text()
    assert f"a snapshot each {every}" in (DOCS / "howto" / "operate.md").read_text()


def test_commands_of_the_command_line(capsys):
    for cells in rows((DOCS / "howto" / "command-line.md").read_text()):
        noun, *first = plain(cells[0].split(", ")[0]).split()
        for command in [*first, *(plain(cell) for cell in cells[0].split(", ")[1:])]:
            with pytest.raises(SystemExit) as ended:
                command_line([noun, command, "--help"])
            assert ended.value.code == 0, (noun, command)


def test_commands_that_ask():
    [said] = re.findall(r"They are ((?:`[a-z ]+`[, and\n]*)+)\.", (DOCS / "howto" / "command-line.md").read_text())
    asking = set()
    for noun in NOUNS:
        for verb in noun.verbs:
            parser = ArgumentParser()
            verb.arguments(parser)
            if any("--yes" in action.option_strings for action in parser._actions):
                asking.add(f"{noun.name} {verb.name}")
    assert set(re.findall(r"`([a-z ]+)`", said)) == asking


def shown_commands(page: Path) -> list[list[str]]:
    """The words of every lockstep command in the console blocks of a page, without what a shell would do with them."""
    found = []
    for block in re.findall(r"^```(?:console|text)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if shown := re.match(r"(?:\$ )?lockstep (.*)", line):
                words = shlex.split(re.split(r" (?:\||&&|>) ", shown[1])[0], comments=True)
                found.append([word for word in words if word != "&"])
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if shown_commands(page)], ids=named)
def test_commands_that_a_page_shows_exist_with_their_options(page):
    parser = build(NOUNS, version="")
    for words in shown_commands(page):
        parse(parser, words)


def test_the_model_of_the_page_about_models_runs_on_the_lines_that_it_shows(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    text = (DOCS / "howto" / "models.md").read_text()
    Path("desk.yaml").write_text(re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0])
    [lines] = re.findall(r"^\$ printf '(.*)' > trades.csv$", text, re.MULTILINE)
    Path("trades.csv").write_text(lines.replace("\\n", "\n"))
    [run] = [words for words in shown_commands(DOCS / "howto" / "models.md") if "reference" in words]
    assert command_line(run) == 0
    assert len(Path("prices.csv").read_text().splitlines()) == 3


def test_the_first_model_runs_on_the_lines_that_its_page_shows(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    page = LEARN / "first-model.md"
    text = page.read_text()
    for name, kind in (("desk.yaml", "yaml"), ("trades.csv", "csv")):
        [block] = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        Path(name).write_text(block)
    [run] = [words for words in shown_commands(page) if words[:2] == ["model", "run"]]
    assert command_line(run) == 0
    assert [line.split(",")[2] for line in Path("out.csv").read_text().splitlines()] == ["ACME", "ACME", "ACME", "EMCA"]


def test_no_page_says_that_promises_are_the_same_on_every_bus():
    for page, words in ((ROOT / "README.md", "promises differ"), (DOCS / "reference" / "buses.md", "promises differs")):
        text = " ".join(page.read_text().split())
        assert words in text, named(page)
        assert not re.search(r"same [^.]*\bpromises\b[^.]* on every bus", text), named(page)


def test_files_that_the_table_of_features_names_exist():
    folder = ROOT / "tests" / "streams"
    named_files = set(re.findall(r"\b((?:acceptance/)?test_\w+\.py)\b", (folder / "COVERAGE.md").read_text()))
    assert named_files
    missing = {name for name in named_files if not any((place / name).exists() for place in (folder, folder.parent))}
    assert missing == set()


def test_dependencies_have_their_reasons():
    table = rows((DOCS / "decisions" / "0014-dependencies.md").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    written = {plain(cells[0]) for cells in table if len(cells) == 2}
    assert written == {re.split(r"[<>=~]", name)[0] for name in project["dependencies"]}
    extras = {(plain(cells[0]), plain(cells[1])) for cells in table if len(cells) == 3}
    assert extras == {
        (extra, re.split(r"[<>=~]", name)[0])
        for extra, names in project["optional-dependencies"].items()
        for name in names
    }


# --- guarantees --------------------------------------------------------------------------------------------------

PUBLIC = (
    lockstep.Lockstep,
    lockstep.Publisher,
    lockstep.Receipt,
    lockstep.ManyReceipt,
    lockstep.Subscriber,
    lockstep.Receiver,
    lockstep.Transaction,
    lockstep.GroupTransaction,
    Groups,
)


def public_calls() -> set[str]:
    found = {"connect", "dead_letters", "redrive"}
    for kind in PUBLIC:
        found |= {
            f"{kind.__name__}.{name}"
            for part in kind.__mro__
            if part.__name__ == kind.__name__  # the connection has two: streams, and schedulers on them
            for name, item in vars(part).items()
            if not name.startswith("_") and inspect.isfunction(item)
        }
    return found


def guaranteed() -> list[str]:
    return [call for cells in rows(GUARANTEES.read_text()) for call in re.findall(r"^`([\w.]+)`$", cells[0])]


def test_every_call_has_its_row():
    calls = guaranteed()
    assert sorted(calls) == sorted(set(calls)), "a call has two rows"
    assert set(calls) == public_calls()


def test_every_row_names_a_test():
    for cells in rows(GUARANTEES.read_text()):
        if re.match(r"^`[\w.]+`$", cells[0]):
            assert len(cells) == 6, cells
            assert "`tests/" in cells[-1], f"{cells[0]} names no test"


@pytest.mark.parametrize(
    "heading", ["What holds on every bus", "What differs from bus to bus", "The life of a scheduled event"]
)
def test_every_promise_names_a_test(heading):
    for cells in rows(section(GUARANTEES, heading)):
        assert "`tests/" in cells[-1], f"{cells[0]} names no test"


def contracts() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src" / "lockstep" / "testing").glob("contract_*.py"))


def test_every_test_named_there_exists():
    references = re.findall(r"`(tests/[^`]+)`", "\n".join(page.read_text() for page in PAGES if DOCS in page.parents))
    assert references
    for reference in references:
        path, _, test = reference.partition("::")
        assert (ROOT / path).exists(), reference
        if not test:
            continue
        source = (ROOT / path).read_text() + (contracts() if path.startswith("tests/contract/") else "")
        assert re.search(rf"^\s*(?:async )?(?:def|class) {re.escape(test)}\b", source, re.MULTILINE), reference
