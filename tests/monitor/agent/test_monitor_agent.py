"""What an agent does, with a broker in memory, in virtual time: sensu.md C, D, E by letter."""

from __future__ import annotations

import json

import pytest
from agent_worlds import START, World

from lockstep.monitor.agent.checks import splay
from lockstep.monitor.core.documents import encode
from lockstep.monitor.transport.port import DIRECT, FANOUT

LOCAL = {"command": "local", "interval": 60, "standalone": True, "publish": False}


class TestKeepalives:
    def test_one_at_the_start_then_every_20_seconds(self):
        world = World().start()
        assert len(world.keepalives) == 1
        world.pass_(61)
        assert [keepalive["timestamp"] - int(START) for keepalive in world.keepalives] == [0, 20, 40, 60]

    def test_it_is_the_whole_client_without_secrets(self):
        world = World(client={"custom": {"password": "geheim", "list": [{"secret": "geheim"}]}, "region": "eu"}).start()
        [keepalive] = world.keepalives
        assert keepalive | {"_agent": 0, "_n": 0} == {
            "name": "web-1", "address": "10.0.0.1", "subscriptions": ["all", "client:web-1"], "region": "eu",
            "custom": {"password": "REDACTED", "list": [{"secret": "REDACTED"}]},
            "version": "0.26.5", "timestamp": int(START), "_agent": 0, "_n": 0,
        }  # fmt: skip

    def test_a_list_of_its_own_says_what_is_secret(self):
        world = World(client={"redact": ["region"], "region": "eu", "password": "shown"}).start()
        assert (world.keepalives[0]["region"], world.keepalives[0]["password"]) == ("REDACTED", "shown")

    def test_they_are_numbered(self):
        world = World().start()
        world.pass_(21)
        assert [(keepalive["_agent"], keepalive["_n"]) for keepalive in world.keepalives] == [
            ("start1-k", 1), ("start1-k", 2),
        ]  # fmt: skip

    def test_while_the_bus_is_away_only_the_last_one_waits(self):
        world = World().start()
        world.transport.lose()
        world.pass_(100)
        world.keepalives.clear()
        world.transport.restore()
        world.sent()
        assert [keepalive["_n"] for keepalive in world.keepalives] == [7]


class TestSubscriptions:
    def test_exchanges_queues_and_bindings_are_those_of_sensu(self):
        world = World(client={"subscriptions": ["dev", "roundrobin:web", "direct:one"]}).start()
        own = f"web-1-0.26.5-{int(START)}"
        pipes = {name: (found.kind, found.queues) for name, found in world.broker.exchanges.items()}
        assert pipes == {
            "keepalives": ("direct", ["keepalives"]), "results": ("direct", ["results"]),
            "dev": ("fanout", [own]), "client:web-1": ("fanout", [own]),
            "roundrobin:web": ("direct", ["roundrobin:web"]), "direct:one": ("direct", ["direct:one"]),
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("kind", "pipe"), [(FANOUT, "all"), (FANOUT, "client:web-1"), (DIRECT, "roundrobin:x"), (DIRECT, "direct:y")]
    )
    def test_requests_come_by_each_kind(self, kind, pipe):
        world = World(client={"subscriptions": ["all", "roundrobin:x", "direct:y"], "safe_mode": False}).start()
        world.request(kind, pipe, name="c", command="x", issued=5)
        world.machine.finish()
        [check] = world.checked()
        assert (check["name"], check["issued"], check["output"], check["status"]) == ("c", 5, "done", 0)

    def test_bad_requests_are_dropped(self):
        world = World(client={"safe_mode": False}).start()
        for body in (b"", b"{", b"[1]", b"null", b'{"name": 5}', b"{}", b'{"name": "c"}', b'\xff{"name":"c"}'):
            world.server.publish(FANOUT, "all", body)
        assert world.checked() == []
        assert world.machine.commands == []


