"""The failover document's test with its own commands: two servers on RabbitMQ, subscriber, publisher, Ctrl-C, diff."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sparkless_engine

from lockstep.drill.processes import members
from servers.server_fixtures import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
TRADES = ROOT / "examples" / "trades" / "trades.xml"
CLUSTER = "rh1.example.com:5555"
WAIT_S = 600.0
CONNECTOR = """<connectors><connector class="rmq" name="{name}"><properties>
<property name="type">{direction}</property><property name="rmqhost">127.0.0.1</property>
<property name="rmqport">{amqp}</property><property name="rmqstreamport">{stream}</property>
<property name="rmquserid">guest</property><property name="rmqpassword">guest</property>
<property name="rmqexchange">Trades</property><property name="rmqtype">binary</property>
<property name="urlhostport">{cluster}</property>{more}</properties></connector></connectors>"""
FAILOVER = """<property name="hotfailover">true</property><property name="numbufferedmsgs">10000</property>
<property name="snapshot">false</property>"""


def model(amqp: int, stream: int) -> str:
    """The example's trades with the document's names and connectors."""
    text = TRADES.read_text().replace('<project name="trades">', '<project name="tradesRMQ">')
    source = CONNECTOR.format(name="in", direction="pub", amqp=amqp, stream=stream, cluster=CLUSTER, more="")
    out = CONNECTOR.format(name="out", direction="sub", amqp=amqp, stream=stream, cluster=CLUSTER, more=FAILOVER)
    text = text.replace("</window-source>", f"{source}</window-source>")
    head, name, tail = text.partition('<window-aggregate name="Aggregate24HR">')
    return head + name + tail.replace("</window-aggregate>", f"{out}</window-aggregate>", 1)


class Shell:
    """Runs the commands, each in a folder, and ends all of them."""

    def __init__(self, *, with_spark: bool) -> None:
        self._with_spark = with_spark
        self.running: list[subprocess.Popen[bytes]] = []
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}

    def start(self, folder: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                self._command(name, words), cwd=folder, stdout=log, stderr=log, env=self.environ, start_new_session=True
            )
        self.running.append(process)
        return process

    def run(self, folder: Path, name: str, *words: str) -> str:
        done = subprocess.run(
            self._command(name, words), cwd=folder, capture_output=True, env=self.environ, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout.decode()

    def _command(self, name: str, words: tuple[str, ...]) -> list[str]:
        module = "lockstep.cli.main" if name == "lockstep" else f"lockstep.esp.{name.removeprefix('dfesp_')}"
        if name == "dfesp_xml_server" and not self._with_spark:
            return [sys.executable, sparkless_engine.__file__, module, *words]
        return [sys.executable, "-m", module, *words]

    def close(self) -> None:
        for process in self.running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


@dataclass(frozen=True)
class Size:
    """How many trades, with or without Spark, and how long the second half takes."""

    events: int
    with_spark: bool
    second_half_s: int


@pytest.fixture
def shell(size):
    made = Shell(with_spark=size.with_spark)
    yield made
    made.close()


def until(condition: Callable[[], bool], *processes: subprocess.Popen[bytes], what: str, every_s: float = 0.05) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert all(process.poll() is None for process in processes), f"a process ended: {what}"
        assert time.monotonic() < end, what
        time.sleep(every_s)  # polling other processes, not timing one


def events_in(port: int, window: str) -> int:
    """Asked from here too: the command comes when there is something to show."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/eventStreamProcessing/v1/windows", timeout=60) as answer:
        told = ElementTree.fromstring(answer.read())
    return next(int(found.get("count", "0")) for found in told if found.get("name", "").endswith(window))


def counts(shell: Shell, folder: Path, port: int) -> dict[str, int]:
    """As in figure 8."""
    url = f"http://127.0.0.1:{port}/eventStreamProcessing/v1/windows"
    told = ElementTree.fromstring(shell.run(folder, "dfesp_xml_client", "-url", url, "-get"))
    return {window.get("name", ""): int(window.get("count", "0")) for window in told}


def is_active(port: int) -> bool:
    """Asked from here: a command takes so long to start that the stream would be over."""
    url = f"http://127.0.0.1:{port}/eventStreamProcessing/v1/server"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return b'primary-server="true"' in answer.read()


