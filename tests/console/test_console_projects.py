"""Pages and REST of projects: who leads, what became of those who led, what limits, and the rows that windows hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "engine"))

from cluster_worlds import NOW, World
from console_worlds import ConsoleWorld
from failover_worlds import finish, pair, send
from local_cluster import LocalCluster
from run_worlds import SUMS, TRADES, put, sums_graph

import lockstep
from lockstep.console.count_rates import PAUSE_S, CountRates, Counts, Look, Rates
from lockstep.console.lead_history import LeadHistory, PastLead
from lockstep.console.port import Asked, Site
from lockstep.console.project_graph import limit_of
from lockstep.console.projects import PROJECTS_MAX, project_views
from lockstep.core.sequence import Entry, Mark
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.parts import Connector
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, SourceWindow
from lockstep.engine.runtime.control.status import project_status
from lockstep.engine.runtime.sequence.entries import Decision, Statement, encode
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.log.memory import MemoryBroker
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep
from lockstep.testing import VirtualRuntime

WANTED = frozenset({"q/sums"})
PASSWORD = "tell-nobody-of-this"


class Console:
    """A console over projects on a bus in virtual time; what it keeps for itself is on another bus."""

    def __init__(self, bus, clock) -> None:
        self.bus, self.clock = bus, clock
        self.views = project_views(Site(Lockstep(bus, clock), clock, "local"))
        self.client = lockstep.connect("memory:")
        self.world = ConsoleWorld(self.client, [self.views.pillar()])
        self.admin = self.world.token(Role.ADMIN)

    def tree(self, path: str):
        answer = self.world.get(f"/api/v1{path}")
        assert answer.status == 200, answer.text
        page = self.world.get(path, accept="text/html")
        assert page.status == 200, page.text
        return answer.tree

    def page(self, path: str) -> str:
        return self.world.get(path, accept="text/html").text

    def do(self, path: str, **tree):
        answer = self.world.post(f"/api/v1{path}", tree, self.admin)
        return answer.status, answer.tree

    def look(self, seconds: float) -> None:
        """Listen, second by second, as it does in the background."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            self.views._watch.listen()

    def close(self) -> None:
        self.world.close()
        self.client.close()


@pytest.fixture
def opened():
    made: list[Console] = []

    def make(bus, clock) -> Console:
        made.append(Console(bus, clock))
        return made[-1]

    yield make
    for console in made:
        console.close()


@pytest.fixture
def world():
    """Reports and beats as engines write them, on a bus in memory."""
    return World()


@pytest.fixture
def console(opened, world):
    return opened(world.bus, VirtualRuntime(wall_ns=NOW))


@pytest.fixture
def cluster(tmp_path):
    return LocalCluster(sums_graph(), WANTED, tmp_path)


@pytest.fixture
def seen(opened, cluster):
    """A console beside real engines."""
    return opened(cluster.bus, cluster.clock)


def state(world: World, publish: tuple[str, ...] = ("q/sums",)) -> None:
    """Have the model stated, as the first leader does."""
    body = Decision(states=Statement(to_yaml(world.graph.project), publish)).body()
    log = world.bus.open(world.streams.sequence)
    put(log, encode(Mark(1, "a1")), encode(Entry(1, "a1", 1, "", body)))


def titles(tree) -> list[tuple[str, str]]:
    return [(problem["severity"], problem["title"]) for problem in tree["problems"]]


# --- who leads ---------------------------------------------------------------------------------------------------


def test_the_list_says_who_leads_and_how_far_the_worst_standby_lags(world, console):
    world.report("a", role="active", takeovers=2)
    world.report("b")
    world.report("c", block=4, sequenced=9, published=7)
    world.beat(7, ago_s=3.0)
    (row,) = console.tree("/projects")["projects"]
    assert (row["name"], row["active"], row["epoch"], row["published"], row["sequenced"]) == ("p", "a", 1, 7, 9)
    assert (row["lag_blocks"], row["lag_s"], row["takeovers"], row["rate"]) == (5, 2.5, 2, None)
    assert "not measured yet" in console.page("/projects")


