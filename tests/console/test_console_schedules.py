"""The pillar of schedules, in virtual time: what pages say of events, crons, tenants and nodes, and what acts do."""

from __future__ import annotations

import re

import pytest
from pillar_worlds import Caller, World, part, site_of

from lockstep.console.crons import tried
from lockstep.console.schedules import ScheduleViews
from lockstep.core.agenda import Status
from lockstep.schedule.delivery.port import Outcome
from lockstep.schedule.requests import PutCron
from lockstep.schedule.rows import CronRow
from lockstep.schedule.streams import SchedulerStreams
from lockstep.schedule.tenants import Paused, Registered, Tenant, TenantType
from lockstep.schedule.times import java_text, parse_time
from lockstep.server.access import Role

SECOND, HOUR = 1000, 3_600_000


class Console:
    """A scheduler in virtual time with the console's pages over it."""

    def __init__(self, node=True):
        self.world = World()
        if node:
            self.world.start()
            self.world.clock.advance(5)
        self.views = ScheduleViews(site_of(self.world.bus))
        self.pillar = self.views.pillar()
        self.caller = Caller(site_of(self.world.bus), self.pillar)

    def events(self, query=""):
        return self.caller.data(f"/schedules{query}")["events"]

    def problems(self):
        self.world.clock.advance(6)  # what was looked up is a few seconds old at most
        return list(self.pillar.problems())

    def cron(self, name, expression, **more):
        row = CronRow(tenant="s", id=name, expression=expression, **{"type": "UNIX", **more})
        self.world.ask(PutCron(row))

    def close(self):
        self.caller.close()
        self.views.close()


@pytest.fixture
def console():
    made = Console()
    yield made
    made.close()


@pytest.fixture
def idle():
    """A scheduler whose nodes are gone."""
    made = Console(node=False)
    yield made
    made.close()


class TestEvents:
    def test_four_times_are_told_as_plain_columns(self, console):
        world = console.world
        world.courier.hold = True
        at = world.now + 2 * SECOND
        world.schedule("a", 2 * SECOND, tenant="h")
        world.clock.advance(3)
        world.clock.advance(4)
        world.courier.let_go()
        world.clock.advance(1)
        [row] = console.events()
        event = world.client.find("h", "a")
        assert (row["scheduled_ms"], row["fired_ms"], row["ended_ms"]) == (at, event.triggered, event.ended)
        assert row["late_s"] == (event.triggered - at) / 1000
        assert row["ended_ms"] > row["fired_ms"] >= at
        page = console.caller.page("/schedules")
        assert re.findall(r"<th[^>]*>([^<]*)</th>", page)[2:6] == ["scheduled for", "fired at", "ended at", "late by"]
        assert "late by" in page
        assert ">fired</span>" in page

    def test_a_state_is_told_in_words(self, console):
        world = console.world
        world.courier.answers = {"h": [Outcome.REFUSED]}
        world.schedule("waits", HOUR)
        world.schedule("fires", SECOND)
        world.schedule("fails", SECOND, tenant="h")
        world.clock.advance(3)
        states = {row["id"]: row["state"] for row in console.events()}
        assert states == {"waits": "waiting for its time", "fires": "fired", "fails": "failed for good"}

    def test_filters_are_in_the_query(self, console):
        world = console.world
        world.schedule("done", SECOND)
        world.schedule("soon", HOUR)
        world.schedule("late", 5 * HOUR, tenant="h")
        world.clock.advance(3)

        def names(query):
            return [row["id"] for row in console.events(query)]

        assert names("?status=done") == ["done"]
        assert names("?status=unfired") == ["soon", "late"]
        assert names("?tenant=h") == ["late"]
        assert names(f"?from={java_text(world.now + 2 * HOUR)}") == ["late"]
        assert names(f"?to={java_text(world.now + 2 * HOUR)}") == ["done", "soon"]
        assert names("?status=overdue&from=begin") == []
        assert console.caller.data("/schedules?from=tomorrow", status=422)["error"]["code"] == "BAD_ARGUMENT"
        assert console.caller.data("/schedules?status=gone", status=422)["error"]["code"] == "BAD_ARGUMENT"

    def test_what_is_older_than_an_hour_is_shown_on_request_and_the_page_says_so(self, console):
        console.world.schedule("old", -2 * HOUR)
        console.world.clock.advance(3)
        assert console.events() == []
        assert [row["id"] for row in console.events("?from=begin")] == ["old"]
        assert [row["id"] for row in console.events("?from=3h")] == ["old"]
        assert "Events scheduled from" in console.caller.page("/schedules").replace("\n", " ")

    def test_pages_follow_a_cursor_without_gap_or_repeat(self, console):
        world = console.world
        for number in range(7):
            world.schedule(f"e{number}", HOUR + number * SECOND)
        seen, query = [], "?size=3"
        while True:
            found = console.caller.data(f"/schedules{query}")
            seen += [row["id"] for row in found["events"]]
            if found["next"] is None:
                break
            page = console.caller.page(f"/schedules{query}")
            [following] = re.findall(r'rel="next" href="/schedules\?([^"]*)"', page)
            query = "?" + following.replace("&amp;", "&")
        assert seen == [f"e{number}" for number in range(7)]

    def test_a_bus_without_a_scheduler_says_how_to_start_one(self, idle):
        other = Console.__new__(Console)
        from lockstep.log.memory import MemoryBroker
        from lockstep.streams.client import Lockstep

        bus = Lockstep(MemoryBroker().bus(idle.world.clock), idle.world.clock)
        views = ScheduleViews(site_of(bus))
        other = Caller(site_of(bus), views.pillar())
        for path in ("/schedules", "/crons", "/tenants", "/nodes"):
            assert "lockstep schedule serve" in other.page(path)
        assert other.data("/schedules")["scheduler"] is None
        assert other.data("/schedules?scheduler=none", status=404)["error"]["code"] == "SCHEDULER_NOT_FOUND"
        assert list(views.pillar().problems()) == []
        other.close()
        views.close()


