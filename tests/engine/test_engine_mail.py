"""The sender of notices, against a real SMTP conversation on loopback."""

from __future__ import annotations

import base64
import socket
import threading
from email import message_from_bytes
from email.policy import default

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.run.mail import LATER, REFUSED, SENT, MailPolicy, MailSender, Unsendable, compose
from lockstep.engine.windows.operator import Notice


class SmtpServer:
    """Serves connections one after the other; `answers` replaces the answers to commands, once each."""

    def __init__(self, answers=(), extensions=()):
        self.answers = list(answers)
        self.extensions = extensions
        self.messages = []
        self.commands = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(20)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        # A last connection that says nothing ends the serving.
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as bye:
            bye.sendall(b"STOP\r\n")
        self._thread.join(20)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self):
        running = True
        while running:
            connection, _ = self._listener.accept()
            connection.settimeout(20)
            with connection, connection.makefile("rwb") as stream:
                running = self._talk(stream)

    def _talk(self, stream):
        self._say(stream, "220 here")
        while line := stream.readline():
            command = line.decode().strip()
            word = command.split(" ")[0].split(":")[0].upper()
            if word == "STOP":
                return False
            self.commands.append(command)
            answer = self._answer(word)
            if answer == "hang up":
                return True
            self._say(stream, answer)
            if word == "DATA" and answer.startswith("354"):
                self.messages.append(self._message(stream))
                self._say(stream, self._answer("END"))
            if word == "QUIT":
                return True
        return True

    def _answer(self, word):
        for place, (which, answer) in enumerate(self.answers):
            if which == word:
                del self.answers[place]
                return answer
        if word == "EHLO":
            return "\r\n".join(["250-here", *(f"250-{extension}" for extension in self.extensions), "250 ok"])
        return {"DATA": "354 go", "AUTH": "235 welcome", "QUIT": "221 bye"}.get(word, "250 ok")

    def _message(self, stream):
        lines = []
        while (line := stream.readline()) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return b"".join(lines)

    def _say(self, stream, answer):
        stream.write(answer.encode() + b"\r\n")
        stream.flush()


def notice(port=25, kind="email", **content):
    known = {
        "host": "127.0.0.1",
        "port": str(port),
        "user": "",
        "password_variable": "",
        "sender": "engine@example.org",
        "recipient": "ann@example.org",
        "subject": "Prices",
        "body": "Up.\n.\nDown.",
        "time_us": "1381498277000000",
        "number": "1",
    }
    return Notice(7, "cq/n", kind, tuple(sorted({**known, **content}.items())))


def sender(pauses=None, environment=None, **policy):
    waits = [] if pauses is None else pauses
    return MailSender(environment or {}, waits.append, MailPolicy(timeout_s=20, **policy))


def test_a_notice_is_handed_to_its_server():
    with SmtpServer() as server:
        outcome = sender().send(notice(server.port))
    assert (outcome.state, outcome.attempts) == (SENT, 1)
    envelope = [command for command in server.commands if command.lower().startswith(("mail", "rcpt"))]
    assert [command.split(" ")[1] for command in envelope] == ["FROM:<engine@example.org>", "TO:<ann@example.org>"]
    (received,) = server.messages
    message = message_from_bytes(received, policy=default)
    assert (message["From"], message["To"], message["Subject"]) == ("engine@example.org", "ann@example.org", "Prices")
    assert message["Date"] == "Fri, 11 Oct 2013 13:31:17 +0000"
    assert message.get_content().splitlines() == ["Up.", ".", "Down."]


def test_a_server_that_is_busy_is_asked_again_with_growing_pauses():
    pauses = []
    with SmtpServer([("MAIL", "451 later"), ("DATA", "451 later")]) as server:
        outcome = sender(pauses, attempts=3, pause_s=2.0).send(notice(server.port))
    assert (outcome.state, outcome.attempts, pauses) == (SENT, 3, [2.0, 4.0])
    assert len(server.messages) == 1


def test_a_server_that_stays_away_is_given_up_for_now():
    pauses = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    outcome = sender(pauses, attempts=3, pause_s=20.0).send(notice(port))
    assert (outcome.state, outcome.attempts, pauses) == (LATER, 3, [20.0, 30.0])


