"""The HTML of every page and form: landmarks, headings, labels, tables, live regions, and what needs no script."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "engine"))

import test_console_fleet as fleets
import test_console_projects as projects
import test_console_schedules as schedules
from console_worlds import ConsoleWorld
from failover_worlds import pair
from local_cluster import LocalCluster
from page_trees import Element, tree_of

import lockstep
from lockstep.console.app import ConsoleApp
from lockstep.log.config import StreamConfig
from lockstep.server.access import Role

FIELDS = ("input", "select", "textarea")
HEADINGS = ("h1", "h2", "h3", "h4")


def pages_of(app: ConsoleApp, get: Callable[[str], str], names: dict[str, dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Every page and every form of an app. `names` has what fills in the parts of a path, by its first part."""
    for path in [*app._views, *app._acts]:
        known = names.get(path.split("/")[1], {}) | names.get("", {})
        target = re.sub(r"\{(\w+)\}", lambda found, known=known: quote(known[found.group(1)], safe=""), path)
        yield path, get(target)


def stream_pages() -> Iterator[tuple[str, str]]:
    with lockstep.connect("memory:") as client, ExitStack() as closing:
        client.create("orders")
        client.create("many", StreamConfig(shards=3))
        client.create("orders.dlq")
        for stream in ("orders", "orders.dlq"):
            with client.publisher(stream) as publisher:
                publisher.publish_many([b'{"a": 1}', b"two", b"\xff\x00"])
        world = ConsoleWorld(client)
        closing.callback(world.close)
        cookie = world.sign_in(world.token(Role.ADMIN))
        with client.subscriber("orders", group="billing") as subscriber:
            assert subscriber.wait_assigned(10.0)
            subscriber.confirm(subscriber.poll(5.0))
            for _ in range(3):
                world.sampler.sample()

            def get(target: str) -> str:
                return world.get(target, cookie=cookie, accept="text/html").text

            token = next(iter(world.credentials.tokens())).id
            names = {"": {"stream": "orders", "group": "billing"}, "letters": {"stream": "orders.dlq"},
                     "access": {"id": token}}  # fmt: skip
            yield from pages_of(world.app, get, names)
            for target in ("/sign-in", "/streams/many", "/streams/none", "/streams?q=none", "/audit?who=none"):
                yield target, get(target)
            yield "/ without a sign-in", world.get("/", accept="text/html").text
            form = re.search(r'name="_form" value="(\w+)"', get("/streams/orders/delete"))[1]
            for fields in ({}, {"_step": "run", "confirm": "other"}):
                preview = world.form("/streams/orders/delete", {"_form": form, **fields}, cookie)
                yield f"preview of a deletion {fields}", preview.text
            made = world.form("/access/add", {"_form": form, "_step": "run", "name": "x", "role": "viewer"}, cookie)
            yield "a secret that is shown once", made.text


def fleet_pages(folder: Path) -> Iterator[tuple[str, str]]:
    made = fleets.Console(folder)
    for name in ("web-1", "web-2"):
        made.world.keepalive(name)
    made.world.check("web-1", "disk", 2, output="disk 99 % used", handlers=["log"])
    made.world.check("web-2", "load", 1)
    made.tick()
    made.caller.act("/fleet/silence", subscription="client:web-1", check="disk", reason="known")
    made.tick()
    silence = made.caller.data("/fleet/silences")["silences"][0]["id"]
    names = {"fleet": {"host": "web-1", "check": "disk", "client": "web-1", "id": silence}}
    try:
        yield from pages_of(made.caller.app, lambda target: made.caller.page(target, role=Role.ADMIN), names)
    finally:
        made.close()


def schedule_pages() -> Iterator[tuple[str, str]]:
    made = schedules.Console()
    made.world.schedule("a", 2 * schedules.SECOND)
    made.world.schedule("later", schedules.HOUR)
    made.cron("nightly", "0 4 * * *")
    made.world.clock.advance(5)
    tenant = made.events("?from=begin")[0]["tenant"]
    names = {"schedules": {"tenant": tenant, "id": "a"}, "tenants": {"tenant": tenant},
             "crons": {"tenant": "s", "id": "nightly"}}  # fmt: skip
    try:
        yield from pages_of(made.caller.app, lambda target: made.caller.page(target, role=Role.ADMIN), names)
        for target in ("/crons/try?expression=0+9+*+*+*", "/crons/try?expression=nonsense", "/schedules?from=begin"):
            yield target, made.caller.page(target)
    finally:
        made.close()


