"""The pillar of the fleet, without an engine: what pages say of events, hosts, checks and silences; and acts."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from pillar_worlds import Caller, FleetWorld, part, site_of

import lockstep
from lockstep.console.fleet import FleetViews
from lockstep.console.fleets import CLUSTER, STALE_S, Fleet, Fleets, OpenEvent, hides, lacking, own_folder
from lockstep.errors import BadArgument, Unavailable
from lockstep.log.memory import MemoryBroker
from lockstep.runtime import ThreadRuntime
from lockstep.server.access import Role
from lockstep.streams.client import Lockstep
from lockstep.testing.virtual import VirtualRuntime

SETTINGS = {
    "checks": {
        "disk": {"command": "check-disk", "subscribers": ["all"], "interval": 60, "handlers": ["log"]},
        "own": {"command": "check-own", "standalone": True, "interval": 60},
    },
    "handlers": {"log": {"type": "pipe", "filters": ["occurrences"]}},
}


class Console(Fleets):
    """One fleet that is fed by a test, and the console's pages over it."""

    def __init__(self, folder):
        self.clock = VirtualRuntime()
        self.bus = Lockstep(MemoryBroker().bus(self.clock), self.clock)
        super().__init__(site_of(self.bus), folder)
        self.world = FleetWorld(folder / "view", **SETTINGS)
        self.error = None
        self.known = ["monitor"]
        self.fleet = Fleet("monitor", self.world.view, lambda: self.world, self.clock, lambda: self.error)
        self.pillar = FleetViews(site_of(self.bus), self).pillar()
        self.caller = Caller(site_of(self.bus), self.pillar)

    def names(self):
        return self.known

    def open(self, name):
        return self.fleet

    def tick(self):
        """A second goes by, so that open events are gone through again."""
        self.world.tick()
        self.clock.advance(30)

    def events(self, query=""):
        self.tick()
        return self.caller.data(f"/fleet{query}")

    def close(self):
        self.caller.close()
        self.bus.close()
        self.world.view.close()


@pytest.fixture
def console(tmp_path):
    made = Console(tmp_path)
    for name in ("web-1", "web-2", "db-1"):
        made.world.keepalive(name)
    made.world.check("web-1", "disk", 2, output="disk 99 % used\nmore", handlers=["log"])
    made.world.check("web-2", "disk", 2)
    made.world.check("web-2", "load", 1)
    made.world.check("db-1", "disk", 0)
    made.tick()
    yield made
    made.close()