def test_no_standby_is_no_lag_of_zero(world, console):
    world.report("a", role="active")
    world.beat(7)
    (row,) = console.tree("/projects")["projects"]
    assert (row["lag_blocks"], row["lag_s"]) == (None, None)
    assert "no standby" in console.page("/projects")
    assert "There is no standby" in console.page("/projects/p")


def test_projects_are_searched_and_paged_and_only_those_of_the_page_are_read(world, console, monkeypatch):
    for number in range(30):
        ProjectStreams(cluster="local", project=f"x{number:02}").create(world.bus, world.graph, WANTED)
    looked: list[str] = []
    status = console.views._watch.status
    monkeypatch.setattr(console.views._watch, "status", lambda name: looked.append(name) or status(name))
    found = console.world.get("/api/v1/projects?q=X&size=10&page=3").tree
    assert found["page"] == {"page": 3, "pages": 3, "size": 10, "total": 30, "all": 31}
    assert looked == [row["name"] for row in found["projects"]] == [f"x{number}" for number in range(20, 30)]
    assert "No project has “y” in its name" in console.page("/projects?q=y")


def test_the_home_page_looks_at_a_bounded_number_and_says_so(world, console, monkeypatch):
    for number in range(PROJECTS_MAX + 1):
        ProjectStreams(cluster="local", project=f"x{number:02}").create(world.bus, world.graph, WANTED)
    looked: set[str] = set()
    status = console.views._watch.status
    monkeypatch.setattr(console.views._watch, "status", lambda name: looked.add(name) or status(name))
    assert "2 projects were not looked at" in [problem.title for problem in console.views.problems()]
    assert console.views.figures()[0] == ("projects", str(PROJECTS_MAX + 2), "/projects")
    assert len(looked) == PROJECTS_MAX


def test_without_a_project_the_page_says_how_to_begin(opened):
    clock = VirtualRuntime()
    console = opened(MemoryBroker().bus(clock), clock)
    assert "lockstep engine run MODEL" in console.page("/projects")
    assert console.views.figures() == [("projects", "0", "/projects")]
    assert console.world.get("/api/v1/projects/nix").tree["error"]["code"] == "NOT_FOUND"


def test_an_engine_that_is_heard_leads_whatever_its_clock_says(world, console):
    # Given engines whose clocks are an hour slow, and a console that listens
    world.report("a", role="active", ago_s=3600.0)
    world.report("b", ago_s=3600.0)
    world.beat(7, ago_s=3600.0)
    console.look(1)
    # When only one of them goes on
    for _ in range(7):
        world.report("a", role="active", ago_s=3600.0)
        console.look(1)
    # Then the first page that is opened knows it
    found = console.tree("/projects/p")
    assert [(row["engine"], row["role"]) for row in found["engines"]] == [("a", "active"), ("b", "silent")]
    assert titles(found) == [("warning", "Project p has a silent engine: b")]


def test_it_listens_in_the_background_until_it_is_closed(world, console):
    world.report("a", role="active", ago_s=3600.0)
    world.beat(7, ago_s=3600.0)
    console.views.start()
    console.clock.advance(1.5)
    world.report("a", role="active", ago_s=3600.0)
    console.clock.advance(1.5)
    assert console.tree("/projects/p")["active"] == "a"
    console.views.close()
    console.clock.advance(6.0)
    world.report("a", role="active", ago_s=3600.0)
    assert console.tree("/projects/p")["active"] is None, "nobody listened when it was heard"


def test_every_problem_has_a_reason_a_link_and_a_command(world, console):
    world.report("a", role="active", ago_s=9.0, epoch=1)
    world.report("b", role="active", epoch=2, counts={"q/in": [1, 1, 1, {}]})
    world.report("c", state="starting", epoch=2)
    world.report("d", block=2, sequenced=7, published=7, epoch=2)
    world.beat(7, ago_s=9.0)
    world.report("e", role="active", epoch=1)
    world.beat(7, running=False)
    found = console.tree("/")["problems"]
    assert sorted(titles({"problems": found})) == [
        ("critical", "Project p has engines with different counts"),
        ("warning", "Project p has a silent engine: a"),
        ("warning", "Project p has a standby that is not in step: d"),
        ("warning", "Project p has a standby that is starting: c"),
        ("warning", "Project p has an engine that was replaced: e"),
        ("warning", "Project p is stopped"),
    ]
    assert all(problem["reason"] and problem["command"] for problem in found)
    assert {problem["link"] for problem in found} == {"/projects/p"}
    silent = next(problem for problem in found if "silent" in problem["title"])
    assert silent["since_ms"] == NOW // 10**6 - 9_000


