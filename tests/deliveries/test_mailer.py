"""Messages of notification windows, from the stream of notices to real SMTP conversations."""

from __future__ import annotations

import socket
import time
from email import message_from_bytes
from email.policy import default

import pytest
from smtp_server import SmtpServer

import lockstep
from lockstep.connectors.mailer import Mailer
from lockstep.engine.run.records import notice_label
from lockstep.engine.run.sidelog import SideLog
from lockstep.engine.run.streams import NOTICES, ProjectStreams
from lockstep.streams.options import GroupOptions

STREAMS = ProjectStreams(cluster="test", project="mail")
BOUND_S = 30
QUICK = GroupOptions(lease_s=0.4, beat_s=0.1)


@pytest.fixture
def bus(request):
    with lockstep.connect(f"memory:{request.node.name}") as made:
        made.create(STREAMS.notices, NOTICES)
        yield made


def notices(*ports, block=1, kind="email"):
    """A message for each port, with its place as its subject."""
    return [
        {"block": block, "window": "q/n", "kind": kind,
         "content": {"host": "127.0.0.1", "port": str(port), "sender": "me@example.org",
                     "recipient": "ann@example.org", "subject": f"{block}.{index}", "body": "x", "time_us": "0"}}
        for index, port in enumerate(ports)
    ]  # fmt: skip


def write(bus, items):
    label = notice_label(STREAMS.project, "log-0123456789abcdef")
    assert SideLog(bus.bus.open(STREAMS.notices), bus.runtime, label=label).write(items)


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
        assert states["mail.0123456789ab.1.0"] == "done"
        assert states["mail.0123456789ab.1.1"] == "waiting"
        # And a copy that a leader wrote which was none any more is not sent
        write(bus, notices(first.port, block=2))
        write_again = SideLog(
            bus.bus.open(STREAMS.notices), bus.runtime, label=notice_label("mail", "log-0123456789abcdef")
        )
        write_again._append([{**item, "index": 0} for item in notices(first.port)])
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


def test_the_stream_of_notices_is_bounded():
    assert NOTICES.capacity is not None
