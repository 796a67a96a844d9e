"""Connections of a store to PostgreSQL: no wait without end, and errors of the server as ours."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Empty, LifoQueue
from typing import Any, TypeVar

import psycopg
from psycopg.waiting import Ready, Wait

from lockstep.errors import BadUrl, Closed, ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.driver import login_findings, report_findings
from lockstep.log.urls import split_url
from lockstep.runtime import Runtime

T = TypeVar("T")
Row = tuple[Any, ...]

CONNECTIONS_MAX = 8
COMMIT = "COMMIT"
_ANSWER_GRACE_S = 2.0
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


class _Connection(psycopg.Connection[Row]):
    """A connection on which no wait is longer than `patience_s`, even if the server is frozen."""

    patience_s: float = 60.0
    monotonic: Callable[[], float]

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Run what talks to the server; OperationalError when time is up."""
        return super().wait(self._bounded(gen), *args, **options)

    def send_all(self) -> None:
        """Wait until nothing is left to be sent: of much, a socket takes a part, and the rest would stay here."""
        self.wait(self._sending())

    def _sending(self) -> Generator[Any, Any, None]:
        while self.pgconn.flush():
            ready = yield Wait.RW
            if ready & Ready.R:
                self.pgconn.consume_input()

    def _bounded(self, work: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        deadline = self.monotonic() + self.patience_s
        try:
            wish = next(work)
            while True:
                ready = yield wish
                if not ready and self.monotonic() > deadline:
                    message = f"no answer within {self.patience_s:g} s"
                    raise psycopg.OperationalError(message)
                wish = work.send(ready)
        except StopIteration as done:
            value: T = done.value
            return value


class Connections:
    """Connections to one database, each for one thread at a time; opened when needed, also after a failure."""

    def __init__(self, url: str, runtime: Runtime) -> None:
        _, target, options = split_url(url)
        self.address = parse_address(
            "postgresql", target, options, environ=os.environ, default_port=5432, known=("schema",)
        )
        self.schema = self.address.options.get("schema", "lockstep")
        self.shown_url = f"{self.address.safe_url}?schema={self.schema}"
        if not _SCHEMA.fullmatch(self.schema):
            reason = f"its schema {self.schema!r} must be lower-case letters, digits and underscores"
            raise BadUrl(url=self.address.safe_url, reason=reason)
        report_findings(login_findings(self.address), strict=self.address.strict)
        self._settings = _settings(self.address, self.schema)
        self._monotonic = runtime.monotonic
        self._slots: LifoQueue[_Connection | None] = LifoQueue()
        self._closed = False
        for _ in range(CONNECTIONS_MAX):
            self._slots.put(None)

    @contextmanager
    def use(self) -> Iterator[_Connection]:
        """A connection in autocommit mode; errors of the server are raised as ours, and it is closed then."""
        if self._closed:
            raise Closed(what=f"The store {self.address.safe_url}")
        try:
            connection = self._slots.get(timeout=self.address.timeout_s)
        except Empty:
            reason = f"all {CONNECTIONS_MAX} connections are in use"
            raise self._unreachable(reason) from None
        try:
            connection = connection or self._open()
            yield connection
        except psycopg.OperationalError as error:
            self._give_back(connection, is_broken=True)
            self._close_idle()
            raise self._unreachable(_reason(error)) from error
        except psycopg.errors.InsufficientPrivilege as error:
            self._give_back(connection, is_broken=True)
            raise ServerRefused(server=self.address.servers, reason=_reason(error)) from error
        except psycopg.InternalError as error:  # for example a standby, which is read only
            self._give_back(connection, is_broken=True)
            raise self._unreachable(_reason(error)) from error
        except BaseException:
            self._give_back(connection, is_broken=True)
            raise
        self._give_back(connection, is_broken=False)

    @contextmanager
    def begun(self) -> Iterator[_Connection]:
        """A transaction that is begun. Statements wait for no answer, unless one is fetched, until the block is left.

        It has to be ended in the block: `execute(COMMIT)`.
        """
        with self.use() as connection, _in_flights(connection):
            connection.execute("BEGIN", prepare=False)
            yield connection

    @contextmanager
    def transaction(self) -> Iterator[_Connection]:
        """The same, committed at the end."""
        with self.begun() as connection:
            yield connection
            connection.execute(COMMIT, prepare=False)

    def close(self) -> None:
        """Close what is idle, and the rest when it is given back."""
        self._closed = True
        self._close_idle()

    def _open(self) -> _Connection:
        connection = _Connection.connect(**self._settings, autocommit=True)
        connection.patience_s = self.address.timeout_s + _ANSWER_GRACE_S
        connection.monotonic = self._monotonic
        return connection

    def _give_back(self, connection: _Connection | None, *, is_broken: bool) -> None:
        if connection is not None and (is_broken or self._closed):
            connection.close()
        self._slots.put(None if is_broken or self._closed else connection)

    def _close_idle(self) -> None:
        idle = []
        while True:
            try:
                idle.append(self._slots.get_nowait())
            except Empty:
                break
        for connection in idle:
            if connection is not None:
                connection.close()
            self._slots.put(None)

    def _unreachable(self, reason: str) -> ServerUnreachable:
        return ServerUnreachable(server=self.address.servers, reason=reason)


def _in_flights(connection: _Connection) -> AbstractContextManager[object]:
    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()  # not before libpq 14


def _settings(address: Address, schema: str) -> dict[str, Any]:
    """How to connect: a statement, a lock and a transaction that stands still all end in bounded time."""
    limit_ms = int(address.timeout_s * 1000)
    bounds = {
        "search_path": schema,
        "statement_timeout": limit_ms,
        "lock_timeout": limit_ms,
        "idle_in_transaction_session_timeout": max(limit_ms // 2, 1),
        "plan_cache_mode": "force_generic_plan",  # every query goes by an index, whatever it asks for
        "enable_seqscan": "off",
    }
    settings: dict[str, Any] = {
        "host": ",".join(host.strip("[]") for host, _ in address.hosts),
        "port": ",".join(str(port) for _, port in address.hosts),
        "dbname": address.path or None,
        "user": address.user,
        "password": address.password.reveal() if address.password else None,
        "connect_timeout": max(int(address.timeout_s), 2),
        "application_name": "lockstep",
        "client_encoding": "utf8",
        "target_session_attrs": "read-write",
        "options": " ".join(f"-c {name}={value}" for name, value in bounds.items()),
    }
    if address.tls is not None:
        tls = address.tls
        settings |= {
            "sslmode": "verify-full",
            "sslrootcert": tls.ca or "system",
            "sslcert": tls.cert,
            "sslkey": tls.key,
        }
    return {name: value for name, value in settings.items() if value is not None}


def _reason(error: psycopg.Error) -> str:
    lines = (error.diag.message_primary or str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
