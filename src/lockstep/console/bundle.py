"""A bundle of facts for a report of a problem: no secrets, and the payload of no record. Bounded in time and size."""

from __future__ import annotations

import io
import json
import os
import platform
import sys
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TypeVar

from lockstep import __version__
from lockstep.console.audit import redacted
from lockstep.errors import LockstepError
from lockstep.streams import views
from lockstep.streams.client import Lockstep
from lockstep.streams.shards import split_log

T = TypeVar("T")
PARTS: Mapping[str, str] = {
    "versions.json": "this program, Python, the libraries of its extras, and the machine",
    "environment.json": "variables that decide something here; only values that can't be secret",
    "bus.json": "what the bus promises, and settings of its server that would break a promise",
    "streams.json": "each stream: its settings, offsets and the groups that read it; no record",
    "groups.json": "each group: members, positions and lag",
    "models.json": "the model in force of each project, without the secrets of its connectors",
}
MEDIA_TYPE = "application/gzip"
_PACKAGES = ("lmdb", "pyspark", "pyarrow", "numba", "fastapi", "uvicorn", "confluent-kafka", "rstream", "redis",
             "hazelcast-python-client")  # fmt: skip
_HARMLESS = frozenset({"LOCKSTEP_BUS", "LOCKSTEP_STREAM_CAPACITY", "LOCKSTEP_SHARD", "LOCKSTEP_RABBITMQ_STREAM_PORT",
                       "LOCKSTEP_RESTARTS", "LOCKSTEP_VERBOSE", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR",
                       "SPARK_LOCAL_DIRS"})  # fmt: skip
"""Options of a JVM and the like may hold anything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BundleLimits:
    """How much goes into a bundle. What does not fit is counted, and the bundle says so."""

    seconds: float = 20.0
    items: int = 2_000
    """Streams, groups and projects, of each."""
    part_bytes: int = 16 << 20


@dataclass(slots=True)
class Bundle:
    """What was found out, by the names of files."""

    limits: BundleLimits
    parts: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """By part, how much of it is missing, and why."""

    def packed(self) -> bytes:
        """The file, a .tar.gz; a part that is too large is left out of it."""
        stored = {name: _printed(tree) for name, tree in self.parts.items()}
        for name, data in stored.items():
            if len(data) > self.limits.part_bytes:
                self.left_out[name] = f"all of it: it has {len(data):,} bytes, and at most {self.limits.part_bytes:,}"
        stored = {name: data for name, data in stored.items() if len(data) <= self.limits.part_bytes}
        if self.left_out:
            stored["left-out.json"] = _printed(self.left_out)
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for name, data in stored.items():
                entry = tarfile.TarInfo(f"lockstep-debug/{name}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return made.getvalue()


def bundle_of(client: Lockstep, environ: Mapping[str, str], limits: BundleLimits | None = None) -> Bundle:
    """All parts; what can't be found out is in them as an error."""
    made = bundle_of_program(environ, limits)
    budget = _Budget(client, made, client.runtime.monotonic() + made.limits.seconds)
    for name, find in _OF_BUS.items():
        try:
            made.parts[name] = find(client, budget)
        except (LockstepError, OSError) as error:
            made.parts[name] = {"error": str(error)}
    return made


def bundle_of_program(environ: Mapping[str, str], limits: BundleLimits | None = None) -> Bundle:
    """The parts that need no bus."""
    made = Bundle(limits or BundleLimits())
    made.parts = {"versions.json": versions(), "environment.json": environment(environ)}
    return made


def versions() -> dict[str, Any]:
    """This program, its Python, its libraries and the machine."""
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return {"lockstep": __version__, "python": sys.version, "platform": platform.platform(), "cpus": os.cpu_count(),
            "packages": found}  # fmt: skip


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide something here. Values are shown of those that are known to hold no secrets."""
    from lockstep.engine.model.values import HIDDEN, shown

    chosen = {name: value for name, value in environ.items() if name.startswith(("LOCKSTEP_", "JAVA_", "SPARK_"))}
    return {name: shown(name, value) if name in _HARMLESS else HIDDEN for name, value in sorted(chosen.items())}


@dataclass(frozen=True, slots=True)
class _Budget:
    """Hands out names as long as there is time and room."""

    client: Lockstep
    bundle: Bundle
    until_s: float

    def each(self, part: str, names: Iterable[str], find: Callable[[str], T]) -> Iterator[T]:
        """What is found of each name; one that is gone meanwhile is left out, as is all for which no time is left."""
        waiting = list(names)
        for number, name in enumerate(waiting):
            why = self._why_not(number)
            if why is not None:
                self.bundle.left_out[part] = f"{len(waiting) - number:,} of {len(waiting):,}: {why}"
                return
            try:
                found = find(name)
            except LockstepError as error:
                if error.code not in ("STREAM_NOT_FOUND", "GROUP_NOT_FOUND"):
                    raise
                continue
            yield found

    def _why_not(self, number: int) -> str | None:
        limits = self.bundle.limits
        if number >= limits.items:
            return f"a bundle has {limits.items:,} at most"
        is_late = self.client.runtime.monotonic() >= self.until_s
        return f"a bundle is made within {limits.seconds:g} s" if is_late else None


def _bus(client: Lockstep, _budget: _Budget) -> dict[str, Any]:
    look = getattr(client.bus, "check", None)  # embedded buses have nothing to set wrong
    found = [] if look is None else [f"{each.server}: {each.problem}" for each in look()]
    return {"bus": redacted(client.url), "promises": views.promises(client), "findings": found}


def _streams(client: Lockstep, budget: _Budget) -> list[Any]:
    readers: dict[str, set[str]] = {}
    for view in budget.each("streams.json, groups of", client.groups.names(), client.groups.describe):
        for progress in view.streams:
            for name in {progress.stream, split_log(progress.stream)[0]}:
                readers.setdefault(name, set()).add(view.name)

    def row(name: str) -> dict[str, Any]:
        found = views.stream_row(client, name, None)
        return {**found, "groups": sorted(readers.get(name, ())), "config": _config(client, name)}

    return list(budget.each("streams.json", client.streams(), row))


def _config(client: Lockstep, name: str) -> dict[str, Any]:
    from lockstep.engine.model.values import without_parts

    found = client.config(name).to_dict()
    return {field: without_parts(value) if isinstance(value, str) else value for field, value in found.items()}


def _groups(client: Lockstep, budget: _Budget) -> list[Any]:
    names = client.groups.names()
    return [views.group_row(view) for view in budget.each("groups.json", names, client.groups.describe)]


def _projects(client: Lockstep, budget: _Budget) -> dict[str, Any]:
    from lockstep.engine.model.loading import to_yaml
    from lockstep.engine.model.project import without_secrets
    from lockstep.engine.runtime.sequence.model_statement import project_graph, projects

    def model(name: str) -> tuple[str, str]:
        cluster, _, project = name.partition("\0")
        return f"{cluster}.{project}", to_yaml(without_secrets(project_graph(client.bus, cluster, project).project))

    clusters = sorted({name.split(".")[0] for name in client.bus.names() if name.endswith(".S")})
    names = [f"{cluster}\0{project}" for cluster in clusters for project in projects(client.bus, cluster)]
    return dict(budget.each("models.json", names, model))


_OF_BUS: Mapping[str, Callable[[Lockstep, _Budget], Any]] = {
    "bus.json": _bus,
    "streams.json": _streams,
    "groups.json": _groups,
    "models.json": _projects,
}


def _printed(tree: Any) -> bytes:
    return json.dumps(tree, indent=2, ensure_ascii=False, default=str).encode("utf-8", "replace")
