"""Messages of notification windows, from the stream of notices to real SMTP conversations."""

from __future__ import annotations

import json
import socket
import time
from email import message_from_bytes
from email.policy import default

import pytest
from smtp_server import SmtpServer

import lockstep
from lockstep.connectors.mailer import Mailer
from lockstep.engine.reference.operator import Notice
from lockstep.engine.runtime.output.side_streams import SideLog, notice_label, notice_trees, numbered
from lockstep.engine.runtime.sequence.streams import NOTICES, ProjectStreams

STREAMS = ProjectStreams(cluster="test", project="mail")
BOUND_S = 30


@pytest.fixture
def bus(request):
    with lockstep.connect(f"memory:{request.node.name}") as made:
        made.create(STREAMS.notices, NOTICES)
        yield made


def notices(*ports, block=1, kind="email"):
    """A message for each port, with its place as its subject, as a worker tells it."""
    content = [
        {"host": "127.0.0.1", "port": str(port), "sender": "me@example.org", "recipient": "ann@example.org",
         "subject": f"{block}.{number}", "body": "x", "time_us": "0"}
        for number, port in enumerate(ports)
    ]  # fmt: skip
    return notice_trees("mail/1", [Notice(block, "q/n", kind, tuple(sorted(each.items()))) for each in content])


def write(bus, items):
    """As a leader does that knows nothing of what is there."""
    log = SideLog(bus.bus.open(STREAMS.notices), bus.runtime, label=notice_label)
    for item in numbered(items):
        log._append([item], [json.dumps(item).encode()])


def subjects(server):
    return [message_from_bytes(message, policy=default)["Subject"] for message in server.messages]


def until(condition):
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def mailer(bus, **options):
    return Mailer(bus, STREAMS, {}, **{"backoff_s": 0.05, "backoff_max_s": 0.05, **options})


def test_a_server_that_is_away_holds_up_only_what_goes_to_it(bus):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        away = listener.getsockname()[1]
    with SmtpServer() as first, SmtpServer() as second:
        write(bus, notices(first.port, away, second.port, away, first.port))
        sending = mailer(bus)
        sending.start()
        until(lambda: len(first.messages) == 2 and len(second.messages) == 1)
        sending.stop()
        assert (subjects(first), subjects(second)) == (["1.0", "1.4"], ["1.2"])
        states = {one.id: one.state for one in bus.deliveries(STREAMS.notices, group=STREAMS.mail_group).items()}
        assert (states["mail/1/q/n/1/0"], states["mail/1/q/n/1/1"]) == ("done", "waiting")
        # And a copy that a leader wrote which was none any more is not sent
        write(bus, [*notices(first.port, block=2), *notices(first.port)])
        again = mailer(bus)
        again.start()
        until(lambda: len(first.messages) == 3)
        until(lambda: again.carrier.counts["failed"] > 1)
        again.stop()
        assert subjects(first) == ["1.0", "1.4", "2.0"]


def test_kinds_of_others_are_left_alone_and_short_messages_have_no_subject(bus):
    with SmtpServer() as server:
        write(bus, [*notices(server.port, kind="sms"), *notices(server.port, block=2, kind="page")])
        sending = mailer(bus)
        assert sending.start().wait_idle(BOUND_S)
        sending.stop()
        assert subjects(server) == [None]
        assert sending.carrier.counts["passed"] == 1


def test_a_carrier_gets_notices_of_custom_windows_as_they_were_given(bus):
    given = [
        Notice(1, "q/c", "page", key="ann", headers=(("a", "ü"), ("delivery-id", "mine")), body=b"\xff\0"),
        Notice(1, "q/c", "page", body=b""),
        Notice(1, "q/c", "line\nbreak", key="\ud800", body=b"x"),
    ]
    write(bus, notice_trees("p/1", given))
    found = []
    with bus.carrier(STREAMS.notices, group="pages") as carrier:
        carrier.on("*", found.append)
        assert carrier.start().wait_idle(BOUND_S)
    by_id = {item.id: item for item in found}
    first, second, third = (by_id[f"p/1/q/c/1/{number}"] for number in range(3))
    assert (first.kind, first.key, first.headers, first.body) == ("page", b"ann", (("a", "ü".encode()),), b"\xff\0")
    assert (second.key, second.headers, second.body) == (None, (), b"")
    assert (third.body, third.kind.isprintable()) == (b"x", True)


def test_the_stream_of_notices_is_bounded():
    assert NOTICES.capacity is not None
