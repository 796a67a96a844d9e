"""Live pages: viewers who may see the same share what is rendered, and nothing else."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from server_pairs import LiveStream

import lockstep
from lockstep.console.errors import RoleNeeded
from lockstep.console.port import Asked, Pillar, View
from lockstep.console.server import Console
from lockstep.server.access import Role

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def asked():
    return []


@pytest.fixture
def console(asked):
    def load(one: Asked):
        asked.append(one.principal)
        return {"id": "", "role": one.principal.role.label, "scope": one.principal.scope, "name": one.principal.name,
                "created_ms": None, "expires_ms": None}  # fmt: skip

    view = View(path="/counted", title="Counted", summary="", load=load, template="token.html")

    def refuse(_asked: Asked):
        raise RoleNeeded(role="admin", area="closed", name="x", own="viewer", scope="*")

    closed = View(path="/closed", title="Closed", summary="", load=refuse, template="token.html")
    pillar = Pillar("counted", "C", [view, closed])
    with lockstep.connect("memory:") as client, Console(client, pillars=[pillar]) as console:
        console.app.live._every_s = 0.1
        yield console


def test_viewers_of_a_role_and_scope_share_a_page_and_others_do_not(console, asked):
    console.app.live._every_s = 60.0
    tokens = [console.credentials.issue(f"t{number}", role, scope)[1] for number, (role, scope) in enumerate(
        [(Role.ADMIN, ()), (Role.ADMIN, ()), (Role.ADMIN, ["counted"]), (Role.OPERATOR, ())])]  # fmt: skip
    with ExitStack() as closing:
        for token in [*tokens, ""]:
            stream = LiveStream(console.url, "/counted", token=token)
            closing.callback(stream.close)
            stream.wait_content("role")
    assert [(one.role, one.scope) for one in asked] == [
        (Role.ADMIN, ("*",)), (Role.ADMIN, ("counted",)), (Role.OPERATOR, ("*",)), (Role.VIEWER, ("*",)),
    ]  # fmt: skip
    assert {(one.name, one.credential, one.session) for one in asked} == {("", "", "")}, "nobody's own is shared"


def test_a_viewer_whose_token_is_revoked_is_told_and_ended_and_others_go_on(console):
    made, secret = console.credentials.issue("ada", Role.ADMIN)
    _, other = console.credentials.issue("bob", Role.ADMIN)
    with ExitStack() as closing:
        streams = [LiveStream(console.url, "/counted", token=token) for token in (secret, other)]
        for stream in streams:
            closing.callback(stream.close)
            stream.wait_content("role")
        console.credentials.revoke(made.id)
        assert b"event: ended" in streams[0].wait_end()
        assert streams[1].lines(1) != [b""]


def test_a_page_that_shows_who_asks_is_not_shared(console):
    with ExitStack() as closing:
        for name in ("ada", "bob"):
            stream = LiveStream(console.url, "/settings", token=console.credentials.issue(name, Role.ADMIN)[1])
            closing.callback(stream.close)
            stream.wait_content(name)


def test_a_page_that_a_caller_may_not_follow_ends_at_once_and_is_rendered_no_more(console):
    stream = LiveStream(console.url, "/closed")
    assert b"event: ended" in stream.wait_end()
    stream.close()
    assert console.app.live.pages == 0


def test_a_console_that_is_closed_ends_its_live_pages_at_once(console, caplog):
    console.app.live._every_s = 60.0
    stream = LiveStream(console.url, "/counted")
    stream.wait_content("role")
    console.close()
    stream.wait_end()
    stream.close()
    assert console.app.live.pages == 0
    assert "Cancel" not in caplog.text, "the server had to end none of them by force"