def said(folder: Path) -> str:
    return (folder / "dfesp_xml_server.out").read_text(errors="replace")


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(4_000, with_spark=False, second_half_s=5), id="small"),
        pytest.param(Size(100_000, with_spark=True, second_half_s=20), id="with-spark", marks=pytest.mark.soak),
    ],
)
def test_the_documents_test_as_printed(size, shell, tmp_path, rabbitmq_server):
    # Given trades, and what the plain interpreter makes of them
    stream, amqp = rabbitmq_server.ports[:2]
    (tmp_path / "model.xml").write_text(model(amqp, stream))
    shell.run(
        tmp_path, "lockstep", "data", "trades", "--events", str(size.events), "--seed", "2016", "-o", "trades.csv"
    )
    lines = (tmp_path / "trades.csv").read_text().splitlines(keepends=True)
    (tmp_path / "first.csv").write_text("".join(lines[: size.events // 2]))
    (tmp_path / "second.csv").write_text("".join(lines[size.events // 2 :]))
    shell.run(tmp_path, "lockstep", "model", "run", "model.xml", "--runner", "reference",
              "--in", "TradesSource=trades.csv", "--out", "Aggregate24HR=expected.csv")  # fmt: skip
    (tmp_path / "rabbitmq.cfg").write_text(
        f'rabbitmq\n{{\n  host = "127.0.0.1"\n  port = {amqp}\n  streamport = {stream}\n'
        '  userid = "guest"\n  password = "guest"\n  exchange = "Trades"\n}\nsas { }\n'
    )
    # When two servers, a subscriber and a publisher run as the document has them
    folders, ports = [tmp_path / "rh1", tmp_path / "rh2"], free_ports(2)
    servers = []
    for folder, port in zip(folders, ports, strict=True):
        folder.mkdir()
        (folder / "model.xml").write_text(model(amqp, stream))
        words = ("-model", "file://model.xml", "-http", str(port), "-pubsub", "5555", "-loglevel", "esp=info")
        servers.append(shell.start(folder, "dfesp_xml_server", *words))
        until(lambda folder=folder: "Hot failover state switched" in said(folder), *servers, what="servers start")
    out, url = tmp_path / "trades_aggr24hr.csv", f"dfESP://{CLUSTER}/tradesRMQ/trades"
    subscriber = shell.start(tmp_path, "dfesp_fs_adapter", "-k", "sub", "-h", f"{url}/Aggregate24HR?snapshot=false",
                             "-f", out.name, "-t", "csv", "-l", "rabbitmq")  # fmt: skip
    until(out.exists, subscriber, *servers, what="the subscriber starts")
    publish = ("-k", "pub", "-h", f"{url}/TradesSource", "-t", "csv", "-l", "rabbitmq")
    shell.run(tmp_path, "dfesp_fs_adapter", *publish, "-f", "first.csv")
    # Then both servers hold the same, to the row
    until(
        lambda: all(events_in(port, "TradesSource") == size.events // 2 for port in ports),
        *servers,
        what="both servers have the first half",
        every_s=0.2,
    )
    shown = counts(shell, tmp_path, ports[0])
    assert shown["TradesSource"] == size.events // 2
    assert shown == counts(shell, tmp_path, ports[1])
    # And when the active one is ended by Ctrl-C in mid-stream
    before = out.stat().st_size
    pace = ("-C", f"rate={size.events // 2 // size.second_half_s}")
    publisher = shell.start(tmp_path, "dfesp_fs_adapter", *publish, "-f", "second.csv", *pace)
    until(lambda: out.stat().st_size > before, *servers, what="the second half flows")
    active = 0 if is_active(ports[0]) else 1
    servers[active].send_signal(signal.SIGINT)
    assert servers[active].wait(60) == 130
    cut_at = out.stat().st_size
    until(lambda: not members(servers[active].pid), what="nothing that it started is left")
    # Then the other one takes over in the words of the document, and diff finds nothing
    expected, survivor = tmp_path / "expected.csv", servers[1 - active]
    until(lambda: out.stat().st_size >= expected.stat().st_size, subscriber, survivor, what="everything arrives")
    assert publisher.wait(WAIT_S) == 0
    subscriber.send_signal(signal.SIGINT)
    assert subscriber.wait(60) == 130
    assert subprocess.run(["diff", "-q", expected, out], check=False).returncode == 0
    words = said(folders[1 - active])
    order = ["Standby sending buffered messages, last message id = ", "Standby synced, current message id = ",
             "Hot failover state switched to active"]  # fmt: skip
    places = [words.rindex(text) for text in order]
    assert places == sorted(places)
    assert re.search(r"WARN; \d{8}; lockstep; \S+; \w+\(\): Hot failover state switched to active", words)
    assert cut_at < expected.stat().st_size, "the kill came too late to show anything"
