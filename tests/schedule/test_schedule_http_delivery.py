"""Callbacks over HTTP to a real receiver: what is sent, what answers mean, and where nothing is sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from delivery_parts import Results, delivered, event, http_tenant
from http_receiver import receiving
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("aiohttp")

from lockstep.core.agenda import Form, Option
from lockstep.errors import BadArgument
from lockstep.runtime import ThreadRuntime
from lockstep.schedule.delivery.couriers import Couriers
from lockstep.schedule.delivery.http import HttpCourier
from lockstep.schedule.delivery.port import CourierOptions, Delivery, Outcome

TAKEN, REFUSED, FAILED = Outcome.TAKEN, Outcome.REFUSED, Outcome.FAILED


@pytest.fixture
def receiver():
    with receiving() as made:
        yield made


@pytest.fixture
def courier_of():
    made = []

    def make(**options) -> HttpCourier:
        made.append(HttpCourier(CourierOptions(**{"allow_loopback": True, **options}), FixedTime()))
        return made[-1]

    yield make
    for courier in made:
        courier.close()


class FixedTime(ThreadRuntime):
    def wall_ns(self) -> int:
        return 1_700_000_123_456_789_000


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_the_whole_event_is_posted_with_the_headers_of_the_tenant_and_of_the_event(receiver, courier_of):
    headers = {"header1": "value1", "accept": "text/html", "content-type": "text/plain", "lockstep-attempt": "9"}
    tenant = http_tenant(receiver.url(), headers=headers)
    assert delivered(courier_of(), tenant, attempt=2) == (TAKEN, None)
    [got] = receiver.received
    assert json.loads(got.body) == {
        "id": "e1", "eventTime": "2023-11-14T22:13:20.001Z", "tenant": "Orders/EU", "payload": '{"n":1}',
        "mode": "UPSERT", "deliveryOption": "FULL_EVENT", "eventId": "id-1", "triggeredAt": "2023-11-14T22:13:20.500Z",
        "eventStatus": "TRIGGERED", "error": None,
    }  # fmt: skip
    assert sorted((name.lower(), text) for name, text in got.headers) == [
        ("accept", "*/*"),
        ("content-length", str(len(got.body))),
        ("content-type", "application/json; charset=utf-8"),
        ("header1", "value1"),
        ("host", f"127.0.0.1:{receiver.port}"),
        ("idempotency-key", "id-1"),
        ("lockstep-attempt", "2"),
        ("lockstep-event-time", "2023-11-14T22:13:20.001Z"),
        ("lockstep-payload", "json"),
        ("lockstep-tenant", "Orders/EU"),
        ("user-agent", "lockstep"),
    ]


@pytest.mark.parametrize("payload", [b"testP", "größer ☂".encode(), b"\x00\xff\x80", b""])
def test_a_payload_alone_is_sent_as_it_is(receiver, courier_of, payload):
    shown = {"payload": payload, "form": Form.BYTES, "option": Option.PAYLOAD_ONLY}
    assert delivered(courier_of(), http_tenant(receiver.url()), **shown) == (TAKEN, None)
    assert receiver.received[0].body == payload


def test_a_dry_run_says_so(receiver, courier_of):
    results, tenant = Results(), http_tenant(receiver.url())
    courier_of().deliver(Delivery(event(), tenant, dry_run=True), results)
    assert results.wait(1)[0].outcome is TAKEN
    assert receiver.received[0].header("Lockstep-Dry-Run") == "true"


@pytest.mark.parametrize(
    ("secret", "key"),
    [("plain text", b"plain text"), ("whsec_" + base64.b64encode(b"\x00\x01key").decode(), b"\x00\x01key")],
)
def test_a_secret_signs_by_the_standard_webhooks_scheme(receiver, courier_of, secret, key):
    assert delivered(courier_of(), http_tenant(receiver.url(), secret=secret)) == (TAKEN, None)
    [got] = receiver.received
    assert (got.header("webhook-id"), got.header("webhook-timestamp")) == ("id-1", "1700000123")
    signed = hmac.new(key, b"id-1.1700000123." + got.body, hashlib.sha256).digest()
    assert got.header("webhook-signature") == "v1," + base64.b64encode(signed).decode()


def test_the_signature_is_that_of_the_scheme_s_own_example():
    from lockstep.net.signatures import signature_headers, signing_key

    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_without_a_secret_nothing_is_signed(receiver, courier_of):
    delivered(courier_of(), http_tenant(receiver.url()))
    assert not [name for name, _ in receiver.received[0].headers if name.startswith("webhook")]


# --- what answers mean ------------------------------------------------------------------------------------------------

ANSWERS = [
    *((code, "", TAKEN, None) for code in (200, 201, 202, 204, 226)),
    (200, "fine", TAKEN, None),
    *((code, "", FAILED, f"HTTP {code}: redirects are not followed.") for code in (301, 302, 303, 307, 308)),
    *((code, "not so", REFUSED, "not so") for code in (400, 401, 403, 404, 405, 409, 410, 418, 422, 451)),
    (404, "", REFUSED, "HTTP 404"),
    *((code, "later", FAILED, f"HTTP {code}: later") for code in (408, 425, 429, 500, 501, 502, 503, 504)),
    (500, "", FAILED, "HTTP 500"),
    (304, "", FAILED, "HTTP 304: redirects are not followed."),
]


@pytest.mark.parametrize(("code", "body", "outcome", "error"), ANSWERS)
def test_the_status_decides(receiver, courier_of, code, body, outcome, error):
    tenant = http_tenant(receiver.url(f"/status/{code}?body={body}"))
    assert delivered(courier_of(), tenant) == (outcome, error)
    assert len(receiver.received) == 1


def test_a_redirect_is_not_followed(receiver, courier_of):
    tenant = http_tenant(receiver.url("/redirect/302"))
    assert delivered(courier_of(), tenant) == (FAILED, "HTTP 302: redirects are not followed.")


def test_a_refused_connection_is_tried_again(courier_of):
    port = closed_port()
    outcome, error = delivered(courier_of(), http_tenant(f"http://127.0.0.1:{port}/"))
    assert (outcome, error) == (FAILED, f"Could not connect to 127.0.0.1:{port}: Connection refused.")


def test_a_name_that_does_not_resolve_is_tried_again(courier_of):
    outcome, error = delivered(courier_of(), http_tenant("http://nobody.invalid/"))
    assert outcome is FAILED
    assert error.startswith("The name nobody.invalid could not be resolved: ")


def test_a_receiver_that_accepts_and_never_answers_runs_into_the_time_out(receiver, courier_of):
    courier = courier_of(timeout_s=0.2, connect_timeout_s=0.2)
    outcome, error = delivered(courier, http_tenant(receiver.url("/gate")))
    assert (outcome, error) == (FAILED, f"No answer from 127.0.0.1:{receiver.port} within 0.2 s.")


def test_a_server_that_does_not_take_connections_runs_into_the_connect_time_out(courier_of):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        port = silent.getsockname()[1]
        others = []
        while len(others) < 4:  # until its queue is full
            other = socket.socket()
            other.setblocking(False)
            other.connect_ex(("127.0.0.1", port))
            others.append(other)
        outcome, error = delivered(courier_of(connect_timeout_s=0.2), http_tenant(f"http://127.0.0.1:{port}/"))
        for other in others:
            other.close()
    assert (outcome, error) == (FAILED, f"No connection to 127.0.0.1:{port} within 0.2 s.")


@pytest.mark.parametrize("path", ["/hang-up", "/nonsense"])
def test_a_receiver_that_speaks_no_http_is_tried_again(receiver, courier_of, path):
    outcome, error = delivered(courier_of(), http_tenant(receiver.url(path)))
    assert outcome is FAILED
    assert f"127.0.0.1:{receiver.port}" in error


@pytest.mark.parametrize(
    ("code", "expected"), [(200, (TAKEN, None)), (400, (REFUSED, "begun")), (500, (FAILED, "HTTP 500: begun"))]
)
@pytest.mark.slow
def test_a_body_that_never_ends_changes_no_outcome(receiver, courier_of, code, expected):
    courier = courier_of(timeout_s=0.3)
    assert delivered(courier, http_tenant(receiver.url(f"/slow-body/{code}"))) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [(200, (TAKEN, None)), (400, (REFUSED, "x" * 4096)), (500, (FAILED, "HTTP 500: " + "x" * 4096))],
)
def test_of_a_huge_body_only_the_beginning_is_read(receiver, courier_of, code, expected):
    assert delivered(courier_of(), http_tenant(receiver.url(f"/huge/{code}"))) == expected


def test_connections_are_kept_and_cookies_are_not(receiver, courier_of):
    courier, tenant = courier_of(), http_tenant(receiver.url("/cookie"))
    assert [delivered(courier, tenant)[0] for _ in range(5)] == [TAKEN] * 5
    assert receiver.connections == 1
    assert not [name for got in receiver.received for name, _ in got.headers if name.lower() == "cookie"]


def test_idle_connections_are_bounded(courier_of):
    courier = courier_of(connections=1)
    with receiving() as first, receiving() as second, receiving() as third:
        for receiver in (first, second, third, third):
            assert delivered(courier, http_tenant(receiver.url()))[0] is TAKEN
        assert [one.connections for one in (first, second, third)] == [1, 1, 2]


def test_proxies_of_the_environment_are_not_used(receiver, courier_of, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    assert delivered(courier_of(), http_tenant(receiver.url())) == (TAKEN, None)


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 that nobody signed, in one file with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
               "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out", path.with_suffix(".crt")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


@pytest.fixture
def tls_receiver(certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with receiving(tls) as made:
        yield made


@pytest.mark.slow
def test_a_certificate_that_nobody_signed_is_tried_again(tls_receiver, courier_of):
    tenant = http_tenant(f"https://127.0.0.1:{tls_receiver.port}/status/200")
    outcome, error = delivered(courier_of(), tenant)
    assert outcome is FAILED
    assert error == f"The certificate of 127.0.0.1:{tls_receiver.port} is not valid: self-signed certificate."
    assert tls_receiver.received == []


TRUSTING = """
import sys
sys.path.append(sys.argv[1])
from delivery_parts import delivered, http_tenant
from lockstep.schedule.delivery.http import HttpCourier
from lockstep.schedule.delivery.port import CourierOptions
courier = HttpCourier(CourierOptions(allow_loopback=True))
print(*delivered(courier, http_tenant(sys.argv[2])))
courier.close()
"""


@pytest.mark.slow
def test_a_certificate_that_the_environment_names_is_trusted(tls_receiver, certificate):
    url = f"https://127.0.0.1:{tls_receiver.port}/status/200"
    command = [sys.executable, "-c", TRUSTING, str(Path(__file__).parent), url]
    trusted = {**os.environ, "SSL_CERT_FILE": str(certificate.with_suffix(".crt"))}
    found = subprocess.run(command, env=trusted, capture_output=True, text=True, timeout=60, check=False)
    assert found.stdout.strip() == "Outcome.TAKEN None", found.stderr
    assert len(tls_receiver.received) == 1


def test_a_server_without_tls_is_tried_again(receiver, courier_of):
    outcome, error = delivered(courier_of(), http_tenant(f"https://127.0.0.1:{receiver.port}/"))
    assert outcome is FAILED
    assert f"127.0.0.1:{receiver.port}" in error


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_a_receiver_that_sends_back_what_it_got_reveals_no_secret(receiver, courier_of, caplog):
    caplog.set_level(logging.DEBUG)
    headers = {"Authorization": "Bearer tok-1234567890", "X-Custom": "quiet-value"}
    url = "/echo?key=hidden-in-url&code=0123456789abcdef0123"
    tenant = http_tenant(receiver.url(url), headers={**headers, "X-Url": url}, secret="signing-secret")
    outcome, error = delivered(courier_of(), tenant)
    assert outcome is REFUSED
    assert "Idempotency-Key: id-1" in error
    for secret in ("tok-1234567890", "quiet-value", "signing-secret", "hidden-in-url", "0123456789abcdef"):
        assert secret not in error + caplog.text


@pytest.mark.parametrize(
    "url", ["http://user:hidden@127.0.0.1/", "http://[user:hidden@/?key=hidden", "ftp://h/?k=hidden"]
)
def test_errors_about_a_url_do_not_show_its_credentials(courier_of, url):
    with pytest.raises(BadArgument) as caught:
        courier_of().check(http_tenant(url))
    assert "hidden" not in str(caught.value)


def test_control_characters_of_a_receiver_are_not_shown(receiver, courier_of):
    outcome, error = delivered(
        courier_of(), http_tenant(receiver.url("/status/400?body=%1b%5b2J%00red%07%0aagain%c2%9b"))
    )
    assert (outcome, error) == (REFUSED, "[2Jred\nagain")


# --- where nothing is sent --------------------------------------------------------------------------------------------

LOOPBACK = [
    "http://127.0.0.1/", "http://127.8.9.10/", "http://2130706433/", "http://0x7f.1/", "http://0x7f000001/", "http://127.1/",
    "http://017700000001/", "http://0177.0.0.1/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::127.0.0.1]/",
    "http://[2002:7f00:1::]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b:1::7f00:1]/", "http://①②⑦.⓪.⓪.①/",
    "http://127.0.0.1./",
]  # fmt: skip
NEVER = [
    "http://169.254.169.254/latest", "http://2852039166/", "http://0xa9fea9fe/", "http://[::ffff:169.254.169.254]/",
    "http://[2002:a9fe:a9fe::1]/", "http://[64:ff9b::a9fe:a9fe]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/",
    "http://0.0.0.0/", "http://0/", "http://0.1.2.3/", "http://[::]/", "http://224.0.0.1/", "http://[ff02::1]/",
    "http://255.255.255.255/", "http://[fd00:ec2::254]/", "http://100.100.100.200/", "http://168.63.129.16/",
]  # fmt: skip
PRIVATE = ["http://10.1.2.3/", "http://172.16.0.1/", "http://192.168.1.1/", "http://100.64.0.1/", "http://[fd12::1]/",
           "http://[::ffff:10.1.2.3]/", "http://[2002:0a01:0203::]/"]  # fmt: skip


@pytest.mark.parametrize("url", [*LOOPBACK, *NEVER])
def test_an_address_of_this_machine_or_of_metadata_is_refused_at_registration(courier_of, url):
    with pytest.raises(BadArgument, match="must not be called"):
        courier_of(allow_loopback=False).check(http_tenant(url))


@pytest.mark.parametrize("url", NEVER)
def test_what_is_never_called_is_refused_whatever_is_allowed(courier_of, url):
    with pytest.raises(BadArgument, match="must not be called"):
        courier_of(allow_loopback=True, allow_private=True).check(http_tenant(url))


@pytest.mark.parametrize("url", [*LOOPBACK, *NEVER])
def test_such_an_address_is_refused_when_an_event_is_delivered_too(courier_of, url):
    outcome, error = delivered(courier_of(allow_loopback=False), http_tenant(url))
    assert outcome is REFUSED
    assert "must not be called" in error


@pytest.mark.parametrize("url", PRIVATE)
def test_private_addresses_may_be_called_unless_the_courier_says_no(courier_of, url):
    courier_of().check(http_tenant(url))
    with pytest.raises(BadArgument, match="is a private address"):
        courier_of(allow_private=False).check(http_tenant(url))


def test_a_public_address_may_be_called(courier_of):
    for url in ("https://93.184.216.34/", "https://[2606:2800:220:1::1]/", "https://api.example.com:8443/hook?a=b"):
        courier_of(allow_loopback=False, allow_private=False).check(http_tenant(url))


def test_a_name_that_resolves_to_this_machine_is_refused_when_it_is_called(receiver, courier_of):
    tenant, courier = http_tenant(receiver.url(host="localhost")), courier_of(allow_loopback=False)
    courier.check(tenant)
    outcome, error = delivered(courier, tenant)
    assert outcome is REFUSED
    assert error.startswith("Not sent: localhost resolves to ")
    assert error.endswith("is a loopback address, which must not be called.")
    assert (receiver.connections, receiver.received) == (0, [])


def test_a_name_that_resolves_to_this_machine_is_called_if_that_is_allowed(receiver, courier_of):
    assert delivered(courier_of(), http_tenant(receiver.url(host="localhost"))) == (TAKEN, None)


def test_a_connection_goes_to_the_address_that_was_checked(receiver, courier_of, monkeypatch):
    """A name server that answers with another address the second time gains nothing: there is no second time."""
    answers = [[(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", receiver.port))]]
    asked = []

    def changing(host, port, *_, **__):
        asked.append(host)
        return answers.pop(0) if answers else [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", port))]

    monkeypatch.setattr(socket, "getaddrinfo", changing)
    tenant = http_tenant(f"http://rebinding.example:{receiver.port}/status/200")
    assert delivered(courier_of(), tenant) == (TAKEN, None)
    assert asked == ["rebinding.example"]


def test_names_that_do_not_resolve_hold_up_no_other(receiver, courier_of, monkeypatch):
    # Given a tenant for each of many names whose server for names does not answer
    resolve, gate = socket.getaddrinfo, threading.Event()

    def hanging(host, *rest, **more):
        if host.startswith("hangs"):
            gate.wait(30)
        return resolve("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    courier, results = courier_of(), Results()
    for number in range(40):
        tenant = http_tenant(f"http://hangs{number}.example/", name=f"t{number}")
        courier.deliver(Delivery(event(number, tenant=tenant.tenant), tenant), results)
    try:
        # When an event of another tenant is delivered
        place = receiver.url().replace("127.0.0.1", "answers.example")
        outcome, _ = delivered(courier, http_tenant(place))
    finally:
        gate.set()
    # Then it arrives
    assert outcome is TAKEN


def test_one_bad_address_of_a_name_is_enough(receiver, courier_of, monkeypatch):
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, receiver.port)) for host in ("127.0.0.1", "169.254.1.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
    outcome, error = delivered(courier_of(), http_tenant(f"http://mixed.example:{receiver.port}/status/200"))
    assert (outcome, receiver.received) == (REFUSED, [])
    assert "169.254.1.1 is a link-local address" in error


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "169.254.169.254", "localhost", "::1"])
def test_no_socket_is_made_for_an_address_that_was_not_foreseen(courier_of, host):
    from lockstep.schedule.delivery.http import AddressRefused

    with pytest.raises(AddressRefused):
        courier_of(allow_loopback=False)._socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 80)))


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://api.example.com/", True), ("https://API.Example.com./", True), ("https://a.hooks.example.com/", True),
        ("https://a.b.hooks.example.com/", True), ("https://hooks.example.com/", False),
        ("https://example.com/", False), ("https://xhooks.example.com/", False),
        ("https://api.example.com.evil.org/", False), ("https://evilapi.example.com/", False),
        ("https://api.example.com:8443/", False), ("http://93.184.216.34/", False),
    ],
)  # fmt: skip
def test_lists_of_hosts_and_ports_leave_all_others_out(courier_of, url, allowed):
    courier = courier_of(allowed_hosts=("api.example.com", "*.hooks.example.com"), allowed_ports=(80, 443))
    if allowed:
        courier.check(http_tenant(url))
        return
    with pytest.raises(BadArgument, match="is not one of the allowed"):
        courier.check(http_tenant(url))
    assert delivered(courier, http_tenant(url))[0] is REFUSED


@pytest.mark.parametrize(
    "props",
    [
        {"url": "http://"}, {"url": "http:///path"}, {"url": "http://a b/"}, {"url": "http://h:99999/"},
        {"url": "http://%31%32%37.0.0.1/"}, {"url": "http://127.0.0.1\\@example.com/"}, {"url": "http://[::1"},
        {"url": "ftp://example.com/"}, {"url": "http://user:pw@example.com/"},
        {"url": "http://2130706433/"}, {"url": "http://0x7f.1/"},
        {"url": "http://h/", "headers": {"Content-Length": "1"}}, {"url": "http://h/", "headers": {"hOsT": "x"}},
        {"url": "http://h/", "headers": {"Transfer-Encoding": "chunked"}},
        {"url": "http://h/", "headers": {"a b": "x"}},
        {"url": "http://h/", "headers": {"a": "x\x00"}}, {"url": "http://h/", "headers": {"a:": "x"}},
        {"url": "http://h/", "secret": ""}, {"url": "http://h/", "secret": 7},
        {"url": "http://h/", "secret": "whsec_%%"},
        {"url": "http://h/", "secret": "whsec_"},
    ],
)  # fmt: skip
def test_props_that_can_not_work_are_refused_at_registration(courier_of, props):
    courier, url = courier_of(), props["url"]
    rest = {name: value for name, value in props.items() if name != "url"}
    with pytest.raises(BadArgument):
        courier.check(http_tenant(url, **rest))
    assert delivered(courier, http_tenant(url, **rest))[0] is REFUSED


def test_a_tenant_s_name_must_fit_into_a_header(courier_of):
    with pytest.raises(BadArgument, match="control characters"):
        courier_of().check(http_tenant("http://example.com/", "a\r\nX-Evil: 1"))


def test_an_event_id_that_fits_into_no_header_is_refused(receiver, courier_of):
    outcome, _ = delivered(courier_of(), http_tenant(receiver.url()), event_id="a\r\nX-Evil: 1")
    assert (outcome, receiver.received) == (REFUSED, [])


# --- many at once -----------------------------------------------------------------------------------------------------


def deliver_many(courier, tenant, numbers, results):
    for number in numbers:
        courier.deliver(Delivery(event(number, tenant=tenant.tenant), tenant), results)


def test_deliveries_of_a_tenant_at_once_are_bounded_and_all_arrive(receiver, courier_of):
    courier, results = courier_of(connections_per_tenant=7), Results()
    deliver_many(courier, http_tenant(receiver.url("/gate")), range(100), results)
    receiver.wait_inside(7)
    receiver.open_gate()
    assert [result.outcome for result in results.wait(100)] == [TAKEN] * 100
    assert (receiver.most_inside, len(receiver.received)) == (7, 100)
    assert results.times().total() == len(results.times()) == 100


def test_all_deliveries_at_once_are_bounded_and_tenants_take_turns(receiver, courier_of):
    courier, results = courier_of(connections=5, connections_per_tenant=4), Results()
    many, few = http_tenant(receiver.url("/gate"), "many"), http_tenant(receiver.url("/gate"), "few")
    deliver_many(courier, many, range(50), results)
    receiver.wait_inside(4)
    deliver_many(courier, few, range(50, 60), results)
    receiver.wait_inside(5)
    receiver.open_gate()
    order = [result.delivery.tenant.tenant for result in results.wait(60)]
    assert receiver.most_inside == 5
    assert max(index for index, name in enumerate(order) if name == "few") < 40


def test_a_tenant_that_hangs_does_not_hold_up_another(receiver, courier_of):
    courier, hanging = courier_of(connections_per_tenant=2), Results()
    deliver_many(courier, http_tenant(receiver.url("/gate"), "hangs"), range(10), hanging)
    receiver.wait_inside(2)
    assert delivered(courier, http_tenant(receiver.url(), "works")) == (TAKEN, None)
    assert hanging.now == []


def test_what_waits_too_long_for_a_connection_is_tried_again_later(receiver, courier_of):
    courier, results = courier_of(connections_per_tenant=1, queue_timeout_s=0.01), Results()
    deliver_many(courier, http_tenant(receiver.url("/gate")), range(3), results)
    waited = results.wait(2)
    assert {result.error for result in waited} == {"Not sent: it waited 0.01 s behind other deliveries."}
    receiver.open_gate()
    assert sorted(result.outcome.value for result in results.wait(3)) == ["failed", "failed", "taken"]
    assert len(receiver.received) == 1


def test_more_than_may_be_pending_are_failed_at_once(receiver, courier_of):
    courier, results = courier_of(connections_per_tenant=1, pending=5), Results()
    deliver_many(courier, http_tenant(receiver.url("/gate")), range(8), results)
    assert [result.error for result in results.wait(3)] == ["Not sent: 5 deliveries are under way or waiting."] * 3
    receiver.open_gate()
    assert results.times().total() <= 8
    assert [result.outcome for result in results.wait(8)[3:]] == [TAKEN] * 5


# --- the end ----------------------------------------------------------------------------------------------------------


def test_close_ends_all_that_is_under_way_once_each(receiver, courier_of):
    courier, results = courier_of(connections_per_tenant=3), Results()
    deliver_many(courier, http_tenant(receiver.url("/gate")), range(20), results)
    receiver.wait_inside(3)
    courier.close()
    found = results.now
    assert {result.outcome for result in found} == {FAILED}
    assert sorted(results.times().values()) == [1] * 20
    deliver_many(courier, http_tenant(receiver.url()), [99], results)
    assert results.now[-1].error == "The node was stopped before the delivery ended."
    courier.close()
    assert results.times().total() == 21


def test_a_courier_that_delivered_nothing_closes(courier_of):
    courier = courier_of()
    courier.forget("nobody")
    courier.close()
    courier.close()


def test_a_result_that_is_not_taken_does_not_stop_the_others(receiver, courier_of, caplog):
    courier, results, tenant = courier_of(), Results(), http_tenant(receiver.url())

    def broken(_result):
        raise RuntimeError("hidden-text")

    courier.deliver(Delivery(event(1), tenant), broken)
    courier.deliver(Delivery(event(2), tenant), results)
    assert results.wait(1)[0].outcome is TAKEN
    assert delivered(courier, tenant)[0] is TAKEN
    assert "The result of a delivery was not taken: RuntimeError" in caplog.text
    assert "hidden-text" not in caplog.text


def test_the_courier_may_be_closed_by_the_one_who_gets_a_result(receiver, courier_of):
    courier, closed = courier_of(), threading.Event()

    def close(_result):
        courier.close()
        closed.set()

    courier.deliver(Delivery(event(), http_tenant(receiver.url())), close)
    assert closed.wait(30)


def test_new_settings_of_a_tenant_count_for_the_next_delivery(receiver, courier_of):
    courier = courier_of()
    for path in ("/status/200", "/status/404", "/status/500"):
        delivered(courier, http_tenant(receiver.url(path)))
        courier.forget("Orders/EU")
    assert [got.path for got in receiver.received] == ["/status/200", "/status/404", "/status/500"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["/status/200", "/status/404", "/status/500", "/status/302", "/hang-up", "/gate", "nowhere", "bad"]
        ),
        st.sampled_from(["a", "b", "c"]),
    ),
    min_size=1, max_size=30,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=25)
@given(
    steps=STEPS, per_tenant=st.integers(1, 4), total=st.integers(1, 5), opens=st.booleans(), from_threads=st.booleans()
)
def test_every_delivery_has_one_result_whatever_happens(steps, per_tenant, total, opens, from_threads):
    urls = {"nowhere": f"http://127.0.0.1:{closed_port()}/", "bad": "http://169.254.169.254/"}
    results = Results()
    with receiving() as receiver:
        courier = Couriers(CourierOptions(allow_loopback=True, connections=total, connections_per_tenant=per_tenant))
        jobs = []
        for number, (path, name) in enumerate(steps):
            tenant = http_tenant(urls.get(path) or receiver.url(path), name)
            jobs.append(Delivery(event(number, tenant=name), tenant))
        if from_threads:
            threads = [threading.Thread(target=courier.deliver, args=(job, results)) for job in jobs]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        else:
            for job in jobs:
                courier.deliver(job, results)
        if opens:
            receiver.open_gate()
            results.wait(len(jobs))
        courier.close()
        assert results.times() == {f"e{number}": 1 for number in range(len(jobs))}
        for result in results.now if opens else ():
            path = steps[int(result.delivery.event.id[1:])][0]
            expected = {"/status/200": TAKEN, "/gate": TAKEN, "/status/404": REFUSED, "bad": REFUSED}
            assert result.outcome is expected.get(path, FAILED), result
