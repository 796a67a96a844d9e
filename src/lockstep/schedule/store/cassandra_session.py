"""The connection of a store to Cassandra: its cluster, the prepared statements, and what errors of the driver mean."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from cassandra import AuthenticationFailed, ConsistencyLevel, DriverException, OperationTimedOut, Unauthorized
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, ResponseFuture
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BoundStatement, PreparedStatement, tuple_factory

from lockstep.errors import BadUrl, Closed, ServerRefused, ServerUnreachable
from lockstep.log.network.address import Address, parse_address
from lockstep.log.network.driver import login_findings, report_findings
from lockstep.log.urls import split_url

DRIVER_ERRORS = (DriverException, NoHostAvailable, ConnectionException, ConnectionBusy)
"""The driver's errors have no class in common; a connection that breaks under a request raises one of its own."""
_AT_ONCE = 100
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")

_TABLE = "schedule_rows"
_HAS_TABLE = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
_CREATE_KEYSPACE = """
CREATE KEYSPACE IF NOT EXISTS {}
WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {}}}
"""
_QUERIES = {
    "state": """
        SELECT seat, member, epoch, position, mark, sent FROM {table} WHERE scheduler = ? AND shard = ? LIMIT 1
    """,
    "claim": """
        UPDATE {table} SET seat = ?, member = ?, epoch = ?, position = ?, sent = ? WHERE scheduler = ? AND shard = ?
        IF seat = ? AND member = ? AND epoch = ?
    """,
    "begin": """
        UPDATE {table} SET claim = ? WHERE scheduler = ? AND shard = ? IF seat = ? AND member = ? AND epoch = ?
    """,
    "advance": """
        UPDATE {table} SET position = ?, mark = ?, sent = ? WHERE scheduler = ? AND shard = ?
        IF seat = ? AND member = ? AND epoch = ? AND claim = ?
    """,
    "put": """
        INSERT INTO {table} (scheduler, shard, kind, name, time, key, row) VALUES (?, ?, ?, ?, ?, ?, ?)
    """,
    "put once": """
        INSERT INTO {table} (scheduler, shard, kind, name, time, key, row) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS
    """,
    "remove": """
        DELETE FROM {table} WHERE scheduler = ? AND shard = ? AND kind = ? AND name = ? AND time = ? AND key = ?
    """,
    "relayed": """
        DELETE FROM {table} USING TIMESTAMP ?
        WHERE scheduler = ? AND shard = ? AND kind = ? AND name = ? AND time > ? AND time <= ?
    """,
    "get": """
        SELECT key, row FROM {table}
        WHERE scheduler = ? AND shard = ? AND kind = ? AND name = '' AND time = 0 AND key IN ?
    """,
    "kind": """
        SELECT name, time, key, row FROM {table} WHERE scheduler = ? AND shard = ? AND kind = ?
    """,
    "between": """
        SELECT time, key, row FROM {table}
        WHERE scheduler = ? AND shard = ? AND kind = ? AND name = ? AND (time, key) >= (?, ?) AND (time) <= (?) LIMIT ?
    """,
    "newest": """
        SELECT time, key, row FROM {table} WHERE scheduler = ? AND shard = ? AND kind = ? AND name = ?
        ORDER BY kind DESC, name DESC, time DESC, key DESC LIMIT ?
    """,
    "row": """
        SELECT row FROM {table}
        WHERE scheduler = ? AND shard = ? AND kind = ? AND name = ? AND time = ? AND key = ?
    """,
    "outbox": """
        SELECT time, key, row, WRITETIME(row) FROM {table}
        WHERE scheduler = ? AND shard = ? AND kind = ? AND name = ? AND time >= ? LIMIT ?
    """,
}