class TestOneEvent:
    def test_its_story_says_who_won_and_who_owns_it(self, console):
        world = console.world
        world.schedule("a", SECOND)
        world.clock.advance(3)
        found = console.caller.data("/schedules/s/a")
        assert found["winner"] == "fire"
        assert found["node"] == "n1"
        assert [row["what"] for row in found["history"]] == ["fired"]
        page = console.caller.page("/schedules/s/a")
        assert "The fire won." in page
        assert "owned by node n1" in page

    def test_names_with_any_letters_have_a_page(self, console):
        name = "a/b c&<ü>"
        console.world.schedule(name, HOUR)
        path = f"/schedules/s/{part(name)}"
        assert console.caller.data(path)["id"] == name
        assert f'href="{path}"' in console.caller.page("/schedules")
        assert "&lt;ü&gt;" in console.caller.page(path)

    def test_one_that_is_not_known_is_not_found_and_a_cron_of_that_id_is_told(self, console):
        console.cron("tick", "* * * * *")
        error = console.caller.data("/schedules/s/tick", status=404)["error"]
        assert error["code"] == "NOT_FOUND"
        assert "/crons/s/tick" in error["advice"]

    def test_without_an_owner_it_says_how_to_start_a_node(self, idle):
        idle.world.client.send([idle.world.upsert("a", idle.world.now + HOUR)])
        started = idle.world.start()
        idle.world.clock.advance(5)
        assert started is not None
        idle.world.kill("n1")
        idle.world.clock.advance(60)
        assert idle.caller.data("/schedules/s/a")["node"] is None
        assert "lockstep schedule serve --name jobs" in idle.caller.page("/schedules/s/a")


