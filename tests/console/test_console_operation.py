"""Health, readiness, metrics and the dashboard of a running server with data."""

from __future__ import annotations

import json
import re
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path.append(str(Path(__file__).parent))

from contract_worlds import contract
from prometheus_client.parser import text_string_to_metric_families

import lockstep
from lockstep.console.metrics import KEPT_S, PREFIX, Histogram, ServerMetrics
from lockstep.console.operation import Operation
from lockstep.console.port import Pillar, Site, View
from lockstep.console.server import Console, ConsoleOptions
from lockstep.errors import Unavailable
from lockstep.server.access import Role
from lockstep.server.guard import Limits
from lockstep.testing.virtual import VirtualRuntime

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "serve-metrics.md"
ENDINGS = ("_total", "_bucket", "_count", "_sum")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with contract(tmp_path_factory.mktemp("console")) as world:
        yield world


def families(world, role=None) -> dict:
    status, headers, body = world.ask("GET", "/metrics", role=role)
    assert status == 200, body
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(body.decode()))
    names = [family.name for family in found]
    assert len(names) == len(set(names)), "each family is in the text once"
    return {family.name: family for family in found}


def value(found, name: str, **labels: str) -> float:
    [sample] = [one for one in found[PREFIX + name].samples if labels.items() <= one.labels.items()]
    return sample.value


def test_metrics_tell_of_all_parts(world):
    found = families(world)
    assert value(found, "stream_records", stream="orders") == 20
    assert value(found, "stream_bytes", stream="orders") > 0
    assert value(found, "dead_letters", stream="orders") == 1
    assert value(found, "group_lag_records", group="readers", stream="orders") == 0
    assert value(found, "project_up", project="p") == 1
    assert value(found, "engine_role", engine="a", role="active") == 1
    assert value(found, "engine_role", engine="b", role="active") == 0
    assert value(found, "window_rows", window="q/sums") == 2
    assert value(found, "schedule_nodes", scheduler="jobs") == 1
    assert value(found, "monitor_results", monitor="fleet") == 2
    assert value(found, "monitor_events", severity="critical") == 1
    assert value(found, "monitor_silences", monitor="fleet") == 1
    assert {sample.value for sample in found[f"{PREFIX}part_up"].samples} == {1.0}


def test_what_fires_is_counted_with_how_late_it_was(tmp_path):
    with lockstep.connect("memory:") as client, client.scheduler("jobs") as scheduler:
        from lockstep.console.figures import ScheduleFigures
        from lockstep.console.schedulers import Schedulers

        schedulers = Schedulers(Site(client, client.runtime, "local"))
        figures = ScheduleFigures(schedulers)
        list(figures.families())
        with client.subscriber("jobs.history", initial="earliest", create=False) as history:
            scheduler.after("0s", {"a": 1}, id="e")
            told = b""
            while b"fired" not in told:
                batch = history.poll(20.0)
                assert batch, "it fires"
                told += b"".join(batch.values())
        tail = schedulers.tail("jobs")
        tail.look()
        assert tail.outcomes["fired"] == 1
        assert sum(tail.late.counts) == 1
        schedulers.close()


def test_answers_are_counted_by_route_and_status_and_not_by_what_was_asked_for(world):
    for target in ("/api/v1/streams/orders", "/api/v1/streams/nobody", "/apis/schedule/jobs/v2/tenants/x", "/x/y/z",
                   "/static/console.js", "/apis/monitor/fleet/nowhere/at/all", "/streams?q=abc"):  # fmt: skip
        world.ask("GET", target)
    world.ask("BREW", "/streams")
    found = families(world)
    asked = {(s.labels["method"], s.labels["route"], s.labels["status"]) for s in found[f"{PREFIX}answers"].samples}
    assert {
        ("GET", "/api/v1/streams/{stream}", "200"), ("GET", "/api/v1/streams/{stream}", "404"),
        ("GET", "/apis/schedule/{schedule}/v2/tenants/{tenant}", "404"), ("GET", "unknown", "404"),
        ("GET", "/static", "200"), ("GET", "/apis/monitor/{monitor}/...", "404"), ("GET", "/streams", "200"),
        ("other", "/streams", "405"),
    } <= asked  # fmt: skip
    assert not any("nobody" in route or "abc" in route for _, route, _ in asked)


def test_the_table_of_metrics_is_what_the_server_tells(world):
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    table = {name: (kind, {label.strip() for label in labels.split(",") if label.strip()})
             for name, kind, labels in rows}  # fmt: skip
    found = {name: family for name, family in families(world).items() if name.startswith(PREFIX)}
    assert set(table) == set(found)
    for name, family in found.items():
        assert table[name][0] == family.type, name
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == table[name][1], name


def test_parts_are_asked_at_most_once_in_some_seconds():
    runtime, asked = VirtualRuntime(), []

    class Client:
        pass

    pillar = Pillar("x", "X", [], metrics=lambda: asked.append(1) or ())
    metrics = ServerMetrics(Site(Client(), runtime, "local"), [pillar], lambda: 0)
    for _ in range(5):
        metrics.reply()
    assert len(asked) == 1
    runtime.advance(KEPT_S)
    metrics.reply()
    assert len(asked) == 2


def test_a_part_that_can_not_be_read_is_down_and_the_others_go_on():
    def broken():
        raise Unavailable(reason="away")

    pillars = [Pillar("x", "X", [], metrics=broken), Pillar("y", "Y", [])]
    text = ServerMetrics(Site(None, VirtualRuntime(), "local"), pillars, lambda: 0).reply().body.decode()
    assert 'part_up{part="x"} 0.0' in text
    assert 'part_up{part="y"} 1.0' in text


