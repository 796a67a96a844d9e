"""Persisted snapshots: a folder, perhaps on a shared disk, that several engines write to and start from.

    FOLDER/00000000000000000017-ID/00000-of-00002.snapshot

One folder for each snapshot, named by the entry it was taken at; one file for each shard. A file appears whole or not
at all; a snapshot counts once the files of all its shards are there and pass their checks. What does not is refused
with the reason, and left for people to look at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.engine.errors import SnapshotRefused
from lockstep.engine.runtime.snapshots.disk import (
    check_writable,
    inside,
    is_folder,
    leftovers,
    listed,
    make_folder,
    remove,
    sync,
    unusable,
    write_aside,
)
from lockstep.engine.runtime.snapshots.format import (
    Index,
    ShardFile,
    check_file,
    file_chunks,
    page_sizes,
    read_file,
    read_head,
)
from lockstep.errors import BadArgument
from lockstep.runtime import Runtime, ThreadRuntime, logger

LEFTOVER_S = 3600.0
"""What a writer of another host left is removed when it was not touched for so long."""
_NAME = re.compile(r"(\d{20})-([A-Za-z0-9._-]{1,64})", re.ASCII)
_FILE = re.compile(r"(\d{5})-of-(\d{5})\.snapshot", re.ASCII)
_SHARDS_MAX = 99_999


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotInfo:
    """A whole snapshot."""

    name: str
    number: int
    """The entry after which it was taken, and below the last block up to there."""
    block: int
    fingerprint: str
    """Of the model."""
    belongs: str
    """To which sequence log."""
    shards: int
    bytes: int
    path: Path
    made_ns: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What looks like a snapshot: the files of one way of dividing, by shard."""

    folder: Path
    number: int
    shards: int
    files: Mapping[int, Path]


def snapshot_name(number: int, id: str) -> str:  # noqa: A002 - it is one
    """The name of the snapshot that is taken after an entry: in the order of names they are in the order of time."""
    name = f"{number:020d}-{id}"
    if not _NAME.fullmatch(name):
        raise BadArgument(name="id", value=id, reason="use 1 to 64 letters, digits, dots, dashes or underscores")
    return name