class TestCancelAndReplay:
    def test_a_cancel_in_time_wins(self, console):
        console.world.schedule("a", HOUR)
        effect = console.caller.act("/schedules/s/a/cancel", dry_run=True)
        assert "The cancel wins if it is carried out before then." in effect["effect"]
        assert effect["rows"][0]["state"] == "waiting for its time"
        assert console.world.client.find("s", "a") is not None
        assert console.caller.act("/schedules/s/a/cancel")["won"] == "cancel"
        assert console.world.client.find("s", "a") is None
        assert "The cancel won." in console.caller.page("/schedules/s/a")

    def test_the_preview_says_that_the_fire_has_won_while_it_is_delivered(self, console):
        world = console.world
        world.courier.hold = True
        world.schedule("a", SECOND, tenant="h")
        world.clock.advance(3)
        effect = console.caller.act("/schedules/h/a/cancel", dry_run=True)["effect"]
        assert effect.startswith("The fire has won: its delivery began at")
        assert console.caller.act("/schedules/h/a/cancel")["won"] == "fire"
        assert world.client.find("h", "a").status is Status.FIRING
        world.courier.let_go()

    def test_the_preview_of_one_that_is_tried_again_says_when(self, console):
        world = console.world
        world.courier.answers = {"h": [Outcome.FAILED]}
        world.schedule("a", SECOND, tenant="h")
        world.clock.advance(3)
        event = world.client.find("h", "a")
        assert event.status is Status.RETRY
        effect = console.caller.act("/schedules/h/a/cancel", dry_run=True)["effect"]
        assert f"the next try is due at {java_text(event.due)}" in effect
        assert console.caller.act("/schedules/h/a/cancel")["won"] == "cancel"

    def test_the_preview_says_that_nobody_would_carry_it_out(self, idle):
        world = idle.world
        world.start()
        world.clock.advance(5)
        world.schedule("a", HOUR)
        world.kill("n1")
        world.clock.advance(60)
        effect = idle.caller.act("/schedules/s/a/cancel", dry_run=True)["effect"]
        assert "No node owns its shard now" in effect
        assert idle.caller.act("/schedules/s/a/cancel", status=504)["error"]["code"] == "TIMED_OUT"

    def test_one_that_failed_is_fired_again_and_another_is_not(self, console):
        world = console.world
        world.courier.answers = {"h": [Outcome.REFUSED, Outcome.TAKEN]}
        world.schedule("a", SECOND, tenant="h")
        world.schedule("b", HOUR)
        world.clock.advance(3)
        assert "it answered 500" in console.caller.act("/schedules/h/a/replay", dry_run=True)["effect"]
        console.caller.act("/schedules/h/a/replay")
        world.clock.advance(3)
        assert world.client.find("h", "a").status is Status.DONE
        assert "Nothing: it is WAITING" in console.caller.act("/schedules/s/b/replay", dry_run=True)["effect"]
        assert console.caller.act("/schedules/s/b/replay", status=422)["error"]["code"] == "BAD_ARGUMENT"

    def test_a_viewer_may_not_and_sees_no_button(self, console):
        console.world.schedule("a", HOUR)
        assert (
            console.caller.act("/schedules/s/a/cancel", status=403, role=Role.VIEWER)["error"]["code"] == "ROLE_NEEDED"
        )
        assert "/schedules/s/a/cancel" not in console.caller.page("/schedules/s/a")
        assert 'href="/schedules/s/a/cancel"' in console.caller.page("/schedules/s/a", role=Role.OPERATOR)