def test_a_histogram_counts_what_is_at_most_so_large():
    made = Histogram((1.0, 2.0))
    for number in (0.5, 1.0, 1.5, 9.0):
        made.add(number)
    assert made.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert made.total == 12.0


# the dashboard


def test_the_dashboard_asks_for_metrics_that_exist_and_for_all_of_them(world):
    status, headers, body = world.ask("GET", "/grafana.json")
    board = json.loads(body)
    assert (status, headers["content-type"], board["title"]) == (200, "application/json", "Lockstep")
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    asked = {name for panel in panels for target in panel["targets"]
             for name in re.findall(r"\b(?:lockstep|process)_\w+", target["expr"])}  # fmt: skip
    found = families(world)
    known = set(found) | {f"{name}{ending}" for name in found for ending in ENDINGS}
    assert asked <= known, asked - known
    named = {re.sub("(_total|_bucket|_count|_sum)$", "", name) for name in asked}
    assert {name for name in found if name.startswith(PREFIX)} <= named, "nothing is left out of it"


def test_the_dashboard_is_one_that_grafana_imports(world):
    board = json.loads(world.ask("GET", "/grafana.json")[2])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert {"title", "uid", "schemaVersion", "panels", "templating", "time"} <= board.keys()
    variables = {variable["name"] for variable in board["templating"]["list"]}
    taken = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", ()):
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            by = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", target["expr"])))) | {"instance"}
            assert labels <= by, target["expr"]


def test_the_command_prints_the_dashboard(capsys, world):
    from lockstep.cli.main import main

    assert main(["serve", "--grafana"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(world.ask("GET", "/grafana.json")[2])


# health and readiness


def test_readiness_tells_role_and_epoch_of_what_is_looked_at(world):
    status, _, body = world.ask("GET", "/readyz")
    found = json.loads(body)
    assert (status, found["status"], found["role"]) == (200, "ok", "console")
    parts = {(part["kind"], part["name"]): part for part in found["parts"]}
    assert parts.keys() == {("project", "p"), ("scheduler", "jobs"), ("monitor", "fleet")}
    project = parts["project", "p"]
    assert (project["role"], project["leader"], project["epoch"]) == ("led", "a", 1)
    assert parts["scheduler", "jobs"]["leader"]
    assert parts["scheduler", "jobs"]["epoch"] >= 1


class Away:
    """A bus that has gone away."""

    class client:
        class bus:
            @staticmethod
            def names():
                raise Unavailable(reason="kafka://user:hidden@broker-7:9092 does not answer")

    def __init__(self, runtime) -> None:
        self.runtime = runtime


def test_without_the_bus_it_is_not_ready_and_says_why_but_not_where(world):
    operation = Operation(world.console.app, Away(world.client.runtime), [])
    assert asked_of(operation, "/healthz")[0] == 200
    status, headers, body = asked_of(operation, "/readyz")
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["reason"] == "the bus does not answer; the log says why"
    assert b"broker-7" not in body


def asked_of(app, path: str):
    import asyncio

    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": [], "client": ("127.0.0.1", 1)}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    headers = {name.decode().lower(): text.decode() for name, text in sent[0]["headers"]}
    return sent[0]["status"], headers, b"".join(message.get("body", b"") for message in sent[1:])


def test_names_are_told_only_to_those_who_may_look(tmp_path):
    with ExitStack() as closing:
        client = closing.enter_context(lockstep.connect("memory:"))
        client.create("a-secret-project")
        console = closing.enter_context(Console(client, ConsoleOptions(anonymous=False)))
        token = console.credentials.issue("prometheus", Role.VIEWER)[1]
        told = {path: ask(console, path) for path in ("/healthz", "/readyz", "/metrics")}
        assert {path: status for path, (status, _) in told.items()} == {
            "/healthz": 200,
            "/readyz": 200,
            "/metrics": 401,
        }
        assert "parts" not in json.loads(told["/readyz"][1])
        assert ask(console, "/metrics", Authorization=f"Bearer {token}")[0] == 200
        assert ask(console, "/metrics", Authorization="Bearer wrong")[0] == 401


def ask(console, path: str, **headers: str) -> tuple[int, bytes]:
    import http.client

    connection = http.client.HTTPConnection(urlsplit(console.url).netloc, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_health_readiness_and_metrics_are_answered_when_all_slots_are_busy():
    begun, end = threading.Semaphore(0), threading.Event()

    def slow(_asked):
        begun.release()
        assert end.wait(30)
        return {}

    view = View(path="/slow", title="Slow", summary="Slow", load=slow, template="home.html")
    with ExitStack() as closing:
        client = closing.enter_context(lockstep.connect("memory:"))
        limits = Limits(requests=2, bodies=2, body_bytes=1 << 20, body_s=5.0)
        console = closing.enter_context(Console(client, pillars=[Pillar("slow", "Slow", [view])], limits=limits))
        busy = [threading.Thread(target=ask, args=(console, "/api/v1/slow")) for _ in range(2)]
        for thread in busy:
            thread.start()
            assert begun.acquire(timeout=20)
        try:
            assert ask(console, "/api/v1/streams")[0] == 503, "there is no slot left"
            assert [ask(console, path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200, 200, 200]
        finally:
            end.set()
            for thread in busy:
                thread.join(20)
