"""What can be asked of the engines of a project, and of those on this machine."""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep.cli.connection import bus_url, opened
from lockstep.cli.output import Output, confirm
from lockstep.errors import Conflict, NotFound, TimedOut, UsageError

if TYPE_CHECKING:
    from lockstep.engine.model.graph import Graph


def handover(options: argparse.Namespace, output: Output) -> None:
    """Let a standby lead."""
    reply = _ask(options, output, "handover", {})
    _show(output, reply, f"{reply['from']} handed over to one of: {', '.join(reply['standbys'])}.")


def persist(options: argparse.Namespace, output: Output) -> None:
    """Have one engine write a snapshot."""
    path = str(Path(options.to).resolve()) if options.to else None
    reply = _ask(options, output, "persist", {"path": path})
    _show(output, reply, f"{reply['engine']} persisted everything up to block {reply['block']:,} to {reply['path']}.")


def quiesce(options: argparse.Namespace, output: Output) -> None:
    """Wait until everything that was published before is out."""
    reply = _ask(options, output, "quiesce", {})
    _show(output, reply, f"Everything up to block {reply['block']:,} is out, {reply['events']:,} events.")


def replace(options: argparse.Namespace, output: Output) -> None:
    """Put another model in the place of the one that runs."""
    from lockstep.cli.model_files import find_window, load_graph
    from lockstep.engine.model.loading import to_yaml

    graph = load_graph(options.model)
    if options.project not in (None, graph.project.name):
        raise UsageError(reason=f"The model is of project {graph.project.name}, not of {options.project}.")
    options.project = graph.project.name
    publish = [find_window(graph, name).path for name in options.publish]
    if options.dry_run:
        _show_change(options, output, graph)
        return
    confirm(options, options.project, f"replace the model that project {options.project} runs, in all its engines")
    reply = _ask(options, output, "replace", {"model": to_yaml(graph.project), "publish": publish})
    words = f"runs from block {reply.get('block', 0):,} on" if reply["changed"] else "is the one that runs already"
    _show(output, reply, f"The model {words}.")


def reset(options: argparse.Namespace, output: Output) -> None:
    """Start of day."""
    options.project = _project(options)
    if options.dry_run:
        _show_held(options, output, "Would empty all windows, and remove everything on the inputs and out streams")
        return
    confirm(
        options, options.project, f"empty all windows of project {options.project}, and remove what is on its streams"
    )
    reply = _ask(options, output, "reset", {"force": options.force})
    _show(output, reply, f"Windows are empty after block {reply['block']:,}; numbers go on.")


def trim(options: argparse.Namespace, output: Output) -> None:
    """Trim what no snapshot and no window needs."""
    options.project = _project(options)
    if options.dry_run:
        _show_held(options, output, "Would remove what neither two snapshots nor a window needs, of at most")
        return
    confirm(options, options.project, f"remove old records from the streams of project {options.project}, for good")
    reply = _ask(options, output, "trim", {})
    _show(output, reply, "Trimmed." if reply["trimmed"] else f"Nothing was trimmed: {reply['reason']}.")


def _show_change(options: argparse.Namespace, output: Output, graph: Graph) -> None:
    """What a new model would change, and every reason why it would be refused."""
    from lockstep.engine.model.changes import compare, refusals
    from lockstep.engine.runtime.sequence.model_statement import compiled, project_statement

    with opened(bus_url(options)) as client:
        statement = project_statement(client.bus, options.cluster, options.project)
    running = compiled(statement)
    change = compare(running, graph)
    reasons = refusals(running, graph, published=frozenset(statement.publish))
    tree = {name: sorted(getattr(change, name)) for name in ("kept", "rebuilt", "added", "removed")}
    if output.json:
        output.json_line({"dry_run": True, **tree, "refused": reasons})
        return
    output.line(f"Would replace the model of {options.project}:")
    output.facts({name: ", ".join(paths) or "-" for name, paths in tree.items()})
    for reason in reasons:
        output.line(f"It would be refused: {reason}")


def _show_held(options: argparse.Namespace, output: Output, words: str) -> None:
    """The streams that a command would take records from, and how many they hold."""
    from lockstep.engine.runtime.sequence.model_statement import check_project, project_graph
    from lockstep.engine.runtime.sequence.streams import ProjectStreams, own_sources

    with opened(bus_url(options)) as client:
        check_project(client.bus, options.cluster, options.project)
        streams = ProjectStreams(cluster=options.cluster, project=options.project)
        graph = project_graph(client.bus, options.cluster, options.project)
        names = {streams.input(node) for node in own_sources(graph)} | {streams.sequence}
        names |= {streams.output(node) for node in graph.nodes}
        bounds = {name: client.bus.open(name).bounds() for name in sorted(names & set(client.bus.names()))}
    held = {name: found.next - found.first for name, found in bounds.items()}
    if output.json:
        output.json_line({"dry_run": True, "project": options.project, "records": held})
        return
    output.line(f"{words}:")
    output.table(["stream", "records"], [[name, count] for name, count in held.items()])


def _project(options: argparse.Namespace) -> str:
    """The project that is named, or the only one of the cluster."""
    from lockstep.engine.runtime.sequence.model_statement import projects

    if options.project is not None:
        return str(options.project)
    with opened(bus_url(options)) as client:
        return _only(projects(client.bus, options.cluster), options.cluster)


def state(options: argparse.Namespace, output: Output) -> None:
    """Have input taken, or not."""
    reply = _ask(options, output, "state", {"value": options.value})
    _show(output, reply, f"The project is {reply['state']}.")