class TestEvents:
    def test_the_worst_come_first_grouped_by_check(self, console):
        found = console.events()
        assert [(event["client"], event["check"]) for event in found["events"]] == [
            ("web-1", "disk"), ("web-2", "disk"), ("web-2", "load"),
        ]  # fmt: skip
        disk, load = found["groups"]
        assert (disk["check"], disk["hosts"], disk["critical"], disk["severity"]) == ("disk", 2, 2, "critical")
        assert (load["check"], load["hosts"], load["warning"]) == ("load", 1, 1)
        assert found["counts"] == {"critical": 2, "unknown": 0, "warning": 1, "silenced": 0}
        page = console.caller.page("/fleet")
        assert page.index(">disk<") < page.index(">load<")
        assert "disk 99 % used" in page

    def test_counters_and_groups_follow_the_filter(self, console):
        found = console.events("?check=load")
        assert found["counts"] == {"critical": 0, "unknown": 0, "warning": 1, "silenced": 0}
        assert [group["check"] for group in found["groups"]] == ["load"]
        assert found["page"]["total"] == 1
        assert found["page"]["all"] == 3

    @pytest.mark.parametrize(
        ("query", "hosts"),
        [
            ("?severity=warning", ["web-2"]),
            ("?host=web-1", ["web-1"]),
            ("?q=99+%25", ["web-1"]),
            ("?silenced=yes", []),
            ("?size=1&page=2", ["web-2"]),
        ],
    )
    def test_filters_are_in_the_query(self, console, query, hosts):
        assert [event["client"] for event in console.events(query)["events"]] == hosts

    def test_a_name_with_a_hyphen_or_a_slash_is_found(self, console):
        console.world.check("web-1", "a-b.c", 1)
        assert [event["check"] for event in console.events("?check=a-b.c")["events"]] == ["a-b.c"]

    def test_no_open_event_is_not_the_same_as_no_match_or_an_unknown_state(self, console, tmp_path):
        assert "None of the 3 open events fits." in console.caller.page("/fleet?host=none")
        for client, check in (("web-1", "disk"), ("web-2", "disk"), ("web-2", "load")):
            console.world.check(client, check, 0)
        console.tick()
        assert "No event is open: all checks are OK" in console.caller.page("/fleet")
        other = Console(tmp_path / "new")
        other.world.view.reset()
        other.clock.advance(5)
        page = other.caller.page("/fleet")
        assert "Nothing is known yet" in page
        assert "all checks are OK" not in page
        assert {label: value for label, value, _ in other.pillar.figures()}["hosts"] == "unknown"
        other.close()

    def test_a_bus_without_a_monitor_says_how_to_start_one(self, console):
        console.known = []
        for path in ("/fleet", "/fleet/hosts", "/fleet/checks", "/fleet/silences"):
            assert "lockstep monitor up" in console.caller.page(path)
        assert list(console.pillar.problems()) == []
        assert console.caller.data("/fleet/hosts/web-1", status=404)["error"]["code"] == "NOT_FOUND"

    def test_of_several_monitors_one_is_chosen(self, console):
        console.known = ["east", "west"]
        assert "east, west" in console.caller.data("/fleet", status=422)["error"]["message"]
        assert console.caller.data("/fleet?monitor=west")["monitor"] == "west"
        assert console.caller.data("/fleet?monitor=north", status=404)["error"]["code"] == "NOT_FOUND"


class TestWhy:
    def test_each_gate_has_a_verdict(self, console):
        found = console.caller.data("/fleet/why/web-1/disk")
        [verdict] = found["verdicts"]
        assert (verdict["handler"], verdict["is_told"]) == ("log", True)
        assert [gate["gate"] for gate in verdict["gates"]] == ["filter occurrences", "handler"]
        page = console.caller.page("/fleet/why/web-1/disk")
        assert "occurrence 1 of 1 that are needed" in page
        assert 'href="/fleet/silence?subscription=client%3Aweb-1&amp;check=disk"' in page

    def test_of_a_check_that_is_ok_it_says_so(self, console):
        page = console.caller.page("/fleet/why/db-1/disk")
        assert "It has no open event." in page
        assert "Nothing was decided yet" in page

    def test_what_is_not_known_is_not_found(self, console):
        assert console.caller.data("/fleet/why/db-1/none", status=404)["error"]["code"] == "NOT_FOUND"


