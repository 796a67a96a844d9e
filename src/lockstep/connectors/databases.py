"""Databases as connectors reach them: which driver, and what its values are in a window.

A connectstring is sqlite:///FILE, postgresql://USER@HOST:PORT/DATABASE, or one of ODBC: DSN=NAME;uid=USER;pwd=PASSWORD.
A DSN that an environment variable LOCKSTEP_DSN_NAME has as one of the other forms needs no ODBC.
"""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import unquote, urlsplit

from lockstep.connectors.errors import ConnectorDown
from lockstep.connectors.properties import Properties
from lockstep.engine.events.types import INT_RANGE, MONEY_SCALE, FieldType, Value
from lockstep.engine.gates.port import needed
from lockstep.errors import PackageMissing

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
        """What stands for a value in a statement."""
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
