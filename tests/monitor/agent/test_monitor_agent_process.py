"""An agent as a real process: what it loads and how much it takes, real commands, kills, pauses, its sockets."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from lockstep.dev.processes import free_ports
from lockstep.runtime import ThreadRuntime
from lockstep.streams.client import connect

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
MEMORY_KIB = 40 << 10
PLUGINS = Path("/usr/lib/nagios/plugins")


def until(holds, seconds=30.0):
    end, pause = time.monotonic() + seconds, threading.Event()
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come"
        pause.wait(0.02)
    return found


class AgentProcess:
    """`lockstep monitor agent` with its settings, its spool and a bus."""

    def __init__(self, folder, checks=None, client=None):
        self.folder = folder
        self.tcp, self.http = free_ports(2, ThreadRuntime.random)
        own = {"name": "web-1", "address": "10.0.0.1", "subscriptions": ["all"], "socket": {"port": self.tcp},
               "http_socket": {"port": self.http}, **(client or {})}  # fmt: skip
        (folder / "conf.d").mkdir()
        (folder / "conf.d" / "all.json").write_text(json.dumps({"client": own, "checks": checks or {}}))
        self.url = f"lmdb:{folder / 'bus'}"
        self.bus = connect(self.url)
        self.bus.create("monitor.requests")
        self.process = None
        self.seen = []
        self._subscriber = self.bus.subscriber("monitor.input", initial="earliest")

    def start(self, *options):
        place = () if "--transport" in options else ("--bus", self.url)
        agent = (sys.executable, "-m", "lockstep.cli.main", "monitor", "agent", "--config", "conf.d")
        command = (*agent, *place, "--spool", "spool", "--json", *options)
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        log.close()
        return self

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(20)

    def messages(self, kind):
        self.seen += [(record.key.decode(), json.loads(record.value)) for record in self._subscriber.poll(0.0)]
        return [document for key, document in self.seen if key == f"{kind}:web-1"]

    def checks(self, name=None):
        found = [document["check"] for document in self.messages("r")]
        return [check for check in found if name in (None, check["name"])]

    def request(self, subscription="all", **request):
        with self.bus.publisher("monitor.requests") as publisher:
            publisher.publish(json.dumps(request).encode(), key=subscription.encode()).result()

    def say(self, data):
        with socket.create_connection(("127.0.0.1", self.tcp), timeout=5) as client:
            client.sendall(data)
            return client.recv(100)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._subscriber.close()
        self.bus.close()


@pytest.fixture
def agent_of(tmp_path):
    made = []

    def make(**options):
        made.append(AgentProcess(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_it_loads_no_engine_and_takes_little_memory(agent_of):
    agent = agent_of(checks={"c": {"command": "true", "interval": 1, "standalone": True}}).start()
    until(lambda: agent.checks("c") and agent.messages("k"))
    memory = Path(f"/proc/{agent.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]
    assert int(memory) <= MEMORY_KIB
    maps = Path(f"/proc/{agent.process.pid}/maps").read_text()
    assert not [name for name in ("numpy", "pyarrow", "pandas", "numba") if name in maps]


def test_what_it_imports():
    modules = (
        "lockstep.cli.main", "lockstep.cli.monitor_agent", "lockstep.monitor.agent.process",
        "lockstep.monitor.agent.spool", "lockstep.monitor.transport.streams", "lockstep.monitor.transport.amqp",
        "lockstep.monitor.agent.swarm",
    )  # fmt: skip
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run((sys.executable, "-c", code), capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    heavy = {"numpy", "pyarrow", "pandas", "pyspark", "numba", "py4j", "msgpack", "aiohttp", "fastapi"}
    assert heavy & {name.partition(".")[0] for name in loaded} == set()
    assert [name for name in loaded if name.startswith(("lockstep.engine", "lockstep.events", "lockstep.server"))] == []


def test_commands_as_they_are(agent_of):
    checks = {
        "both": {"command": "echo out; echo err >&2; exit 1"},
        "slow": {"command": "sleep 60 & sleep 60", "timeout": 0.3},
        "stdin": {"command": "cat", "stdin": True},
        "killed": {"command": "kill -9 $$"},
        "missing": {"command": "/no/such/command"},
        "leaves": {"command": "sleep 60 & echo left"},
        "large": {"command": "head -c 3000000 /dev/zero | tr '\\0' x"},
        "bytes": {"command": "printf '\\377\\000ok'"},
        "hooked": {"command": "exit 2", "hooks": {"critical": {"command": "echo hook; exit 7"}}},
    }
    agent = agent_of(checks={name: {"interval": 1, "publish": False, "standalone": True, **check}
                             for name, check in checks.items()}).start()  # fmt: skip
    until(lambda: agent.messages("k"))
    until(lambda: agent.say(b"ping") == b"pong")
    pause = threading.Event()
    for name in checks:
        while not agent.checks(name):  # the agent follows requests from when it has opened the bus
            agent.request(name=name, issued=1)
            for _ in range(100):
                if agent.checks(name):
                    break
                pause.wait(0.02)
    found = {name: agent.checks(name)[0] for name in checks}
    shown = {name: (check["output"], check["status"]) for name, check in found.items()}
    assert shown["both"] == ("out\nerr\n", 1)
    assert shown["slow"] == ("Execution timed out", 2)
    assert json.loads(shown["stdin"][0])["client"]["name"] == "web-1"
    assert shown["killed"] == ("", 137)
    assert shown["missing"][1] == 127
    assert shown["leaves"] == ("left\n", 0)
    cut, words = shown["large"][0].split("\n")
    assert (set(cut), words, shown["large"][1]) == ({"x"}, "(cut, as the result was too long)", 0)
    assert 95_000 < len(cut) < 98_304  # servers take no longer result
    assert shown["bytes"] == ("\ufffd\0ok", 0)
    assert found["hooked"]["hooks"]["critical"] | {"executed": 0, "duration": 0} == {
        "command": "echo hook; exit 7", "output": "hook\n", "status": 7, "executed": 0, "duration": 0,
    }  # fmt: skip


def test_kills_lose_and_duplicate_nothing(agent_of):
    # Given an agent that has taken results from another program
    agent = agent_of().start()
    for turn in range(4):
        until(lambda: agent.process.poll() is None and _answers(agent))
        for number in range(20):
            result = {"name": "app", "output": "o", "turn": turn, "number": number}
            assert agent.say(json.dumps(result).encode()) == b"ok"
        # When it is killed right after it said ok, and started again
        agent.process.kill()
        agent.process.wait()
        agent.start()
    until(lambda: len({(check["turn"], check["number"]) for check in agent.checks("app")}) == 80)
    # Then each result is there, and a copy has the number of the first
    seen, last = [], {}
    for document in agent.messages("r"):
        if document["_n"] > last.get(document["_agent"], 0):
            last[document["_agent"]] = document["_n"]
            seen.append((document["check"]["turn"], document["check"]["number"]))
    assert seen == [(turn, number) for turn in range(4) for number in range(20)]
    assert len(last) == 4


def _answers(agent):
    try:
        return agent.say(b"ping") == b"pong"
    except OSError:
        return False


def test_a_pause_gives_one_run_afterwards_and_another_keepalive(agent_of):
    agent = agent_of(checks={"c": {"command": "true", "interval": 1, "standalone": True}}).start()
    until(lambda: agent.checks("c"))
    agent.process.send_signal(signal.SIGSTOP)
    count = len(agent.checks("c"))
    threading.Event().wait(2.5)
    agent.process.send_signal(signal.SIGCONT)
    until(lambda: len(agent.checks("c")) > count)
    issued = [check["issued"] for check in agent.checks("c")]
    assert len(set(issued)) == len(issued)
    assert max(later - earlier for earlier, later in pairwise(issued)) >= 2


def test_a_stop_takes_leave_and_sends_what_waits(agent_of):
    agent = agent_of(client={"deregister": True}).start()
    until(lambda: _answers(agent))
    assert agent.stop() == 143
    until(lambda: agent.checks("deregistration"))
    assert list((agent.folder / "spool").glob("*.spool")) == [] or agent.checks("deregistration")


def test_its_http_socket(agent_of):
    agent = agent_of().start()
    until(lambda: _answers(agent))
    with urllib.request.urlopen(f"http://127.0.0.1:{agent.http}/info") as answer:
        assert json.loads(answer.read())["transport"]["name"] == "streams"
    assert agent.say(b'{"name": "tcp", "output": "o"}') == b"ok"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b'{"name": "udp", "output": "o"}', ("127.0.0.1", agent.tcp))
    until(lambda: {check["name"] for check in agent.checks()} == {"tcp", "udp"})


def test_a_second_agent_is_told_what_is_taken(agent_of):
    agent = agent_of().start()
    until(lambda: _answers(agent))
    first = agent.process
    second = agent.start()
    assert second.process.wait(20) == 4
    assert "SPOOL_BUSY" in (agent.folder / "log").read_text()
    agent.start("--spool", "none")
    assert agent.process.wait(20) == 4
    assert "SOCKET_TAKEN" in (agent.folder / "log").read_text()
    first.terminate()
    first.wait(20)


@pytest.mark.skipif(not (PLUGINS / "check_dummy").exists(), reason="Debian's monitoring-plugins-basic is not installed")
def test_nagios_plugins_of_debian(agent_of):
    commands = {
        "ok": (f"{PLUGINS}/check_dummy 0 fine", 0),
        "warning": (f"{PLUGINS}/check_dummy 1", 1),
        "critical": (f"{PLUGINS}/check_dummy 2", 2),
        "unknown": (f"{PLUGINS}/check_dummy 3", 3),
        "disk": (f"{PLUGINS}/check_disk -w 1% -c 1% -p /", None),
        "procs": (f"{PLUGINS}/check_procs -w 1:100000", 0),
    }
    checks = {name: {"command": command, "interval": 1, "standalone": True} for name, (command, _) in commands.items()}
    agent = agent_of(checks=checks).start()
    until(lambda: {check["name"] for check in agent.checks()} == set(commands))
    for name, (_, status) in commands.items():
        check = agent.checks(name)[0]
        assert status in (None, check["status"]), check
        assert check["output"].strip()
    assert "|" in agent.checks("disk")[0]["output"]


def test_the_environment_of_commands_is_the_agents(agent_of):
    assert os.environ  # commands inherit it, as Sensu's do
    agent = agent_of(checks={"c": {"command": "echo $PATH; pwd", "interval": 1, "standalone": True}}).start()
    until(lambda: agent.checks("c"))
    assert agent.checks("c")[0]["output"] == f"{os.environ['PATH']}\n{agent.folder}\n"


def test_an_agent_on_rabbitmq_beside_a_bridge(agent_of, rabbitmq_server, tmp_path):
    """Old and new shape: the agent speaks as Sensu's client does, and a server's bridge brings it to the streams."""
    pytest.importorskip("pika")
    from lockstep.monitor.transport.amqp import AmqpTransport
    from lockstep.monitor.transport.bridge import Bridge
    from lockstep.monitor.transport.brokers import Turn, brokers_of

    url = f"amqp://guest:guest@127.0.0.1:{rabbitmq_server.ports[1]}?prefetch=50"
    agent = agent_of(checks={"c": {"command": "echo local", "interval": 3600, "publish": False, "standalone": True}})
    server = AmqpTransport(Turn(brokers_of(url), lambda _: None))
    until(lambda: server.connected)
    bridge = Bridge(agent.bus, server)
    bridge.start()
    agent.start("--transport", url)
    until(lambda: agent.messages("k"))
    agent.request("client:web-1", name="c", issued=1)
    until(lambda: agent.checks("c"))
    assert agent.checks("c")[0]["output"] == "local\n"
    memory = Path(f"/proc/{agent.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]
    assert int(memory) <= MEMORY_KIB
    assert agent.stop() == 143
    bridge.close()
    server.close()