class TestHosts:
    def test_the_worst_come_first_and_only_those_of_the_page_are_read(self, console, monkeypatch):
        console.events()
        read = []
        kept = console.world.view.row
        monkeypatch.setattr(console.world.view, "row", lambda *key: read.append(key) or kept(*key))
        found = console.caller.data("/fleet/hosts?size=2")
        assert [(host["name"], host["worst"], host["events"]) for host in found["hosts"]] == [
            ("web-1", "critical", 1), ("web-2", "critical", 2),
        ]  # fmt: skip
        assert [key for key in read if key[0] == "client"] == [("client", "web-1"), ("client", "web-2")]
        assert found["page"] == {"page": 1, "pages": 2, "size": 2, "total": 3, "all": 3}
        assert [host["name"] for host in console.caller.data("/fleet/hosts?q=DB")["hosts"]] == ["db-1"]

    def test_one_has_its_results_and_history_and_no_secret(self, console):
        console.world.keepalive("web-1", password="hush", rack={"room": "r7", "api_key": "hush"})
        console.world.check("web-1", "disk", 0)
        console.tick()
        found = console.caller.data("/fleet/hosts/web-1")
        assert [(row["check"], row["severity"]) for row in found["results"]] == [("disk", "ok")]
        assert [(row["severity"], row["action"]) for row in found["history"]] == [
            ("ok", "resolve"),
            ("critical", "create"),
        ]
        assert "hush" not in str(found)
        assert found["facts"]["rack"] == {"room": "r7", "api_key": "REDACTED"}
        page = console.caller.page("/fleet/hosts/web-1")
        assert "hush" not in page
        assert "All of its checks are OK." in page

    def test_one_is_deleted_by_an_admin_who_repeats_its_name(self, console):
        path = "/fleet/hosts/web-2/delete"
        effect = console.caller.act(path, dry_run=True, role=Role.ADMIN)["effect"]
        assert effect.startswith("2 open events are resolved, and 2 results are forgotten.")
        assert console.caller.act(path, status=403, confirm="web-2")["error"]["code"] == "ROLE_NEEDED"
        assert console.caller.act(path, status=422, role=Role.ADMIN)["error"]["code"] == "NOT_CONFIRMED"
        console.caller.act(path, role=Role.ADMIN, confirm="web-2")
        assert console.caller.data("/fleet/hosts/web-2", status=404)["error"]["code"] == "NOT_FOUND"
        console.world.keepalive("web-2")
        console.caller.act(path, role=Role.ADMIN, confirm="web-2", invalidate=True)
        console.world.keepalive("web-2")
        assert console.caller.data("/fleet/hosts/web-2", status=404)["error"]["code"] == "NOT_FOUND"


class TestChecks:
    def test_the_list_says_where_each_fails(self, console):
        rows = {row["name"]: row for row in console.caller.data("/fleet/checks")["checks"]}
        assert (rows["disk"]["critical"], rows["disk"]["subscribers"], rows["disk"]["handlers"]) == (
            2,
            ["all"],
            ["log"],
        )
        assert rows["own"]["is_standalone"]
        assert "agents run it by their own settings" in console.caller.page("/fleet/checks")
        assert "check-disk" in console.caller.page("/fleet/checks/disk")

    def test_one_is_asked_for_on_all_hosts_or_on_one(self, console):
        assert "its subscribers: all" in console.caller.act("/fleet/checks/disk/request", dry_run=True)["effect"]
        assert "Host web-1 is asked" in console.caller.act("/fleet/why/web-1/disk/request", dry_run=True)["effect"]
        before = len(console.world.notices)
        console.caller.act("/fleet/checks/disk/request")
        console.tick()
        console.caller.act("/fleet/why/web-1/disk/request")
        asked = [notice.key for notice in console.world.notices[before:] if notice.kind == "request"]
        assert asked == ["all", "client:web-1"]

    def test_a_standalone_one_can_not_be_asked_for(self, console):
        assert console.caller.act("/fleet/checks/own/request", dry_run=True, status=404)["error"]["code"] == "NOT_FOUND"
        assert console.caller.act("/fleet/checks/own/request", status=404)["error"]["code"] == "NOT_FOUND"


FIELDS = {"subscription": "client:web-*", "check": "disk", "reason": "new disk"}


