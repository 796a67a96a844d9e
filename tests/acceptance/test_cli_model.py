"""Looking at models: all faults at once, the plan, a picture, and every form turned into every other."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from cli_command import Command, InProcess
from cli_models import CLOCKED, FAULTY, put_trades

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]


@pytest.fixture
def lockstep(tmp_path) -> InProcess:
    put_trades(tmp_path)
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    (tmp_path / "clocked.yaml").write_text(CLOCKED)
    return InProcess(tmp_path)


def test_a_sound_model_is_told_in_two_lines(lockstep) -> None:
    assert lockstep("model", "check", "trades.xml").lines == [
        "trades is valid: 7 windows, 6 edges; events come in at trades/TradesSource.",
        "No answer depends on a wall clock.",
    ]


def test_all_faults_are_shown_with_their_places_and_remedies(lockstep) -> None:
    shown = lockstep("model", "check", "faulty.yaml", code=1)
    assert shown.lines[0] == "faulty (4 windows, 4 edges) has 4 faults."
    assert shown.err == ""
    found = lockstep("model", "check", "faulty.yaml", "--json", code=1).object
    assert not found["ok"]
    assert [fault["place"] for fault in found["blockers"]] == [
        "query q",
        "q/A field sum",
        "q/F expression",
        "q/C retention",
    ]
    for fault in found["blockers"]:
        assert f"line {fault['line']}, {fault['place']}" in shown.out
        assert fault["message"] in shown.out
        assert fault["fix"] in shown.out


def test_windows_that_depend_on_a_wall_clock_are_named(lockstep) -> None:
    found = lockstep("model", "check", "clocked.yaml", "--json").object
    assert found["ok"]
    assert [use["window"] for use in found["clock_dependence"]] == ["q/C", "q/F"]
    shown = lockstep("model", "check", "clocked.yaml").out
    assert "2 windows with answers that depend on a wall clock" in shown
    assert found["clock_dependence"][0]["remedy"] in shown


def test_modules_that_are_not_there_are_warned_about(lockstep, tmp_path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("raise SystemExit('it was run')\n")
    (tmp_path / "parts" / "there.py").write_text("")
    windows = "".join(
        f"      - {{kind: procedural, name: {name}, schema: 'id*:int64', module: {module}, handler: f}}\n"
        for name, module in (("A", "parts.there"), ("B", "parts.gone"), ("C", "gone.too"))
    )
    (tmp_path / "code.yaml").write_text(
        "name: code\nqueries:\n  - name: q\n    windows:\n      - {kind: source, name: S, schema: 'id*:int64'}\n"
        f"{windows}    edges: [S -> A B C]\n"
    )
    command = Command(lockstep.folder)  # a process of its own heeds PYTHONPATH
    found = command("model", "check", "code.yaml", "--json", PYTHONPATH=str(tmp_path)).object
    assert (found["ok"], [item["window"] for item in found["missing_modules"]]) == (True, ["q/B", "q/C"])
    shown = command("model", "check", "code.yaml", PYTHONPATH=str(tmp_path))
    assert "Warning: q/B: the module parts.gone can't be found. Put the folder it is in on PYTHONPATH" in shown.err


def test_a_file_that_is_no_model_is_refused_with_line_and_column(lockstep, tmp_path) -> None:
    (tmp_path / "open.xml").write_text("<project name='x'>\n  <surprise/>\n</project>\n")
    error = lockstep("model", "explain", "open.xml", "--json", code=2).error
    assert error["code"] == "MODEL_UNREADABLE"
    assert "line 2, column" in error["message"]
    found = lockstep("model", "check", "open.xml", "--json", code=1).object
    assert [(one["line"], one["kind"]) for one in found["blockers"]] == [(1, "model"), (2, "element")]
    assert "line 2, column 3" in lockstep("model", "check", "open.xml", code=1).out


def test_connectors_are_looked_at_and_take_the_environment(lockstep, tmp_path) -> None:
    source = (
        "<window-source name='S'><schema-string>id*:int64</schema-string><connectors>{}</connectors></window-source>"
    )
    connector = (
        "<connector class='fs' name='c'><properties><property name='fsname'>@{}@/in.csv</property></properties>"
        "</connector>"
    )
    model = (
        "<project name='p'>\n<contqueries><contquery name='q'><windows>\n{}\n</windows></contquery></contqueries>"
        "</project>"
    )
    (tmp_path / "home.xml").write_text(model.format(source.format(connector.format("ESP_PROJECT_HOME"))))
    assert lockstep("model", "check", "home.xml", "--json").object["blockers"] == []
    (tmp_path / "set.xml").write_text(model.format(source.format(connector.format("LOCKSTEP_TEST_NOWHERE"))))
    [only] = lockstep("model", "check", "set.xml", "--json", code=1).object["blockers"]
    assert (only["line"], only["kind"], only["place"]) == (3, "variable", "q/S connector c")
    lockstep.folder.joinpath("web.xml").write_text(model.format(source.format("<connector class='url' name='c'/>")))
    shown = lockstep("model", "check", "web.xml", code=1)
    assert "line 3, q/S connector c" in shown.out
    assert "[FILE_MISSING]" in lockstep("model", "check", "nothing.yaml", code=3).err


def test_other_commands_show_the_faults_of_a_model_line_by_line(lockstep) -> None:
    for command in ("explain", "graph"):
        arguments = ["-o", "x.svg"] if command == "graph" else []
        err = lockstep("model", command, "faulty.yaml", *arguments, code=2).err
        assert "[MODEL_INVALID] The model faulty has 4 fault(s):\n  query q: The edge S -> Nope" in err
    assert not (lockstep.folder / "x.svg").exists()


def test_explain_says_how_each_window_is_run_and_why(lockstep) -> None:
    shown = lockstep("model", "explain", "trades.yaml")
    assert shown.lines[0] == "trades runs on any number of shards."
    heads = [line.split() for line in shown.lines if line.startswith("trades/")]
    assert [(words[0], words[1], words[2], words[3]) for words in heads[:2]] == [
        ("trades/TradesSource", "source", "1", "whole"),
        ("trades/Copy5MinRet", "copy", "2", "divided"),
    ]
    data = lockstep("model", "explain", "trades.yaml", "--json").object
    assert data["max_shards"] is None
    for row in data["windows"]:
        assert row["why"] in shown.out
        assert row["state"] in shown.out


def test_a_model_on_the_model_s_clock_says_so_in_its_plan(lockstep) -> None:
    shown = lockstep("model", "explain", "clocked.yaml").out
    assert "model clock" in shown
    assert "Answers that depend on a wall clock" in shown
    windows = lockstep("model", "explain", "clocked.yaml", "--json").object["windows"]
    slow = {window["form_why"] for window in windows if window["form"] == "rows"}
    assert slow
    assert all(f"  {why}\n" in shown for why in slow)
    assert "Row by row, with the same answer" in shown


@pytest.mark.parametrize("form", ["yaml", "xml", "py"])
def test_the_picture_is_svg_with_every_window(lockstep, tmp_path, form) -> None:
    assert lockstep("model", "graph", f"trades.{form}", "-o", "model.svg").lines == [
        "Drew 7 windows and 6 edges of trades into model.svg."
    ]
    drawn = (tmp_path / "model.svg").read_bytes()
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    words = " ".join(root.itertext())
    for name in ("TradesSource", "Copy5MinRet", "Aggregate24HR"):
        assert name in words
    assert lockstep("model", "graph", f"trades.{form}", "-o", "-").raw == drawn


def test_a_picture_that_can_not_be_written_leaves_nothing(lockstep, tmp_path) -> None:
    before = sorted(tmp_path.iterdir())
    assert "there is no folder 'no'" in lockstep("model", "graph", "trades.yaml", "-o", "no/x.svg", code=3).err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("target", ["yaml", "xml", "py"])
def test_every_form_converts_to_every_other_and_back(lockstep, tmp_path, target) -> None:
    for source in ("yaml", "xml", "py"):
        lockstep("model", "convert", f"trades.{source}", "-o", f"from-{source}.{target}")
    written = {(tmp_path / f"from-{source}.{target}").read_bytes() for source in ("yaml", "xml", "py")}
    assert len(written) == 1
    back = lockstep("model", "convert", f"from-xml.{target}", "--to", "yaml").raw
    assert back == lockstep("model", "convert", "trades.yaml", "--to", "yaml").raw


def test_a_form_that_nobody_named_is_asked_for(lockstep) -> None:
    assert "Say which form you want" in lockstep("model", "convert", "trades.yaml", code=2).err
    assert "'x.txt' does not say which form" in lockstep("model", "convert", "trades.yaml", "-o", "x.txt", code=2).err
    assert "Did you mean 'yaml'?" in lockstep("model", "convert", "trades.yaml", "--to", "yml", code=2).err


IDLE = """<project name="idle"><contqueries><contquery name="q"><windows>
<window-source name="S"><schema-string>id*:int64,n:int64</schema-string></window-source>
<window-aggregate name="A"><schema-string>n*:int64,c:int64</schema-string>
<output><field-expr>ESP_aCount()</field-expr></output></window-aggregate>
</windows></contquery></contqueries></project>
"""


def test_a_window_that_no_edge_leads_to_is_a_warning_with_its_line(lockstep, tmp_path) -> None:
    (tmp_path / "idle.xml").write_text(IDLE)
    found = lockstep("model", "check", "idle.xml", "--json").object
    (item,) = found["warnings"]
    assert (found["ok"], found["blockers"], item["line"], item["place"]) == (True, [], 3, "q/A")
    assert "Warning: line 3, q/A: It is an aggregate window" in lockstep("model", "check", "idle.xml").err
    explained = lockstep("model", "explain", "idle.xml").out
    assert "no edge leads to it" in explained
    (tmp_path / "in.csv").write_text("i,n,1,2\n")
    for runner in ("reference", "local"):
        rows = lockstep("model", "run", "idle.xml", "--in", "S=in.csv", "--runner", runner, "--json").object["windows"]
        assert [(row["window"], row["out"]) for row in rows] == [("q/S", 1), ("q/A", 0)]


def test_an_engine_starts_for_a_model_that_publishes_nothing(lockstep, tmp_path) -> None:
    silent = IDLE.replace('name="S"', 'name="S" pubsub="false"').replace('name="A"', 'name="A" pubsub="false"')
    (tmp_path / "silent.xml").write_text(silent)
    command = Command(lockstep.folder)
    done = command("engine", "run", "silent.xml", "--runner", "local", "--until-idle", "--bus", "lmdb:bus")
    assert "No window of idle is published" in done.err
    assert "q/A: It is an aggregate window, but no edge leads to it." in done.err
    assert not [name for name in command("stream", "ls", "--bus", "lmdb:bus").lines if ".O" in name]
