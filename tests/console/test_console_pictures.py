"""Pictures of every page, taken in a real Chromium of a real demo; and that docs/pictures shows those there are.

LOCKSTEP_PICTURES=docs/pictures renews the pictures of the documentation; without it they go to build/pictures.
"""

from __future__ import annotations

import io
import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

sys.path.append(str(Path(__file__).parent))

from browser import Browser, is_there
from demo_world import DemoWorld, add_incidents, started

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "pictures"
WIDE, PHONE, HIGH = 1280, 390, 1500
COLOURS, BYTES_MAX = 255, 6_000_000
INCIDENTS = {"/", "/fleet", "/fleet/hosts/{host}", "/fleet/why/{client}/{check}", "/projects/{project}"}
"""Pages that are also taken as on a phone."""
QUERIES = {"/schedules": "?from=10m", "/crons/try": "?expression=30+2+*+*+SUN&tz=Europe%2FBerlin"}
WORDS = {
    "/": "Home: what is wrong now, why, since when, and what to do next; then each part in figures.",
    "/streams": "Streams, with what is appended to each a second.",
    "/streams/{stream}": "A stream: its rate, shards, the groups that read it, and its settings.",
    "/streams/{stream}/records": "Records, newest first and live; from any offset or time, as JSON, text or hex.",
    "/groups": "Groups, their members and their lag.",
    "/groups/{group}": "A group: its lag over the last minutes, and how far it has come.",
    "/letters": "Streams of dead letters.",
    "/letters/{stream}": "Dead letters, each with its reason; they can be sent back.",
    "/projects": "Projects with their active engine, lag and problems.",
    "/projects/{project}": "A project whose active engine was killed: who leads now, and who led.",
    "/projects/{project}/graph": "The model: windows as nodes, events a second on the arrows, and what limits it.",
    "/projects/{project}/windows": "Windows with their rows and rates.",
    "/projects/{project}/windows/{query}/{window}": "A window: the rows it holds, its rates and its schema.",
    "/schedules": "Events: for when they are scheduled, when they fired, and how late.",
    "/schedules/{tenant}/{id}": "What became of one event, in sentences, and its history.",
    "/tenants": "Tenants: where their events go.",
    "/tenants/{tenant}": "A tenant and what is due for it.",
    "/nodes": "Scheduler nodes and the shards that each owns.",
    "/crons": "Crons with their last and next fire.",
    "/crons/try": "What an expression means, and when it fires next, while it is typed.",
    "/crons/{tenant}/{id}": "A cron: its next fires, and each tick with outcome and reason.",
    "/fleet": "Events of the fleet: the worst first, by check, with what is silenced and why.",
    "/fleet/hosts": "Hosts, those with the worst events first.",
    "/fleet/hosts/{host}": "A host: its open events, last results and history.",
    "/fleet/checks": "Checks, and on how many hosts each fails.",
    "/fleet/checks/{check}": "A check, and where it fails.",
    "/fleet/silences": "Silences: what each hides, why and until when.",
    "/fleet/silences/{id}": "A silence and the events that it hides.",
    "/fleet/why/{client}/{check}": "Why somebody was told of an event, or nobody: each gate with its reason.",
    "/access": "Tokens with their roles; no secret is shown.",
    "/access/{id}": "A token.",
    "/audit": "Every change: who, what, from where, before and after.",
    "/settings": "Settings: who you are, what this server allows and what is installed.",
    "/debug": "The debug bundle: what it holds, without secrets and payloads.",
}
"""Of each page a sentence; a page without one is shown with its summary."""


HEAD = """\
# Pictures of the dashboard

Every page of `lockstep serve`, taken by `tests/console/test_console_pictures.py` in a Chromium: light, dark, and those
of incidents also as on a phone. What they show was started by `lockstep demo`; then an engine was killed, hosts failed,
and a group lost its member. [See and run everything in a browser](../howto/serve.md) says how to start it.

"""


@dataclass(frozen=True)
class Picture:
    """A page as it is named in the documentation."""

    view: str
    words: str

    @property
    def name(self) -> str:
        parts = [re.sub(r"\{(\w+)\}", r"\1", part) for part in self.view.strip("/").split("/") if part]
        return "-".join(dict.fromkeys(parts)) or "home"

    @property
    def files(self) -> list[str]:
        phone = [f"{self.name}-phone.png"] if self.view in INCIDENTS else []
        return [f"{self.name}-light.png", f"{self.name}-dark.png", *phone]


