"""Every example of the help does what it says, as it stands there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sparkless_engine
from cli_command import PROGRAM, InProcess, run_here, until
from cli_models import put_trades

from lockstep.cli.commands import NOUNS
from lockstep.core.delivery import Barrier, Begun
from lockstep.schedule.assembly import open_scheduler
from lockstep.schedule.scheduler import Scheduler
from lockstep.streams.carrier_shard import ledger_name, write
from lockstep.streams.client import connect
from lockstep.testing.schedule import VirtualCourier

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(900)]

ENDLESS = (
    "lockstep serve",
    "lockstep top",
    "lockstep stream tail orders",
    "lockstep engine run trades.yaml",
    "lockstep engine run trades.yaml --publish Aggregate24HR --shards 2",
    "lockstep engine subscribe trades.yaml --window Aggregate24HR --follow --new",
    "lockstep delivery run outbox --http https://example.com/hook",
    "lockstep delivery run local.alarms.N --group local.alarms.mail --mail",
    "lockstep adapter publish trades.csv --project trades --growing --failover feed",
    "lockstep adapter publish listen://127.0.0.1:5555 --project trades --window TradesSource --type json",
    "lockstep adapter subscribe --project trades --window Aggregate24HR --snapshot",
    "lockstep adapter subscribe --project trades --window Aggregate24HR -o day.csv --all --resume",
)
ASKED = tuple(
    f"lockstep engine {verb}"
    for verb in ("handover", "persist", "quiesce", "replace", "reset", "trim", "state", "stop")
)
"""They are for engines that run: see test_engine_asked.py and test_cli_small_commands.py."""
UNPUBLISHED = ("lockstep adapter subscribe --project trades --window Copy5MinRet", "lockstep engine query --project")
LONG = (
    "lockstep bench streams --publishers 4 --subscribers 16 --size 100 --seconds 10 --json",
    "lockstep bench engine",
    "lockstep bench failover",
    "lockstep bench schedule",
    "lockstep bench monitor",
    "lockstep drill",
    "lockstep demo",
)
"""They take minutes, or what they begin with does."""
ON_SERVERS = (
    "lockstep group mirror",
    "lockstep bus show --bus kafka",
    "lockstep bus check --bus redis",
    "lockstep bench compare",
    "lockstep dev",
)
"""They need a server: see tests/servers and test_bench_compare.py."""
OF_A_SCHEDULER = (
    "lockstep schedule",
    "lockstep tenant",
    *(f"lockstep cron {verb}" for verb in ("add", "rm", "ls", "runs", "pause", "resume", "trigger", "backfill")),
)
"""They need a node that runs: see test_the_examples_of_a_scheduler_run."""
NODES_AND_SPARK = tuple(f"lockstep schedule {verb}" for verb in ("serve", "load", "ingest", "report", "forecast"))
"""See test_cli_schedule_serve.py and test_cli_schedule_spark.py."""
OF_A_MONITOR = ("lockstep monitor",)
"""They run until they are ended, or need settings or RabbitMQ: see tests/monitor."""
FINDS = ("lockstep engine status",)
"""It ends with 1, because no engine runs: see test_engine_status_cli.py."""
LONGER_S = 400.0
"""For Spark on a machine that has other things to do."""
ON_SPARK = (
    "lockstep model run trades.yaml --in TradesSource=trades.csv --out Aggregate24HR=day.csv",
    "lockstep model run trades.yaml --in TradesSource=trades.csv --shards 2 --cut 1000 --json",
    "lockstep engine run trades.yaml --until-idle --json",
    "lockstep engine replay trades.yaml --out Aggregate24HR=day.csv",
)
"""They start Spark, as tests of the same commands do that run in make test too."""
EXAMPLES = [
    pytest.param(example, marks=pytest.mark.soak) if example in ON_SPARK else example
    for noun in NOUNS
    for verb in noun.verbs
    for example in verb.examples
    if example not in ENDLESS
    and not example.startswith((*LONG, *ASKED, *UNPUBLISHED, *ON_SERVERS, *OF_A_SCHEDULER, *OF_A_MONITOR, *FINDS))
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    lockstep = InProcess(folder)
    lockstep("stream", "publish", "orders", "order {n}", "--count", "50", "--quiet")
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", "5")
    lockstep("stream", "publish", "orders.dlq", "bad", "-H", "dlq-stream=orders")
    lockstep("access", "add", "ada", "--role", "admin")
    put_deliveries(lockstep, folder)
    put_trades(folder)
    lockstep("data", "trades", "--events", "200", "--seed", "1", "-o", "trades.csv")
    lines = (folder / "trades.csv").read_text().splitlines()[:2]
    (folder / "trades.script").write_text("\n\n".join(f"TradesSource,{line}" for line in lines))
    lockstep("engine", "publish", "trades.yaml", "trades.csv")
    run = [sys.executable, sparkless_engine.__file__, "engine", "run", "trades.yaml", "--until-idle"]
    subprocess.run(run, cwd=folder, env=lockstep.environ, capture_output=True, timeout=LONGER_S, check=True)
    return folder


def put_deliveries(lockstep: InProcess, folder: Path) -> None:
    """An item that was given up, and one in doubt: its carrier is gone, and another one came."""
    for item in ("invoice-7", "invoice-8"):
        lockstep("stream", "publish", "outbox", item, "-H", f"delivery-id={item}", "-H", "delivery-kind=mail")
        if item == "invoice-7":
            lockstep("delivery", "run", "outbox", "--command", "sh -c 'exit 65'", "--until-idle")
    with connect(f"lmdb:{folder}/.lockstep") as bus:
        [ledger] = bus.logs(ledger_name("outbox", "carriers"))
        for entry in (Begun(8, "gone", "invoice-8", 1, 1), Barrier(9, "here")):
            write(ledger, entry, bus.runtime)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, prepared, tmp_path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    is_new = example.startswith("lockstep stream create orders")
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"}
    environ["LOCKSTEP_BUS"] = "lmdb:new" if is_new else "lmdb:.lockstep"
    code, out, err = ran(example, folder, environ)
    if "add --yes" in err:  # what destroys something asks first; nobody answers here
        assert code == 2, err
        code, out, err = ran(f"{example} --yes", folder, environ)
    assert code == 0, err
    assert out


def test_the_examples_of_a_scheduler_run(tmp_path) -> None:
    every = [example for noun in NOUNS for verb in noun.verbs for example in verb.examples]
    examples = [example for example in every if example.startswith(OF_A_SCHEDULER)]
    environ = {**os.environ, "LOCKSTEP_BUS": "lmdb:.lockstep"}
    courier = VirtualCourier()
    courier.answers = {"default": deque([400]), "orders": deque([400])}
    with (
        connect(f"lmdb:{tmp_path}/.lockstep") as bus,
        open_scheduler(bus, node_name="node-1", courier=courier) as scheduler,
    ):
        for example in examples:
            if not example.startswith(NODES_AND_SPARK):
                put_events_and_crons(scheduler)
                code, out, err = ran(example, tmp_path, environ)
                if "add --yes" in err:
                    code, out, err = ran(f"{example} --yes", tmp_path, environ)
                # A node that a busy machine keeps from beating has no shards for a moment: a finding, not an error
                findings = {0, 1} if example.startswith("lockstep schedule nodes") else {0}
                assert code in findings, (example, err)
                assert out, example


def put_events_and_crons(scheduler: Scheduler) -> None:
    """Put what the examples are about, whatever those before did: a FAILED event and a cron, for two tenants."""
    at = datetime.now(UTC).replace(second=0, microsecond=0)
    for tenant in ("default", "orders"):
        scheduler.register(tenant, "HTTP", {"url": "http://localhost/"})
        scheduler.at(at, "x", id="mail-7", tenant=tenant)
        until(lambda tenant=tenant: scheduler.find("mail-7", tenant=tenant).status == "FAILED")
        scheduler.every("0 9 * * MON-FRI", id="report", tenant=tenant)
    scheduler.trigger("report")


def ran(line: str, folder: Path, environ: dict[str, str]) -> tuple[int, bytes, str]:
    """Exit code and output of an example: in this process, unless the shell or Spark has a part in it."""
    if set(line) & set("|<>;$&") or line in ON_SPARK:
        done = in_shell(line, folder, environ)
        return done.returncode, done.stdout, done.stderr.decode()
    _, *arguments = shlex.split(line)
    code, found = run_here(folder, environ, arguments)
    return code, found.raw, found.err


def in_shell(line: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=LONGER_S, check=False,
    )  # fmt: skip
