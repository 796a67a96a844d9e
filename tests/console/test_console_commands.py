"""Every page and act has a command that exists and a request that the server answers: what pages offer to copy."""

from __future__ import annotations

import ast
import http.client
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path.append(str(Path(__file__).parent))

from console_worlds import ConsoleWorld

import lockstep
from lockstep.cli.commands import NOUNS
from lockstep.cli.parser import build, parse
from lockstep.console.assembly import opened_parts
from lockstep.console.context import command_of
from lockstep.console.port import Act, Asked, Kind, View
from lockstep.console.server import Console
from lockstep.server.access import Role

NAMES = {"project": "trades", "query": "q", "window": "w", "tenant": "default", "id": "e1", "stream": "orders"}
VALUES = {"to": "1h", "from": "1h", "at": "5", "expression": "0 9 * * MON-FRI", "expire": "2h", "headers": "a=b"}
ODD = "a b'c;$(rm -rf x)"


@cache
def grammar():
    return build(NOUNS, "")


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """All views and acts of a server, over a bus with a stream, a group, a letter, a scheduler, an event and a cron."""
    folder = tmp_path_factory.mktemp("commands")
    with lockstep.connect(f"lmdb:{folder / 'bus'}", create=True) as client:
        client.create("orders")
        with client.publisher("orders") as publisher:
            publisher.publish(b"one").result(10.0)
        with client.publisher("orders.dlq") as publisher:
            publisher.publish(b"one", headers={"dlq-stream": b"orders"}).result(10.0)
        with client.subscriber("orders", group="billing") as subscriber:
            assert subscriber.wait_assigned(20.0)
        with client.scheduler("default") as scheduler, opened_parts(client, "local", folder / "state") as parts:
            scheduler.register("default", "MESSAGING", {"topic": "out"})
            scheduler.after("1h", {"a": 1}, id="e1")
            scheduler.every("0 9 * * *", "x", id="c1")
            yield client, parts


@pytest.fixture(scope="module")
def console(parts):
    client, made = parts
    with Console(client, pillars=made.pillars, mounts=made.mounts) as console:
        yield console


@pytest.fixture(scope="module")
def known(console):
    return [*console.app._views.values(), *console.app._acts.values()]


def asked_of(one: View | Act, name: str, *, is_full: bool) -> Asked:
    parameters = one.parameters if isinstance(one, View) else one.fields
    names = dict.fromkeys(re.findall(r"\{(\w+)\}", one.path), name)
    values = {each.name: _sample(each) if is_full or each.required else each.default for each in parameters}
    return Asked(path=one.path, names=names, values=values)


def _sample(parameter):
    if parameter.kind is Kind.WHOLE:
        return max(1, parameter.least)
    if parameter.kind is Kind.FLAG:
        return True
    if parameter.kind is Kind.CHOICE:
        return parameter.choices[-1]
    return VALUES.get(parameter.name, "some")


@pytest.mark.parametrize("is_full", [False, True], ids=["defaults", "all given"])
@pytest.mark.parametrize("name", ["some-name", ODD], ids=["plain", "odd"])
def test_the_command_of_each_page_and_act_exists(known, name, is_full):
    for one in known:
        asked = asked_of(one, name, is_full=is_full)
        program, *words = shlex.split(command_of(one, asked, {}))
        assert program == "lockstep", one.path
        options = parse(grammar(), words)
        module, _, function = options.run.partition(":")
        assert callable(getattr(importlib.import_module(module), function)), one.path
        if asked.names:
            assert name in words or f"client:{name}" in words or any(name in word for word in words), (one.path, words)


def test_commands_of_acts_that_destroy_ask_first_and_can_be_tried(known):
    kept = {"engine state"}  # nothing is lost, and it can be undone
    for act in (one for one in known if isinstance(one, Act) and one.confirm):
        words = shlex.split(command_of(act, asked_of(act, "x", is_full=False), {}))[1:]
        if " ".join(words[:2]) not in kept:
            assert {"yes", "dry_run"} <= vars(parse(grammar(), words)).keys(), words


def told_commands():
    """Every command that pages and problems tell, with a name in place of what varies; not those of views and acts."""
    folder = Path(lockstep.__file__).parent / "console"
    for path in sorted(folder.glob("templates/*.html")):
        for text in re.findall(r"<code>(lockstep [^<]*)</code>", path.read_text()):
            plain = re.sub(r"\{%.*?%\}", "", text)
            plain = re.sub(r"(--type|--dst) \{\{.*?\}\}", "", plain)
            yield path.name, re.sub(r"\{\{.*?\}\}", "some", plain)
    for path in sorted(set(folder.glob("*.py")) - {folder / "context.py"}):  # it has beginnings of commands
        nodes = list(ast.walk(ast.parse(path.read_text())))
        left_out = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        left_out |= {node.value for node in nodes if isinstance(node, ast.keyword) and node.arg == "cli"}
        for node in nodes:
            if isinstance(node, ast.JoinedStr | ast.Constant) and node not in left_out:
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "some" for part in parts)
                if text.startswith("lockstep "):
                    yield path.name, text