class TestCrons:
    def test_the_list_has_the_next_fire_but_not_of_a_paused_one(self, console):
        console.cron("five", "*/5 * * * *", tz="Europe/Berlin")
        console.cron("held", "0 9 * * *", paused=True)
        rows = {row["id"]: row for row in console.caller.data("/crons")["crons"]}
        now = console.world.now
        assert rows["five"]["next_ms"] == (now // 300_000 + 1) * 300_000
        assert (rows["five"]["zone"], rows["five"]["overlap"], rows["five"]["last_ms"]) == (
            "Europe/Berlin",
            "allow",
            None,
        )
        assert (rows["held"]["paused"], rows["held"]["next_ms"]) == (True, None)
        assert ">paused</span>" in console.caller.page("/crons")

    def test_a_backfill_is_previewed_and_fires_each_tick_of_the_range(self, console):
        console.cron("report", "0 9 * * *", tz="Europe/Berlin")
        now = console.world.clock.wall_ns() // 10**6
        span = {"from": java_text(now - 72 * HOUR), "to": java_text(now)}
        preview = console.caller.act("/crons/s/report/backfill", **span, dry_run=True)
        assert preview["rows"][0]["ticks"] == 3
        assert preview["effect"].startswith("3 events fire now, one for each tick from ")
        assert console.caller.act("/crons/s/report/backfill", **{"from": "3d"}, dry_run=True)["rows"][0]["ticks"] == 3
        assert console.caller.act("/crons/s/report/backfill", **span) == {"ticks": 3}
        console.world.clock.advance(5)
        ticks = console.caller.data("/crons/s/report")["crons"][0]["ticks"]
        assert len([tick for tick in ticks if tick["outcome"] == "fired"]) == 3

    @pytest.mark.parametrize("span", [
        {}, {"from": "soon"}, {"from": "2999-01-01T00:00Z"}, {"from": "1h", "to": "2h"}, {"from": "9" * 60},
        {"from": "1d", "to": "2999-01-01T00:00Z"}, {"from": "1d", "to": "x"},
    ])  # fmt: skip
    def test_a_backfill_of_what_is_no_past_range_is_refused(self, console, span):
        console.cron("report", "0 9 * * *")
        told = console.caller.act("/crons/s/report/backfill", status=422, **span)
        assert told["error"]["message"]
        console.cron("often", "* * * * * ?", type="QUARTZ")
        assert console.caller.act("/crons/s/often/backfill", status=422, **{"from": "1d"})["error"]["message"]

    def test_only_the_crons_of_the_page_are_read(self, console, monkeypatch):
        for number in range(5):
            console.cron(f"c{number}", "0 9 * * *")
        console.caller.data("/crons?size=2")
        scheduler = console.views.schedulers.open("jobs")
        read = []
        kept = scheduler.client.crons
        monkeypatch.setattr(scheduler.client, "crons", lambda *names: read.append(names) or kept(*names))
        found = console.caller.data("/crons?size=2&page=2")
        assert [row["id"] for row in found["crons"]] == ["c2", "c3"]
        assert found["page"] == {"page": 2, "pages": 3, "size": 2, "total": 5, "all": 5}
        assert read == [("s", "c2"), ("s", "c3")]
        assert [row["id"] for row in console.caller.data("/crons?q=C4")["crons"]] == ["c4"]

    def test_ticks_have_an_outcome_and_a_reason(self, console):
        console.cron("minute", "* * * * *")
        console.world.clock.advance(61)
        console.caller.act("/crons/s/minute/pause")
        console.world.clock.advance(120)
        [cron] = console.caller.data("/crons/s/minute")["crons"]
        outcomes = [(tick["outcome"], tick["reason"]) for tick in cron["ticks"]]
        assert outcomes[-1] == ("fired", None)
        assert ("skipped", "paused") in outcomes
        assert cron["last_ms"] is not None
        page = console.caller.page("/crons/s/minute")
        assert ">skipped</span>" in page
        assert "every minute" in page.lower()

    def test_run_now_fires_beside_the_ticks(self, console):
        console.cron("daily", "0 9 * * *")
        preview = console.caller.act("/crons/s/daily/run", dry_run=True)
        assert "fires now, beside the ticks" in preview["effect"]
        assert len(preview["rows"][0]["next ticks"].split(", ")) == 3
        console.caller.act("/crons/s/daily/run")
        console.world.clock.advance(2)
        outcomes = [tick["outcome"] for tick in console.caller.data("/crons/s/daily")["crons"][0]["ticks"]]
        assert outcomes == ["fired", "triggered"]

    def test_pause_and_resume_say_when_they_change_nothing(self, console):
        console.cron("daily", "0 9 * * *")
        assert "Nothing" in console.caller.act("/crons/s/daily/resume", dry_run=True)["effect"]
        console.caller.act("/crons/s/daily/pause")
        assert "Nothing" in console.caller.act("/crons/s/daily/pause", dry_run=True)["effect"]
        console.caller.act("/crons/s/daily/resume")
        assert not console.caller.data("/crons/s/daily")["crons"][0]["paused"]

    def test_one_is_removed_by_an_admin_who_repeats_its_id(self, console):
        console.cron("daily", "0 9 * * *")
        path = "/crons/s/daily/remove"
        assert console.caller.act(path, status=403, confirm="daily")["error"]["code"] == "ROLE_NEEDED"
        assert console.caller.act(path, status=422, role=Role.ADMIN)["error"]["code"] == "NOT_CONFIRMED"
        console.caller.act(path, role=Role.ADMIN, confirm="daily")
        assert console.caller.data("/crons/s/daily", status=404)["error"]["code"] == "NOT_FOUND"
        assert console.caller.data("/crons")["crons"] == []

    def test_of_two_dialects_one_can_be_paused(self, console):
        console.cron("both", "0 9 * * *")
        console.cron("both", "0 0 9 * * ?", type="QUARTZ")
        console.caller.act("/crons/s/both/pause", type="QUARTZ")
        paused = {cron["type"]: cron["paused"] for cron in console.caller.data("/crons/s/both")["crons"]}
        assert paused == {"UNIX": False, "QUARTZ": True}


class TestTry:
    def asked(self, console, **query):
        text = "&".join(f"{name}={part(value)}" for name, value in query.items())
        return console.caller.data(f"/crons/try?{text}"), console.caller.page(f"/crons/try?{text}")

    def test_an_expression_is_described_with_its_next_five_fires(self, console):
        data, page = self.asked(console, expression="0 9 * * MON-FRI", tz="America/New_York")
        assert data["is_valid"]
        assert len(data["next"]) == 5
        assert data["next"][0]["local"].startswith("Wed 2023-11-15 09:00:00 EST")
        assert data["description"] in page

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ({"expression": "61 * * * *"}, "61"),
            ({"expression": "* * *"}, "3"),
            ({"expression": "* * * * *", "tz": "Europe/Berln"}, "Europe/Berlin"),
        ],
    )
    def test_what_is_wrong_is_said_and_it_is_no_error(self, console, query, said):
        data, page = self.asked(console, **query)
        assert data["is_valid"] is False
        assert said in data["reason"]
        assert 'class="fault"' in page

    @pytest.mark.parametrize(
        ("expression", "dst", "local", "rule"),
        [
            (
                "30 2 * * *",
                "once",
                ["Sun 2024-03-31 03:00:00 CEST"],
                "fires once, at the first instant after the change",
            ),
            ("30 2 * * *", "literal", [], "never come and do not fire"),
            ("0 */12 * * *", "once", None, "a time in between fires once"),
            ("30 * * * *", "once", None, None),
        ],
    )
    def test_a_night_of_changed_clocks_is_explained(self, expression, dst, local, rule):
        now = parse_time("2024-03-29T12:00Z")
        found = tried(expression, "UNIX", "Europe/Berlin", dst, now)
        if local is not None:
            assert [fire["local"] for fire in found["next"] if "2024-03-31" in fire["local"]] == local
        [note] = found["notes"]
        if rule is None:  # the next five fires are over before the night
            assert note == "The clock of Europe/Berlin goes forward on 2024-03-31 01:00 UTC, after these fires."
        else:
            assert note.startswith(
                "On 2024-03-31 at 01:00 UTC the clock of Europe/Berlin goes forward from 02:00 to 03:00"
            )
            assert rule in note

    def test_one_that_never_fires_says_so(self, console):
        data, _ = self.asked(console, expression="0 0 31 2 *")
        assert (data["is_valid"], data["next"]) == (True, [])
        assert "It never fires within 100 years." in data["notes"]

    def test_nothing_is_wrong_with_nothing(self, console):
        data, page = self.asked(console)
        assert data["is_valid"] is None
        assert "fault" not in page


