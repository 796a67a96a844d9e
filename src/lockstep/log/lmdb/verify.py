"""Checking a closed store on disk: the settings, the pages of the file, every batch of every log, and the totals.

Nothing is written, and the check does not stop at the first fault. Nobody may write to the store meanwhile; check a
copy if you can't be sure of that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lmdb
from lmdb.verify import VerifyError
from lmdb.verify import verify as check_pages

from lockstep.errors import IllegalState, LockstepError, StoreNotFound
from lockstep.log.embedded.tables import TABLES
from lockstep.log.lmdb import settings
from lockstep.log.lmdb.checking import Fault, Findings, check_tables, lines
from lockstep.log.lmdb.environment import REGISTRY
from lockstep.log.lmdb.tables import LmdbTables

__all__ = ["Fault", "Report", "verify"]

_WALK_S_MAX = 3600
_DATA = "data.mdb"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was looked at, and everything that is wrong with it."""

    folder: Path
    streams: int
    batches: int
    records: int
    stored_bytes: int
    faults: tuple[Fault, ...]

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.faults

    def lines(self) -> list[str]:
        """The faults as people read them."""
        return list(lines(list(self.faults)))


def verify(folder: Path) -> Report:
    """Check the store in a folder. Raises only if there is no folder, or if this process has the store open."""
    if not folder.is_dir():
        raise StoreNotFound(path=folder)
    if REGISTRY.has(folder):
        raise IllegalState(what=f"The store {folder}", action="be verified", reason="this process has it open")
    faults = [*_settings_faults(folder), *_page_faults(folder)]
    if not (folder / _DATA).is_file():
        found = Findings()
    elif faults or _is_short(folder):
        found = _walk_apart(folder)
    else:
        found = walk(folder)
    return Report(
        folder=folder,
        streams=found.streams,
        batches=found.batches,
        records=found.records,
        stored_bytes=found.stored_bytes,
        faults=(*faults, *found.faults),
    )


def _settings_faults(folder: Path) -> list[Fault]:
    try:
        settings.load(folder)
    except (LockstepError, OSError) as error:
        return [Fault(f"the settings: {error}")]
    return []


def _page_faults(folder: Path) -> list[Fault]:
    if not (folder / _DATA).is_file():
        return [Fault(f"there is no {_DATA}")]
    try:
        problems: list[str] = check_pages(str(folder / _DATA), subdir=False)  # type: ignore[no-untyped-call]
    except VerifyError as error:
        problems = [str(error)]
    return [Fault(f"{_DATA}: {problem}") for problem in problems]


def _is_short(folder: Path) -> bool:
    """True if the file ends before its last page: perhaps nobody needs those pages, perhaps they were cut off."""
    with _opened(folder) as environment:
        needed: int = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    return (folder / _DATA).stat().st_size < needed


def walk(folder: Path) -> Findings:
    """Check everything that the tables hold."""
    found = Findings()
    try:
        with _opened(folder) as environment:
            _check_environment(environment, found)
    except lmdb.Error as error:
        found.add(f"{_DATA} can't be read on: {error}")
    return found


def _opened(folder: Path) -> Any:
    return lmdb.open(str(folder), readonly=True, lock=False, create=False, max_dbs=len(TABLES))


def _check_environment(environment: Any, found: Findings) -> None:
    handles = {}
    for name in TABLES:
        try:
            handles[name] = environment.open_db(name.encode(), create=False)
        except lmdb.NotFoundError:
            found.add(f"table {name} is missing")
    if len(handles) == len(TABLES):
        with environment.begin() as transaction:
            check_tables(LmdbTables(transaction, handles), found)


def _walk_apart(folder: Path) -> Findings:
    """Check the tables in a process of its own: a file with broken pages may take its reader down."""
    command = [sys.executable, "-m", __name__, str(folder)]
    done = subprocess.run(command, capture_output=True, timeout=_WALK_S_MAX, check=False)  # noqa: S603 - this program
    if done.returncode != 0:
        return Findings(faults=[Fault(f"{_DATA} can't be read: its reader ended with code {done.returncode}")])
    loaded = json.loads(done.stdout)
    return Findings(**{**loaded, "faults": [Fault(**fault) for fault in loaded["faults"]]})


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(walk(Path(sys.argv[1])))))