@pytest.mark.parametrize(("where", "command"), sorted({
    (where, command) for where, command in told_commands() if "{" not in command
}))  # fmt: skip
def test_commands_that_pages_and_problems_tell_exist(where, command):
    parse(grammar(), shlex.split(command)[1:])


def copied(page: str, what: str, origin: str) -> str:
    """What the button copies: the text, with the address of the server in place."""
    [found] = re.findall(rf'<code id="copy-{what}">(.*?)</code>', page, re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", found.replace("<span data-origin></span>", origin)))


TARGETS = {
    "/streams/{stream}": "/streams/orders", "/streams/{stream}/records": "/streams/orders/records",
    "/groups/{group}": "/groups/billing", "/letters/{stream}": "/letters/orders.dlq",
    "/schedules/{tenant}/{id}": "/schedules/default/e1", "/tenants/{tenant}": "/tenants/default",
    "/crons/{tenant}/{id}": "/crons/default/c1",
}  # fmt: skip


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_request_of_each_page_is_answered_by_the_server(console):
    token = console.credentials.issue("curl", Role.ADMIN)[1]
    looked, lines = set(), []
    with ConsoleCaller(console.url, token) as get:
        for view in console.app._views.values():
            path = TARGETS.get(view.path, view.path)
            if "{" in path and path != "/access/{id}":
                continue  # their pages are asked for beside a fleet and engines
            path = path.replace("{id}", console.credentials.tokens()[0].id)
            query = "?q=a%26b%20%27c" if any(one.name == "q" for one in view.parameters) else ""
            page = get(f"{path}{query}")
            line = copied(page, "curl", console.url)
            assert line.startswith("curl -s ")
            looked.add(view.path)
            lines.append(line)
            assert copied(page, "cli", console.url).startswith("lockstep ")
    statuses = run("\n".join(f"{line} -o /dev/null -w '%{{http_code}} '" for line in lines), token).split()
    assert [(line, status) for line, status in zip(lines, statuses, strict=True) if status != "200"] == []
    assert TARGETS.keys() < looked


def run(line: str, token: str) -> str:
    environ = {**os.environ, "LOCKSTEP_TOKEN": token}
    return subprocess.run(["/bin/sh", "-c", line], env=environ, capture_output=True, text=True, timeout=60).stdout


def test_the_request_of_an_act_is_its_preview_and_changes_nothing(console, parts):
    token = console.credentials.issue("admin", Role.ADMIN)[1]
    page = run(f"curl -s -H 'Authorization: Bearer {token}' '{console.url}/streams/orders/delete'", "")
    line = copied(page, "curl", console.url)
    assert json.loads(run(line, token))["dry_run"] is True
    assert "orders" in parts[0].streams()


def test_the_form_of_each_act_offers_its_command_and_its_request(console):
    token = console.credentials.issue("forms", Role.ADMIN)[1]
    with ConsoleCaller(console.url, token) as get:
        for act in console.app._acts.values():
            page = get(re.sub(r"\{\w+\}", "orders", act.path))
            assert copied(page, "cli", console.url).startswith("lockstep "), act.path
            line = copied(page, "curl", console.url)
            assert f"'{console.url}/api/v1{re.sub(r'{[a-z]+}', 'orders', act.path)}' -d " in line
            assert '"dry_run": true' in line


@pytest.mark.parametrize(("query", "command"), [
    ("", "lockstep group delete billing"), ("?force=true", "lockstep group delete billing --force"),
    ("?force=false", "lockstep group delete billing"),
])  # fmt: skip
def test_the_command_of_a_form_says_what_is_filled_in(console, query, command):
    with ConsoleCaller(console.url, console.credentials.issue("filled", Role.ADMIN)[1]) as get:
        assert re.sub(r" --bus .*", "", copied(get(f"/groups/billing/delete{query}"), "cli", "")) == command


class ConsoleCaller:
    """Gets pages over one connection."""

    def __init__(self, url: str, token: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}

    def __enter__(self):
        return self.get

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str) -> str:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, (path, text)
        return text


def test_a_name_is_one_word_for_a_shell(console):
    view = console.app._views["/schedules/{tenant}/{id}"]
    for name in (ODD, "{tenant}", "a\nb", "\x1b[2J", "\\", "'", "😀"):
        for tenant, id_ in ((name, "{tenant}"), ("{id}", name)):
            command = command_of(view, Asked(path="/", names={"tenant": tenant, "id": id_}), {})
            shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], capture_output=True, timeout=60)
            words = shown.stdout.decode().split("\0")
            assert words[:-1] == ["lockstep", "schedule", "why", id_, "--tenant", tenant]


def test_what_a_page_filters_by_is_in_its_command():
    with lockstep.connect("memory:") as client:
        world = ConsoleWorld(client)
        page = world.get("/audit?who=ada&outcome=failed", world.token(Role.ADMIN), accept="text/html").text
        assert copied(page, "cli", "") == "lockstep access audit --who ada --outcome failed"
        world.close()