class TestTenants:
    def test_secrets_are_not_shown(self, console):
        props = {"url": "https://ann:hush@example.test/due?key=hush", "headers": {"X-Token": "hush"}}
        console.world.client.control(Registered(Tenant(tenant="mail", type=TenantType.HTTP, props=props, rate=5.0)))
        for path in ("/tenants", "/tenants/mail"):
            assert "hush" not in console.caller.page(path)
            assert "hush" not in str(console.caller.data(path))
        assert '<td class="number">5.0</td>' in console.caller.page("/tenants?q=mail")

    def test_a_pause_says_how_many_events_it_holds_up(self, console):
        world = console.world
        for number in range(3):
            world.schedule(f"e{number}", 60 * SECOND)
        world.schedule("far", 5 * HOUR)
        assert "3 events are due within the next hour" in console.caller.act("/tenants/s/pause", dry_run=True)["effect"]
        console.caller.act("/tenants/s/pause")
        world.clock.advance(70)
        assert world.fired() == []
        assert "3 events are due by now" in console.caller.act("/tenants/s/resume", dry_run=True)["effect"]
        assert console.caller.data("/tenants/s")["due"] == 3
        console.caller.act("/tenants/s/resume")
        world.clock.advance(5)
        assert len(world.fired()) == 3


class TestNodesAndProblems:
    def test_a_card_says_who_is_master_and_which_shards_it_owns(self, console):
        console.world.start("n2")
        console.world.clock.advance(30)
        found = console.caller.data("/nodes")
        assert sorted(shard for node in found["nodes"] for shard in node["shards"]) == [0, 1, 2, 3]
        assert sum(node["is_master"] for node in found["nodes"]) == 1
        assert found["unowned"] == []
        page = console.caller.page("/nodes")
        assert "All 4 shards have an owner." in page
        assert page.count(">Master</span>") == 1

    def test_all_is_well_while_a_node_works(self, console):
        console.world.schedule("a", SECOND)
        console.world.clock.advance(3)
        assert console.problems() == []
        assert ("scheduler node of jobs", "1", "/nodes?scheduler=jobs") in list(console.pillar.figures())

    def test_shards_without_an_owner_and_overdue_events_are_told(self, console):
        world = console.world
        world.schedule("a", 60 * SECOND)
        due = world.now + 60 * SECOND
        world.kill("n1")
        world.clock.advance(90)
        nobody, overdue = console.problems()
        assert nobody.title == "No node runs for scheduler jobs: nothing fires"
        assert nobody.command == "lockstep schedule serve --name jobs"
        assert overdue.title == "1 event of tenant s is overdue"
        assert overdue.since_ms == due
        shown = console.caller.data(overdue.link)["events"]
        assert [row["id"] for row in shown] == ["a"]
        assert "No node runs for scheduler jobs" in console.caller.page("/")

    def test_a_paused_tenant_with_due_events_is_told_and_one_without_is_not(self, console):
        console.world.client.control(Paused("h", True))
        assert console.problems() == []
        console.world.schedule("a", SECOND, tenant="h")
        console.world.clock.advance(3)
        [problem] = console.problems()
        assert problem.title.startswith("Tenant h is paused")
        assert problem.link == "/tenants/h?scheduler=jobs"

    def test_failures_are_told_until_they_are_fired_again(self, console):
        world = console.world
        world.courier.answers = {"h": [Outcome.REFUSED, Outcome.TAKEN]}
        world.schedule("a", SECOND, tenant="h")
        world.clock.advance(3)
        [problem] = console.problems()
        assert "1 event of scheduler jobs failed for good" in problem.title
        assert "it answered 500" in problem.reason
        assert [row["id"] for row in console.caller.data(problem.link)["events"]] == ["a"]
        console.caller.act("/schedules/h/a/replay")
        world.clock.advance(3)
        assert console.problems() == []

    def test_deliveries_that_fail_again_and_again_are_told(self, console):
        world = console.world
        world.courier.answers = {"h": [Outcome.FAILED]}
        world.schedule("a", SECOND, tenant="h")
        world.clock.advance(60)
        [problem] = console.problems()
        assert problem.title == "1 delivery of scheduler jobs failed 3 times or more"
        assert "it answered 500" in problem.reason
        assert [row["id"] for row in console.caller.data(problem.link)["events"]] == ["a"]
        world.courier.answers = {}
        world.clock.advance(300)
        assert console.problems() == []

    def test_a_failed_tick_of_a_cron_is_told(self, console):
        console.world.courier.answers = {"h": [Outcome.REFUSED]}
        console.world.ask(PutCron(CronRow(tenant="h", id="minute", type="UNIX", expression="* * * * *")))
        console.world.clock.advance(61)
        [problem] = console.problems()
        assert problem.title == "The last tick of cron minute of tenant h failed"
        assert problem.reason == "it answered 500"
        assert console.caller.data(problem.link)["crons"][0]["ticks"][0]["outcome"] == "failed"
        console.world.courier.answers = {}
        console.world.clock.advance(60)
        assert console.problems() == []

    def test_clocks_that_differ_are_told_by_the_cards_alone(self, console):
        from lockstep.console.schedulers import skew_of

        def card(node, wall):
            return {"node": node, "wall": wall}

        assert skew_of([card("n1", 100_000), card("n2", 102_500)]) is None
        assert skew_of([card("n1", 100_000), card("n2", 112_500)]) == ("n2", "n1", 12.5)