class TestSilences:
    def test_the_preview_says_what_it_hides_and_until_when(self, console):
        found = console.caller.act("/fleet/silence", dry_run=True, **FIELDS)
        assert found["effect"].startswith("It hides 2 open events. It ends after 1h, at 20")
        assert [(row["host"], row["check"]) for row in found["rows"]] == [("web-1", "disk"), ("web-2", "disk")]
        assert console.caller.data("/fleet/silences")["silences"] == []

    def test_the_form_keeps_the_monitor_and_has_what_the_link_named(self, console):
        console.known = ["east", "west"]
        page = console.caller.page("/fleet/silence?monitor=west&check=disk", role=Role.OPERATOR)
        assert '<input type="hidden" name="monitor" value="west">' in page
        assert 'name="check" value="disk"' in page
        assert 'name="expire" value="1h"' in page

    def test_what_is_hidden_is_what_the_preview_said(self, console):
        console.caller.act("/fleet/silence", **FIELDS)
        for name in ("web-1", "web-2"):
            console.world.check(name, "disk", 2)  # a silence is seen with the next result
        found = console.events("?silenced=yes")
        assert [event["client"] for event in found["events"]] == ["web-1", "web-2"]
        assert found["counts"]["silenced"] == 2
        [silence] = console.caller.data("/fleet/silences")["silences"]
        assert (silence["hides"], silence["reason"], silence["creator"]) == (2, "new disk", "operator")
        assert silence["ends_ms"] - console.fleet.as_of_ms > 3_500_000
        page = console.caller.page("/fleet")
        assert "new disk (operator), until" in re.sub(r"\s+", " ", page)
        assert (
            "2 of which are silenced already" in console.caller.act("/fleet/silence", dry_run=True, **FIELDS)["effect"]
        )

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"reason": "r"}, "a silence can't hide all"),
            ({"check": "disk"}, "reason: it is needed"),
            ({"check": "disk", "reason": "r", "expire": "never"}, "write it as 30s"),
            ({"check": "disk", "reason": "r", "expire": "0s"}, "at least 1 s"),
            ({"check": "disk", "reason": "r", "expire": "400d"}, "366 days"),
        ],
    )
    def test_one_that_hides_all_or_never_ends_or_has_no_reason_is_refused(self, console, fields, said):
        assert said in console.caller.act("/fleet/silence", status=422, **fields)["error"]["message"]
        assert console.caller.data("/fleet/silences")["silences"] == []

    def test_its_end_says_which_events_are_told_again(self, console):
        console.caller.act("/fleet/silence", **FIELDS)
        console.world.check("web-1", "disk", 2)
        console.tick()
        path = f"/fleet/silences/{part('client:web-*:disk')}"
        assert "Hides 1 open event now" in console.caller.page(path)
        effect = console.caller.act(f"{path}/end", dry_run=True)
        assert effect["effect"].startswith("It hides 1 open event now; 1 event of these that nothing else silences")
        assert "operator: new disk" in effect["effect"]
        console.caller.act("/fleet/silence", check="disk", reason="all disks")
        console.world.check("web-1", "disk", 2)
        console.tick()
        effect = console.caller.act(f"{path}/end", dry_run=True)["effect"]
        assert effect.startswith("It hides 1 open event now; 0 events of these that nothing else silences")
        console.caller.act(f"{path}/end")
        assert [silence["check"] for silence in console.caller.data("/fleet/silences")["silences"]] == ["disk"]
        assert console.caller.data("/fleet/silences")["silences"][0]["id"] == "*:disk"
        assert console.caller.act(f"{path}/end", status=404)["error"]["code"] == "NOT_FOUND"

    @pytest.mark.parametrize("subscription", [None, "all", "client:web-1", "client:web-?", "client:*", "none", "a*"])
    @pytest.mark.parametrize("check", [None, "disk", "d*", "none"])
    def test_the_preview_agrees_with_the_fleet(self, console, subscription, check):
        if subscription is None and check is None:
            return
        events = [OpenEvent.of(row) for row in console.world.view.rows("event")]
        said = {(event.client, event.check) for event in events if hides(subscription, check, event)}
        order = console.world.send("silence", {"entry": {"subscription": subscription, "check": check, "expire": 60}})
        assert console.world.view.row("answer", "", order)["status"] == 201
        for client, name, status in (("web-1", "disk", 2), ("web-2", "disk", 2), ("web-2", "load", 1)):
            console.world.check(client, name, status)
        found = {
            (row["client"]["name"], row["check"]["name"]) for row in console.world.view.rows("event") if row["silenced"]
        }
        assert said == found