@pytest.mark.parametrize(
    ("engines", "severity", "words"),
    [
        ({}, "critical", "No engine has reported"),
        ({"a": {"role": "active", "ago_s": 20.0}, "b": {"ago_s": 9.0}}, "critical", "a, b did not report"),
        ({"a": {"state": "stopping", "ago_s": 20.0}}, "warning", "ended in order"),
        ({"a": {"role": "active", "ago_s": 20.0}, "b": {}}, "critical", "b runs, and did not take over yet"),
    ],
)
def test_why_no_engine_is_active(world, console, engines, severity, words):
    for engine, said in engines.items():
        world.report(engine, **said)
    world.beat(7)
    problem = console.tree("/projects/p")["problems"][0]
    assert (problem["severity"], problem["title"]) == (severity, "Project p has no active engine")
    assert words in problem["reason"]


# --- failover ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_led_survives_failovers_and_the_console(cluster, seen, opened):
    # Given an active engine and a standby
    active, _ = pair(cluster)
    seen.look(2)
    before = seen.tree("/projects/p")
    assert [(row["epoch"], row["engine"], row["is_now"]) for row in before["leads"]] == [(1, "a", True)]
    assert (before["problems"], before["active"]) == ([], "a")
    # When the active one is killed
    active.kill()
    cluster.until_active("b")
    finish(cluster, 6, 7)
    seen.look(7)
    # Then the pages say who leads, who is silent since when, and who led
    after = seen.tree("/projects/p")
    assert (after["active"], after["published"]) == ("b", 7)
    assert titles(after) == [("warning", "Project p has a silent engine: a")]
    assert [(row["epoch"], row["engine"], row["now"]) for row in after["leads"]] == [
        (2, "b", "leads"),
        (1, "a", "is silent"),
    ]
    # And so does another console, after the engine was started again
    active.start()
    finish(cluster, 8)
    cluster.advance(1.5)
    other = opened(cluster.bus, cluster.clock)
    found = other.tree("/projects/p")
    assert [(row["epoch"], row["engine"], row["now"]) for row in found["leads"]] == [
        (2, "b", "leads"),
        (1, "a", "is gone"),
    ]
    assert found["leads"] == sorted(found["leads"], key=lambda row: -row["at_ms"])
    assert titles(found) == []


@pytest.mark.slow
def test_acts_do_what_their_previews_say(cluster, seen):
    pair(cluster)
    seen.look(2)
    # A hand-over
    status, told = seen.do("/projects/p/handover", dry_run=True)
    assert (status, told["effect"].startswith("b leads in a new epoch, and a follows.")) == (200, True)
    assert told["rows"] == [
        {"engine": "a", "role before": "active", "role after": "standby"},
        {"engine": "b", "role before": "standby", "role after": "active"},
    ]
    assert seen.do("/projects/p/handover") == (200, {"from": "a", "standbys": ["b"]})
    cluster.until_active("b")
    cluster.settle()
    seen.look(2)
    # Stop it, and have it run again
    assert seen.do("/projects/p/state", value="stopped")[1]["error"]["code"] == "NOT_CONFIRMED"
    assert seen.do("/projects/p/state", value="stopped", confirm="p") == (200, {"state": "stopped"})
    send(cluster, 10, 11, 12)
    seen.look(2)
    assert seen.tree("/projects/p/graph")["limit"]["at"] == "stopped"
    status, told = seen.do("/projects/p/state", value="running", dry_run=True)
    assert "beginning with 3 records" in told["effect"]
    assert seen.do("/projects/p/state", value="running", confirm="p")[0] == 200
    cluster.settle()
    # Start of day
    status, told = seen.do("/projects/p/reset", dry_run=True)
    held = {row["stream"]: row["records"] for row in told["rows"]}
    assert (status, held["local.p.q.in.I"]) == (200, 8)
    assert seen.do("/projects/p/reset", confirm="p")[0] == 200
    seen.look(2)
    assert {row["rows"] for row in seen.tree("/projects/p/windows")["windows"]} == {0}
    assert seen.tree("/projects/p")["problems"] == []
    assert cluster.input("q/in").bounds().count == 0


