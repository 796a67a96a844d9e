"""Connectors of class db against SQLite: rows of a query come in, and a table holds the rows of a window."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from urllib.parse import quote

import pytest
from connector_worlds import World, connector, event, model, running, until

from lockstep.connectors.databases import BadValue, Database, Query, Table, from_database, to_database
from lockstep.connectors.errors import ConnectorRefused
from lockstep.connectors.properties import read_properties
from lockstep.engine.events.schema import FieldType


@pytest.fixture
def base(tmp_path):
    path = tmp_path / "base #1.db"
    with sqlite3.connect(path) as link:
        link.execute('CREATE TABLE trades ("Price" REAL, symbol TEXT, id INTEGER PRIMARY KEY, seen INTEGER DEFAULT 7)')
    link.close()
    return path


@pytest.fixture
def world_of(tmp_path):
    made = []

    def world(**what) -> World:
        made.append(World(f"lmdb:{tmp_path / 'bus'}", model(**what)))
        return made[-1]

    yield world
    for one in made:
        one.close()


def run(path, statement: str, *rows) -> list:
    link = sqlite3.connect(path)
    try:
        with link:
            return link.executemany(statement, rows).fetchall() if rows else link.execute(statement).fetchall()
    finally:
        link.close()


def at(path) -> str:
    return f"sqlite:///{quote(str(path))}"


def publisher(path, **given):
    statement = "SELECT symbol, id, Price FROM trades ORDER BY id"
    return connector("db", "in", type="pub", **{"connectstring": at(path), "selectstatement": statement, **given})


def subscriber(path, **given):
    wish = {"connectstring": at(path), "desttablename": "trades", **given}
    return connector("db", "out", type="sub", **wish)


def test_rows_of_a_query_come_in_by_the_names_of_their_columns_and_once(world_of, base):
    run(base, "INSERT INTO trades VALUES (?, ?, ?, 0)", *((n / 2, f"s{n}", n) for n in range(1, 8)))
    world = world_of(into=[publisher(base, blocksize=3)])
    first = world.engine()
    while not first.step():
        pass
    first.die()
    assert world.taken() == [1, 2, 3, 4, 5, 6, 7]
    second = world.engine()  # whoever leads next selects again, and sends nothing twice
    while not second.step():
        pass
    second.die()
    assert world.taken() == [1, 2, 3, 4, 5, 6, 7]


def test_a_value_that_is_none_of_its_field_is_told_and_the_others_come_in(world_of, base, caplog):
    run(base, "INSERT INTO trades VALUES (?, ?, ?, 0)", (1.0, "a", 1), ("much", "b", 2), (None, None, 3))
    world = world_of(into=[publisher(base)])
    with running(world) as connectors:
        until(lambda: connectors.states == {"q/Trades/in": "finished"})
        assert connectors.have_read
    assert world.taken() == [1, 3]
    assert "a str is no double" in caplog.text
    assert "much" not in caplog.text


def test_a_table_holds_the_rows_of_a_window_and_blocks_that_come_twice_change_nothing(world_of, base):
    world = world_of(out=[subscriber(base)])
    world.state()
    world.prepare()
    lead = world.engine()
    world.come_out(1, 2, 3)
    world.blocks_come_out((4, [event(2, "UB"), event(2, "D")]), (5, [event(3, "D")]))
    lead.until(lambda: lead.work.sent == 5)
    rows = [(0.5, "s1", 1, 7), (1.0, "s2", 2, 7)]
    assert run(base, "SELECT * FROM trades ORDER BY id") == rows
    lead.die()


def test_what_is_sent_again_after_a_kill_gives_the_same_rows(world_of, base):
    world = world_of(out=[subscriber(base)])
    world.state()
    world.prepare()
    lead = world.engine()
    world.come_out(1, 2)
    written = []
    lead.work._notes.write = lambda note: written.append(note)  # killed before it could note anything
    lead.until(lambda: lead.work.sent == 2)
    lead.die()
    again = world.engine()
    world.blocks_come_out((3, [event(1, "D")]))
    again.until(lambda: again.work.sent == 3)
    again.die()
    assert run(base, "SELECT id FROM trades") == [(2,)]


def test_a_table_that_lacks_a_column_or_is_not_there_is_tried_again(world_of, base, tmp_path, caplog):
    run(base, "ALTER TABLE trades RENAME COLUMN symbol TO ticker")
    with running(world_of(out=[subscriber(base)])) as connectors:
        until(lambda: "no column symbol" in caplog.text)
        run(base, "ALTER TABLE trades RENAME COLUMN ticker TO symbol")
        until(lambda: connectors.states == {"q/Copy/out": "running"})


def test_errors_of_single_rows_can_be_left_out(world_of, base, caplog):
    run(base, "CREATE TRIGGER no BEFORE INSERT ON trades WHEN new.id = 2 BEGIN SELECT RAISE(ABORT, 'not two'); END")
    world = world_of(out=[subscriber(base, ignoresqlerrors="true")])
    world.state()
    world.prepare()
    lead = world.engine()
    world.come_out(1, 2, 3)
    lead.until(lambda: lead.work.sent == 3)
    lead.die()
    assert run(base, "SELECT id FROM trades ORDER BY id") == [(1,), (3,)]
    assert "left out an event" in caplog.text


def said(direction: str, **given: str):
    return read_properties("q/w/c", "db", direction, {"type": direction, **given})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"connectstring": "somewhere"}, "names no database"),
        ({"connectstring": "DSN=a;pwd=x", "pwdencrypted": "true"}, "LOCKSTEP_DSN_A"),
        ({"selectstatement": "DROP TABLE x"}, "is no query"),
    ],
)  # fmt: skip
def test_queries_that_are_wrong_are_refused(given, why):
    with pytest.raises(ConnectorRefused) as raised:
        Query.of(said("pub", **{"connectstring": "sqlite:///f", "selectstatement": "select 1", **given}), {})
    assert why in f"{raised.value} {raised.value.advice}"


@pytest.mark.parametrize("name", ["", "a b", "a;drop", "a.b.c.d", "1a", '"a"'])
def test_a_table_has_a_plain_name(name):
    with pytest.raises(ConnectorRefused):
        Table.of(said("sub", connectstring="sqlite:///f", desttablename=name), {})


def test_a_dsn_may_be_a_url_of_the_environment_and_no_message_has_a_password():
    encrypted = said("pub", connectstring="DSN=My Base;uid=u;pwd=abc", pwdencrypted="true")
    found = Database.of(encrypted, {"LOCKSTEP_DSN_MY_BASE": "postgresql://me:s3cret@h:5432/d"})
    assert (found.driver, found.place) == ("postgresql", "PostgreSQL h")
    assert "s3cret" not in repr(found)
    odbc = Database.of(said("pub", connectstring="DSN=Other;uid=u;pwd=s3cret"), {})
    assert (odbc.driver, odbc.place) == ("odbc", "ODBC Other")
    assert "s3cret" not in repr(odbc)


def test_values_go_into_fields_and_come_back():
    cases = [
        (FieldType.INT64, Decimal(5), 5),
        (FieldType.DOUBLE, "2.5", 2.5),
        (FieldType.STRING, 7, "7"),
        (FieldType.DATE, "2026-01-05 09:30:00", 1_767_605_400),
        (FieldType.STAMP, "2026-01-05T09:30:00.000001+00:00", 1_767_605_400_000_001),
        (FieldType.MONEY, "1.25", 12_500),
        (FieldType.BLOB, b"x", b"x"),
    ]
    for kind, found, value in cases:
        assert from_database(kind)(found) == value
        assert from_database(kind)(to_database(kind)(value)) == value
        assert from_database(kind)(None) is None
    for kind, found in [
        (FieldType.INT32, 2**40),
        (FieldType.INT64, 1.5),
        (FieldType.DATE, "soon"),
        (FieldType.DOUBLE, "x"),
    ]:
        with pytest.raises(BadValue):
            from_database(kind)(found)
