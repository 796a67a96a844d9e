"""The handlers of requests to a project, which the engine that leads runs.

Each request is a generator that waits by yielding; all of them advance together, and none of them blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lockstep.engine.errors import ModelNotReplaceable, NoStandby, PublishersActive, SnapshotRefused
from lockstep.engine.model.changes import refusals
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.loading import parse_model, to_yaml
from lockstep.engine.model.validation import compile_project
from lockstep.engine.runtime.control.engine_control import EngineControl
from lockstep.engine.runtime.control.reports import FRESH_S, SILENT_S, Report
from lockstep.engine.runtime.requests.channel import Request, RequestServer
from lockstep.engine.runtime.sequence.entries import Decision, PersistPoint, Statement
from lockstep.engine.runtime.sequence.outages import BUS_AWAY
from lockstep.engine.runtime.snapshots.store import SnapshotStore
from lockstep.engine.runtime.worker.replacement import missing_history, outputs_of_others
from lockstep.errors import BadArgument, LockstepError, NotFound, TimedOut

WHAT = ("project", "queries", "windows", "schema", "model")


def describe(graph: Graph, published: frozenset[str], params: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a query: `what` is one of WHAT, `window` the path of a window for its schema."""
    what = params.get("what", "project")
    if what not in WHAT:
        raise BadArgument(name="what", value=what, reason=f"it is one of {', '.join(WHAT)}")
    windows = [_window(node, published) for node in graph.nodes]
    match what:
        case "queries":
            return {"queries": [query.name for query in graph.project.queries]}
        case "windows":
            return {"windows": windows}
        case "schema":
            return _schema(windows, str(params.get("window", "")))
        case "model":
            return {"fingerprint": graph.fingerprint, "model": to_yaml(graph.project)}
    queries = [query.name for query in graph.project.queries]
    return {"project": graph.project.name, "fingerprint": graph.fingerprint, "queries": queries, "windows": windows}


def _window(node: Node, published: frozenset[str]) -> dict[str, Any]:
    return {
        "window": node.path,
        "kind": node.window.kind,
        "schema": str(node.schema),
        "source": node.is_source,
        "published": node.path in published,
    }


def _schema(windows: list[dict[str, Any]], path: str) -> dict[str, Any]:
    found = [window for window in windows if path in (window["window"], window["window"].rpartition("/")[2])]
    if len(found) != 1:
        known = ", ".join(window["window"] for window in windows)
        error = NotFound(what="Window", name=path)
        error.add_note(f"There are: {known}.")
        raise error
    return {"window": found[0]["window"], "schema": found[0]["schema"]}


Job = Generator[None, None, Mapping[str, Any]]
JOB_S = 120.0
"""A request that is not done by then is refused."""
QUIET_S = 3.0
"""Publishers are taken for active if something came so recently."""
READY_S = 10.0
"""For so long engines are asked whether they can run a new model."""


@dataclass(slots=True)
class _Open:
    request: Request
    job: Job
    until: float