class TestActsOnEvents:
    def test_one_is_acknowledged_until_it_is_resolved(self, console):
        path = "/fleet/why/web-1/disk"
        assert "until it is resolved" in console.caller.act(f"{path}/acknowledge", dry_run=True)["effect"]
        console.caller.act(f"{path}/acknowledge", reason="disk is ordered")
        console.world.check("web-1", "disk", 2)
        console.tick()
        [silence] = console.caller.data(path)["event"]["silences"]
        assert (silence["is_acknowledgement"], silence["until_resolved"]) == (True, True)
        page = re.sub(r"\s+", " ", console.caller.page(path))
        assert ">acknowledged</a>" in page
        assert "disk is ordered (operator), until resolved" in page
        console.world.check("web-1", "disk", 0)
        console.tick()
        assert console.caller.data("/fleet/silences")["silences"] == []

    def test_one_is_resolved(self, console):
        path = "/fleet/why/web-1/disk"
        assert "closed as if its check were OK" in console.caller.act(f"{path}/resolve", dry_run=True)["effect"]
        console.caller.act(f"{path}/resolve")
        assert console.caller.data(path)["event"] is None
        assert console.caller.act(f"{path}/resolve", status=404)["error"]["code"] == "NOT_FOUND"

    def test_a_fleet_that_does_not_answer_is_said_to_have_the_order(self, console):
        console.world.is_away = True
        error = console.caller.act("/fleet/why/web-1/disk/resolve", status=504)["error"]
        assert error["code"] == "TIMED_OUT"
        assert "It is stored and will be carried out." in error["advice"]

    def test_a_viewer_may_not(self, console):
        assert (
            console.caller.act("/fleet/silence", status=403, role=Role.VIEWER, check="x")["error"]["code"]
            == "ROLE_NEEDED"
        )
        assert "/fleet/why/web-1/disk/resolve" not in console.caller.page("/fleet/why/web-1/disk")


class TestProblems:
    def test_open_events_are_told_by_check_until_they_are_silenced_the_worst_first(self, console):
        console.events()
        problem, other = console.pillar.problems()
        assert (other.title, other.severity) == ("load is warning on web-2", "warning")
        assert problem.severity == "critical"
        assert problem.title == "disk is critical on 2 hosts"
        assert problem.reason == "web-1: disk 99 % used"
        assert [event["check"] for event in console.caller.data(problem.link)["events"]] == ["disk", "disk"]
        console.caller.act("/fleet/silence", subscription="client:web-1", check="disk", reason="known")
        console.world.check("web-1", "disk", 2)
        console.tick()
        problem, _ = console.pillar.problems()
        assert problem.title == "disk is critical on web-2"
        assert console.caller.data(problem.link)["event"]["client"] == "web-2"
        assert "disk is critical on web-2" in console.caller.page("/")

    def test_a_view_that_stands_still_is_stale(self, console):
        console.events()
        console.pillar.problems()
        console.clock.advance(STALE_S + 1)
        stale = [problem for problem in console.pillar.problems() if problem.title == "Monitor monitor is not heard"]
        assert "Nothing has come from the fleet for 16 s" in stale[0].reason
        assert stale[0].since_ms == console.fleet.as_of_ms
        assert "<strong>Stale.</strong>" in console.caller.page("/fleet")
        console.world.tick()
        assert not [problem for problem in console.pillar.problems() if "not heard" in problem.title]

    def test_a_view_that_can_not_read_says_why(self, console):
        console.error = Unavailable(reason="The bus is away")
        [stale] = [problem for problem in console.pillar.problems() if "not heard" in problem.title]
        assert "The bus is away" in stale.reason

    def test_figures_count_hosts_and_events(self, console):
        console.events()
        assert [figure[:2] for figure in console.pillar.figures()] == [("hosts", "3"), ("open events", "3")]


