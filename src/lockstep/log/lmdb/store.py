"""The store on disk: group commit within a process, LMDB's lock across processes, replicas in step."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import lmdb

from lockstep.errors import AppendUncertain, LockstepError, StoreFull
from lockstep.log.embedded.tables import META, Store, Tables, nested_write
from lockstep.log.lmdb.environment import REGISTRY, Environment, ReadView, WriteTransaction
from lockstep.log.lmdb.replica import COMMIT, Mirror, commit_number
from lockstep.log.lmdb.tables import RecordingTables, delete_ballast

T = TypeVar("T")

JOBS_PER_COMMIT = 256
_INTERRUPTED = "the thread that committed it was interrupted"


class LmdbStore(Store):
    """The tables in an LMDB folder, with group commit for the threads of this process."""

    def __init__(self, environment: Environment, mirror: Mirror | None = None) -> None:
        self.environment, self.mirror = environment, mirror
        self._waiting: deque[_Ticket[Any]] = deque()
        self._turn = threading.Lock()
        self._leading: int | None = None
        self._adds_data = self._adds_group_records = self._mirrored = False
        if mirror is not None:
            mirror.catch_up(environment)

    def read(self) -> ReadView:
        return self.environment.read()

    def write(self, job: Callable[[Tables], T]) -> T:
        """Commit the job, together with those of other threads that wait: many appends, one fsync.

        An interrupt can end the committing thread at any point. So a ticket is marked before it can be stored, and one
        that is marked is never run again.
        """
        self.environment.check_process()
        if threading.get_ident() in (self.environment.writing, self._leading):
            raise nested_write()  # it would wait for itself
        ticket = _Ticket(job)
        try:
            self._waiting.append(ticket)
            with self._turn:
                self._settle(ticket)
        except BaseException:
            ticket.withdrawn = True
            self._remove(ticket)
            raise
        return ticket.result()

    def close(self) -> None:
        try:
            if self.mirror is not None:
                self.mirror.close()
        finally:
            REGISTRY.release(self.environment)

    def _settle(self, own: _Ticket[Any]) -> None:
        """With the turn: commit this ticket, unless somebody did; those of others that wait go with it."""
        if own.done:
            return
        # The committer was interrupted after the commit and before it reported; it may be stored.
        if own.may_be_stored:
            raise self._uncertain(_INTERRUPTED)
        self._leading = threading.get_ident()
        try:
            self._commit(self._take(own))
        finally:
            self._leading = None

    def _take(self, own: _Ticket[Any]) -> list[_Ticket[Any]]:
        """The tickets of the next commit. One that is lost here is taken by its own thread when that has the turn."""
        if threading.current_thread() is threading.main_thread():
            self._remove(own)
            return [own]  # signals interrupt this thread, and what they raise must not meet the jobs of others
        taken = [own]
        with suppress(IndexError):  # an interrupted thread takes its own out meanwhile
            while len(taken) < JOBS_PER_COMMIT:
                ticket = self._waiting.popleft()
                if ticket is not own and ticket.is_wanted:
                    taken.append(ticket)
        return taken

    def _remove(self, ticket: _Ticket[Any]) -> None:
        with suppress(ValueError):
            self._waiting.remove(ticket)

    def _commit(self, tickets: list[_Ticket[Any]]) -> None:
        try:
            results = self._run(tickets)
        except Exception as error:  # noqa: BLE001 - handed to the thread whose job it was
            self._commit_the_rest(tickets, error)
            return
        for ticket, result in zip(tickets, results, strict=True):
            ticket.finish(result)

    def _commit_the_rest(self, tickets: list[_Ticket[Any]], error: Exception) -> None:
        rest = [ticket for ticket in tickets if not ticket.done]
        if len(tickets) == 1 or any(ticket.may_be_stored for ticket in rest):
            # What may have happened must not be run again here: only its caller knows whether it may happen twice.
            known = len(tickets) == 1 or isinstance(error, AppendUncertain)
            for ticket in rest:
                ticket.fail(error if known else self._uncertain(str(error)))
            return
        for ticket in rest:  # one bad job must not spoil the others
            self._commit([ticket])

    def _run(self, tickets: list[_Ticket[Any]]) -> list[Any]:
        remedies = iter((self._make_room, self._throw_ballast))
        while True:
            try:
                return self._run_once(tickets)
            except StoreFull:
                if not any(remedy() for remedy in remedies):  # each is tried once
                    raise

    def _make_room(self) -> bool:
        """Find room that this process does not know of, in the store and its copies; whether there is some."""
        made = [environment.make_room() for environment in self._environments()]
        return any(made)

    def _throw_ballast(self) -> bool:
        """For those that delete, as that is how room is made, and for groups; whether it was thrown."""
        if self._adds_data:
            return False
        thrown = [delete_ballast(one.path, for_groups=self._adds_group_records) for one in self._environments()]
        return any(thrown)

    def _environments(self) -> list[Environment]:
        return [self.environment, *(self.mirror.copies if self.mirror is not None else ())]

    def _run_once(self, tickets: list[_Ticket[Any]]) -> list[Any]:
        self._adds_data = self._adds_group_records = self._mirrored = False
        try:
            with self.environment.gate, self._begin() as transaction:
                results = self._prepare(transaction, tickets)
        except lmdb.Error as error:
            failure = self.environment.failure(error)
            if self._mirrored:  # the replica has it, so the next writer will take it over: it may yet happen
                raise self._uncertain(str(failure)) from error
            _mark(tickets, may_be_stored=False)
            raise failure from error
        except LockstepError:
            _mark(tickets, may_be_stored=False)
            raise
        self.environment.after_commit()
        return results

    def _prepare(self, transaction: Any, tickets: list[_Ticket[Any]]) -> list[Any]:
        """Everything up to the commit."""
        tables = RecordingTables(transaction, self.environment.handles, self.environment)
        self.environment.writing = threading.get_ident()
        try:
            results = [ticket.run(tables) for ticket in tickets]
            number = commit_number(tables) + 1
            tables.put(META, COMMIT, str(number).encode())
            _mark(tickets, may_be_stored=True)
            if self.mirror is not None:
                self.mirror.commit(number, tables)
                self._mirrored = self.mirror.is_synchronous
            return results
        finally:
            self.environment.writing = None  # while the lock is held: afterwards another connection may be writing
            self._adds_data, self._adds_group_records = tables.adds_data, tables.adds_group_records

    def _uncertain(self, reason: str) -> AppendUncertain:
        return AppendUncertain(stream=f"lmdb:{self.environment.path}", reason=reason)

    def _begin(self) -> WriteTransaction:
        """A write transaction with the synchronous replica in step; another process may have died between the two."""
        while True:
            writing = self.environment.begin_write()
            if self.mirror is None:
                return writing
            try:
                if self.mirror.in_step(commit_number(self.environment.tables(writing.transaction))):
                    return writing
            except BaseException:
                writing.abort()  # an error that somebody keeps must not keep the lock
                raise
            writing.abort()
            self.mirror.catch_up(self.environment)


class _JobEndsItsThread(Exception):
    """A job raised SystemExit or the like."""


class _Ticket(Generic[T]):
    """A job on its way through a commit."""

    def __init__(self, job: Callable[[Tables], T]) -> None:
        self._job = job
        self.done = False
        self.withdrawn = False
        self.may_be_stored = False
        self._result: T
        self._error: BaseException | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether it is still to be run."""
        return not (self.done or self.withdrawn or self.may_be_stored)

    def run(self, tables: Tables) -> T:
        try:
            return self._job(tables)
        except Exception:
            raise
        except BaseException as error:  # for the thread whose job it is, and not for the one that runs it
            self.fail(error)
            raise _JobEndsItsThread from error

    def finish(self, result: T) -> None:
        self._result, self.done = result, True

    def fail(self, error: BaseException) -> None:
        self._error, self.done = error, True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result


def _mark(tickets: list[_Ticket[Any]], *, may_be_stored: bool) -> None:
    for ticket in tickets:
        ticket.may_be_stored = may_be_stored
