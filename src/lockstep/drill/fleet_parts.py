"""What a drill of a monitor kills besides servers: a real agent, and a broker between it and them."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockstep.dev.rabbitmq import rabbitmq
from lockstep.dev.servers import RunningServer, start
from lockstep.dev.supply import Supply
from lockstep.drill.processes import Child

AGENT, SUBMITTED = "drill-agent", b"ok"
_NOT_STARTED, _NOT_TAKEN = "The agent did not start", "The agent did not take a result"
_START_S, _LOOK_S, _ANSWER_S = 60.0, 0.05, 10.0


class DrillAgent:
    """`lockstep monitor agent` as a process: takes results on its local socket, stores and sends them."""

    def __init__(self, folder: Path, target: list[str], settings: Mapping[str, Any]) -> None:
        self._folder, self._target = folder, target
        self._port = _free_port()
        client = {
            "name": AGENT, "address": "127.0.0.1", "subscriptions": [], "socket": {"port": self._port},
            "http_socket": {"enabled": False},
        }  # fmt: skip
        (folder / "agent.d").mkdir()
        (folder / "agent.d" / "client.json").write_text(json.dumps({"client": client, **settings}))
        self.process: Child

    def start(self) -> None:
        """Start it, in the spool of the one before; return when its socket answers."""
        command = [
            sys.executable, "-m", "lockstep.cli.main", "monitor", "agent", "--json",
            "--config", str(self._folder / "agent.d"), "--spool", str(self._folder / "spool"), *self._target,
        ]  # fmt: skip
        environ = {name: text for name, text in os.environ.items() if name != "LOCKSTEP_BUS"}
        self.process = Child(AGENT, command, self._folder / "agent.log", environ=environ)
        end = time.monotonic() + _START_S
        while not self._answers():
            if self.process.code is not None or time.monotonic() > end:
                raise self.process.failure(_NOT_STARTED)
            time.sleep(_LOOK_S)

    def submit(self, client: str, check: Mapping[str, Any]) -> None:
        """Hand a result of a client to it; when this returns, the agent has it in its spool."""
        if self._ask(json.dumps({**check, "source": client}).encode()) != SUBMITTED:
            raise self.process.failure(_NOT_TAKEN)

    def _answers(self) -> bool:
        try:
            return self._ask(b"ping") == b"pong"
        except OSError:
            return False

    def _ask(self, text: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), _ANSWER_S) as connection:
            connection.sendall(text)
            return connection.recv(64)


class DrillBroker:
    """A RabbitMQ of the drill, with queues that last."""

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self.server: RunningServer = start(
            rabbitmq(), folder, supply=Supply(os.environ, tell), environ=os.environ, owner=os.getpid()
        )

    @property
    def settings(self) -> dict[str, Any]:
        """How agents and servers reach it."""
        port = int(self.server.url.partition("?amqp_port=")[2])
        return {"rabbitmq": {"host": "127.0.0.1", "port": port, "durable": True, "prefetch": 50}}

    def close(self) -> None:
        """End it with its helpers."""
        self.server.destroy()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
