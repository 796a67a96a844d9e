"""What processes use: memory of one and all its children, file pages left out, and processor time of shards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lockstep.engine.spark.query import SHARD_VARIABLE

_PROC = Path("/proc")
RUN_VARIABLE = "LOCKSTEP_BENCH_RUN"
"""Tells the processes of a run from those of others, wherever on this machine they were started."""


def tree_mb(root: int | None = None) -> float:
    """Anonymous memory of a process and everything below it; pages that a fork left shared are counted once."""
    return round(sum(map(_anonymous_kb, descendants(os.getpid() if root is None else root))) / 1024, 1)


def parts_mb(root: int | None = None) -> dict[str, float]:
    """The same by the name of the program: the driver, the JVM, the Python workers."""
    found: dict[str, float] = {}
    for pid in descendants(os.getpid() if root is None else root):
        name = "driver" if pid == (root or os.getpid()) else _name(pid)
        found[name] = round(found.get(name, 0.0) + _anonymous_kb(pid) / 1024, 1)
    return found


def descendants(root: int) -> Iterator[int]:
    """A process and its children, and theirs."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        yield pid
        waiting += children.get(pid, [])


def shard_seconds(run: str) -> dict[str, float]:
    """Processor seconds that the processes of each shard have spent so far."""
    found: dict[str, float] = {}
    for entry in _PROC.iterdir():
        variables = _environment(entry) if entry.name.isdigit() else {}
        shard = variables.get(SHARD_VARIABLE)
        if shard is not None and variables.get(RUN_VARIABLE) == run:
            found[shard] = found.get(shard, 0.0) + _seconds(entry)
    return found


def _environment(entry: Path) -> dict[str, str]:
    try:
        text = (entry / "environ").read_bytes().decode(errors="replace")
    except OSError:  # it ended meanwhile, or belongs to another user
        return {}
    return dict(each.partition("=")[::2] for each in text.split("\0"))


def _seconds(entry: Path) -> float:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _parent(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):  # it ended meanwhile
        return 0


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return "ended"


def _anonymous_kb(pid: int) -> int:
    """Its share of anonymous pages; where the kernel does not say that, all it has mapped of them."""
    for file, label in (("smaps_rollup", "Pss_Anon:"), ("status", "RssAnon:")):
        try:
            lines = (_PROC / str(pid) / file).read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            if line.startswith(label):
                return int(line.split()[1])
    return 0
