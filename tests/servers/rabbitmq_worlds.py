"""RabbitMQ servers of our own, with other settings than the shared one."""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from dataclasses import replace

from lockstep.dev.rabbitmq import rabbitmq
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime

CONTROL = "/usr/lib/rabbitmq/bin/rabbitmqctl"


def rabbitmq_with(settings="", advertised=""):
    """A recipe whose configuration has some more lines."""
    recipe = rabbitmq(advertised=advertised)

    def plan(site):
        made = recipe.plan(site)
        return replace(made, files={**made.files, "rabbitmq.conf": made.files["rabbitmq.conf"] + settings})

    return replace(recipe, plan=plan)


def control(server, *words):
    """Run rabbitmqctl against a server; what it prints."""
    environ = {**os.environ, "HOME": str(server.folder), "ERL_EPMD_PORT": str(server.ports[3])}
    command = (CONTROL, "-q", "-n", "rabbit@localhost", *words)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def own_url(server, *, port=None, login="guest:guest", prefix=None, **options):
    """The URL of a server with a prefix that nobody else has, for a bus that does not wait for a server."""
    told = {"patience_s": 0.01, "prefix": uuid.uuid4().hex[:8] + "." if prefix is None else prefix, **options}
    query = "&".join(f"{name}={value}" for name, value in told.items())
    return f"rabbitmq://{login}@127.0.0.1:{port or server.port}?{query}"


def opened(url):
    """The bus at a URL."""
    return open_bus(url, ThreadRuntime())


def wait_for_notes(server):
    """Return when a server has written down that it has streams.

    It does so half a second after its first stream was made, and forgets all of them if it is killed before.
    """
    notes = server.folder / "data" / "rabbit@localhost" / "coordination" / "rabbit@localhost" / "names.dets"
    end, pause = time.monotonic() + 30, ThreadRuntime().waiter()
    while b"rabbit_stream_coordinator" not in notes.read_bytes():
        assert time.monotonic() < end, "it has noted nothing"
        pause.wait(0.05)
