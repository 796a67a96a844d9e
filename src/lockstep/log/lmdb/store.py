"""The store on disk: group commit within a process, LMDB's lock across processes, replicas in step."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import lmdb

from lockstep.errors import AppendUncertain, StoreFull
from lockstep.log.embedded.tables import META, Tables, nested_write
from lockstep.log.lmdb.environment import REGISTRY, Environment, ReadView
from lockstep.log.lmdb.replica import COMMIT, Mirror, commit_number
from lockstep.log.lmdb.room import throw_ballast
from lockstep.log.lmdb.tables import RecordingTables

T = TypeVar("T")

JOBS_PER_COMMIT = 256


class LmdbStore:
    """See Store."""

    def __init__(self, environment: Environment, mirror: Mirror | None = None) -> None:
        self.environment, self.mirror = environment, mirror
        self._waiting: deque[_Ticket[Any]] = deque()
        self._turn = threading.Lock()
        self._adding = False
        if mirror is not None:
            mirror.catch_up(environment)

    def read(self) -> ReadView:
        """See Store."""
        return self.environment.read()

    def write(self, job: Callable[[Tables], T]) -> T:
        """See Store.

        Whoever gets the turn commits for all threads that wait: many appends, one fsync.
        """
        self.environment.check_process()
        if self.environment.writing == threading.get_ident():
            raise nested_write()  # it would wait for itself
        ticket = _Ticket(job)
        self._waiting.append(ticket)
        with self._turn:
            while not ticket.done:
                self._commit_waiting()
        return ticket.result()

    def close(self) -> None:
        """See Store."""
        if self.mirror is not None:
            self.mirror.close()
        REGISTRY.release(self.environment)

    def _commit_waiting(self) -> None:
        tickets = [self._waiting.popleft() for _ in range(min(len(self._waiting), JOBS_PER_COMMIT))]
        try:
            self._commit(tickets)
        except BaseException:
            # This thread is being ended (interrupt); the others' jobs go back, and one of them goes on.
            self._waiting.extendleft(reversed([ticket for ticket in tickets if not ticket.done]))
            raise

    def _commit(self, tickets: list[_Ticket[Any]]) -> None:
        try:
            results = self._run([ticket.job for ticket in tickets])
        except Exception as error:  # noqa: BLE001 - handed to the thread whose job it was
            # What may have happened must not be run again here: only its caller knows whether it may happen twice.
            if len(tickets) == 1 or isinstance(error, AppendUncertain):
                for ticket in tickets:
                    ticket.fail(error)
                return
            for ticket in tickets:  # one bad job must not spoil the others
                self._commit([ticket])
            return
        for ticket, result in zip(tickets, results, strict=True):
            ticket.finish(result)

    def _run(self, jobs: list[Callable[[Tables], Any]]) -> list[Any]:
        try:
            return self._run_once(jobs)
        except StoreFull:
            if self._adding or not self._throw_ballast():
                raise
        return self._run_once(jobs)  # it deletes, and that is how room is made

    def _throw_ballast(self) -> bool:
        folders = [self.environment.path, *(self.mirror.folders if self.mirror is not None else ())]
        thrown = [throw_ballast(folder) for folder in folders]
        return any(thrown)

    def _run_once(self, jobs: list[Callable[[Tables], Any]]) -> list[Any]:
        mirrored = self._adding = False
        try:
            with self._begin() as transaction:
                tables = RecordingTables(transaction, self.environment.handles, self.environment)
                self.environment.writing = threading.get_ident()
                try:
                    results = [job(tables) for job in jobs]
                finally:
                    self._adding = tables.adds_records
                number = commit_number(tables) + 1
                tables.put(META, COMMIT, str(number).encode())
                if self.mirror is not None:
                    self.mirror.commit(number, tables)
                    mirrored = self.mirror.is_synchronous
        except lmdb.Error as error:
            failure = self.environment.failure(error)
            if mirrored:  # the replica has it, so the next writer will take it over: it is not known to have failed
                raise AppendUncertain(stream=f"lmdb:{self.environment.path}", reason=str(failure)) from error
            raise failure from error
        finally:
            self.environment.writing = None
        self.environment.after_commit()
        return results

    def _begin(self) -> Any:
        """A write transaction with the synchronous replica in step; another process may have died between the two."""
        while True:
            transaction = self.environment.begin_write()
            if self.mirror is None:
                return transaction
            try:
                if self.mirror.in_step(commit_number(self.environment.tables(transaction))):
                    return transaction
            except BaseException:
                transaction.abort()  # an error that somebody keeps must not keep the lock
                raise
            transaction.abort()
            self.mirror.catch_up(self.environment)


class _Ticket(Generic[T]):
    """A job on its way through a commit."""

    def __init__(self, job: Callable[[Tables], T]) -> None:
        self.job = job
        self.done = False
        self._result: T
        self._error: Exception | None = None

    def finish(self, result: T) -> None:
        self._result, self.done = result, True

    def fail(self, error: Exception) -> None:
        self._error, self.done = error, True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result
