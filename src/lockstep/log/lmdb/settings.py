"""What a store on disk is, written once into its folder when it is made."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lockstep.errors import BadConfig, ConfigMismatch, Forbidden, FormatTooNew, NotAStore, ParentMissing, StoreNotFound

FILE = "lockstep.json"
FORMAT = 1
MAP_BYTES_DEFAULT = 64 << 30
DURABILITIES = ("fsync", "relaxed")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everybody who opens the store gets the same; an option that differs is refused, except for a larger map."""

    identity: str
    durability: str = "fsync"
    map_bytes: int = MAP_BYTES_DEFAULT
    replica: str | None = None
    async_replica: str | None = None
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreOptions:
    """What a URL asks for; None takes what the store has, or the default for a new one."""

    durability: str | None = None
    map_bytes: int | None = None
    replica: str | None = None
    async_replica: str | None = None

    def __post_init__(self) -> None:
        if self.durability is not None and self.durability not in DURABILITIES:
            raise BadConfig(field="durability", value=self.durability, reason=f"choose {' or '.join(DURABILITIES)}")
        if self.map_bytes is not None and self.map_bytes < 1 << 20:
            raise BadConfig(field="map_bytes", value=self.map_bytes, reason="it must be at least 1048576")


Check = Callable[[Settings], None]


def _no_check(settings: Settings) -> None:
    """Nothing to refuse."""


def load_or_make(
    folder: Path, options: StoreOptions, *, create: bool, identity: str, check: Check = _no_check
) -> Settings:
    """The settings of the store in `folder`; a new store is made if `create` says so.

    `check` may refuse new settings before they are written: what is stored once, everybody gets from then on.
    """
    check_folder(folder, create=create)
    with _setup_lock(folder):
        if (folder / FILE).exists():
            return _adopt(folder, load(folder), options, check)
        if not create:
            raise StoreNotFound(path=folder)
        given = {name: value for name, value in asdict(options).items() if value is not None}
        settings = Settings(identity=identity, **given)
        check(settings)
        save(folder, settings)
        return settings


def check_folder(folder: Path, *, create: bool) -> None:
    """A folder that is, or may become, a store; anything else is named and left alone."""
    try:
        if folder.exists() and not folder.is_dir():
            raise NotAStore(path=folder, reason="it is not a folder")
        if not folder.exists():
            if not create:
                raise StoreNotFound(path=folder)
            if not folder.parent.is_dir():
                raise ParentMissing(path=folder, parent=folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
        strangers = [item.name for item in folder.iterdir() if not item.name.startswith(FILE)]
    except PermissionError as error:
        raise Forbidden(path=folder, action="opened", reason=error.strerror) from error
    if strangers and not (folder / FILE).exists():
        raise NotAStore(path=folder, reason=f"it holds {strangers[0]!r} and no {FILE}")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise Forbidden(path=folder, action="opened for writing", reason="permission denied")


def save(folder: Path, settings: Settings) -> None:
    """Write the settings so that after a crash there are the old ones or the new ones."""
    temporary = folder / f"{FILE}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(asdict(settings), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / FILE)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Make new and renamed files of a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load(folder: Path) -> Settings:
    """The settings as stored."""
    try:
        stored = json.loads((folder / FILE).read_text())
        if stored["format"] > FORMAT:
            raise FormatTooNew(what=f"The store {folder}", found=stored["format"], known=FORMAT)
        return Settings(**stored)
    except (ValueError, TypeError, KeyError) as error:
        raise NotAStore(path=folder, reason=f"its {FILE} can't be read ({error})") from error
    except PermissionError as error:
        raise Forbidden(path=folder / FILE, action="read", reason=error.strerror) from error


def _adopt(folder: Path, settings: Settings, options: StoreOptions, check: Check) -> Settings:
    """The stored settings; a replica may be added to a store that has none, and the map enlarged. Nothing else."""
    added = {}
    for name, wanted in asdict(options).items():
        stored = getattr(settings, name)
        if wanted is None or wanted == stored:
            continue
        if name in ("replica", "async_replica") and stored is None:
            added[name] = wanted
            continue
        if name == "map_bytes" and wanted > stored:
            added[name] = wanted
            continue
        raise ConfigMismatch(what="Store", name=str(folder), field=name, stored=stored, given=wanted, otherwise="")
    if added:
        settings = replace(settings, **added)
        check(settings)
        save(folder, settings)
    return settings


@contextmanager
def _setup_lock(folder: Path) -> Iterator[None]:
    """Two processes that make the same store at once must agree on one identity."""
    try:
        descriptor = os.open(folder / f"{FILE}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as error:
        raise Forbidden(path=folder, action="opened", reason=error.strerror) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
