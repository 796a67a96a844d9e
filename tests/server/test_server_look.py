"""Routes that look: what ESP's clients see, as XML and as JSON."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from math import inf

import pytest
from server_worlds import BASE, View, served

import lockstep
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.loading import parse_xml
from lockstep.engine.model.parts import Connector
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.values import HIDDEN
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, SourceWindow
from lockstep.engine.model.xml_elements import render
from lockstep.server.site import model_element

TRADES = Schema.parse("ID*:int32,symbol:string,price:double")
SUMS = Schema.parse("symbol*:string,total:double")
DAY_NS = 86_400 * 10**9

FIGURE_8 = """\
<windows>
  <window-aggregate contquery="trades" count="3068" name="Aggregate1HR" project="tradesRMQ"/>
  <window-aggregate contquery="trades" count="3608" name="Aggregate24HR" project="tradesRMQ"/>
  <window-aggregate contquery="trades" count="1941" name="Aggregate5min" project="tradesRMQ"/>
  <window-copy contquery="trades" count="359951" name="Copy1HRRet" project="tradesRMQ"/>
  <window-copy contquery="trades" count="1000000" name="Copy24HRRet" project="tradesRMQ"/>
  <window-copy contquery="trades" count="29951" name="Copy5MinRet" project="tradesRMQ"/>
  <window-source contquery="trades" count="1000000" name="TradesSource" project="tradesRMQ"/>
</windows>
"""


def document_view() -> View:
    """The document's project with the counts of its figure 8."""
    counts = {"TradesSource": 1000000, "Copy5MinRet": 29951, "Copy1HRRet": 359951, "Copy24HRRet": 1000000,
              "Aggregate5min": 1941, "Aggregate1HR": 3068, "Aggregate24HR": 3608}  # fmt: skip
    windows = [SourceWindow(name="TradesSource", schema=TRADES)]
    edges = []
    for span in ("5Min", "1HR", "24HR"):
        windows += [CopyWindow(name=f"Copy{span}Ret")]
        name = f"Aggregate{span.replace('Min', 'min')}"
        windows += [AggregateWindow(name=name, schema=SUMS, fields=("ESP_aSum(price)",))]
        edges += [Edge(source="TradesSource", target=f"Copy{span}Ret"), Edge(source=f"Copy{span}Ret", target=name)]
    query = ContinuousQuery(name="trades", windows=tuple(windows), edges=tuple(edges))
    view = View(compile_project(Project(name="tradesRMQ", queries=(query,))), frozenset())
    view.told = replace(view.told, counts={f"trades/{name}": [rows, 0, 0, {}] for name, rows in counts.items()})
    return view


@pytest.fixture
def view() -> View:
    return View()


@pytest.fixture
def ask(view):
    with served(view) as client:
        yield client


def test_windows_with_counts_are_the_documents_figure_8():
    with served(document_view()) as client:
        assert client.xml("/windows") == FIGURE_8
        assert client.xml("/windows?count=true") == FIGURE_8
        assert client.xml("/windows?type=window-source").count("<window-") == 1
        assert client.xml("/windows?type=copy&project=tradesRMQ&contquery=trades").count("<window-copy") == 3
        assert client.xml("/windows?name=Aggregate1HR").count("3068") == 1


def test_windows_as_json(ask):
    assert ask.get("/windows").json == {
        "windows": [
            {"type": "window-source", "contquery": "q", "count": 7, "name": "in", "project": "p"},
            {"type": "window-aggregate", "contquery": "q", "count": 2, "name": "sums", "project": "p"},
        ]
    }


def test_a_window_that_was_not_counted_yet_has_no_rows(view, ask):
    view.told = replace(view.told, counts={})
    assert [window["count"] for window in ask.get("/windows").json["windows"]] == [0, 0]


@pytest.mark.parametrize(
    ("path", "accept", "kind"),
    [
        ("", None, "application/xml"),
        ("", "*/*", "application/xml"),
        ("", "text/html,application/xml;q=0.9", "application/xml"),
        ("", "application/json", "application/json"),
        ("", "application/json;q=0.9, application/xml", "application/json"),
        ("", "text/xml, application/json", "application/xml"),
        ("?format=json", "application/xml", "application/json"),
        ("?format=xml", "application/json", "application/xml"),
    ],
)
def test_the_form_that_is_wanted(ask, path, accept, kind):
    found = ask("GET", f"{BASE}/windows{path}", headers={"Accept": accept} if accept else {})
    assert found.headers["content-type"].partition(";")[0] == kind


def test_an_unknown_form_is_refused(ask):
    found = ask("GET", f"{BASE}/windows?format=yaml")
    assert found.status == 422
    assert "<message>Parameters are wrong: format: " in found.text


@pytest.mark.parametrize(("role", "primary"), [("active", "true"), ("standby", "false")])
def test_the_server_says_whether_it_is_active(view, ask, role, primary):
    view.told = replace(view.told, role=role)
    port = ask.url.rpartition(":")[2]
    assert ask.xml("/server") == (
        f'<esp-server version="{lockstep.__version__}" engine="a" analytics-license="false" primary-server="{primary}" '
        f'pubsub="memory" http="{port}"/>\n'
    )
    assert ask.get("/server").json["esp-server"]["primary-server"] == primary


@pytest.mark.parametrize("path", ["/projects/p", "/projectXml", "/projectXml?name=p", "/runningProjects/p"])
def test_the_model_can_be_read_back(view, ask, path):
    assert compile_project(parse_xml(ask.xml(path))).fingerprint == view.model.fingerprint
    tree = ask.get(path).json
    assert (tree["name"], tree["state"], tree["windows"]) == ("p", "running", 2)
    assert parse_xml(tree["xml"]) == parse_xml(ask.xml(path))


