"""Databases as connectors: drivers, values, and tables and queries as targets and sources."""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from lockstep.connectors.errors import ConnectorDown
from lockstep.connectors.forms import OnBad
from lockstep.connectors.port import Note, Pace, Piece
from lockstep.connectors.properties import Properties
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.csv_reader import BadLine
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.schema import INT_RANGE, MONEY_SCALE, FieldType, Schema, Value
from lockstep.engine.gates.port import needed
from lockstep.errors import PackageMissing
from lockstep.events.subscriber import Block
from lockstep.runtime import logger

_CONNECT_S = 5
_PASSWORD = "LOCKSTEP_DATABASE_PASSWORD"  # noqa: S105 - the name of a variable
_DSN = re.compile(r"(?i)(?:^|;)\s*dsn\s*=\s*([^;]+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
SQLITE, POSTGRESQL, ODBC = "sqlite", "postgresql", "odbc"


@dataclass(frozen=True, slots=True)
class Database:
    """Where a database is, and through which driver it is reached."""

    connector: str
    driver: str
    place: str
    """For messages: without user and password."""
    address: str = field(repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, properties: Properties, environ: Mapping[str, str]) -> Database:
        """As the connectstring says; ConnectorRefused if it can't be used."""
        text = properties.text("connectstring")
        named = _DSN.search(text)
        variable = f"LOCKSTEP_DSN_{re.sub(r'[^A-Z0-9]', '_', named[1].strip().upper())}" if named else ""
        known = environ.get(variable)
        if known is None and properties.flag("pwdencrypted"):
            reason = "the password in its connectstring is encrypted, and only its maker's software can read that"
            remedy = f"Give the password itself, or set {variable or 'LOCKSTEP_DSN_NAME'} to the URL of the database."
            raise properties.refused(reason=reason, remedy=remedy)
        return cls._at(properties, known or text, environ.get(_PASSWORD))

    @classmethod
    def _at(cls, properties: Properties, text: str, password: str | None) -> Database:
        scheme, sign, rest = text.partition(":")
        path = properties.connector
        if sign and scheme.lower() == SQLITE and rest.startswith("///"):
            return cls(path, SQLITE, "SQLite", unquote(rest[3:]))
        if sign and scheme.lower() in (POSTGRESQL, "postgres"):
            parts = urlsplit(text)
            return cls(path, POSTGRESQL, f"PostgreSQL {parts.hostname or 'localhost'}", text, password)
        if "=" not in text:
            remedy = "Write sqlite:///FILE, postgresql://USER@HOST/DATABASE, or DSN=NAME;uid=USER;pwd=PASSWORD."
            raise properties.refused(reason="its connectstring names no database", remedy=remedy)
        named = _DSN.search(text)
        return cls(path, ODBC, f"ODBC {named[1].strip() if named else 'database'}", text, password)

    @property
    def mark(self) -> str:
        """Return the placeholder of a value in a statement."""
        return "%s" if self.driver == POSTGRESQL else "?"

    def quoted(self, name: str) -> str:
        """A column or table in a statement."""
        found = '"' + name.replace('"', '""') + '"'
        return found.replace("%", "%%") if self.driver == POSTGRESQL else found

    @property
    def error_class(self) -> type[Exception]:
        """What the driver raises."""
        found: type[Exception] = self._module().Error
        return found

    def check(self) -> None:
        """An error that says what to install if the driver is missing."""
        if self.driver != SQLITE:
            self._module()

    def _module(self) -> Any:
        if self.driver == SQLITE:
            return sqlite3
        if self.driver == POSTGRESQL:
            return needed("psycopg", "postgresql")
        try:
            return importlib.import_module("pyodbc")
        except ModuleNotFoundError:
            error = PackageMissing(what=f"Connector {self.connector}", package="pyodbc")
            error.add_note("Or set LOCKSTEP_DSN_NAME to postgresql://USER@HOST/DATABASE: then it needs no ODBC.")
            raise error from None

    def connect(self) -> Any:
        """A connection; nothing is committed by itself."""
        with self.errors():
            if self.driver == SQLITE:
                return sqlite3.connect(f"file:{_escaped(self.address)}?mode=rw", uri=True, timeout=_CONNECT_S)
            module = self._module()
            if self.driver == POSTGRESQL:
                own = {} if self.password is None else {"password": self.password}
                return module.connect(self.address, connect_timeout=_CONNECT_S, **own)
            secret = f";pwd={{{self.password.replace('}', '}}')}}}" if self.password is not None else ""
            return module.connect(self.address.rstrip(";") + secret, timeout=_CONNECT_S, autocommit=False)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """The driver's errors in our words: the first line, without what it says of values."""
        try:
            yield
        except self.error_class as error:
            msg = f"{type(error).__name__}: {_first_line(error)}"
            raise self.down(msg) from None

    def down(self, reason: str) -> ConnectorDown:
        """The database is not there, or refuses a statement."""
        return ConnectorDown(connector=self.connector, server=self.place, reason=reason)


def _escaped(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else "no reason given"


class BadValue(ValueError):
    """A value of a database that a field can't take."""


def from_database(kind: FieldType) -> Callable[[Any], Value]:
    """What a value of a database is in a field of a type; raises BadValue."""
    read = _READERS.get(kind)

    def convert(found: Any) -> Value:
        if found is None:
            return None
        try:
            value = None if read is None else read(found)
        except (ValueError, TypeError, ArithmeticError):
            value = None
        low, high = INT_RANGE.get(kind, (0, 0))
        if value is None or (kind in INT_RANGE and not low <= value <= high):
            msg = f"a {type(found).__name__} is no {kind.value}"
            raise BadValue(msg)
        return value  # type: ignore[no-any-return]

    return convert


def to_database(kind: FieldType) -> Callable[[Value], Any]:
    """A field's value as drivers take it: times are in UTC."""
    return _WRITERS.get(kind, lambda value: value)


def _whole(found: Any) -> int:
    value = int(found)
    if isinstance(found, float | Decimal) and value != found:
        raise ValueError
    return value


def _moment(found: Any) -> datetime:
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    if isinstance(found, date) and not isinstance(found, datetime):
        found = datetime(found.year, found.month, found.day, tzinfo=UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)  # type: ignore[no-any-return]


def _in_units(unit: timedelta) -> Callable[[Any], int]:
    def read(found: Any) -> int:
        return found if type(found) is int else (_moment(found) - _EPOCH) // unit

    return read


def _text(found: Any) -> str:
    return bytes(found).decode() if isinstance(found, bytes | bytearray | memoryview) else str(found)


_READERS: Mapping[FieldType, Callable[[Any], Any]] = {
    FieldType.INT32: _whole,
    FieldType.INT64: _whole,
    FieldType.DOUBLE: float,
    FieldType.STRING: _text,
    FieldType.DATE: _in_units(_SECOND),
    FieldType.STAMP: _in_units(_MICROSECOND),
    FieldType.MONEY: lambda found: int((Decimal(str(found)) * MONEY_SCALE).to_integral_value()),
    FieldType.BLOB: bytes,
}


def _written(unit: timedelta) -> Callable[[Any], Any]:
    def write(value: Any) -> str | None:
        try:
            return None if value is None else (_EPOCH + value * unit).isoformat(" ").removesuffix("+00:00")
        except OverflowError:
            msg = "a time lies beyond the calendar"
            raise BadValue(msg) from None

    return write


_WRITERS: Mapping[FieldType, Callable[[Any], Any]] = {
    FieldType.DATE: _written(_SECOND),
    FieldType.STAMP: _written(_MICROSECOND),
    FieldType.MONEY: lambda value: None if value is None else str(Decimal(value) / MONEY_SCALE),
}


_FETCH = 1_000
_ORDERED = re.compile(r"(?is)\border\s+by\b")
_TABLE = re.compile(r"[^\W\d][\w$]*(?:\.[^\W\d][\w$]*){0,2}")
_SELECT = re.compile(r"(?is)\s*(?:select|with|values)\b")
_LEAVING = frozenset({Opcode.DELETE, Opcode.SAFEDELETE})
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Query:
    """What a db publisher selects, and how rows become blocks."""

    database: Database
    statement: str = field(repr=False)
    opcode: Opcode
    block: int
    transactional: bool

    @classmethod
    def of(cls, properties: Properties, environ: Mapping[str, str]) -> Query:
        """As the properties say."""
        statement = properties.text("selectstatement").rstrip("; \n\t")
        if not _SELECT.match(statement):
            raise properties.refused(reason="its selectstatement is no query", remedy="Write SELECT ... FROM ...")
        opcode = Opcode.UPSERT if properties.flag("publishwithupsert") else Opcode.INSERT
        block, transactional = properties.number("blocksize", 1, 1), properties.flag("transactional")
        return cls(Database.of(properties, environ), statement, opcode, block, transactional)

    @property
    def is_ordered(self) -> bool:
        """Whether the same row has the same place at every start."""
        return _ORDERED.search(self.statement) is not None


class TableSource:
    """The rows of a query, once. Columns go to the fields of their names, or in order if a field has no column."""

    def __init__(self, query: Query, schema: Schema, pace: Pace, on_bad: OnBad) -> None:
        query.database.check()
        self._query, self._schema, self._pace, self._on_bad = query, schema, pace, on_bad
        self.is_numbered = query.is_ordered
        self._link: Any = None

    def pieces(self, after: int, note: Note | None) -> Iterator[Piece | None]:
        """Run the query and yield its rows after block `after`; raises if the database refuses the statement."""
        del note
        database = self._query.database
        self._link = database.connect()
        with database.errors():
            cursor = self._link.cursor()
            cursor.execute(self._query.statement)
            names = [str(column[0]) for column in cursor.description]
        return self._read(cursor, self._places(names), after)

    def start(self) -> Note | None:
        """Return None: a query always starts at its first row."""
        return None

    def close(self) -> None:
        """Close the connection."""
        _close(self._link, self._query.database)

    def _places(self, names: list[str]) -> list[int]:
        """For each field its column."""
        known = {name.lower(): place for place, name in enumerate(names)}
        found = [known.get(name.lower()) for name in self._schema.names]
        places = [place for place in found if place is not None]
        if len(places) == len(found):
            return places
        if len(names) != len(found):
            missing = ", ".join(name for name, place in zip(self._schema.names, found, strict=True) if place is None)
            msg = f"the query has {len(names)} columns, and none for {missing}"
            raise self._query.database.down(msg)
        return list(range(len(names)))

    def _read(self, cursor: Any, places: list[int], after: int) -> Iterator[Piece | None]:
        readers = [from_database(item.type) for item in self._schema]
        number, line, events = 0, 0, list[Event]()
        while rows := self._fetched(cursor):
            self._pace.check()
            for row in rows:
                line += 1
                try:
                    values = [read(row[place]) for read, place in zip(readers, places, strict=True)]
                except BadValue as error:
                    self._on_bad(BadLine(line, "wrong-type", str(error), ""))
                    continue
                events.append(Event(self._query.opcode, Flag.NORMAL, tuple(values)))
                if len(events) == self._query.block:
                    number += 1
                    yield from self._block(number, events, after)
                    events = []
        if events:
            yield from self._block(number + 1, events, after)

    def _block(self, number: int, events: Sequence[Event], after: int) -> Iterator[Piece]:
        if number > after:
            batch = EventBatch.of(self._schema, [(number, events)])
            yield Piece(batch, np.array([number], np.int64), self._query.transactional)

    def _fetched(self, cursor: Any) -> list[Any]:
        with self._query.database.errors():
            return list(cursor.fetchmany(_FETCH))


@dataclass(frozen=True, slots=True)
class Table:
    """Where a db subscriber writes."""

    database: Database
    name: str
    ignores_errors: bool

    @classmethod
    def of(cls, properties: Properties, environ: Mapping[str, str]) -> Table:
        """As the properties say."""
        name = properties.text("desttablename")
        if not _TABLE.fullmatch(name):
            reason = f"its desttablename {name[:80]!r} is no table"
            raise properties.refused(reason=reason, remedy="Write TABLE or SCHEMA.TABLE.")
        return cls(Database.of(properties, environ), name, properties.flag("ignoresqlerrors"))


class TableTarget:
    """A table that holds the rows of a window: each block is one transaction with what it changes.

    A row is updated by its key, and inserted if there is none. Blocks that are sent again after a kill change nothing.
    """

    def __init__(self, table: Table, schema: Schema, connector: str) -> None:
        table.database.check()
        self._table, self._schema, self._connector = table, schema, connector
        self._link: Any = None
        self._statements: _Statements | None = None
        self._told = 0

    def open(self, note: Note) -> int | None:
        """Connect and check the columns; returns None, as a table does not record which block came last."""
        del note
        database = self._table.database
        self._link = database.connect()
        with database.errors():
            cursor = self._link.cursor()
            cursor.execute(f"SELECT * FROM {self._table.name} WHERE 1 = 0")  # noqa: S608 - the name was checked
            names = [str(column[0]) for column in cursor.description]
            self._link.rollback()
        self._statements = _Statements.of(self._table, self._schema, names)
        return None

    def send(self, blocks: Sequence[Block]) -> None:
        """Write each block in a transaction; raises if the database refuses one and errors are not ignored."""
        assert self._statements is not None, "opened before"
        with self._table.database.errors():
            cursor = self._link.cursor()
            for block in blocks:
                for event in block.events():
                    self._write(cursor, self._statements, event)
                self._link.commit()

    def _write(self, cursor: Any, statements: _Statements, event: Event) -> None:
        if not self._table.ignores_errors:
            try:
                statements.apply(cursor, event)
            except BadValue as error:
                raise self._table.database.down(str(error)) from None
            return
        cursor.execute(statements.save)
        try:
            statements.apply(cursor, event)
        except (self._table.database.error_class, BadValue) as error:
            cursor.execute(statements.back)
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        self._told += 1
        if self._told <= _SHOWN:
            words = "Connector %s left out an event: %s"
            logger.warning(words, self._connector, type(error).__name__, extra={"action": "connector"})

    def mark(self) -> Mapping[str, Any]:
        """Return nothing: the number of the last block is enough."""
        return {}

    def idle(self) -> None:
        """Do nothing: a lost connection is noticed when the next block is sent."""

    def close(self) -> None:
        """Close the connection."""
        _close(self._link, self._table.database)


@dataclass(frozen=True, slots=True)
class _Statements:
    """The statements of one table, and the places of the values in them."""

    insert: str
    update: str | None
    exists: str
    delete: str
    keys: tuple[int, ...]
    others: tuple[int, ...]
    writers: tuple[Any, ...]
    save: str
    back: str

    @classmethod
    def of(cls, table: Table, schema: Schema, names: Sequence[str]) -> _Statements:
        database, known = table.database, {name.lower(): name for name in names}
        missing = [item.name for item in schema if item.name.lower() not in known]
        if missing:
            msg = f"the table {table.name} has no column {', '.join(missing)}"
            raise database.down(msg)
        columns = [database.quoted(known[item.name.lower()]) for item in schema]
        keys = tuple(schema.keys)
        others = tuple(place for place in range(len(columns)) if place not in keys)
        where = " AND ".join(f"{columns[place]} = {database.mark}" for place in keys)
        changes = ", ".join(f"{columns[place]} = {database.mark}" for place in others)
        marks = ", ".join([database.mark] * len(columns))
        is_server = database.driver != POSTGRESQL and database.driver != "sqlite"
        return cls(
            insert=f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608 - see open
            update=f"UPDATE {table.name} SET {changes} WHERE {where}" if others else None,  # noqa: S608
            exists=f"SELECT 1 FROM {table.name} WHERE {where}",  # noqa: S608
            delete=f"DELETE FROM {table.name} WHERE {where}",  # noqa: S608
            keys=keys,
            others=others,
            writers=tuple(to_database(item.type) for item in schema),
            save="SAVE TRANSACTION lockstep" if is_server else "SAVEPOINT lockstep",
            back="ROLLBACK TRANSACTION lockstep" if is_server else "ROLLBACK TO SAVEPOINT lockstep",
        )

    def apply(self, cursor: Any, event: Event) -> None:
        """Have one event's row in the table, or have it out."""
        row: list[Value] = [write(value) for write, value in zip(self.writers, event.values, strict=True)]
        key = [row[place] for place in self.keys]
        if event.opcode in _LEAVING:
            cursor.execute(self.delete, key)
            return
        if self.update is not None:
            cursor.execute(self.update, [*(row[place] for place in self.others), *key])
            is_there = cursor.rowcount > 0
        else:
            cursor.execute(self.exists, key)
            is_there = cursor.fetchone() is not None
        if not is_there:
            cursor.execute(self.insert, row)


def _close(link: Any, database: Database) -> None:
    if link is not None:
        with suppress(database.error_class):  # it is given up either way, and what was not committed is done again
            link.close()
