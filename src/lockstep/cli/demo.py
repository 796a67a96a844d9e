"""`lockstep demo`: everything on one embedded bus with live data, and one address to open."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from lockstep.cli import values as kinds
from lockstep.cli.connection import BUS_VARIABLE
from lockstep.cli.output import Output, Stopping
from lockstep.cli.parser import Verb, alone
from lockstep.errors import LockstepError, UsageError

if TYPE_CHECKING:
    from lockstep.schedule.scheduler import Scheduler

MARK = ".lockstep-demo"
"""Marks folders that a demo created, so that it empties no other folder."""
EVENTS, RATE = 400_000, 200
STOP_S, LOOK_S = 20.0, 2.0
MODEL = """\
# Prices of every symbol over the last five minutes.
name: trades
queries:
  - name: prices
    windows:
      - kind: source
        name: trades
        insert_only: true
        schema:
          ID*: int32
          symbol: string
          currency: int32
          udate: int64
          msecs: int32
          price: double
          quantity: int32
          venue: int32
          broker: int32
          buyer: int32
          seller: int32
          buysellflg: int32
          time: stamp
      - kind: copy
        name: recent
        retention: bytime_sliding 5 minutes on time
      - kind: filter
        name: large
        expression: quantity > 500
      - kind: aggregate
        name: by_symbol
        schema: symbol*:string, trades:int64, vwap:double, low:double, high:double
        fields:
          trades: ESP_aCount()
          vwap: ESP_aWAve(quantity,price)
          low: ESP_aMin(price)
          high: ESP_aMax(price)
    edges:
      - trades -> recent large
      - recent -> by_symbol
"""


@dataclass(frozen=True, slots=True)
class Part:
    """A process of the demo: what it is, and its command after `lockstep`."""

    name: str
    words: Sequence[str]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", default="build/demo", help="for bus and state (build/demo)"
    )
    parser.add_argument("--http", type=kinds.port, default=8080, metavar="PORT", help="where to open it (8080)")
    parser.add_argument("--resume", action="store_true", help="go on with what the folder holds, instead of anew")


DEMO = alone(
    Verb(
        name="demo",
        purpose="Try everything: engines, a scheduler, a small fleet and the pages, with live data, until Ctrl-C.",
        run="lockstep.cli.demo:demo",
        arguments=_arguments,
        examples=("lockstep demo", "lockstep demo ./try --http 18080"),
    )
)


def parts(folder: Path, port: int) -> list[Part]:
    """The processes, in the order in which they are started."""
    model, trades = str(folder / "trades.yaml"), str(folder / "trades.csv")
    engines = [
        Part(f"engine {name}", ("engine", "run", model, "--runner", "local", "--name", name, "--publish", "by_symbol",
                                "--state", str(folder / name)))
        for name in ("e1", "e2")
    ]  # fmt: skip
    return [
        Part("pages", ("serve", "--http", str(port), "--state", str(folder / "serve"))),
        *engines,
        Part("scheduler", ("schedule", "serve", "--http", "0")),
        Part("fleet", ("monitor", "up", str(folder / "monitor"), "--http", "0")),
        Part("trades", ("engine", "publish", model, trades, "--rate", str(RATE), "--block", "5")),
    ]


def demo(options: argparse.Namespace, output: Output) -> int:
    """Start everything, keep events coming, and end everything."""
    folder = Path(options.folder).resolve()
    _prepare(folder, keep=options.resume)
    bus = f"lmdb:{folder / 'bus'}"
    environment = {**os.environ, BUS_VARIABLE: bus}
    _run(["data", "trades", "--events", str(EVENTS), "-o", str(folder / "trades.csv")], environment)
    secret = _run(["access", "add", "demo", "--role", "admin", "--quiet"], environment).strip()
    with Stopping().listening() as stopping, ExitStack() as closing:
        running = _Running(folder, environment, output)
        closing.callback(running.stop)
        for part in parts(folder, options.http):
            running.start(part)
        url = f"http://127.0.0.1:{options.http}"
        if output.json:
            output.json_line({"url": url, "token": secret, "folder": str(folder)})
        else:
            output.line(f"Open {url} and sign in with {secret}")
            output.note(
                f"Bus: {bus}. What the processes say is in {folder}/*.log. Kill any of them and look. Ctrl-C ends it."
            )
        output.flush()
        _keep_events_coming(bus, stopping, running)
    return stopping.code


def _keep_events_coming(bus: str, stopping: Stopping, running: _Running) -> None:
    """Have events fire half a minute ahead, and say which process ended."""
    import lockstep

    with lockstep.connect(bus) as client, ExitStack() as closing:
        scheduler: Scheduler | None = None
        number = 0
        while not stopping.wait(LOOK_S):
            running.tell_ended()
            try:
                if scheduler is None:
                    scheduler = closing.enter_context(client.scheduler(node=False))
                    scheduler.every("0/10 * * * * ?", "tick", id="every-ten-seconds", type="QUARTZ")
                    scheduler.every("0 9 * * MON-FRI", "good morning", id="morning", tz="Europe/Berlin")
                number += 1
                scheduler.after("30s", {"order": number}, id=f"reminder-{number}")
            except LockstepError:  # its node is not there yet, or was killed: that is what a demo is for
                continue


def _prepare(folder: Path, *, keep: bool) -> None:
    if folder.exists() and not keep:
        if any(folder.iterdir()) and not (folder / MARK).exists():
            raise UsageError(reason=f"{folder} is not empty, and no demo made it. Name another folder.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()
    (folder / "trades.yaml").write_text(MODEL)


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "lockstep.cli.main", *words]


def _run(words: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run(_command(words), env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise UsageError(reason=f"'lockstep {' '.join(words)}' failed: {done.stderr.strip()}")
    return done.stdout


class _Running:
    """The processes of the demo."""

    def __init__(self, folder: Path, environment: Mapping[str, str], output: Output) -> None:
        self._folder, self._environment, self._output = folder, environment, output
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []

    def start(self, part: Part) -> None:
        """Start one; what it says goes to a file."""
        log = (self._folder / f"{part.name.replace(' ', '-')}.log").open("ab")
        self._logs.append(log)
        self._processes[part.name] = subprocess.Popen(  # noqa: S603 - itself
            _command(part.words), env=self._environment, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, process_group=0,
        )  # fmt: skip

    def tell_ended(self) -> None:
        """Say once which processes have ended."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                del self._processes[name]
                self._output.note(f"{name} has ended with {process.returncode}; see its log in {self._folder}.")

    def stop(self) -> None:
        """End all, in order where they do within some seconds."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for log in self._logs:
            log.close()