def test_projects_are_those_of_this_engine(ask):
    assert ask.xml("/projects").startswith('<projects>\n  <project name="p">\n')
    assert [project["name"] for project in ask.get("/projects").json["projects"]] == ["p"]


@pytest.mark.parametrize(
    ("state", "running"), [("starting", 1), ("running", 1), ("draining", 1), ("stopping", 0), ("stopped", 0)]
)
def test_running_and_stopped_projects(view, ask, state, running):
    view.told = replace(view.told, state=state)
    assert len(ask.get("/runningProjects").json["projects"]) == running
    assert len(ask.get("/stoppedProjects").json["projects"]) == 1 - running
    assert ask.get("/runningProjects/p").status == (200 if running else 404)
    assert ask.get("/stoppedProjects/p").status == (404 if running else 200)


def test_a_project_that_was_told_to_stop(view, ask):
    view.world.beat(7, running=False)
    assert ask.get("/runningProjects").json["projects"] == []
    assert ask.get("/stoppedProjects/p").json["state"] == "stopped"
    view.world.beat(8, running=True)
    assert ask.get("/runningProjects/p").status == 200


def test_the_xml_of_windows(ask):
    text = ask.xml("/windowXml?contquery=q&name=sums")
    assert text.startswith('<windows>\n  <window-aggregate name="sums">\n')
    assert "ESP_aSum(price)" in text
    assert [window["name"] for window in ask.get("/windowXml").json["windows"]] == ["in", "sums"]


def test_secrets_of_connectors_are_not_shown():
    project = Project(name="p", queries=(ContinuousQuery(name="q", windows=(_with_password(),), edges=()),))
    text = render(model_element(project))
    assert "hush" not in text
    assert HIDDEN in text
    assert "topic-of-mine" in text


def _with_password() -> SourceWindow:
    properties = (("Password", "hush"), ("kafkatopic", "topic-of-mine"))
    return SourceWindow(
        name="in", schema=TRADES, connectors=(Connector(kind="kafka", name="k", properties=properties),)
    )


def test_loggers_and_their_levels(ask):
    logging.getLogger("lockstep.test_server").setLevel(logging.ERROR)
    found = {item["name"]: item["level"] for item in ask.get("/loggers").json["loggers"]}
    assert found["lockstep.test_server"] == "ERROR"
    assert "root" in found
    assert '<logger name="root" level=' in ask.xml("/loggers")


def test_the_interface_describes_itself(ask):
    tree = ask("GET", "/openapi.json").json
    assert tree == ask.get("/api-docs").json
    parameters = tree["paths"][f"{BASE}/events"]["get"]["parameters"]
    assert {item["name"] for item in parameters} >= {"window", "page", "pagesize", "filter", "format"}
    assert "422" in tree["paths"][f"{BASE}/windows"]["get"]["responses"]


@pytest.mark.parametrize(
    ("path", "code", "words"),
    [
        ("/windows?project=other", "NOT_FOUND", "It runs 'p'."),
        ("/projects/other", "NOT_FOUND", "It runs 'p'."),
        ("/windowXml?name=sum", "WINDOW_NOT_FOUND", "It has: q/sums."),
        ("/events/p/q/nix", "WINDOW_NOT_FOUND", "q/in"),
        ("/events/other/q/sums", "NOT_FOUND", "It runs 'p'."),
        ("/nothing", "NOT_FOUND", "/openapi.json"),
    ],
)
def test_what_is_not_there(ask, path, code, words):
    found = ask.get(path)
    assert (found.status, found.code) == (404, code)
    assert words in found.json["error"]["advice"]


def test_a_method_that_is_not_offered(ask):
    found = ask("DELETE", f"{BASE}/windows", headers={"Accept": "application/json"})
    assert (found.status, found.code) == (405, "USAGE")
    assert found.headers["allow"] == "GET"


def test_an_error_as_xml_survives_any_name(ask):
    found = ask("GET", f"{BASE}/projects/%01%3Cb%3E")
    assert found.status == 404
    assert "&lt;b&gt;" in found.text


def test_how_the_project_stands(view, ask):
    view.told = replace(view.told, role="active")
    view.world.report("a", role="active", at_ns=2**62)
    view.world.report("b", buffer_blocks=5, at_ns=2**62)
    view.world.beat(7)
    found = ask("GET", "/v1/status").json
    assert (found["engine"], found["role"], found["active"], found["epoch"], found["ok"]) == (
        "a",
        "active",
        "a",
        1,
        True,
    )
    standby = found["engines"][1]
    assert (standby["role"], standby["lag_blocks"], standby["lag_s"], standby["buffer_percent"]) == (
        "standby",
        0,
        0.0,
        5.0,
    )
    assert standby["snapshot_age_s"] is None
    assert found["windows"][0]["rows"] == 7


def test_who_is_silent_is_what_the_engine_has_heard_and_not_what_clocks_say(view, ask):
    # Given an engine whose clock is a day slow, and one that was killed, and whose clock was a day ahead
    view.world.report("a", role="active", at_ns=time.time_ns() - DAY_NS)
    view.world.report("b", at_ns=time.time_ns() + DAY_NS)
    # When the engine that is asked has heard the one, and not the other in all the time that it takes to be sure
    view.silences = {"a": 0.5, "b": inf}
    first, second = ask("GET", "/v1/status").json["engines"]
    # Then the one is alive
    assert (first["engine"], first["role"], first["report_age_s"]) == ("a", "active", 0.5)
    assert (second["engine"], second["role"], second["report_age_s"]) == ("b", "silent", 0.0)