class TestSeveralSchedulers:
    def test_one_has_to_be_chosen_unless_one_is_called_default(self, console):
        SchedulerStreams("other").create(console.world.bus, shards=1)
        error = console.caller.data("/schedules", status=422)["error"]
        assert "jobs, other" in error["message"]
        assert console.caller.data("/schedules?scheduler=other")["scheduler"] == "other"
        SchedulerStreams("default").create(console.world.bus, shards=1)
        assert console.caller.data("/schedules")["scheduler"] == "default"
        assert 'href="/schedules?scheduler=jobs"' in console.caller.page("/schedules")

    def test_links_and_acts_stay_with_the_one_that_was_chosen(self, console):
        console.world.schedule("a", HOUR)
        SchedulerStreams("default").create(console.world.bus, shards=1)
        assert 'href="/schedules/s/a?scheduler=jobs"' in console.caller.page("/schedules?scheduler=jobs")
        page = console.caller.page("/schedules/s/a?scheduler=jobs", role=Role.OPERATOR)
        assert 'href="/schedules/s/a/cancel?scheduler=jobs"' in page
        assert console.caller.act("/schedules/s/a/cancel", scheduler="jobs")["won"] == "cancel"

    def test_what_looks_like_one_stream_of_a_scheduler_is_none(self, console):
        console.world.bus.create("half.requests")
        console.world.bus.subscriber("half.requests", group="half.requests").close()
        assert "_group.half.requests" in console.world.bus.bus.names()
        assert console.views.schedulers.names() == ["jobs"]