def pictures_of(world: DemoWorld) -> list[Picture]:
    """One for each page that the server says it has."""
    paths = world.openapi()["paths"]
    views = {path.removeprefix("/api/v1") or "/": methods["get"] for path, methods in paths.items() if "get" in methods}
    views = {path: method for path, method in views.items() if "x-command" in method}
    order = {path: number for number, path in enumerate(WORDS)}
    return [Picture(path, WORDS.get(path, f"{views[path]['summary']}."))
            for path in sorted(views, key=lambda path: (order.get(path, 99), path))]  # fmt: skip


def names_of(world: DemoWorld) -> dict[str, str]:
    """What fills in the parts of paths."""
    events = world.until("/schedules?from=10m&status=done", lambda tree: tree["events"])
    event = next(row for row in events if not row["cron"])
    return {
        "stream": "orders", "group": "billing", "project": "trades", "query": "prices", "window": "by_symbol",
        "host": "web-1", "client": "web-1", "check": "disk", "tenant": event["tenant"], "id": event["id"],
    }  # fmt: skip


def target_of(world: DemoWorld, view: str, names: Mapping[str, str]) -> str:
    own = dict(names)
    if view.startswith("/letters"):
        own["stream"] = "orders.dlq"
    elif view.startswith("/crons"):
        own["id"] = "every-ten-seconds"
    elif view.startswith("/fleet/silences/"):
        own["id"] = world.get("/fleet/silences")["silences"][0]["id"]
    elif view.startswith("/access/"):
        own["id"] = world.get("/access")["tokens"][0]["id"]
    return re.sub(r"\{(\w+)\}", lambda found: quote(own[found[1]], safe=""), view) + QUERIES.get(view, "")


def small(data: bytes) -> bytes:
    """A picture with few colours: pages have few, so nothing is lost that could be seen."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return out.getvalue()


def page_of(pictures: list[Picture]) -> str:
    """docs/pictures/index.md."""
    return HEAD + "\n".join(_section(picture) for picture in pictures)


def _section(picture: Picture) -> str:
    light, dark, *phone = picture.files
    links = " · ".join([f"[dark]({dark})", *(f"[on a phone]({name})" for name in phone)])
    heading = re.split("[,:;.]", picture.words)[0]
    return f"## {heading}\n\n{picture.words} (`{picture.view}`, {links})\n\n![{heading}]({light})\n"


@pytest.mark.soak
@pytest.mark.skipif(not is_there(), reason="Chromium is missing: apt-get install chromium chromium-driver")
@pytest.mark.timeout(1800)
def test_every_page_is_taken_light_dark_and_for_incidents_as_on_a_phone(tmp_path):
    out = ROOT / os.environ.get("LOCKSTEP_PICTURES", "build/pictures")
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.gettempdir()) / "lockstep-demo"  # its name is in the pictures
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started(folder, port) as world:
        add_incidents(world)
        pictures, names = pictures_of(world), names_of(world)
        browser = Browser(tmp_path / "chromium")
        try:
            browser.open(f"{world.url}/sign-in")
            browser.write("#token", world.token)
            browser.click("form.act button.main")
            for picture in pictures:
                url = world.url + target_of(world, picture.view, names)
                _take(browser, url, picture, out)
        finally:
            browser.close()
    (out / "index.md").write_text(page_of(pictures))
    assert {path.name for path in out.glob("*.png")} >= {name for picture in pictures for name in picture.files}
    assert sum(path.stat().st_size for path in out.glob("*.png")) < BYTES_MAX


def _take(browser: Browser, url: str, picture: Picture, out: Path) -> None:
    for name in picture.files:
        width = PHONE if name.endswith("-phone.png") else WIDE
        browser.resize(width, 844)
        browser.prefer("dark" if name.endswith("-dark.png") else "light")
        browser.open(url)
        browser.settle()
        assert browser.script("document.documentElement.scrollWidth <= window.innerWidth"), (url, width)
        assert "404" not in browser.text("h1"), url
        (out / name).write_bytes(small(browser.whole_picture(width, HIGH)))


def test_the_page_of_the_documentation_shows_every_picture_and_no_other():
    text = (DOCS / "index.md").read_text()
    linked = set(re.findall(r"\(([\w.-]+\.png)\)", text))
    assert linked == {path.name for path in DOCS.glob("*.png")}
    assert len(linked) > 50


def test_pictures_of_the_documentation_are_small():
    assert sum(path.stat().st_size for path in DOCS.glob("*.png")) < BYTES_MAX
