"""Pages in a real Chromium: they follow changes, say when they are stale, and changes go through a preview."""

from __future__ import annotations

import re
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
    browser.see("Streams with their records")
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


def test_the_switcher_is_used_with_keys_alone(client, console, browser):
    client.create("payments")
    browser.open(f"{console.url}/groups")
    browser.press("ctrl", "k")
    chosen = "document.querySelector('#palette-list [aria-selected=true]').innerText"
    first = browser.script(chosen)
    browser.press("down")
    assert browser.script(chosen) != first
    browser.press("up")
    assert browser.script(chosen) == first
    browser.press("escape")
    assert not browser.script("document.querySelector('#palette').open")
    browser.press("ctrl", "k")
    browser.write("#palette-text", "paym")
    browser.see("payments")
    browser.press("enter")
    browser.see("Appended")
    assert browser.script("location.pathname") == "/streams/payments"


def test_tab_goes_through_a_page_and_out_of_it_again(console, browser):
    browser.open(f"{console.url}/streams")
    browser.see("orders")
    browser.press("tab")
    assert browser.script("document.activeElement.className") == "skip"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    seen = []
    for _ in range(80):
        browser.press("tab")
        place = browser.script("document.activeElement.outerHTML")
        if place in seen or place.startswith("<body"):
            break
        seen.append(place)
        assert browser.script(outline) != "none", place
    assert any("palette-open" in place for place in seen)
    assert any("/streams/orders" in place for place in seen)
    assert any("data-copy" in place for place in seen), "the end of the page is reached"


def test_a_live_page_keeps_selection_focus_what_is_open_and_what_is_typed(client, console, browser):
    with client.publisher("orders") as publisher:
        publisher.publish_many([f"record {number}".encode() for number in range(40)])
        browser.open(f"{console.url}/streams/orders/records")
        browser.see("record 39")
        browser.click("details.record summary")
        browser.write("input[name=at]", "2027-01-")
        browser.script("getSelection().selectAllChildren(document.querySelectorAll('details.record code')[3])")
        browser.script("document.querySelector('input[name=at]').focus()")
        browser.script("window.scrollTo(0, 300)")
        publisher.publish(b"a new record")
        browser.see("a new record")
    opened = "document.querySelector('details.record[open]').innerText"
    assert "record 39" in browser.script(opened)
    assert browser.script("document.querySelector('input[name=at]').value") == "2027-01-"
    assert browser.script("document.activeElement.name") == "at"
    assert browser.script("window.scrollY") >= 300


def test_selected_text_stays_selected_while_the_page_goes_on(client, console, browser):
    with client.publisher("orders") as publisher:
        publisher.publish_many([f"record {number}".encode() for number in range(5)])
        browser.open(f"{console.url}/streams/orders/records")
        browser.see("record 4")
        browser.script("getSelection().selectAllChildren(document.querySelectorAll('details.record code')[2])")
        publisher.publish(b"a new record")
        browser.see("a new record")
    assert browser.script("String(getSelection())") == "record 2"


def test_times_are_as_chosen_on_every_page_and_say_the_others(client, console, browser):
    with client.publisher("orders") as publisher:
        publisher.publish(b"x")
    shapes = {"ago": r"\d+ \w+ ago|just now", "local": r"[\d-]+ [\d:.]+[+-]\d\d:\d\d", "utc": r"[\d-]+ [\d:.]+Z"}
    for choice, shape in shapes.items():
        browser.open(f"{console.url}/streams")
        browser.script(f"(document.querySelector('#time-choice').value='{choice}',"
                       "document.querySelector('#time-choice').dispatchEvent(new Event('change')))")  # fmt: skip
        browser.open(f"{console.url}/streams/orders/records")
        browser.see("can be read")
        assert re.fullmatch(shape, browser.text("time")), choice
        title = browser.script("document.querySelector('time').title").splitlines()
        assert re.fullmatch(f"UTC: {shapes['utc']}", title[0])
        assert re.fullmatch(f"local: {shapes['local']}", title[1])
        assert re.fullmatch(shapes["ago"], title[2])


def test_filters_are_in_the_address_and_back_goes_to_the_page_before(client, console, browser):
    client.create_many(["invoices", "offers"])
    browser.open(f"{console.url}/streams")
    browser.see("invoices")
    browser.write("#search", "offer")
    browser.press("enter")
    browser.see("1 of ")
    assert "q=offer" in browser.script("location.search")
    browser.script("history.back()")
    browser.see("invoices")
    assert browser.script("location.search") == ""
    browser.see("live, updated")


def test_pages_are_of_use_without_a_script(console, client, browser):
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(f"{console.url}/streams")
    assert "orders" in browser.text()
    assert "Pause" not in browser.text()
    assert "Reload the page to see changes" in browser.text()
    browser.resize(390, 844)
    browser.click("#menu-open")
    browser.click("#menu a[href='/groups']")
    assert "There are no groups yet" in browser.text()


@pytest.mark.parametrize("width", [1440, 1280, 1024, 390])
def test_pages_are_not_wider_than_the_window(client, console, browser, width):
    browser.resize(width, 900)
    for path in ("/", "/streams", "/streams/orders", "/schedules", "/crons", "/fleet", "/projects"):
        browser.open(f"{console.url}{path}")
        assert browser.script("document.documentElement.scrollWidth <= window.innerWidth"), path