class SnapshotStore:
    """One folder of snapshots, as one engine sees it. `belongs` names its sequence log: others' are refused."""

    def __init__(self, folder: Path, belongs: str | None = None, runtime: Runtime | None = None) -> None:
        self.folder, self.belongs = folder, belongs
        self._runtime = runtime or ThreadRuntime()

    def prepare(self) -> None:
        """Make the folder if it is missing, and try whether it can be written."""
        make_folder(self.folder, may_be_link=True)
        check_writable(self.folder, self._runtime.new_id().hex())

    def write(self, *, name: str, shard: int, shards: int, head: bytes, pages: Mapping[str, bytes]) -> None:
        """Write one shard's head and pages, sealed; when this returns they survive a loss of power."""
        number = read_head(head, f"{name}, shard {shard}").position.number
        _check_place(name, shard, shards, number)
        index = Index(
            name=name, belongs=self.belongs or "", shard=shard, shards=shards,
            made_ns=self._runtime.wall_ns(), head=len(head), pages=page_sizes(pages),
        )  # fmt: skip
        make_folder(self.folder, may_be_link=True)
        final = self.folder / name / f"{shard:05d}-of-{shards:05d}.snapshot"
        write_aside(final, lambda: file_chunks(index, head, pages), self._runtime.new_id().hex())
        with unusable(self.folder):
            sync(self.folder)  # also if another shard made the snapshot's folder, and was killed since

    def complete(self) -> list[SnapshotInfo]:
        """Whole and verified ones that belong here, newest last. Reads all of them."""
        return self._judge()[0]

    def refused(self, fingerprint: str | None = None) -> list[tuple[Path, str]]:
        """Broken and foreign ones, with the reason; with a fingerprint also those of other models."""
        good, bad = self._judge()
        others = [info for info in good if fingerprint not in (None, info.fingerprint)]
        return [*bad, *((info.path, f"it is of another model, {info.fingerprint}") for info in others)]

    def newest(self, fingerprint: str | None, shards: int, upto: int | None = None) -> SnapshotInfo | None:
        """The newest good one for this number of shards, not after entry `upto`; refusals are logged.

        With a fingerprint those of other models are refused too.
        """
        for candidate in reversed(self._candidates()):
            if candidate.shards not in (0, shards) or (upto is not None and candidate.number > upto):
                continue
            try:
                info = self._info(candidate)
                if fingerprint in (None, info.fingerprint):
                    return info
                reason = f"it is of another model, {info.fingerprint}"
            except SnapshotRefused as error:
                reason = str(error.params["reason"])
            _log("A snapshot was refused", "snapshot_refused", candidate.folder, reason)
        return None

    def find(self, name: str, shards: int) -> SnapshotInfo:
        """The snapshot of that name, verified; SnapshotRefused if it is broken, foreign or gone. Reads no other."""
        place = self.folder / name
        for candidate in self._candidates():
            if (candidate.folder, candidate.shards) == (place, shards):
                return self._info(candidate)
        raise SnapshotRefused(place=place, reason=f"it is not there with {shards} shards")

    def load(self, info: SnapshotInfo, shard: int) -> dict[str, bytes]:
        """Head and pages of one shard, sealed, after all checks; SnapshotRefused if they fail or it is gone."""
        path = _shard_path(info, shard)
        found, pages = read_file(path)
        self._check(found, path, (info.name, shard, info.shards))
        if (found.head.position.number, found.head.fingerprint) != (info.number, info.fingerprint):
            raise SnapshotRefused(place=path, reason="it was replaced by another")
        return pages

    def prune(self, keep: int = 2) -> None:
        """Remove all good ones but the newest `keep`, and what killed writers left.

        They are counted apart for each owner and number of shards: one does not help the other. Damaged and foreign
        ones are never touched. One that was never finished goes when it is old and a newer good one is there.
        """
        if keep < 1:
            raise BadArgument(name="keep", value=keep, reason="the only good one is never removed")
        self._remove_leftovers()
        kinds: dict[tuple[str, int], list[SnapshotInfo]] = {}
        for info in self.complete():
            kinds.setdefault((info.belongs, info.shards), []).append(info)
        for info in [info for alike in kinds.values() for info in alike[:-keep]]:
            remove([_shard_path(info, shard) for shard in range(info.shards)], info.path)
            logger.info("A snapshot was pruned", extra={"action": "snapshot_pruned", "place": str(info.path)})
        self._remove_unfinished({belongs: alike[-1].number for (belongs, _), alike in kinds.items()})

    def _judge(self) -> tuple[list[SnapshotInfo], list[tuple[Path, str]]]:
        good: list[SnapshotInfo] = []
        bad = self._strangers()
        for candidate in self._candidates():
            try:
                good.append(self._info(candidate))
            except SnapshotRefused as error:
                bad.append((candidate.folder, str(error.params["reason"])))
        return good, bad

    def _info(self, candidate: _Candidate) -> SnapshotInfo:
        """The snapshot, if all its shards are there, whole, and of one moment."""
        _check_all_there(candidate)
        files = self._files(candidate)
        if len({_moment(file) for file in files}) > 1:
            raise SnapshotRefused(place=candidate.folder, reason="its shards are not of one moment")
        first = files[0]
        if first.head.position.number != candidate.number:
            raise SnapshotRefused(place=candidate.folder, reason="its name is of another entry")
        return SnapshotInfo(
            name=candidate.folder.name,
            number=candidate.number,
            block=first.head.position.block,
            fingerprint=first.head.fingerprint,
            belongs=first.index.belongs,
            shards=candidate.shards,
            bytes=sum(file.bytes for file in files),
            path=candidate.folder,
            made_ns=max(file.index.made_ns for file in files),
        )

    def _files(self, candidate: _Candidate) -> list[ShardFile]:
        name, shards = candidate.folder.name, candidate.shards
        return [self._checked(path, (name, shard, shards)) for shard, path in sorted(candidate.files.items())]

    def _checked(self, path: Path, wanted: tuple[str, int, int]) -> ShardFile:
        try:
            found = check_file(path)
            self._check(found, path, wanted)
        except SnapshotRefused as error:
            raise SnapshotRefused(place=path, reason=f"{path.name}: {error.params['reason']}") from error
        return found

    def _check(self, found: ShardFile, path: Path, wanted: tuple[str, int, int]) -> None:
        index = found.index
        if (index.name, index.shard, index.shards) != wanted:
            reason = f"it was written as shard {index.shard} of {index.shards} of {index.name}"
            raise SnapshotRefused(place=path, reason=reason)
        if self.belongs is not None and index.belongs != self.belongs:
            reason = f"it belongs to {index.belongs or 'nobody'}, and this is {self.belongs}"
            raise SnapshotRefused(place=path, reason=reason)

    def _folders(self) -> list[Path]:
        """The sub-folders with names of snapshots; links are none."""
        return [path for path in listed(self.folder) if _NAME.fullmatch(path.name) and is_folder(path)]

    def _strangers(self) -> list[tuple[Path, str]]:
        named = set(self._folders())
        others = [path for path in listed(self.folder) if path not in named and not path.name.startswith(".")]
        return [(path, "it is not a folder with the name of a snapshot") for path in others]

    def _candidates(self) -> list[_Candidate]:
        """Oldest first."""
        found = []
        for folder in self._folders():
            number, divided = int(folder.name[:20]), _divided(folder)
            found += [_Candidate(folder, number, shards, files) for shards, files in sorted(divided.items())]
            if not divided:
                found.append(_Candidate(folder, number, 0, {}))
        return found

    def _remove_leftovers(self) -> None:
        for folder in (self.folder, *self._folders()):
            for path, is_dead in leftovers(folder):
                if is_dead or self._is_old(path):
                    remove([path])
                    _log("What a killed writer left was removed", "snapshot_leftover", path, "its writer is gone")

    def _remove_unfinished(self, newest: Mapping[str, int]) -> None:
        """Old ones that miss shards, if a newer good one of the same owner is there: they will never be finished."""
        for candidate in self._candidates():
            is_whole = len(candidate.files) == candidate.shards > 0
            if is_whole or not all(map(self._is_old, (candidate.folder, *candidate.files.values()))):
                continue
            bounds = [newest.get(owner, 0) for owner in self._owners(candidate)]
            if not candidate.files or candidate.number < min(bounds, default=0):
                remove(candidate.files.values(), candidate.folder)
                _log("An unfinished snapshot was removed", "snapshot_unfinished", candidate.folder, "a newer is whole")

    def _owners(self, candidate: _Candidate) -> set[str]:
        """Who owns it; empty if a file is damaged or foreign, for those are left for people to look at."""
        try:
            return {file.index.belongs for file in self._files(candidate)}
        except SnapshotRefused:
            return set()

    def _is_old(self, path: Path) -> bool:
        try:
            return self._runtime.wall_ns() - path.lstat().st_mtime_ns > LEFTOVER_S * 1e9
        except OSError:
            return False