def project_pages(folder: Path) -> Iterator[tuple[str, str]]:
    cluster = LocalCluster(projects.sums_graph(), projects.WANTED, folder)
    made = projects.Console(cluster.bus, cluster.clock)
    try:
        pair(cluster)
        made.look(3)
        cookie = made.world.sign_in(made.admin)
        names = {"projects": {"project": "p", "query": "q", "window": "sums"}}
        app = made.world.app
        for path in [*app._views, *app._acts]:
            if path.startswith("/projects"):
                target = re.sub(r"\{(\w+)\}", lambda found: names["projects"][found.group(1)], path)
                yield path, made.world.get(target, cookie=cookie, accept="text/html").text
    finally:
        made.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Element]:
    """All of them, by path."""
    found = [
        *stream_pages(), *fleet_pages(tmp_path_factory.mktemp("fleet")), *schedule_pages(),
        *project_pages(tmp_path_factory.mktemp("project")),
    ]  # fmt: skip
    return {path: tree_of(html) for path, html in found}


def broken(pages: dict[str, Element], rule: Callable[[Element], object]) -> list[str]:
    """Where a rule finds something."""
    return [f"{path}: {found}" for path, page in pages.items() if (found := rule(page))]


def one(page: Element, name: str) -> Element:
    [found] = page.all(name)
    return found


def name_of(page: Element, field: Element) -> str:
    """What a reader of a screen says of a field."""
    labels = [label.text for label in page.all("label") if field.get("id") and label.get("for") == field.get("id")]
    around = [above.text for above in field.above() if above.name == "label"]
    return next((text for text in (*labels, *around, field.get("aria-label")) if text), "")


def test_every_page_and_every_form_is_looked_at(pages):
    for part in ("/streams", "/groups", "/letters", "/access", "/audit", "/fleet", "/crons", "/nodes", "/projects"):
        assert any(path.startswith(part) for path in pages), part
    assert len(pages) > 60
    not_there = [path for path, page in pages.items() if "404" in one(page, "h1").text]
    assert not_there == ["/streams/none"]


def test_a_page_has_one_heading_a_title_and_a_language(pages):
    def wrong(page: Element) -> object:
        [title] = [each for each in page.all("title") if not any(above.name == "svg" for above in each.above())]
        heads = [head.text for head in page.all("h1")]
        is_good = (
            len(heads) == 1 and heads[0] and len(title.text) > len(" · Lockstep") and title.text.endswith("Lockstep")
        )
        return not is_good or one(page, "html").get("lang") != "en"

    assert broken(pages, wrong) == []


def test_headings_leave_no_level_out(pages):
    def wrong(page: Element) -> object:
        levels = [int(head.name[1]) for head in page.all(*HEADINGS)]
        return levels[0] != 1 or any(after > before + 1 for before, after in pairwise(levels))

    assert broken(pages, wrong) == []


def test_a_page_has_landmarks_with_names_and_a_way_past_the_menu(pages):
    def wrong(page: Element) -> object:
        ids = {each.get("id") for each in page.all()}
        counts = [len(list(page.all(name))) for name in ("main", "header", "footer")]
        names = [nav.get("aria-label") for nav in page.all("nav")]
        skip = next(page.all("a"))
        return counts != [1, 1, 1] or not all(names) or len(names) != len(set(names)) or skip.get("href")[1:] not in ids

    assert broken(pages, wrong) == []


def test_every_field_has_a_label(pages):
    def wrong(page: Element) -> object:
        fields = [each for each in page.all(*FIELDS) if each.get("type") != "hidden"]
        return [str(each) for each in fields if not name_of(page, each)]

    assert broken(pages, wrong) == []


def test_every_button_and_link_says_what_it_does(pages):
    def wrong(page: Element) -> object:
        return [str(each) for each in page.all("a", "button") if not each.text]

    assert broken(pages, wrong) == []


