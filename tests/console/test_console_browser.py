"""Pages in a real Chromium: they follow changes, say when they are stale, and changes go through a preview."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from browser import Browser, is_there

import lockstep
from lockstep.console.assembly import opened_parts
from lockstep.console.server import Console, ConsoleOptions
from lockstep.server.access import Role
from lockstep.server.serving import bind

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not is_there(), reason="Chromium is missing: apt-get install chromium chromium-driver"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def client(tmp_path):
    with lockstep.connect(f"lmdb:{tmp_path / 'bus'}") as client:
        client.create("orders")
        yield client


@pytest.fixture
def console(client, tmp_path):
    with opened_parts(client, "local", tmp_path / "state") as parts, Console(client, pillars=parts.pillars) as console:
        yield console


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "chromium")
    yield browser
    browser.close()


def test_a_page_follows_changes_and_can_be_paused(client, console, browser):
    browser.open(f"{console.url}/streams/orders/records")
    browser.see("No records from there on")
    with client.publisher("orders") as publisher:
        publisher.publish(b"the first record")
    browser.see("the first record")
    browser.click("#live-pause")
    browser.see("paused")
    with client.publisher("orders") as publisher:
        publisher.publish(b"the second record")
    assert "the second record" not in browser.text()
    browser.click("#live-pause")
    browser.see("the second record")


def test_a_page_says_that_it_is_stale_and_goes_on_with_another_server(client, tmp_path, browser):
    bound = bind("127.0.0.1", 0, "The console")
    port = bound.getsockname()[1]
    options = ConsoleOptions(port=port)
    with opened_parts(client, "local", tmp_path / "state") as parts:
        with Console(client, options, pillars=parts.pillars, bound=bound) as console:
            browser.open(f"{console.url}/streams")
            browser.see("live")
        browser.see("stale")
        with Console(client, options, pillars=parts.pillars):
            client.create("made-meanwhile")
            browser.see("made-meanwhile", 40.0)
            browser.see("live, updated")


def test_a_change_goes_through_sign_in_preview_and_confirmation(client, console, browser):
    _, secret = console.credentials.issue("ada", Role.ADMIN)
    browser.open(f"{console.url}/sign-in")
    browser.write("#token", secret)
    browser.click("form.act button.main")
    browser.see("ada (admin)")
    browser.open(f"{console.url}/streams/orders/delete")
    browser.click("form.act button.main")
    browser.see("0 records are removed for good")
    browser.write("#f-confirm", "orders")
    browser.click("form.act button.danger")
    browser.see("Streams")
    assert "orders" not in client.streams()


def test_keys_themes_and_times(client, console, browser):
    browser.open(f"{console.url}/streams")
    browser.see("orders")
    browser.press("/")
    assert browser.script("document.activeElement.id") == "search"
    browser.open(f"{console.url}/groups")
    browser.see("There are no groups yet")
    browser.press("ctrl", "k")
    browser.write("#palette-text", "dead")
    browser.press("enter")
    browser.see("There are no dead letters")
    before = browser.script("getComputedStyle(document.body).backgroundColor")
    browser.script("(document.querySelector('#theme-choice').value='dark',"
                   "document.querySelector('#theme-choice').dispatchEvent(new Event('change')))")  # fmt: skip
    assert browser.script("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize("width", [1024, 390])
def test_pages_are_not_wider_than_the_window(client, console, browser, width):
    browser.script(f"window.resizeTo({width}, 900)")
    for path in ("/", "/streams", "/streams/orders", "/schedules", "/crons", "/fleet", "/projects"):
        browser.open(f"{console.url}{path}")
        assert browser.script("document.documentElement.scrollWidth <= window.innerWidth"), path