def _check_place(name: str, shard: int, shards: int, number: int) -> None:
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) != number:
        raise BadArgument(name="name", value=name, reason=f"make it with snapshot_name({number}, ID)")
    if not 0 <= shard < shards <= _SHARDS_MAX:
        raise BadArgument(name="shard", value=shard, reason=f"it must be one of {shards}")


def _check_all_there(candidate: _Candidate) -> None:
    missing = [shard for shard in range(candidate.shards) if shard not in candidate.files]
    if missing:
        reason = f"{len(missing)} of {candidate.shards} shards are missing, the first is {missing[0]}"
        raise SnapshotRefused(place=candidate.folder, reason=reason)
    if not candidate.files:
        raise SnapshotRefused(place=candidate.folder, reason="it holds no shards")


def _moment(file: ShardFile) -> tuple[object, ...]:
    """What all shards of a snapshot have in common."""
    position = file.head.position
    return position.number, position.sequence.digest, position.block, file.head.fingerprint, file.index.belongs


def _shard_path(info: SnapshotInfo, shard: int) -> Path:
    return info.path / f"{shard:05d}-of-{info.shards:05d}.snapshot"


def _divided(folder: Path) -> dict[int, dict[int, Path]]:
    """The files of a snapshot's folder by number of shards and shard."""
    found: dict[int, dict[int, Path]] = {}
    for path in inside(folder):
        match = _FILE.fullmatch(path.name)
        if match and int(match[1]) < int(match[2]):
            found.setdefault(int(match[2]), {})[int(match[1])] = path
    return found


def _log(text: str, action: str, path: Path, reason: str) -> None:
    logger.warning(text, extra={"action": action, "place": str(path), "reason": reason})
