"""Connectors of class db with a real PostgreSQL: rows come in, a table holds a window, errors of rows are left out."""

from __future__ import annotations

import sys
from pathlib import Path
from uuid import uuid4

import pytest

sys.path.append(str(Path(__file__).parents[1] / "connectors"))
from connector_worlds import World, connector, event, model

psycopg = pytest.importorskip("psycopg")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def table(postgresql_server) -> str:
    name = f"t{uuid4().hex}"
    with psycopg.connect(postgresql_server.url) as link:
        link.execute(f'CREATE TABLE {name} (id bigint PRIMARY KEY CHECK (id <> 3), "Price%" float, symbol text)')
        link.execute(f'ALTER TABLE {name} RENAME COLUMN "Price%" TO price')
    return name


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**what) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(**what)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def rows(server, table) -> list:
    with psycopg.connect(server.url) as link:
        return link.execute(f"SELECT id, symbol, price FROM {table} ORDER BY id").fetchall()


def test_a_table_holds_a_window_and_a_query_reads_it_again(world_of, postgresql_server, table):
    wish = {"connectstring": postgresql_server.url, "desttablename": table, "ignoresqlerrors": "true"}
    query = {"connectstring": "DSN=here", "selectstatement": f"SELECT * FROM {table} ORDER BY id", "blocksize": 2}
    out = world_of(out=[connector("db", "out", type="sub", **wish)])
    out.state()
    out.prepare()
    lead = out.engine()
    out.come_out(1, 2, 3, 4)
    out.blocks_come_out((5, [event(2, "UB"), event(2, "D")]), (6, [event(4, "D")]))
    lead.until(lambda: lead.work.sent == 6)
    lead.die()
    assert rows(postgresql_server, table) == [(1, "s1", 0.5), (2, "s2", 1.0)], (
        "3 is refused by the table, 4 was deleted"
    )
    into = world_of(into=[connector("db", "in", type="pub", **query)], name="other")
    into.workshop.environ["LOCKSTEP_DSN_HERE"] = postgresql_server.url
    reader = into.engine()
    while not reader.step():
        pass
    reader.die()
    assert into.taken() == [1, 2]
