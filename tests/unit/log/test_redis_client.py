"""Talking to a server that misbehaves: one that is old, starts slowly, is full, or is no Redis at all."""

from __future__ import annotations

import socket
import threading

import pytest

from lockstep.errors import AppendUncertain, Closed, ServerRefused, ServerUnfit, ServerUnreachable
from lockstep.log.config import StreamConfig
from lockstep.log.redis import scripts
from lockstep.log.redis.bus import open_bus
from lockstep.log.redis.layout import CatalogueEntry
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import Producer

PONG = b"+PONG\r\n"
HALF = b"*1\r\n$6\r\nor"
REFUSED = b"-ERR unknown command 'CONFIG'\r\n"


def bulk(text):
    return b"$%d\r\n%b\r\n" % (len(text), text)


def info(version=b"7.0.15"):
    return bulk(b"redis_version:%b\r\n" % version) + bulk(b"role:master\r\nconnected_slaves:0\r\n")


class Fake:
    """Answers each request on each connection with what the test says, in turn, and hangs up if that is nothing."""

    def __init__(self, *connections):
        self._connections = list(connections)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"//127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        for answers in self._connections:
            connection, _ = self._listener.accept()
            with connection:
                for answer in answers:
                    if answer:
                        self.asked.append(connection.recv(65536))
                        connection.sendall(answer)
                connection.settimeout(10)
                while answers and answers[-1] and connection.recv(65536):
                    pass
        self._listener.close()

    def close(self):
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def fake():
    made = []

    def make(*connections):
        made.append(Fake(*connections))
        return made[-1]

    yield make
    for one in made:
        one.close()


def opened(fake, **options):
    return open_bus(fake.target, {name: str(value) for name, value in options.items()}, ThreadRuntime(), {})


def test_a_server_of_an_old_version_is_refused(fake):
    with pytest.raises(ServerUnfit, match=r"Redis 6.2, and streams need 7.0 or later\. Change its version"):
        opened(fake([PONG, info(b"6.2.14"), REFUSED]))


def test_somebody_who_does_not_speak_redis(fake):
    with pytest.raises(ServerUnfit, match="HTTP"):
        opened(fake([b"HTTP/1.1 400 Bad Request\r\n\r\n"]))


def test_a_server_at_its_limit_of_clients(fake):
    with pytest.raises(ServerUnreachable, match="max number of clients"):
        opened(fake([b"-ERR max number of clients reached\r\n"]))


def test_a_server_that_hangs_up(fake):
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1"):
        opened(fake([]))


def test_who_opens_is_told_at_once_that_a_server_is_starting(fake):
    with pytest.raises(ServerUnreachable, match="loading"):
        opened(fake([b"-LOADING Redis is loading the dataset in memory\r\n"]))


def test_a_server_that_starts_is_waited_for(fake):
    loading = [b"-LOADING Redis is loading the dataset in memory\r\n"]
    server = fake([PONG, info(), REFUSED], loading, loading, [PONG, b"*1\r\n$6\r\norders\r\n"])
    bus = opened(server, timeout_s=10)
    bus.client._drop_idle()
    assert bus.names() == ["orders"]
    bus.close()


def test_a_question_whose_answer_was_lost_is_asked_again(fake):
    server = fake([PONG, info(), REFUSED, HALF, b""], [PONG, b"*1\r\n$6\r\norders\r\n"])
    bus = opened(server)
    assert bus.names() == ["orders"]
    bus.close()


def test_a_change_whose_answer_was_lost_is_not_sent_again(fake):
    server = fake([PONG, info(), REFUSED, HALF, b""])
    bus = opened(server)
    with pytest.raises(AppendUncertain, match="orders"):
        _append(bus)
    assert sum(request.count(b"EVALSHA") for request in server.asked) == 1
    bus.close()


@pytest.mark.parametrize("second", [b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", HALF])
def test_what_was_uncertain_stays_so_until_the_server_has_answered(fake, second):
    stored = b"*2\r\n$2\r\nOK\r\n$1\r\n0\r\n"
    bus = opened(fake([PONG, info(), REFUSED, HALF, b""], [PONG, second, b""], [PONG, stored]), timeout_s=10)
    log, batch = bus.handle("orders", CatalogueEntry("ab", StreamConfig())), Producer().batch(b"a")
    log._config_due = float("inf")  # or it may ask for it in between
    for _ in range(2):
        with pytest.raises(AppendUncertain):
            log.append([batch])
    assert log.append([batch]) == [0]
    assert not log._unsure
    bus.close()


def test_scripts_that_may_not_be_loaded(fake):
    missing = b"-NOSCRIPT No matching script\r\n"
    denied = b"-NOPERM User app has no permissions to run the 'script|load' command\r\n" * len(scripts.SCRIPTS)
    bus = opened(fake([PONG, info(), REFUSED, missing, denied]))
    with pytest.raises(ServerRefused, match="script"):
        _append(bus)
    bus.close()


def test_a_closed_bus_has_no_connection(fake):
    bus = opened(fake([PONG, info(), REFUSED]))
    bus.close()
    with pytest.raises(Closed):
        bus.client.ask(("PING",))


def _append(bus):
    bus.handle("orders", CatalogueEntry("ab", StreamConfig())).append([Producer().batch(b"a")])