@pytest.mark.parametrize("word", ["MAIL", "RCPT", "DATA", "END"])
def test_a_refusal_for_good_is_not_tried_again(word):
    pauses = []
    with SmtpServer([(word, "550 never: secret words")]) as server:
        outcome = sender(pauses).send(notice(server.port))
    assert (outcome.state, outcome.attempts, pauses) == (REFUSED, 1, [])
    assert "550" in outcome.reason
    assert "secret" not in outcome.reason


def test_a_connection_that_breaks_is_tried_again():
    with SmtpServer([("RCPT", "hang up")]) as server:
        assert sender().send(notice(server.port)).state == SENT


def test_the_password_comes_from_the_environment():
    with SmtpServer(extensions=("AUTH PLAIN",)) as server:
        outcome = sender(environment={"MAIL_PASSWORD": "pa ss"}).send(
            notice(server.port, user="me", password_variable="MAIL_PASSWORD")
        )
    assert outcome.state == SENT
    (login,) = [command for command in server.commands if command.startswith("AUTH")]
    assert base64.b64decode(login.split(" ")[2]) == b"\0me\0pa ss"


def test_a_password_that_is_not_there_or_not_taken_is_told_without_it():
    outcome = sender().send(notice(user="me", password_variable="MAIL_PASSWORD"))
    assert (outcome.state, outcome.attempts) == (REFUSED, 0)
    assert "MAIL_PASSWORD" in outcome.reason
    with SmtpServer([("AUTH", "535 no: pa55")], extensions=("AUTH PLAIN",)) as server:
        outcome = sender(environment={"MAIL_PASSWORD": "pa55"}).send(
            notice(server.port, user="me", password_variable="MAIL_PASSWORD")
        )
    assert outcome.state == REFUSED
    assert "pa55" not in repr(outcome)


def test_a_password_does_not_leave_the_host_without_tls():
    # 0.0.0.0 reaches this host, but is not known to be it
    with SmtpServer(extensions=("AUTH PLAIN",)) as server:
        outcome = sender(environment={"MAIL_PASSWORD": "pa55"}).send(
            notice(server.port, host="0.0.0.0", user="me", password_variable="MAIL_PASSWORD")
        )
    assert outcome.state == REFUSED
    assert "TLS" in outcome.reason
    assert not [command for command in server.commands if command.startswith("AUTH")]


@pytest.mark.parametrize("field", ["sender", "recipient", "subject", "shown_sender", "shown_to"])
@pytest.mark.parametrize("ending", ["\r\nBcc: all@example.org", "\nx", "\rx", "\u2028x", "\0"])
def test_a_header_with_a_line_break_is_refused(field, ending):
    text = {"subject": "Prices", "shown_sender": "Engine", "shown_to": "Ann"}.get(field, "ann@example.org")
    outcome = sender().send(notice(**{field: text + ending}))
    assert (outcome.state, outcome.attempts) == (REFUSED, 0)


@pytest.mark.parametrize("address", ["", "ann", "a@b@c", "a@example.org, b@example.org", "a b@example.org", "ä@x.org"])
def test_what_is_not_one_address_is_refused(address):
    with pytest.raises(Unsendable):
        compose(notice(recipient=address))


def test_a_notice_that_is_not_whole_is_refused():
    assert sender().send(Notice(1, "w", "email", (("sender", "a@example.org"),))).state == REFUSED


def test_names_are_shown_beside_addresses_and_html_beside_text():
    message = compose(notice(shown_sender='The "Engine"', recipient="Ann <ann@example.org>", html="<b>Up</b>"))
    assert message["From"] == "The Engine <engine@example.org>"
    assert message["To"] == "ann@example.org"
    plain, html = message.iter_parts()
    assert (plain.get_content(), html.get_content()) == ("Up.\n.\nDown.\n", "<b>Up</b>\n")


def test_short_messages_have_no_subject_and_images_are_named():
    message = compose(notice(kind="sms", image="http://example.org/a.png", time_us="0"))
    assert message["Subject"] is None
    assert message["Date"] is None
    assert message.get_content().endswith("http://example.org/a.png\n")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=60), st.text(max_size=30))
def test_the_same_notice_is_the_same_message(subject, body, html):
    one = notice(subject=subject, body=body, html=html)
    try:
        first = compose(one).as_bytes()
    except Unsendable:
        with pytest.raises(Unsendable):
            compose(one)
        return
    assert first == compose(one).as_bytes()


def test_other_notices_are_other_messages():
    assert compose(notice(number="1"))["Message-ID"] != compose(notice(number="2"))["Message-ID"]
