"""An agent as a process: event loop, sockets, spool, transport, until it is asked to end."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.cron import Zone
from lockstep.errors import UsageError, ZoneUnknown
from lockstep.monitor.agent.agent import Agent
from lockstep.monitor.agent.checks import Extension
from lockstep.monitor.agent.errors import SocketTaken
from lockstep.monitor.agent.processes import LoopMachine
from lockstep.monitor.agent.sender import Sender, start_thread
from lockstep.monitor.agent.sockets import HEAD_BYTES, Connections, HttpSocket, TcpSocket, UdpSocket
from lockstep.monitor.agent.spool import Spool
from lockstep.monitor.settings.settings import Settings
from lockstep.monitor.transport.port import Transport
from lockstep.runtime import logger

TCP_PORT, HTTP_PORT = 3030, 3031
EXTENSIONS = "lockstep.monitor.checks"
"""The group of entry points of checks that are Python."""
_FLUSH_S = 5.0
_LOCALTIME = Path("/etc/localtime")


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an agent process."""

    settings: Settings
    transport: Transport
    spool: Spool
    started: Callable[[Agent], None] = lambda _: None


def run(parts: Parts, stop_signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)) -> int:
    """Run an agent until a signal asks it to end; the number of that signal."""
    return asyncio.run(_run(parts, stop_signals))


async def _run(parts: Parts, stop_signals: tuple[int, ...]) -> int:
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[int] = loop.create_future()
    for number in stop_signals:
        loop.add_signal_handler(number, _ask, asked, number)
    machine = LoopMachine(loop)
    sender = Sender(parts.transport, parts.spool, secrets.token_hex(8))
    agent = Agent(
        parts.settings, machine, parts.transport, sender, _poster(loop),
        zone=local_zone(os.environ), find_extension=find_extension,
    )  # fmt: skip
    post = _poster(loop)

    def fail(error: BaseException) -> None:
        post(partial(_fail, asked, error))

    parts.transport.on_error = partial(_transport_failed, parts.settings, fail)
    try:
        async with AsyncExitStack() as stack:
            thread = start_thread(sender.run, fail)
            stack.push_async_callback(_end, agent, machine, sender, thread)
            await _open_sockets(stack, agent, machine)
            agent.start()
            parts.started(agent)
            return await asked
    finally:
        parts.transport.close()
        parts.spool.close()


def _poster(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None]], None]:
    """Hands calls of other threads to the loop."""

    def post(call: Callable[[], None]) -> None:
        loop.call_soon_threadsafe(call)

    return post


async def _end(agent: Agent, machine: LoopMachine, sender: Sender, thread: threading.Thread) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    agent.stop(lambda: ended.set_result(None))
    await ended
    machine.end()
    await loop.run_in_executor(None, _flush, sender, thread)


def _ask(asked: asyncio.Future[int], number: int) -> None:
    if not asked.done():
        asked.set_result(number)


def _fail(asked: asyncio.Future[int], error: BaseException) -> None:
    if not asked.done():
        asked.set_exception(error)


def _transport_failed(settings: Settings, fail: Callable[[BaseException], None], error: Exception) -> None:
    """The transport tries again by itself. An agent ends if that can't help, or if it is told not to wait for it."""
    logger.warning("transport connection error: %s", error, extra={"action": "transport_failed"})
    if isinstance(error, UsageError) or settings["transport"].get("reconnect_on_error") is False:
        fail(error)


def _flush(sender: Sender, thread: threading.Thread) -> None:
    """Send what waits, if that goes quickly; what does not stays in the spool."""
    pause = threading.Event()
    sender.hurry()
    for _ in range(int(_FLUSH_S / 0.05)):
        if not sender.is_busy or sender.failed:
            break
        pause.wait(0.05)
    sender.close()
    thread.join(_FLUSH_S)
    if left := sender.waiting:
        logger.warning("%d results wait in the spool for the next start", left, extra={"action": "results_wait"})


# sockets


async def _open_sockets(stack: AsyncExitStack, agent: Agent, machine: LoopMachine) -> None:
    client = agent.client
    json_options, http_options = client.get("socket") or {}, client.get("http_socket") or {}
    if json_options.get("enabled") is not False:
        host, port = json_options.get("bind") or "127.0.0.1", json_options.get("port") or TCP_PORT
        await stack.enter_async_context(_json_socket(agent, machine, host, port))
    if http_options.get("enabled") is not False:
        host, port = http_options.get("bind") or "127.0.0.1", http_options.get("port") or HTTP_PORT
        await stack.enter_async_context(_http_socket(agent, http_options, host, port))


@asynccontextmanager
async def _json_socket(agent: Agent, machine: LoopMachine, host: str, port: int) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    connections = Connections()
    try:
        server = await loop.create_server(
            lambda: TcpSocket(agent.take, machine.call_later, connections), host, port, reuse_address=True
        )
        transport, _ = await loop.create_datagram_endpoint(lambda: UdpSocket(agent.take), local_addr=(host, port))
    except (OSError, OverflowError) as error:
        raise SocketTaken(address=f"{host}:{port}", reason=str(error), member="socket") from error
    try:
        yield
    finally:
        server.close()
        transport.close()
        connections.close()
        await server.wait_closed()


@asynccontextmanager
async def _http_socket(agent: Agent, options: Mapping[str, Any], host: str, port: int) -> AsyncIterator[None]:
    http = HttpSocket(agent.take, agent.info, agent.shown_settings, options)
    try:
        server = await asyncio.start_server(http.serve, host, port, limit=HEAD_BYTES)
    except (OSError, OverflowError) as error:
        raise SocketTaken(address=f"{host}:{port}", reason=str(error), member="http_socket") from error
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


# what the machine has


def local_zone(environ: Mapping[str, str]) -> Zone:
    """The time zone of this machine, for crons: that of TZ, else of /etc/localtime, else UTC."""
    name = environ.get("TZ", "").removeprefix(":")
    if not name and _LOCALTIME.is_symlink():
        name = str(_LOCALTIME.readlink()).rpartition("zoneinfo/")[2]
    try:
        return Zone(name) if name else Zone()
    except ZoneUnknown:
        logger.warning("The time zone %r is not known: crons are in UTC", name, extra={"action": "zone_unknown"})
        return Zone()


def find_extension(name: str) -> Extension | None:
    """The check of this name that an installed package brings."""
    from importlib import metadata  # most agents have none, and it takes memory

    for found in metadata.entry_points(group=EXTENSIONS, name=name):
        extension: Extension = found.load()
        return extension
    return None