class RequestHandlers:
    """Answers requests one step at a time. Not to be shared between threads."""

    def __init__(self, engine: EngineControl, server: RequestServer) -> None:
        self._engine, self._server = engine, server
        self._open: dict[str, _Open] = {}
        self._kinds: dict[str, Callable[[Request], Job]] = {
            "query": self._query, "persist": self._persist, "quiesce": self._quiesce, "replace": self._replace,
            "handover": self._handover, "reset": self._reset, "trim": self._trim, "state": self._state,
        }  # fmt: skip

    def step(self) -> None:
        """Take what is new, and go on with what is open."""
        now = self._engine.runtime.monotonic()
        for request in self._server.waiting():
            if request.reply not in self._open:
                self._begin(request, now)
        for key, each in list(self._open.items()):
            try:
                is_done = self._advance(each, now)
            except BUS_AWAY:  # it can't go on from here: who waits asks again, and it is begun anew
                del self._open[key]
                raise
            if is_done:
                del self._open[key]

    def close(self) -> None:
        """Drop open requests: another engine leads, and clients that wait send them to it again."""
        for each in self._open.values():
            each.job.close()
        self._open.clear()

    def _begin(self, request: Request, now: float) -> None:
        kind = self._kinds.get(request.kind)
        if kind is None:
            known = ", ".join(sorted(self._kinds))
            self._server.refuse(request, BadArgument(name="kind", value=request.kind, reason=f"it is one of {known}"))
            return
        self._open[request.reply] = _Open(request, kind(request), now + JOB_S)

    def _advance(self, each: _Open, now: float) -> bool:
        """One step; true when it was answered."""
        try:
            next(each.job)
        except StopIteration as done:
            self._server.answer(each.request, done.value)
            return True
        except BUS_AWAY:
            raise
        except LockstepError as error:
            self._server.refuse(each.request, error)
            return True
        except (KeyError, TypeError, ValueError) as error:  # anybody may ask anything: that must not end the engine
            reason = f"{type(error).__name__}: {error}"
            self._server.refuse(each.request, BadArgument(name="params", value=each.request.params, reason=reason))
            return True
        if now > each.until:
            each.job.close()
            self._server.refuse(each.request, TimedOut(what=f"The request to {each.request.kind}", seconds=JOB_S))
            return True
        return False

    def _query(self, request: Request) -> Job:
        yield
        return describe(self._engine.model.graph, self._engine.model.wanted, request.params)

    def _persist(self, request: Request) -> Job:
        """One of all engines does it: a standby if there is one, so that the leader never stops."""
        engine = self._engine
        folder = request.params.get("path") or engine.snapshot_folder
        if not folder:
            raise BadArgument(name="path", value="", reason="say where to, or start engines with --persist-to")
        SnapshotStore(Path(folder)).prepare()
        by = next(iter(engine.standbys()), engine.report())
        point = PersistPoint(request.id[:16], by.incarnation, str(folder))
        is_chosen = request.id not in engine.decided.requests  # else a leader that died chose who writes it
        yield from self._decided(request, Decision(persist=point))
        while True:
            reports = engine.all_reports()
            for report in reports.values():
                if point.id in report.persisted:
                    return _persisted(report, point.id, folder)
            if is_chosen and _is_gone(by, reports.get(by.engine), engine):
                raise TimedOut(what=f"The snapshot that {by.engine} was to write", seconds=SILENT_S)
            yield

    def _quiesce(self, request: Request) -> Job:
        """Everything that is on the inputs now is out when this returns."""
        del request
        ends = {path: log.bounds().next for path, log in self._engine.inputs().items()}
        while True:
            out = self._engine.published
            if out is not None and all(out.ends.get(path, end) >= end for path, end in ends.items()):
                return {"block": out.block, "events": out.events}
            if not any(ends.values()):
                return {"block": 0, "events": 0}
            yield

    def _replace(self, request: Request) -> Job:
        """Another model, at an entry of the sequence log: every engine changes over at the same block."""
        engine = self._engine
        new = compile_project(parse_model(str(request.params["model"]), "the new model"))
        # If a leader that died decided it, it only has to be waited for.
        is_decided = request.id in engine.decided.requests
        if not is_decided:
            if new.fingerprint == engine.model.graph.fingerprint:
                return {"changed": False, "model": new.fingerprint}
            states = self._replacement(new, request.params.get("publish"))
            yield from self._prepared(request, states)
            yield from self._decided(request, Decision(states=states))
        while engine.computed_fingerprint() != new.fingerprint:
            yield
        return {"changed": True, "model": new.fingerprint, "block": engine.decided.block}

    def _prepared(self, request: Request, states: Statement) -> Job:
        """Have every engine that is alive try whether it can run a model; refuse it if one can't, or does not say."""
        engine, until = self._engine, self._engine.runtime.monotonic() + READY_S
        proposal = f"{request.id}/prepare"
        yield from self._decided(replace(request, id=proposal), Decision(prepare=states))
        while True:
            reports = engine.all_reports()
            alive = {name for name in reports if engine.board.silence_s(name) < FRESH_S} | {engine.name}
            told = {name: reports[name].ready.get(proposal) for name in alive}
            reasons = [f"Engine {name} can't run it: {reason}" for name, reason in sorted(told.items()) if reason]
            if not reasons and None not in told.values():
                return {}
            if not reasons and engine.runtime.monotonic() > until:
                words = f"did not say within {READY_S:g} s whether it can run it: wait until it is in step, or stop it."
                reasons = [f"Engine {name} {words}" for name, reason in sorted(told.items()) if reason is None]
            if reasons:
                project = engine.model.graph.project.name
                raise ModelNotReplaceable(project=project, count=len(reasons), reasons="\n".join(reasons))
            yield

    def _replacement(self, new: Graph, wanted: Iterable[str] | None) -> Statement:
        """A new model as the log states it, or why it can't be."""
        engine, old = self._engine, self._engine.model.graph
        published = engine.model.wanted
        publish = frozenset(wanted or published) & {node.path for node in new.nodes}
        reasons = refusals(old, new, published=published, shards=engine.shard_context().shards)
        reasons += missing_history(old, new, engine.shard_context(), begun=publish - published)
        reasons += outputs_of_others(new, engine.shard_context(), publish - published)
        if reasons:
            raise ModelNotReplaceable(project=old.project.name, count=len(reasons), reasons="\n".join(reasons))
        return Statement(to_yaml(new.project), tuple(sorted(publish)))

    def _handover(self, request: Request) -> Job:
        """Without a pause: every standby has computed what was published when this was asked, whichever takes over."""
        del request
        published = self._engine.published
        block = 0 if published is None else published.block
        while (able := self._standbys()) and any(report.block < block for report in able):
            yield
        self._engine.hand_over()
        return {"from": self._engine.name, "standbys": [report.engine for report in able]}

    def _standbys(self) -> list[Report]:
        found = self._engine.standbys()
        if not found:
            raise NoStandby(project=self._engine.model.graph.project.name, engine=self._engine.name)
        return found

    def _reset(self, request: Request) -> Job:
        """Start of day: windows are emptied at one entry, numbers go on, and old messages are let go."""
        engine = self._engine
        is_new = request.id not in engine.decided.requests
        if is_new and not request.params.get("force"):
            yield from self._quiet()
        ends, outputs = engine.decided.ends, {path: log.bounds().next for path, log in engine.outputs().items()}
        yield from self._decided(request, Decision(reset=True))
        decided = engine.decided
        while not self._all_computed(decided.number) or not self._is_out(decided.block):
            yield
        if is_new:
            engine.purge(ends, outputs)
        elif (found := engine.last_reset()) is not None:  # decided before; its outputs stay until the next reset
            engine.purge(found.ends, {})
        return {"block": decided.block}

    def _is_out(self, block: int) -> bool:
        """Whether everything up to a block is published, so that no engine has to compute it again."""
        published = self._engine.published
        return published is not None and published.block >= block

    def _all_computed(self, number: int) -> bool:
        """Whether all engines that were heard of a moment ago have passed an entry: what is before it may go then."""
        engine = self._engine
        alive = [report for name, report in engine.board.look().items() if engine.board.silence_s(name) < FRESH_S]
        if engine.board.watched_s() < FRESH_S:  # an engine that is alive may not have been heard yet
            return False
        others = [report for report in alive if report.engine != engine.name]
        return all(report.number >= number for report in (engine.report(), *others))

    def _quiet(self) -> Job:
        """Refuse if something comes in."""
        engine, until = self._engine, self._engine.runtime.monotonic() + QUIET_S
        before = [(log, log.bounds().next) for log in engine.inputs().values()]
        while engine.runtime.monotonic() < until:
            for log, end in before:
                if log.bounds().next != end:
                    raise PublishersActive(stream=log.name)
            yield
        return {}

    def _trim(self, request: Request) -> Job:
        """The model is stated anew first, as its statement must stay; engines start from what is published."""
        engine, states = self._engine, self._engine.statement()
        yield from self._decided(request, Decision(states=states))
        stated_at = engine.decided.stated_at
        while (out := engine.published) is None or out.stated_at < stated_at:
            yield
        return engine.trim()

    def _state(self, request: Request) -> Job:
        value = request.params.get("value")
        if value == "restored":
            return (yield from self._restore(request))
        if value not in ("running", "stopped"):
            raise BadArgument(name="value", value=value, reason="it is running, stopped or restored")
        yield from self._decided(request, Decision(running=value == "running"))
        return {"state": value}

    def _restore(self, request: Request) -> Job:
        """Throw this engine's state away, and begin with the newest snapshot and what follows it on the log."""
        engine = self._engine
        folder = request.params.get("path") or engine.snapshot_folder
        if not folder:
            raise BadArgument(name="path", value="", reason="say from where, or start engines with --persist-to")
        yield
        block = engine.restore(Path(folder))  # answered in this step: afterwards a standby may lead
        return {"state": "restored", "engine": engine.name, "block": block}

    def _decided(self, request: Request, decision: Decision) -> Job:
        """Have something decided, once however often it is asked."""
        if request.id not in self._engine.decided.requests:
            self._engine.decide(replace(decision, request=request.id))
        while request.id not in self._engine.decided.requests:
            yield
        return {}


def _is_gone(by: Report, now: Report | None, engine: EngineControl) -> bool:
    """Whether the engine that was to do something ended, was started again, or was not heard of for long."""
    if by.engine == engine.name:
        return now is None or now.incarnation != by.incarnation
    return now is None or now.incarnation != by.incarnation or engine.board.silence_s(by.engine) > SILENT_S


def _persisted(report: Report, point: str, folder: Path | str) -> Mapping[str, Any]:
    """The answer to who asked for a snapshot that is written and was verified; an error if it could not be."""
    outcome = report.persisted[point]
    if "failed" in outcome:
        raise SnapshotRefused(place=folder, reason=f"{report.engine} could not write it: {outcome['failed']}")
    return {"engine": report.engine, "block": outcome["block"], "path": str(folder)}
