"""What `lockstep demo` starts, with some incidents added: for pictures of the pages and for looking at them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import lockstep
from lockstep.streams.handlers import OnFailure

RESULTS = (
    ("web-1", "disk", 2, "CheckDisk CRITICAL: /var is 97 % full"),
    ("web-2", "disk", 2, "CheckDisk CRITICAL: /var is 95 % full"),
    ("web-3", "disk", 0, "CheckDisk OK: /var is 41 % full"),
    ("db-1", "replication", 1, "The replica is 42 s late"),
    ("db-2", "backup", 2, "No backup for 31 hours"),
    ("db-2", "replication", 0, "The replica is 0 s late"),
)


@dataclass
class DemoWorld:
    """The demo's address and token."""

    url: str
    token: str
    folder: Path

    def get(self, path: str) -> Any:
        return self._ask("GET", f"/api/v1{path}")

    def openapi(self) -> Any:
        return self._ask("GET", "/openapi.json")

    def post(self, path: str, tree: Any) -> Any:
        return self._ask("POST", path, tree)

    def until(self, path: str, is_so: Callable[[Any], Any], seconds: float = 240.0) -> Any:
        """What a view says as soon as it says so."""
        end = time.monotonic() + seconds
        while True:
            with suppress(URLError, ConnectionError):
                tree = self.get(path)
                if found := is_so(tree):
                    return found
            assert time.monotonic() < end, f"waited {seconds} s for {path}"
            time.sleep(0.5)

    def _ask(self, method: str, path: str, tree: Any = None) -> Any:
        body = None if tree is None else json.dumps(tree).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except HTTPError as error:
            if error.code in (404, 503, 504):  # it is not there yet
                raise URLError(f"{error.code} {path}") from None
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from None
        return json.loads(text) if text else None


@contextmanager
def started(folder: Path, port: int) -> Iterator[DemoWorld]:
    """The demo until the block ends; its trades are those of a fixed seed."""
    command = [sys.executable, "-m", "lockstep.cli.main", "demo", str(folder), "--http", str(port), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield DemoWorld(told["url"], told["token"], folder)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(90)
        if process.stdout is not None:
            process.stdout.close()


def add_incidents(world: DemoWorld) -> None:
    """Failing hosts, one of them silenced, a group that lags, dead letters, and an engine that is killed."""
    world.until("/fleet", lambda tree: tree["events"])
    for host, check, status, output in RESULTS:
        result = {"source": host, "name": check, "status": status, "output": output, "handlers": ["log"]}
        world.post("/apis/monitor/monitor/results", result)
    world.until("/fleet", lambda tree: tree["page"]["all"] >= 5)
    world.post("/api/v1/fleet/silence", {"subscription": "client:db-2", "check": "backup", "expire": "4h",
                                         "reason": "moved to the new disk, done at noon"})  # fmt: skip
    world.until("/fleet/silences", lambda tree: tree["silences"])
    host, check, status, output = RESULTS[4]  # an event is hidden from the next result of its check onwards
    world.post("/apis/monitor/monitor/results", {"source": host, "name": check, "status": status, "output": output})
    world.until("/fleet", lambda tree: tree["counts"]["silenced"])
    with lockstep.connect(f"lmdb:{world.folder / 'bus'}") as client:
        _add_orders(client)
    world.until("/projects/trades", lambda tree: tree["has_standby"])
    active = next(row for row in world.get("/projects/trades")["engines"] if row["role"] == "active")
    os.kill(active["pid"], signal.SIGKILL)
    world.until("/projects/trades", lambda tree: tree["active"] not in (None, active["engine"]) and tree["problems"])


def _add_orders(client: lockstep.Lockstep) -> None:
    with client.publisher("orders") as publisher:
        for number in range(400):
            order = {"order": number, "symbol": ("ACM", "INI", "TYR")[number % 3], "quantity": 10 + number * 7 % 90}
            publisher.publish(json.dumps(order).encode(), key=f"customer-{number % 17}".encode())

    def handle(record: Any) -> None:
        if json.loads(record.value)["order"] % 100 == 7:
            message = "no price is known for this symbol"
            raise ValueError(message)

    with client.subscriber("orders", group="billing", initial="earliest") as subscriber:
        receiver = client.receive(subscriber, handle, on_failure=OnFailure(retries=0, then="dead-letter"))
        assert client.wait_for("orders.dlq", 30.0)
        receiver.close()
    with client.publisher("orders") as publisher:
        publisher.publish_many([b'{"order": 1000}'] * 120)