class TestFollowing:
    def test_without_its_packages_the_fleet_is_left_out_with_a_sentence(self, monkeypatch):
        assert lacking() is None
        monkeypatch.setattr("lockstep.console.fleets.find_spec", lambda name: None if name == "pyarrow" else name)
        assert lacking() == "The fleet is left out, as pyarrow is missing: pip install 'lockstep-events[monitor]'."

    def test_each_console_has_a_folder_of_its_own_and_one_that_restarts_takes_it_again(self, tmp_path):
        with ExitStack() as first, ExitStack() as second:
            one, two = own_folder(tmp_path, "m", first), own_folder(tmp_path, "m", second)
            assert (one.name, two.name) == ("fleet-m-0", "fleet-m-1")
            first.close()
            with ExitStack() as third:
                assert own_folder(tmp_path, "m", third) == one
        assert one.stat().st_mode & 0o777 == 0o700

    def test_the_number_of_folders_is_bounded(self, tmp_path, monkeypatch):
        monkeypatch.setattr("lockstep.console.fleets.FOLDERS_MAX", 1)
        with ExitStack() as closing:
            own_folder(tmp_path, "m", closing)
            with pytest.raises(BadArgument):
                own_folder(tmp_path, "m", closing)

    def test_monitors_are_found_by_their_changelog(self, tmp_path):
        from lockstep.engine.model.validation import compile_project
        from lockstep.engine.runtime.sequence.streams import ProjectStreams
        from lockstep.monitor.window import QUERY, WINDOW, monitor_model

        node = Path(lockstep.__file__).parent / "monitor" / "node.py"  # to import it takes seconds
        assert f'\nCLUSTER = "{CLUSTER}"\n' in node.read_text()
        graph = compile_project(monitor_model("east", "east.input"))
        [fleet] = [one for one in graph.nodes if one.path == f"{QUERY}/{WINDOW}"]
        clock = VirtualRuntime()
        bus = Lockstep(MemoryBroker().bus(clock), clock)
        for stream in ("east.input", ProjectStreams(cluster=CLUSTER, project="east").output(fleet), "lockstep.x.q.w.O"):
            bus.create(stream)
        fleets = Fleets(site_of(bus), tmp_path)
        assert fleets.names() == ["east"]
        fleets.close()
        bus.close()

    @pytest.mark.slow
    def test_a_real_monitor_is_followed_and_carries_out_an_act(self, tmp_path):
        """A server of a monitor with its engine, and a console beside it on the same bus."""
        from lockstep.monitor.node import MonitorNode, NodeOptions
        from lockstep.monitor.settings.settings import Settings

        url = f"lmdb:{tmp_path / 'bus'}"
        with lockstep.connect(url) as server, lockstep.connect(url) as bus:
            settings = Settings(SETTINGS)
            with MonitorNode(server, settings, {}, NodeOptions(folder=tmp_path / "server", runner="local")) as node:
                node.orders.send("client", {"client": {"name": "web-1", "subscriptions": ["all"]}})
                check = {"name": "disk", "status": 2, "output": "full", "issued": 1, "executed": 1, "source": "web-1"}
                node.orders.send("result", {"client": "web-1", "check": check})
                fleets = Fleets(site_of(bus), tmp_path / "console")
                views = FleetViews(site_of(bus), fleets)
                caller = Caller(site_of(bus), views.pillar())
                fleet = fleets.open("monitor")
                until = ThreadRuntime().monotonic() + 30
                while not fleet.events().events and ThreadRuntime().monotonic() < until:
                    ThreadRuntime().waiter().wait(0.05)
                assert [event["output"] for event in caller.data("/fleet")["events"]] == ["full"]
                caller.act("/fleet/why/web-1/disk/resolve")
                assert caller.data("/fleet/why/web-1/disk")["event"] is None
                caller.close()
                views.close()
