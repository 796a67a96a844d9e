"""A bundle of facts for a report of a problem, without secrets and without the payload of any record."""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import sys
import tarfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep import __version__
from lockstep.cli.bus import findings
from lockstep.cli.connecting import bus_url, opened
from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, Verb
from lockstep.errors import LockstepError
from lockstep.log.urls import without_secret
from lockstep.streams import views

if TYPE_CHECKING:
    from lockstep.streams.client import Lockstep

_PACKAGES = ("lmdb", "pyspark", "pyarrow", "numba", "fastapi", "uvicorn", "confluent-kafka", "rstream", "redis",
             "hazelcast-python-client")  # fmt: skip

_HARMLESS = frozenset({"LOCKSTEP_BUS", "LOCKSTEP_STREAM_CAPACITY", "LOCKSTEP_SHARD", "LOCKSTEP_RABBITMQ_STREAM_PORT",
                       "LOCKSTEP_RESTARTS", "LOCKSTEP_VERBOSE", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR",
                       "SPARK_LOCAL_DIRS"})  # fmt: skip
"""Options of a JVM and the like may hold anything."""
_OWNER_ONLY = 0o600


def _bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", metavar="FILE", default="lockstep-debug.tar.gz",
                        help="where to (lockstep-debug.tar.gz)")  # fmt: skip


DEBUG = Noun(
    name="debug",
    purpose="Facts for a report of a problem.",
    verbs=(
        Verb(
            name="bundle",
            purpose="Write versions, settings, streams, groups and models into one file: no records, no secrets.",
            run="lockstep.cli.debug:bundle",
            arguments=_bundle,
            examples=("lockstep debug bundle", "lockstep debug bundle -o report.tar.gz --bus kafka://127.0.0.1:9092"),
        ),
    ),
)


def bundle(options: argparse.Namespace, output: Output) -> None:
    """Write the file; what can't be found out is in it as an error."""
    from lockstep.cli.model_files import write_file

    parts: dict[str, Any] = {"versions.json": versions(), "environment.json": environment(os.environ)}
    url = bus_url(options)
    try:
        with opened(url) as client:
            for name, find in _OF_BUS.items():
                parts[name] = _or_error(find, client)
    except (LockstepError, OSError) as error:
        parts["bus.json"] = {"bus": without_secret(url), "error": str(error)}
    write_file(Path(options.out), _packed(parts), mode=_OWNER_ONLY)
    if output.json:
        output.json_line({"file": options.out, "parts": sorted(parts)})
    else:
        output.line(f"Wrote {options.out}: {', '.join(sorted(parts))}.")


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
    from lockstep.engine.model.secret_values import HIDDEN, shown

    chosen = {name: value for name, value in environ.items() if name.startswith(("LOCKSTEP_", "JAVA_", "SPARK_"))}
    return {name: shown(name, value) if name in _HARMLESS else HIDDEN for name, value in sorted(chosen.items())}


def _or_error(find: Callable[[Lockstep], Any], client: Lockstep) -> Any:
    try:
        return find(client)
    except (LockstepError, OSError) as error:
        return {"error": str(error)}


def _bus(client: Lockstep) -> dict[str, Any]:
    found = [f"{each.server}: {each.problem}" for each in findings(client.bus)]
    return {"bus": without_secret(client.url), "promises": views.promises(client), "findings": found}


def _streams(client: Lockstep) -> list[Any]:
    groups = views.group_views(client)
    return [{**views.stream_row(client, name, groups), "config": _config(client, name)} for name in client.streams()]


def _config(client: Lockstep, name: str) -> dict[str, Any]:
    from lockstep.engine.model.secret_values import without_parts

    found = client.config(name).to_dict()
    return {field: without_parts(value) if isinstance(value, str) else value for field, value in found.items()}


def _groups(client: Lockstep) -> list[Any]:
    return [views.group_row(view) for view in views.group_views(client)]


def _projects(client: Lockstep) -> dict[str, Any]:
    from lockstep.engine.model.loading import to_yaml
    from lockstep.engine.model.redaction import without_secrets
    from lockstep.engine.runtime.sequence.model_statement import project_graph, projects

    names = client.bus.names()
    clusters = {name.split(".")[0] for name in names if name.endswith(".S")}
    return {
        f"{cluster}.{name}": to_yaml(without_secrets(project_graph(client.bus, cluster, name).project))
        for cluster in sorted(clusters)
        for name in projects(client.bus, cluster)
    }


_OF_BUS: Mapping[str, Callable[[Lockstep], Any]] = {
    "bus.json": _bus,
    "streams.json": _streams,
    "groups.json": _groups,
    "models.json": _projects,
}


def _packed(parts: Mapping[str, Any]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, tree in parts.items():
            data = json.dumps(tree, indent=2, ensure_ascii=False, default=str).encode()
            entry = tarfile.TarInfo(f"lockstep-debug/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return made.getvalue()