class Session:
    """The connections to a cluster, and the statements that are prepared on it."""

    def __init__(self, url: str) -> None:
        _, target, options = split_url(url)
        self.address = parse_address(
            "cassandra", target, options, environ=os.environ, default_port=9042, known=("replication_factor",)
        )
        keyspace = self.address.path
        if not _KEYSPACE.fullmatch(keyspace):
            reason = f"its keyspace {keyspace!r} must be up to 48 lower-case letters, digits and underscores"
            raise BadUrl(url=self.address.safe_url, reason=reason)
        report_findings(login_findings(self.address), strict=self.address.strict)
        self._cluster = _cluster(self.address)
        self._closed = False
        try:
            with self.errors():
                self._session = self._cluster.connect()
                self._create(keyspace)
                self._prepared: dict[str, PreparedStatement] = {
                    name: self._session.prepare(query.format(table=f"{keyspace}.{_TABLE}"))
                    for name, query in _QUERIES.items()
                }
        except BaseException:
            self._cluster.shutdown()
            raise

    def _create(self, keyspace: str) -> None:
        if self._session.execute(_HAS_TABLE, [keyspace, _TABLE]).one() is not None:
            return
        copies = self.address.whole("replication_factor", min(3, len(self._cluster.metadata.all_hosts())))
        self._session.execute(_CREATE_KEYSPACE.format(keyspace, copies))
        script = files(__package__).joinpath("cassandra.cql").read_text()
        self._session.execute(script.replace(f" {_TABLE} (", f" {keyspace}.{_TABLE} ("))

    def bound(self, query: str, values: Sequence[Any]) -> BoundStatement:
        """A statement with its values."""
        return self._prepared[query].bind(values)

    def run(self, query: str, values: Sequence[Any], *, serial: bool = False) -> list[tuple[Any, ...]]:
        """All rows of a query; `serial` sees what a transaction under way will have done."""
        statement = self.bound(query, values)
        if serial:
            statement.consistency_level = ConsistencyLevel.SERIAL
        with self.errors():
            return list(self._session.execute(statement))

    def run_all(self, query: str, asked: Sequence[Sequence[Any]]) -> list[list[tuple[Any, ...]]]:
        """The rows of a query for each of many values, some at the same time."""
        found = list[list[tuple[Any, ...]]]()
        with self.errors():
            for first in range(0, len(asked), _AT_ONCE):
                part = [self._session.execute_async(self.bound(query, one)) for one in asked[first : first + _AT_ONCE]]
                found += [list(future.result()) for future in part]
        return found

    def begin(self, batch: BatchStatement) -> ResponseFuture:
        """Send a batch; the result is awaited with `result`."""
        with self.errors():
            return self._session.execute_async(batch)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors of the driver as ours."""
        if self._closed:
            raise Closed(what=f"The store {self.address.safe_url}")
        try:
            yield
        except DRIVER_ERRORS as error:
            raise self.meaning(error) from error

    def meaning(self, error: Exception) -> Exception:
        """What an error of the driver is to a caller."""
        parts = error.errors.values() if isinstance(error, NoHostAvailable) else ()
        refusals = [one for one in (error, *parts) if isinstance(one, AuthenticationFailed | Unauthorized)]
        if refusals:
            return ServerRefused(server=self.address.servers, reason=_reason(refusals[0]))
        first = next(iter(parts), error)
        if isinstance(first, OperationTimedOut):
            return self.unreachable(f"no answer within {self.address.timeout_s:g} s")
        return self.unreachable(_reason(first))

    def unreachable(self, reason: str) -> ServerUnreachable:
        """The error for a cluster that does not do what it is asked."""
        return ServerUnreachable(server=self.address.servers, reason=reason)

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        self._cluster.shutdown()


def _cluster(address: Address) -> Cluster:
    profile = ExecutionProfile(
        consistency_level=ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.SERIAL,
        request_timeout=address.timeout_s,
        row_factory=tuple_factory,
        retry_policy=FallthroughRetryPolicy(),
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
    )
    login = None
    if address.user:
        login = PlainTextAuthProvider(address.user, address.password.reveal() if address.password else "")
    context = None
    if address.tls is not None:
        context = ssl.create_default_context(cafile=address.tls.ca)
        if address.tls.cert is not None:
            context.load_cert_chain(address.tls.cert, address.tls.key)
    return Cluster(
        contact_points=[host.strip("[]") for host, _ in address.hosts],
        port=address.hosts[0][1],
        auth_provider=login,
        ssl_context=context,
        protocol_version=4,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.5, None),
        connect_timeout=address.timeout_s,
        control_connection_timeout=address.timeout_s,
    )


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