@pytest.mark.slow
def test_a_hand_over_without_a_standby_is_refused_as_its_preview_says(cluster, seen):
    cluster.start("a")
    cluster.until_active("a")
    finish(cluster, 1)
    seen.look(2)
    assert "refused" in seen.do("/projects/p/handover", dry_run=True)[1]["effect"]
    assert seen.do("/projects/p/handover")[1]["error"]["code"] == "NO_STANDBY"
    assert "a, which leads" in seen.do("/projects/p/persist", dry_run=True)[1]["effect"]
    assert "--persist-to" in str(seen.do("/projects/p/persist")[1]["error"])


def test_acts_need_their_roles(world, console):
    world.report("a", role="active")
    world.beat(7)
    viewer, operator = (console.world.token(role) for role in (Role.VIEWER, Role.OPERATOR))
    for act in ("handover", "persist", "state"):
        assert console.world.post(f"/api/v1/projects/p/{act}", {}, viewer).status == 403
    for act in ("trim", "reset"):
        assert console.world.post(f"/api/v1/projects/p/{act}", {"dry_run": True}, operator).status == 403


# --- the model ---------------------------------------------------------------------------------------------------


def secret_graph():
    """A source with a connector that has a password."""
    properties = (("type", "pub"), ("rmqpassword", PASSWORD), ("url", f"amqp://me:{PASSWORD}@h/"), ("rmqtopic", "t"))
    windows = (
        SourceWindow(name="in", schema=TRADES, connectors=(Connector(kind="rmq", name="r", properties=properties),)),
        AggregateWindow(name="sums", schema=SUMS, fields=("ESP_aSum(price)",)),
    )
    query = ContinuousQuery(name="q", windows=windows, edges=(Edge(source="in", target="sums"),))
    return compile_project(Project(name="p", queries=(query,)))


def test_secrets_of_connectors_are_on_no_page(opened):
    world = World(secret_graph())
    console = opened(world.bus, VirtualRuntime(wall_ns=NOW))
    world.report("a", role="active")
    state(world)
    for path in ("/projects", "/projects/p", "/projects/p/graph", "/projects/p/windows", "/projects/p/windows/q/in"):
        assert PASSWORD not in console.page(path) + console.world.get(f"/api/v1{path}").text
    (shown,) = console.tree("/projects/p/windows/q/in")["connectors"]
    assert ["rmqtopic", "t"] in shown["properties"]
    assert [name for name, value in shown["properties"] if "*" in value] == ["rmqpassword"]


def test_rates_are_differences_between_two_looks_by_the_own_clock(world, console):
    state(world)
    world.report("a", role="active")
    world.beat(7, counts={"q/in": [7, 7, 7, {}], "q/sums": [2, 7, 12, {}]})
    first = console.tree("/projects/p/graph")
    assert [(edge["from"], edge["to"], edge["rate"]) for edge in first["edges"]] == [("q/in", "q/sums", None)]
    assert first["limit"]["at"] == "unknown"
    console.look(5)
    world.report("a", role="active", block=107, sequenced=107, published=107)
    world.beat(107, counts={"q/in": [107, 107, 57, {"late": 2}], "q/sums": [2, 57, 112, {}]})
    console.look(5)
    found = console.tree("/projects/p/graph")
    assert found["edges"][0]["rate"] == pytest.approx(50 / found["rate_s"])
    assert found["limit"]["at"] == "nothing"
    assert found["nodes"][0] | {"link": ""} == {
        "id": "q/in", "label": "in", "kind": "source", "note": "source, 107 rows", "state": "", "link": "",
        "rows": 107, "is_published": False, "bad": 2,
    }  # fmt: skip
    assert 'href="/projects/p/windows/q/in"' in console.page("/projects/p/graph")
    (source, sums) = console.tree("/projects/p/windows")["windows"]
    assert source["in_rate"] == pytest.approx(100 / found["rate_s"])
    assert (source["bad"], sums["out"], sums["is_published"]) == ({"late": 2}, 112, True)


