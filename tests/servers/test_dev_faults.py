"""Pauses, cut connections, owners that die, and servers that can't be had."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from lockstep.dev.errors import ServerDidNotStart
from lockstep.dev.processes import identify, is_alive, is_free
from lockstep.dev.recipe import Plan, Process, Program, Recipe
from lockstep.dev.redis import redis
from servers.clients import eventually, get_kafka, put_kafka, put_redis
from servers.server_fixtures import free_ports, started

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

OWNER = """\
import os, sys, threading
from pathlib import Path
from lockstep.dev.servers import RECIPES, start
servers = []
def begin():
    servers.append(start(RECIPES[sys.argv[1]](), Path(sys.argv[2]), owner=os.getpid()))
thread = threading.Thread(target=begin)
thread.start()
thread.join()
print(*(process.pid for process in servers[0].facts.pids.values()), flush=True)
threading.Event().wait(300)
"""


def test_a_paused_server_answers_again_when_it_is_resumed(start_server):
    server = start_server("redis")
    server.pause()
    with socket.create_connection(("127.0.0.1", server.port), timeout=0.3) as connection:
        connection.sendall(b"PING\r\n")
        with pytest.raises(TimeoutError):
            connection.recv(10)
        server.resume()
        connection.settimeout(30)
        assert connection.recv(10) == b"+PONG\r\n"


@pytest.mark.parametrize("name", ["redis", "zookeeper", "rabbitmq"])
def test_a_server_dies_with_its_owner_even_if_that_is_killed(name, tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, name, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with owner:
        pids = [identify(int(pid)) for pid in owner.stdout.readline().split()]
        assert pids
        assert all(is_alive(pid) for pid in pids)  # the thread that started it has ended, and it goes on
        owner.kill()
    eventually(lambda: not any(is_alive(pid) for pid in pids), "the server is gone")


def test_a_port_that_is_taken_is_named_with_the_servers_own_words(tmp_path, start_server):
    first = start_server("redis")
    process = Process(
        name="second", command=("redis-server", "--port", str(first.port), "--bind", "127.0.0.1"), port=1,
        probe=lambda _port: 0,
    )  # fmt: skip
    recipe = Recipe(name="second", port_count=1, plan=lambda _site: Plan(url="", processes=(process,)))
    with pytest.raises(ServerDidNotStart, match=r"second did not start: it ended(.|\n)*Address already in use"):
        started(recipe, tmp_path / "second")


def test_a_server_that_was_down_moves_if_its_port_was_taken(tmp_path):
    server = started(redis(), tmp_path / "moving")
    server.stop()
    with socket.create_server(("127.0.0.1", server.port)):
        moved = started(redis(), tmp_path / "moving")
    assert moved.port != server.port
    moved.destroy()


@pytest.mark.parametrize(("ci", "outcome"), [("", "Skipped"), ("true", "Failed")])
def test_a_missing_server_is_skipped_and_under_ci_a_failure(ci, outcome, tmp_path, monkeypatch):
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt-get either
    monkeypatch.delenv("JAVA_HOME", raising=False)
    program = Program(name="thingd", package="thing-server")
    recipe = Recipe(name="thing", port_count=1, plan=lambda _site: Plan(url="", processes=()), programs=(program,))
    with pytest.raises(BaseException, match="apt-get install thing-server") as caught:
        started(recipe, tmp_path / "thing")
    assert type(caught.value).__name__ == outcome


def test_free_ports_are_free():
    found = free_ports(5)
    assert len(set(found)) == 5
    assert all(map(is_free, found))


def redis_through(proxy, timeout=30.0):
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=timeout)


def ask_through(proxy) -> bytes:
    """The reset may be seen while connecting, sending or reading."""
    with redis_through(proxy) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(10)


def test_a_proxy_cuts_what_is_open_and_lets_new_connections_through(proxy, redis_server):
    proxy.target = redis_server.port
    with redis_through(proxy) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(10) == b"+PONG\r\n"
        assert proxy.connections == 1
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
    assert proxy.connections == 0
    assert ask_through(proxy) == b"+PONG\r\n"


def test_a_stalled_proxy_holds_everything_back_and_then_loses_nothing(proxy, redis_server):
    proxy.target = redis_server.port
    with redis_through(proxy) as connection:
        proxy.stall()
        connection.sendall(b"PING\r\n" * 3)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        proxy.resume()
        connection.settimeout(30)
        answer = b""
        while len(answer) < 21:
            answer += connection.recv(100)
        assert answer == b"+PONG\r\n" * 3


def test_a_stalled_connection_can_be_cut(proxy, redis_server):
    proxy.target = redis_server.port
    with redis_through(proxy) as connection:
        eventually(lambda: proxy.connections == 1, "the proxy has the connection")
        proxy.stall()
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(10)
    proxy.resume()


def test_large_answers_pass_while_nobody_reads_them(proxy, redis_server):
    """Both directions are full at once, and neither may hold up the other."""
    proxy.target = redis_server.port
    value = b"x" * 60_000
    with redis_through(proxy) as connection:
        connection.sendall(b"SET k " + value + b"\r\n" + b"GET k\r\n" * 500)
        wanted = len(b"+OK\r\n") + 500 * (60_000 + len(b"$60000\r\n\r\n"))
        received = 0
        while received < wanted:
            received += len(connection.recv(1_000_000))
    assert received == wanted


def test_a_refusing_proxy_resets_new_connections(proxy, start_server):
    server = start_server("redis")
    proxy.target = server.port
    proxy.refuse()
    with pytest.raises(ConnectionResetError):
        ask_through(proxy)
    put_redis(server, "beside the proxy")
    proxy.resume()
    assert ask_through(proxy) == b"+PONG\r\n"


def test_clients_of_a_proxied_kafka_go_through_the_proxy(breakable_kafka):
    server, proxy = breakable_kafka.server, breakable_kafka.proxy
    assert server.url == f"kafka://{proxy.address}"
    accepted = proxy.accepted
    put_kafka(server, "before the cut")
    assert proxy.accepted > accepted
    proxy.cut()
    put_kafka(server, "after the cut")
    assert get_kafka(server) == "after the cut"