class TestRequests:
    def test_a_local_definition_wins(self):
        world = World(checks={"c": {**LOCAL, "extra": 1}}).start()
        world.request(FANOUT, "all", name="c", command="remote", issued=7, other=2, extra=9)
        assert world.machine.commands == ["local"]
        world.machine.finish()
        [check] = world.checked()
        assert (check["command"], check["issued"], check["extra"], check["other"]) == ("local", 7, 1, 2)

    def test_but_not_over_a_request_for_many_clients(self):
        world = World(checks={"c": LOCAL}, client={"safe_mode": False}).start()
        world.request(FANOUT, "all", name="c", command="remote", proxy_requests={"client_attributes": {}}, source="r1")
        assert world.machine.commands == ["remote"]

    def test_safe_mode_is_on_unless_one_word_turns_it_off(self):
        world = World().start()
        world.request(FANOUT, "all", name="c", command="rm", issued=7)
        assert world.machine.commands == []
        assert world.checked() == [
            {"name": "c", "command": "rm", "issued": 7, "output": "Check is not locally defined (safe mode)",
             "status": 3, "handle": False, "executed": int(START)}
        ]  # fmt: skip

    @pytest.mark.parametrize("extra", [{"proxy_requests": {}}, {}])
    def test_in_safe_mode_all_that_is_executed_is_local(self, extra):
        world = World(checks={"c": LOCAL}).start()
        world.request(FANOUT, "all", name="c", command="rm", hooks={"ok": {"command": "rm too"}}, **extra)
        assert world.machine.commands == ["local"]
        world.machine.finish()
        assert world.machine.commands == []
        assert "hooks" not in world.checked()[0]

    def test_an_extension_runs_and_an_unknown_one_gives_nothing(self):
        seen = []
        world = World(extensions={"own": lambda check: (seen.append(check) or f"hello {check['name']}", 1)}).start()
        world.request(FANOUT, "all", name="c", extension="own")
        world.request(FANOUT, "all", name="unknown")
        [check] = world.checked()
        assert (check["output"], check["status"], check["extension"]) == ("hello c", 1, "own")
        assert seen[0]["executed"] == int(START)

    def test_the_same_check_is_not_run_twice_at_once_but_for_another_source_it_is(self):
        world = World(client={"safe_mode": False}).start()
        for source in (None, "", "r1", "r1"):
            world.request(FANOUT, "all", name="c", command="x", **({} if source is None else {"source": source}))
        assert len(world.machine.commands) == 2
        world.machine.finish()
        world.request(FANOUT, "all", name="c", command="x")
        assert len(world.machine.commands) == 2

    def test_an_empty_source_is_left_out(self):
        world = World(client={"safe_mode": False}).start()
        world.request(FANOUT, "all", name="c", command="x", source="")
        world.machine.finish()
        assert "source" not in world.checked()[0]

    def test_at_most_so_many_commands_run_at_once_in_order(self):
        world = World(client={"safe_mode": False}, spawn=2).start()
        for number in range(5):
            world.request(FANOUT, "all", name=f"c{number}", command=f"x{number}")
        assert world.machine.commands == ["x0", "x1"]
        world.machine.finish(1)
        assert world.machine.commands == ["x0", "x2"]

    def test_results_are_signed(self):
        world = World(client={"signature": "sign", "safe_mode": False}).start()
        world.request(FANOUT, "all", name="c", command="x")
        world.machine.finish()
        assert world.sent()[0]["signature"] == "sign"