def test_a_project_that_says_nothing_of_its_model_has_a_page_and_no_graph(world, console):
    assert console.tree("/projects/p")["leads"] == []
    assert console.world.get("/api/v1/projects/p/graph").tree["error"]["code"] == "PROJECT_NOT_STATED"


RATES = Rates(10.0, 100.0, 100.0, {"q/in": 100.0, "q/sums": 50.0}, {"q/in": 100.0})


@pytest.mark.parametrize(
    ("engine", "published", "waiting", "at", "window"),
    [
        ({}, 7, 0, "nothing", None),
        ({"block": 100, "sequenced": 500}, 100, 0, "engines", "q/in"),
        ({"block": 500, "sequenced": 500}, 100, 0, "output", None),
        ({}, 7, 900, "input", None),
        ({"ago_s": 60.0}, 7, 900, "no engine", None),
    ],
)
def test_what_limits_is_where_most_waits(world, engine, published, waiting, at, window):
    world.report("a", role="active", **engine)
    world.beat(published)
    found = limit_of(project_status(world.bus, "local", "p", NOW), RATES, waiting)
    assert (found.at, found.window) == (at, window)


def test_rates_begin_again_after_a_pause_and_leave_out_what_went_backwards():
    rates = CountRates()
    assert rates.rates() is None
    for at_s, count in ((0.0, 0), (0.5, 5), (1.0, 10), (2.0, 40)):  # the second comes too soon
        rates.add(Look(at_s, count, count, {"w": Counts(0, count, 2 * count), "n": Counts(0, 9 - count, 0)}))
    assert rates.rates() == Rates(2.0, 20.0, 20.0, {"w": 20.0}, {"w": 40.0})
    rates.add(Look(2.0 + PAUSE_S + 1, 40, 40, {}))
    assert rates.rates() is None
    for second in range(1, 30):
        rates.add(Look(63.0 + second, 40 + second, 40 + second, {}))
    assert (rates.rates().seconds, rates.rates().blocks) == (10.0, 1.0)


# --- windows -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_rows_of_a_window_by_page_and_by_key(cluster, seen):
    cluster.start("a")
    cluster.until_active("a")
    finish(cluster, *range(1, 10))
    seen.look(2)
    path = "/projects/p/windows/q/sums"
    found = seen.tree(f"{path}?size=2")
    assert found["held"] == {
        "why": None, "command": None, "block": 9, "rows": [["B", "3.0"], ["C", "3.75"]],
        "page": {"page": 1, "pages": 2, "size": 2, "total": 3, "all": 3},
    }  # fmt: skip
    assert found["fields"][0] == {"name": "symbol", "type": "string", "key": True}
    assert seen.tree(f"{path}?q=a")["held"]["rows"] == [["A", "4.5"]]
    assert "No row has “x” in its key" in seen.page(f"{path}?q=x")
    # What is not published is said in words
    held = seen.tree("/projects/p/windows/q/in")["held"]
    assert held["rows"] is None
    assert "not published" in held["why"]
    assert "--publish q/in" in held["command"]
    # What was trimmed, too
    cluster.output("q/sums").trim(5)
    assert "no longer on" in project_views(Site(Lockstep(cluster.bus, cluster.clock), cluster.clock, "local")).window(
        Asked(path=path, names={"project": "p", "query": "q", "window": "sums"}, values={"q": "", "page": 1, "size": 9})
    )["held"]["why"]  # fmt: skip