def test_tables_name_their_columns(pages):
    def wrong(page: Element) -> object:
        heads = [head for head in page.all("th") if head.get("scope") not in ("col", "row") or not head.text]
        without = [table for table in page.all("table") if not list(table.all("th"))]
        uneven = [
            row for table in page.all("table") for row in table.all("tr")
            if sum(int(cell.get("colspan") or 1) for cell in row.all("td", "th")) != len(list(table.all("th")))
        ]  # fmt: skip
        return [str(each) for each in (*heads, *without, *uneven)]

    assert broken(pages, wrong) == []


def test_names_in_a_page_are_unique_and_lead_somewhere(pages):
    def wrong(page: Element) -> object:
        ids = [each.get("id") for each in page.all() if each.get("id")]
        twice = {name for name in ids if ids.count(name) > 1}
        wanted = [each.get(key) for each in page.all() for key in ("for", "aria-controls", "aria-labelledby")]
        wanted += [each.get("href")[1:] for each in page.all("a") if each.get("href").startswith("#")]
        return twice | ({*wanted} - {*ids, ""})

    assert broken(pages, wrong) == []


def test_pictures_are_told_in_words_and_charts_have_a_table(pages):
    def wrong(page: Element) -> object:
        silent = [svg for svg in page.all("svg") if not (svg.get("role") and svg.get("aria-label"))]
        alone = [chart for chart in page.all("figure") if not list(chart.all("table"))]
        return [str(each) for each in (*silent, *alone)]

    assert broken(pages, wrong) == []
    assert any(list(page.all("figure")) for page in pages.values())
    assert any("Graph of the model" in svg.get("aria-label") for page in pages.values() for svg in page.all("svg"))


def test_the_policy_forbids_nothing_that_a_page_has(pages):
    def wrong(page: Element) -> object:
        own = [
            each for each in page.all() if each.get("style") or any(name.startswith("on") for name in each.attributes)
        ]
        inline = [each for each in page.all("script", "style") if each.text or each.name == "style"]
        sources = [each.get("src") or each.get("href") for each in page.all("script", "link", "img")]
        return [*map(str, own + inline), *(source for source in sources if not source.startswith("/static/"))]

    assert broken(pages, wrong) == []


def test_what_changes_each_second_is_not_read_out_and_what_matters_is(pages):
    def wrong(page: Element) -> object:
        live = [each for each in page.all() if each.get("id") == "live"]
        if not live:
            return one(page, "body").get("data-live")
        state, said = (
            next(each for each in live[0].all() if each.get("id") == name) for name in ("live-state", "live-said")
        )
        return state.get("aria-hidden") != "true" or said.get("role") != "status" or any(
            above.get("role") == "status" or above.get("aria-live") for above in state.above()
        )  # fmt: skip

    assert broken(pages, wrong) == []


def test_without_a_script_forms_are_sent_and_what_needs_one_is_not_shown(pages):
    def wrong(page: Element) -> object:
        forms = [form for form in page.all("form") if form.get("method") != "dialog"]
        dead = [form for form in forms if not any(button.get("type") != "button" for button in form.all("button"))]
        needs = [each for each in page.all("button") if each.get("type") == "button"]
        needs += [each for each in page.all("select") if not any(above.name == "form" for above in each.above())]
        shown = [
            each for each in needs
            if not any("needs-script" in at.get("class") or at.name == "dialog" for at in (each, *each.above()))
        ]  # fmt: skip
        return [str(each) for each in (*dead, *shown)]

    assert broken(pages, wrong) == []


def test_badges_say_in_words_what_their_colour_says(pages):
    def wrong(page: Element) -> object:
        return [str(each) for each in page.all("span") if "badge" in each.get("class").split() and not each.text]

    assert broken(pages, wrong) == []


def test_texts_are_in_singular_and_plural_and_repeat_no_word(pages):
    nouns = (
        "record|stream|group|event|host|check|node|tenant|shard|member|silence|dead letter|attempt|token|day|byte|tick"
    )

    def wrong(page: Element) -> object:
        text = one(page, "main").text
        one_of_many = re.findall(rf"(?<![\d,.])1 (?:{nouns})s\b", text)
        many_of_one = re.findall(rf"\b(?:[2-9]|\d\d+) (?:{nouns})\b(?! page)", text)
        return one_of_many + many_of_one + re.findall(r"\b(the|a|is|of|to|and) \1\b", text)

    assert broken(pages, wrong) == []
