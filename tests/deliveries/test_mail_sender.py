"""The handler that sends items by SMTP, against a real SMTP conversation on loopback."""

from __future__ import annotations

import base64
import json
import socket
from email import message_from_bytes
from email.policy import default

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from smtp_server import SmtpServer

from lockstep.carriers.mail import MailSender, compose, content_of
from lockstep.errors import DeliveryRefused, ServerUnreachable
from lockstep.streams.outbox import Item


def notice(port=25, kind="email", item="p.1.7.0", **content):
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
    body = {"block": 7, "window": "cq/n", "kind": kind, "content": {**known, **content}, "index": 0}
    return Item(item, kind, b"lane", json.dumps(body).encode(), (), "p.N", 0, 1, False, 1)


def composed(item):
    return compose(content_of(item), item.id, item.kind)


def sender(environment=None):
    return MailSender(environment or {}, timeout_s=20)


def refusal(item, environment=None):
    with pytest.raises(DeliveryRefused) as refused:
        sender(environment)(item)
    return str(refused.value)


def test_an_item_is_handed_to_its_server():
    with SmtpServer() as server:
        sender()(notice(server.port))
    envelope = [command for command in server.commands if command.lower().startswith(("mail", "rcpt"))]
    assert [command.split(" ")[1] for command in envelope] == ["FROM:<engine@example.org>", "TO:<ann@example.org>"]
    (received,) = server.messages
    message = message_from_bytes(received, policy=default)
    assert (message["From"], message["To"], message["Subject"]) == ("engine@example.org", "ann@example.org", "Prices")
    assert message["Date"] == "Fri, 11 Oct 2013 13:31:17 +0000"
    assert message.get_content().splitlines() == ["Up.", ".", "Down."]


def test_what_an_item_leaves_out_comes_from_the_defaults():
    item = Item("i", "mail", None, b'{"recipient": "ann@example.org", "body": "x"}', (), "o", 0, 1, False, 1)
    with SmtpServer() as server:
        MailSender({}, {"host": "127.0.0.1", "port": str(server.port), "sender": "me@example.org"})(item)
    assert len(server.messages) == 1


@pytest.mark.parametrize("word", ["MAIL", "RCPT", "DATA", "END"])
def test_a_server_that_is_busy_is_to_be_asked_again(word):
    with SmtpServer([(word, "451 later: secret words")]) as server:
        with pytest.raises(ServerUnreachable) as busy:
            sender()(notice(server.port))
        sender()(notice(server.port))
    assert "451" in str(busy.value)
    assert "secret" not in str(busy.value)
    assert len(server.messages) == (2 if word == "END" else 1)


def test_a_server_that_is_away_is_to_be_asked_again():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ServerUnreachable):
        sender()(notice(port))


@pytest.mark.parametrize("word", ["MAIL", "RCPT", "DATA", "END"])
def test_a_refusal_for_good_refuses_the_item(word):
    with SmtpServer([(word, "550 never: secret words")]) as server:
        told = refusal(notice(server.port))
    assert "550" in told
    assert "secret" not in told


def test_a_connection_that_breaks_is_to_be_tried_again():
    with SmtpServer([("RCPT", "hang up")]) as server, pytest.raises(ServerUnreachable):
        sender()(notice(server.port))


def test_the_password_comes_from_the_environment():
    with SmtpServer(extensions=("AUTH PLAIN",)) as server:
        sender({"MAIL_PASSWORD": "pa ss"})(notice(server.port, user="me", password_variable="MAIL_PASSWORD"))
    (login,) = [command for command in server.commands if command.startswith("AUTH")]
    assert base64.b64decode(login.split(" ")[2]) == b"\0me\0pa ss"


def test_a_password_that_is_not_there_or_not_taken_is_told_without_it():
    assert "MAIL_PASSWORD" in refusal(notice(user="me", password_variable="MAIL_PASSWORD"))
    with SmtpServer([("AUTH", "535 no: pa55")], extensions=("AUTH PLAIN",)) as server:
        item = notice(server.port, user="me", password_variable="MAIL_PASSWORD")
        assert "pa55" not in refusal(item, {"MAIL_PASSWORD": "pa55"})


def test_a_password_does_not_leave_the_host_without_tls():
    # 0.0.0.0 reaches this host, but is not known to be it
    with SmtpServer(extensions=("AUTH PLAIN",)) as server:
        item = notice(server.port, host="0.0.0.0", user="me", password_variable="MAIL_PASSWORD")
        assert "TLS" in refusal(item, {"MAIL_PASSWORD": "pa55"})
    assert not [command for command in server.commands if command.startswith("AUTH")]


@pytest.mark.parametrize("field", ["sender", "recipient", "subject", "shown_sender", "shown_to"])
@pytest.mark.parametrize("ending", ["\r\nBcc: all@example.org", "\nx", "\rx", "\u2028x", "\0"])
def test_a_header_with_a_line_break_is_refused(field, ending):
    text = {"subject": "Prices", "shown_sender": "Engine", "shown_to": "Ann"}.get(field, "ann@example.org")
    refusal(notice(**{field: text + ending}))


@pytest.mark.parametrize("address", ["", "ann", "a@b@c", "a@example.org, b@example.org", "a b@example.org", "ä@x.org"])
def test_what_is_not_one_address_is_refused(address):
    with pytest.raises(DeliveryRefused):
        composed(notice(recipient=address))


@pytest.mark.parametrize("body", [b'{"sender": "a@example.org"}', b"{", b"[]", b"\xff", b'{"content": 7}', b"null"])
def test_an_item_that_is_not_whole_is_refused(body):
    refusal(Item("i", "email", None, body, (), "o", 0, 1, False, 1))


def test_names_are_shown_beside_addresses_and_html_beside_text():
    message = composed(notice(shown_sender='The "Engine"', recipient="Ann <ann@example.org>", html="<b>Up</b>"))
    assert message["From"] == "The Engine <engine@example.org>"
    assert message["To"] == "ann@example.org"
    plain, html = message.iter_parts()
    assert (plain.get_content(), html.get_content()) == ("Up.\n.\nDown.\n", "<b>Up</b>\n")


def test_short_messages_have_no_subject_and_images_are_named():
    message = composed(notice(kind="sms", image="http://example.org/a.png", time_us="0"))
    assert message["Subject"] is None
    assert message["Date"] is None
    assert message.get_content().endswith("http://example.org/a.png\n")


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.text(max_size=60), st.text(max_size=30))
def test_the_same_notice_is_the_same_message(subject, body, html):
    one = notice(subject=subject, body=body, html=html)
    try:
        first = composed(one).as_bytes()
    except DeliveryRefused:
        with pytest.raises(DeliveryRefused):
            composed(one)
        return
    assert first == composed(one).as_bytes()


def test_the_message_id_follows_from_the_id_of_the_item():
    first, again, other = notice(), notice(subject="x"), notice(item="p.1.7.1")
    assert composed(first)["Message-ID"] == composed(again)["Message-ID"] != composed(other)["Message-ID"]