def test_bad_records_of_a_window(world, console):
    state(world)
    world.report("a", role="active")
    world.beat(7, counts={"q/in": [7, 7, 7, {"null-key": 2}]})
    bad = '{"window": "%s", "block": %d, "reason": "null-key", "detail": "field ID"}'
    records = [(bad % (name, at)).encode() for at, name in enumerate(["q/in", "q/x", "q/in"])]
    put(world.bus.open(world.streams.bad), *records, b"no JSON")
    found = console.tree("/projects/p/windows/q/in")
    assert found["bad"] == {"null-key": 2}
    assert [row["block"] for row in found["bad_records"]] == [2, 0]
    assert console.tree("/projects/p/windows/q/sums")["rows"] is None


@pytest.mark.parametrize("path", ["q/nix", "x/in", "q/..%2Fin", "q/%00", "q/%F0%9F%98%80"])
def test_a_window_that_is_not_there(world, console, path):
    state(world)
    world.report("a", role="active")
    assert console.world.get(f"/api/v1/projects/p/windows/{path}").tree["error"]["code"] == "WINDOW_NOT_FOUND"


# --- without the packages of engines -----------------------------------------------------------------------------

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "pyarrow", "numpy", "pandas", "numba", "msgpack"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from pathlib import Path
import lockstep
from lockstep.console.assembly import opened_parts
with lockstep.connect("memory:") as client, opened_parts(client, "local", Path(sys.argv[1])) as parts:
    print([pillar.name for pillar in parts.pillars], *parts.left_out)
"""


def test_without_the_packages_of_engines_projects_are_left_out_with_a_sentence(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "'projects'" not in done.stdout, done.stderr
    assert "Projects are left out." in done.stdout
    assert "pip install 'lockstep-events[engine]'" in done.stdout
    assert "The fleet is left out" in done.stdout
    assert "'schedules'" in done.stdout


def trim_marks(world: World) -> None:
    log = world.bus.open(world.streams.sequence)
    put(log, encode(Entry(2, "b1", 2, "", Decision({}, 0, 0).body())))
    log.trim(log.bounds().next - 1)


def test_who_led_survives_trims_and_the_console(world, console, opened):
    # Given two epochs, and a server that listened
    state(world)
    world.report("a", role="active")
    world.beat(7)
    console.look(1)
    put(world.bus.open(world.streams.sequence), encode(Mark(2, "b1")))
    world.report("b", role="active", epoch=2)
    console.clock.advance(2.0)
    first = [(row["epoch"], row["engine"]) for row in console.tree("/projects/p")["leads"]]
    assert first == [(2, "b"), (1, "a")]
    # When the marks and the reports are trimmed, and another server looks
    trim_marks(world)
    reports = world.bus.open(world.streams.reports)
    reports.trim(reports.bounds().next)
    other = opened(world.bus, VirtualRuntime(wall_ns=NOW))
    found = other.tree("/projects/p")
    # Then it knows them
    assert [(row["epoch"], row["engine"]) for row in found["leads"]] == first
    assert found["leads_left_out"] == 0


def test_what_is_kept_of_leaders_is_kept_once(world, console, opened):
    state(world)
    world.report("a", role="active")
    world.beat(7)
    for one in (console, opened(world.bus, VirtualRuntime(wall_ns=NOW))):
        one.look(3)
        one.tree("/projects/p")
    assert world.bus.open("console.leads").bounds().count == 1


def test_a_project_that_was_made_anew_has_a_history_of_its_own():
    bus, clock = MemoryBroker().bus(VirtualRuntime()), VirtualRuntime()
    history = LeadHistory(bus, clock)
    lead = PastLead(epoch=1, incarnation="a1", at_ns=5)
    assert history.merged("one", [lead], 9) == [lead]
    named = PastLead(epoch=1, incarnation="a1", at_ns=None, engine="a", host="h")
    whole = PastLead(epoch=1, incarnation="a1", at_ns=5, engine="a", host="h")
    assert history.merged("one", [named], 9) == [whole]
    assert LeadHistory(bus, clock).merged("one", [], 9) == [whole]
    assert LeadHistory(bus, clock).merged("two", [], 9) == []
    right = PastLead(epoch=1, incarnation="b1")
    assert history.merged("one", [right], 9) == [right], "the mark on the log is right"