def query(options: argparse.Namespace, output: Output) -> None:
    """Projects of the cluster, or what one of them is."""
    from lockstep.engine.runtime.sequence.model_statement import projects

    if options.project is None and options.what == "project":
        with opened(bus_url(options)) as client:
            names = projects(client.bus, options.cluster)
        _show(output, {"projects": names}, "\n".join(names) or "No engine has run here yet.")
        return
    reply = _shown(_ask(options, output, "query", {"what": options.what, "window": options.window or ""}))
    if output.json:
        output.json_line(dict(reply))
    elif "windows" in reply:
        rows = [[row["window"], row["kind"], "yes" if row["published"] else "", row["schema"]]
                for row in reply["windows"]]  # fmt: skip
        output.table(["window", "kind", "published", "schema"], rows)
    else:
        output.line(str(reply.get("model") or reply.get("schema") or "\n".join(reply.get("queries", []))))


def _shown(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    """The reply without the passwords that a model may hold."""
    from lockstep.engine.model.loading import parse_yaml, to_yaml
    from lockstep.engine.model.project import without_secrets

    if "model" not in reply:
        return reply
    return {**reply, "model": to_yaml(without_secrets(parse_yaml(reply["model"], "the model in force")))}


def _ask(options: argparse.Namespace, output: Output, kind: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    from lockstep.engine.runtime.control.status import project_status
    from lockstep.engine.runtime.requests.channel import RequestClient
    from lockstep.engine.runtime.sequence.model_statement import check_project, projects
    from lockstep.engine.runtime.sequence.streams import ProjectStreams

    with opened(bus_url(options)) as client:
        project = options.project or _only(projects(client.bus, options.cluster), options.cluster)
        check_project(client.bus, options.cluster, project)
        if project_status(client.bus, options.cluster, project, client.runtime.wall_ns()).active is None:
            output.warn(f"No engine of project {project} is active. Waiting at most {options.timeout:g} s for one.")
        streams = ProjectStreams(cluster=options.cluster, project=project)
        return RequestClient(client.bus, streams, client.runtime).ask(kind, params, timeout_s=options.timeout).result


def _only(names: list[str], cluster: str) -> str:
    if not names:
        error = NotFound(what="A project of cluster", name=cluster)
        error.add_note("Start an engine with 'lockstep engine run', or name the bus that it uses with --bus.")
        raise error
    if len(names) > 1:
        raise UsageError(reason=f"Say which project with --project; cluster {cluster!r} has: {', '.join(names)}.")
    return names[0]


def _show(output: Output, reply: Mapping[str, Any], words: str) -> None:
    if output.json:
        output.json_line(dict(reply))
    else:
        output.line(words)


FOLDER = ".lockstep-engine"
_LOOK_S = 0.1
_PID_DIGITS = 9


def ls(options: argparse.Namespace, output: Output) -> None:
    """List the state folders below a folder, and the processes that use them."""
    rows = [row(folder) for folder in state_folders(Path(options.folder))]
    if output.json:
        for each in rows:
            output.json_line(each)
        return
    if not rows:
        output.note(f"There is no engine in {options.folder}. Start one with 'lockstep engine run MODEL'.")
        return
    cells = [[each["name"], "running" if each["running"] else "stopped", each["pid"], each["state"]] for each in rows]
    output.table(["engine", "is", "pid", "state"], cells)


def stop(options: argparse.Namespace, output: Output) -> None:
    """Have an engine of this machine end in order, and wait until it has."""
    folder = _find(Path(options.folder), options.engine)
    found = row(folder)
    if not found["running"]:
        raise Conflict(reason=f"No engine runs in {folder}.")
    pid = found["pid"]
    if pid is None or not _holds(pid, folder / "lock"):
        raise Conflict(reason=f"The engine in {folder} is not a process of this user that can be told to end.")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + options.timeout
    while is_locked(folder):
        if time.monotonic() > end:
            raise TimedOut(what=f"Stopping the engine in {folder} (pid {pid})", seconds=options.timeout)
        time.sleep(_LOOK_S)
    if output.json:
        output.json_line({"state": str(folder), "pid": pid, "stopped": True})
    else:
        output.line(f"Stopped {found['name']} (pid {pid}).")


def state_folders(root: Path) -> list[Path]:
    """The state folders of engines: `root` itself, or those below it."""
    if (root / "lock").is_file():
        return [root]
    found = (*sorted(root.glob("*/lock")), *sorted(root.glob("*/*/lock")))
    return [path.parent for path in found if path.is_file()]


def row(folder: Path) -> dict[str, Any]:
    """Return the known facts about a state folder."""
    running = is_locked(folder)
    pid = _pid(folder / "lock") if running else None
    return {"name": folder.name, "running": running, "pid": pid, "state": str(folder)}


def _pid(lock: Path) -> int | None:
    """The process that a lock names; None if what it holds is no such number."""
    with lock.open("rb") as file:
        text = file.read(_PID_DIGITS + 2).strip()
    return int(text) if text.isdigit() and len(text) <= _PID_DIGITS else None


def is_locked(folder: Path) -> bool:
    """Whether an engine, or something of it, uses a state folder."""
    with (folder / "lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


def _find(root: Path, name: str) -> Path:
    if (Path(name) / "lock").is_file():
        return Path(name)
    known = state_folders(root)
    found = [folder for folder in known if name in (folder.name, folder.name.partition(".")[2])]
    if len(found) > 1:
        raise UsageError(reason=f"Several engines are called {name!r}: name one of {', '.join(map(str, found))}.")
    if not found:
        error = NotFound(what=f"In {root} engine", name=name)
        error.add_note(f"There are: {', '.join(folder.name for folder in known) or 'none'}.")
        raise error
    return found[0]


def _holds(pid: int, lock: Path) -> bool:
    """Whether a process has the lock open, and is one that this user may signal: the number may be another's by now."""
    try:
        os.kill(pid, 0)
        return any(link.resolve() == lock.resolve() for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