class TestExecution:
    def run(self, client=None, output="out", status=0, takes=0.0, **check):
        world = World(client={"safe_mode": False, **(client or {})}).start()
        world.request(FANOUT, "all", **{"name": "c", "command": "x", **check})
        world.machine.pass_(takes)
        if world.machine.started:
            world.machine.finish(0, output, status)
        return world

    def test_fields_of_a_result(self):
        world = self.run(takes=1.2345, status=2, issued=5)
        world.sent()
        assert world.results == [
            {"client": "web-1", "_agent": "start1-r", "_n": 1,
             "check": {"name": "c", "command": "x", "issued": 5, "executed": int(START), "duration": 1.234,
                       "output": "out", "status": 2}}
        ] or world.results[0]["check"]["duration"] == 1.235  # fmt: skip

    def test_time_outs_and_data_go_to_the_command(self):
        world = World(client={"safe_mode": False}).start()
        world.request(FANOUT, "all", name="c", command="x", timeout=5, stdin=True)
        [(_, data, timeout, _)] = world.machine.started
        assert timeout == 5.0
        assert json.loads(data)["client"]["name"] == "web-1"
        assert json.loads(data)["check"]["name"] == "c"

    def test_tokens_are_filled_in_and_the_command_is_published_as_it_was(self):
        world = World(client={"safe_mode": False, "db": {"password": "geheim", "port": 5432}}).start()
        world.request(FANOUT, "all", name="c", command="check -p :::db.password::: -P :::db.port::: :::x.y|all|none:::",
                      note="port :::db.port:::")  # fmt: skip
        assert world.machine.commands == ["check -p geheim -P 5432 all|none"]
        world.machine.finish()
        [check] = world.checked()
        assert check["command"] == "check -p :::db.password::: -P :::db.port::: :::x.y|all|none:::"
        assert check["note"] == "port 5432"

    def test_tokens_without_a_value(self):
        world = self.run(command=":::a.b::: :::c::: :::a.b:::", hooks={"unknown": {"command": ":::d:::"}})
        [check] = world.checked()
        assert check["output"] == "Unmatched client token(s): a.b, c, d"
        assert (check["status"], check["handle"]) == (3, False)
        assert world.machine.commands == []

    @pytest.mark.parametrize(
        ("status", "hooks", "chosen"),
        [
            (0, ("0", "ok", "non-zero"), "0"),
            (0, ("ok", "non-zero"), "ok"),
            (0, ("non-zero",), None),
            (1, ("warning", "non-zero"), "warning"),
            (2, ("1", "non-zero"), "non-zero"),
            (3, ("unknown",), "unknown"),
            (42, ("unknown", "42"), "42"),
            (255, ("unknown", "critical"), "unknown"),
        ],
    )
    def test_the_hook_of_a_status(self, status, hooks, chosen):
        world = self.run(status=status, hooks={name: {"command": f"hook {name}"} for name in hooks})
        if chosen is None:
            assert world.machine.commands == []
        else:
            assert world.machine.commands == [f"hook {chosen}"]
            assert world.machine.started[0][2] == 60.0
            assert world.checked() == []
            world.machine.finish(0, "hooked", 1)
            [check] = world.checked()
            assert check["output"] == "out"
            assert check["hooks"][chosen] == {
                "command": f"hook {chosen}", "executed": int(START), "duration": 0.0, "output": "hooked", "status": 1,
            }  # fmt: skip

    def test_a_hook_gets_tokens_data_and_its_own_time_out(self):
        world = self.run(client={"a": "x"}, status=1,
                         hooks={"1": {"command": "h :::a:::", "timeout": 7, "stdin": True}})  # fmt: skip
        [(command, data, timeout, _)] = world.machine.started
        assert (command, timeout) == ("h x", 7.0)
        assert json.loads(data)["check"]["output"] == "out"
        world.machine.finish()
        assert world.checked()[0]["hooks"]["1"]["command"] == "h :::a:::"


STANDALONE = {"command": "x", "interval": 60, "standalone": True}


