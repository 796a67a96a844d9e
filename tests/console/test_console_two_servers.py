"""Two servers beside one bus, real processes: whoever is killed or stopped, callers go on with the other one."""

from __future__ import annotations

import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from browser import Browser, is_there
from server_pairs import Forwarder, LiveStream, ServeProcess, asked

import lockstep
from lockstep.console.credentials import CredentialStore
from lockstep.server.access import Role

pytestmark = pytest.mark.timeout(240)
with_browser = pytest.mark.skipif(
    not is_there(), reason="Chromium is missing: apt-get install chromium chromium-driver"
)


class Pair:
    """A bus, two servers, one URL before them, and a token of an admin."""

    def __init__(self, folder: Path, closing: ExitStack) -> None:
        bus = f"lmdb:{folder / 'bus'}"
        self.client = closing.enter_context(lockstep.connect(bus))
        self.client.create("orders")
        credentials = CredentialStore(self.client, self.client.runtime)
        closing.callback(credentials.close)
        self.token = credentials.issue("ada", Role.ADMIN)[1]
        self.servers = []
        for name in ("one", "two"):
            self.servers.append(ServeProcess(bus, folder, name))
            closing.callback(self.servers[-1].close)
        for server in self.servers:
            server.wait()
        self.forwarder = Forwarder([server.port for server in self.servers])
        closing.callback(self.forwarder.close)

    @property
    def url(self) -> str:
        return self.forwarder.url


@pytest.fixture
def pair(tmp_path):
    with ExitStack() as closing:
        yield Pair(tmp_path, closing)


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "chromium")
    yield browser
    browser.close()


def hidden(page: str) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


def test_a_session_a_preview_and_a_live_page_go_on_when_their_server_is_killed(pair):
    first, second = pair.servers
    cookie = asked(pair.url, "POST", "/sign-in", {"token": pair.token}).cookie
    path = "/streams/orders/publish"
    form = hidden(asked(pair.url, "GET", path, cookie=cookie).text)
    preview = asked(pair.url, "POST", path, {**form, "value": "hello", "count": "1"}, cookie)
    assert "1 record of 5 bytes is appended to orders" in preview.text
    live = LiveStream(pair.url, "/streams/orders")
    live.wait_content("Shards")
    assert pair.forwarder.chosen == first.port
    first.kill()
    live.wait_end()
    live.close()
    confirmed = {**hidden(preview.text), "value": "hello", "count": "1"}
    for _ in range(2):
        answer = asked(pair.url, "POST", path, confirmed, cookie)
        assert (answer.status, answer.location) == (303, "/streams/orders/records")
    assert pair.forwarder.chosen == second.port
    assert pair.client.bounds("orders").next == 1
    again = LiveStream(pair.url, "/streams/orders/records")
    again.wait_content("hello")
    again.close()


@pytest.mark.soak
def test_a_server_that_is_stopped_and_goes_on_later_knows_what_happened_meanwhile(pair):
    first, second = pair.servers
    cookie = asked(first.url, "POST", "/sign-in", {"token": pair.token}).cookie
    path = "/streams/orders/publish"
    form = hidden(asked(first.url, "GET", path, cookie=cookie).text)
    preview = asked(first.url, "POST", path, {**form, "value": "x", "count": "1"}, cookie)
    confirmed = {**hidden(preview.text), "value": "x", "count": "1"}
    first.signal(signal.SIGSTOP)
    assert asked(pair.url, "POST", path, confirmed, cookie).status == 303
    assert pair.forwarder.chosen == second.port
    left = asked(second.url, "POST", "/sign-out", {"_form": form["_form"]}, cookie)
    assert left.status == 303
    first.signal(signal.SIGCONT)
    refused = asked(first.url, "POST", path, confirmed, cookie)
    assert refused.location == "/sign-in", "the session was ended on the other server"
    assert pair.client.bounds("orders").next == 1


@with_browser
@pytest.mark.soak
def test_a_browser_goes_on_with_the_other_server(pair, browser):
    browser.open(f"{pair.url}/sign-in")
    browser.write("#token", pair.token)
    browser.click("form.act button.main")
    browser.see("ada (admin)")
    browser.open(f"{pair.url}/streams")
    browser.see("live, updated")
    pair.servers[0].kill()
    pair.client.create("made-after-the-kill")
    browser.see("made-after-the-kill", 40.0)
    browser.see("live, updated")
    pair.servers[0].start()
    browser.open(f"{pair.url}/streams")
    browser.see("ada (admin)")
    assert pair.forwarder.chosen == pair.servers[0].port
    browser.see("live, updated")
    pair.servers[0].signal(signal.SIGSTOP)  # the connection stays, and nothing comes
    browser.see("stale", 40.0)
    pair.client.create("made-after-the-stop")
    browser.see("made-after-the-stop", 60.0)
    browser.see("live, updated")


@with_browser
@pytest.mark.soak
def test_a_browser_recovers_by_itself_when_no_server_answered_for_a_while(pair, browser):
    browser.open(f"{pair.url}/streams")
    browser.see("live, updated")
    for server in pair.servers:
        server.kill()
    browser.see("stale", 40.0)
    browser.see("does not answer")
    pair.client.create("made-meanwhile")
    pair.servers[1].start()
    browser.see("made-meanwhile", 60.0)
    browser.see("live, updated")