class TestStandalone:
    def test_runs_at_the_times_of_client_and_check(self):
        world = World(checks={"c": STANDALONE}).start()
        world.machine.answers["x"] = ("out", 0)
        world.pass_(180)
        delay = splay("web-1:c", int(START * 1000), 60)
        assert [check["issued"] for check in world.checked()] == [int(START + delay + turn * 60) for turn in range(3)]

    def test_a_golden_splay(self):
        assert splay("check_http", 1_479_577_421_000, 60) == 7.247

    def test_only_those_that_are_standalone_and_published(self):
        checks = {"a": {**STANDALONE, "standalone": False}, "b": {**STANDALONE, "publish": False},
                  "c": {**STANDALONE, "interval": None}, "d": {**STANDALONE, "interval": 10}}  # fmt: skip
        world = World(checks=checks).start()
        world.machine.answers["x"] = ("", 0)
        world.pass_(120, step=5)
        assert {check["name"] for check in world.checked()} == {"d"}

    def test_crons(self):
        world = World(checks={"c": {"command": "x", "standalone": True, "cron": "*/5 * * * *"}}).start()
        world.machine.answers["x"] = ("", 0)
        world.pass_(900, step=10)
        assert [check["issued"] % 300 for check in world.checked()] == [0, 0, 0]

    def test_a_subdued_check_is_not_run(self):
        always = {"days": {"all": [{"begin": "12:00 AM", "end": "11:59:59 PM"}]}}
        world = World(checks={"c": {**STANDALONE, "subdue": always}}).start()
        world.pass_(200, step=10)
        assert world.checked() == []
        assert world.machine.commands == []

    def test_a_clock_that_jumps_ahead_gives_one_run_and_one_set_back_goes_on_at_once(self):
        world = World(checks={"c": STANDALONE}).start()
        world.machine.answers["x"] = ("", 0)
        world.pass_(60)
        world.checked()
        world.machine.set_clock(world.machine.now() + 100_000)
        world.pass_(60)
        assert len(world.checked()) in (1, 2)
        world.machine.set_clock(world.machine.now() - 200_000)
        world.pass_(120)
        assert len(world.checked()) in (1, 2)

    def test_while_the_bus_is_away_nothing_is_lost_and_the_order_stays(self):
        world = World(checks={"c": {**STANDALONE, "interval": 10}}).start()
        world.machine.answers["x"] = ("", 0)
        world.transport.lose()
        world.pass_(100)
        assert world.results == []
        world.transport.restore()
        world.pass_(10)
        assert [result["_n"] for result in world.results] == list(range(1, len(world.results) + 1))
        assert len(world.results) in (10, 11)


class TestEnd:
    def stopped(self, world):
        ended = []
        world.agent.stop(lambda: ended.append(1))
        return ended

    def test_checks_that_run_are_waited_for(self):
        world = World(client={"safe_mode": False}).start()
        world.request(FANOUT, "all", name="c", command="x")
        ended = self.stopped(world)
        world.pass_(5)
        assert ended == []
        world.machine.finish()
        world.pass_(1)
        assert ended == [1]
        assert [check["name"] for check in world.checked()] == ["c"]

    def test_but_not_for_ever(self):
        world = World(client={"safe_mode": False}).start()
        world.request(FANOUT, "all", name="c", command="x")
        ended = self.stopped(world)
        world.pass_(40)
        assert ended == [1]

    def test_nothing_more_is_begun(self):
        world = World(client={"safe_mode": False}, checks={"s": STANDALONE}).start()
        self.stopped(world)
        world.keepalives.clear()
        world.request(FANOUT, "all", name="c", command="x")
        world.pass_(120)
        assert (world.machine.commands, world.keepalives, world.checked()) == ([], [], [])

    def test_it_takes_its_leave_if_it_is_told_to(self):
        own = {"handler": "own", "output": "no", "extra": 1}
        world = World(client={"deregister": True, "deregistration": own}).start()
        self.stopped(world)
        assert world.checked() == [
            {"handler": "own", "status": 1, "output": "client initiated deregistration", "extra": 1,
             "name": "deregistration", "issued": int(START), "executed": int(START)}
        ]  # fmt: skip

    def test_and_else_does_not(self):
        world = World().start()
        self.stopped(world)
        assert world.checked() == []


class TestSocketResults:
    def test_defaults_and_the_time_of_issue(self):
        world = World(client={"signature": "s"}).start()
        world.agent.take({"name": "c", "output": "o", "executed": 5})
        [result] = world.sent()
        assert result["check"] == {"name": "c", "output": "o", "status": 0, "executed": 5, "issued": int(START)}
        assert result["signature"] == "s"

    def test_what_is_too_long_is_cut_and_what_is_too_large_is_refused(self):
        world = World().start()
        world.agent.take({"name": "c", "output": "\x01" * 1_000_000})
        [result] = world.checked()
        assert result["output"].endswith("(cut, as the result was too long)")
        assert 97_000 < len(encode(result)) < 98_304
        with pytest.raises(Exception, match="at most 97792 bytes besides its output"):
            world.agent.take([{"name": "a", "output": "o"}, {"name": "b", "output": "", "more": "x" * 98_000}])
        assert world.checked() == []

    def test_of_a_list_with_a_fault_nothing_is_taken(self):
        world = World().start()
        with pytest.raises(Exception, match="check output must be a string"):
            world.agent.take([{"name": "a", "output": "o"}, {"name": "b"}])
        assert world.checked() == []
