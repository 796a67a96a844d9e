"""Projects: engines and failover, the model as a graph, windows and the rows that they hold."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lockstep.console.pages import noun
from lockstep.console.port import PAGED, Act, Asked, Kind, Parameter, Pillar, Problem, Site, Tree, View, paged
from lockstep.errors import ExtraMissing, LockstepError
from lockstep.server.access import Role
from lockstep.server.errors import RowsNotReady

if TYPE_CHECKING:
    from lockstep.console.project_watch import Model, ProjectWatch
    from lockstep.engine.model.graph import Node
    from lockstep.engine.runtime.control.status import EngineRow, ProjectStatus

CLUSTER = "local"
"""Which commands look at without --cluster."""
ASK_S, ALONE_S = 60.0, 10.0
"""How long an engine may take to answer; and how long one is waited for where none is active."""
READ_S = 0.5
"""How long one look at a window reads its out stream; the next look goes on from there."""
PROJECTS_MAX = 50
"""Projects that the home page looks at; of more it says that it does not."""
BAD_SHOWN, BAD_READ = 10, 200
"""Bad records that the page of a window shows, and how many of the newest are searched for them."""
STATES = ("stopped", "running")
VALUE = Parameter(name="value", label="State", kind=Kind.CHOICE, choices=STATES, required=True, default="stopped",
                  help="stopped: what comes in waits on the inputs")  # fmt: skip
FORCE = Parameter(name="force", label="Even while something is published", kind=Kind.FLAG, default=False,
                  help="what comes in meanwhile may be removed", option="--force")  # fmt: skip
KEY = Parameter(name="q", label="Search", help="rows whose key contains this text")


def project_views(site: Site) -> ProjectViews:
    """What the console shows of projects; ExtraMissing where the packages of engines are not installed."""
    try:
        from lockstep.console.project_watch import ProjectWatch
        from lockstep.server.rows import RowLimits, RowsOfWindows
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "lockstep":
            raise
        raise ExtraMissing(package=package, extra="engine") from error
    return ProjectViews(site, ProjectWatch(site), RowsOfWindows(site.runtime, RowLimits(seconds=READ_S)))


class ProjectViews:
    """Looks at projects through one watch, and asks their engines."""

    def __init__(self, site: Site, watch: ProjectWatch, rows: Any) -> None:
        self._site, self._watch, self._rows = site, watch, rows
        self._cluster = "" if site.cluster == CLUSTER else f" --cluster {shlex.quote(site.cluster)}"
        self._option = f"--project {{project}}{self._cluster}"
        self.watch = watch

    def start(self) -> None:
        """Listen to engines in the background. Without, who is silent is known five seconds after a page is opened."""
        self._watch.start()

    def close(self) -> None:
        """End it."""
        self._watch.close()

    def pillar(self) -> Pillar:
        """All of it."""
        return Pillar("projects", "Projects", self._views(), self._acts(), self.problems, self.figures)

    def _views(self) -> list[View]:
        project = self._option
        return [
            View(path="/projects", title="Projects", summary="Projects with their active engine, lag and problems",
                 load=self.projects, template="projects.html", parameters=PAGED, cli=f"lockstep status{self._cluster}"),
            View(path="/projects/{project}", title="Project", load=self.project, template="project.html",
                 summary="Engines and failover of a project", cli=f"lockstep status {project}"),
            View(path="/projects/{project}/graph", title="Model graph", load=self.graph, template="project_graph.html",
                 summary="Windows with the rates between them, and what limits them",
                 cli=f"lockstep engine query {project} --what model"),
            View(path="/projects/{project}/windows", title="Windows", load=self.windows,
                 summary="Windows with rows and rates", template="project_windows.html", parameters=PAGED,
                 cli=f"lockstep engine query {project} --what windows"),
            View(path="/projects/{project}/windows/{query}/{window}", title="Window", load=self.window,
                 summary="One window: schema, rows, rates, bad records", template="project_window.html",
                 parameters=(KEY, *PAGED[1:]),
                 cli=f"lockstep engine query {project} --what schema --window {{query}}/{{window}}"),
        ]  # fmt: skip

    def _acts(self) -> list[Act]:
        done, project = "/projects/{project}", self._option
        return [
            Act(path="/projects/{project}/handover", title="Hand over", summary="Let a standby lead, without a pause",
                run=lambda asked: self._ask(asked, "handover", {}), preview=self._would_hand_over, done=done,
                cli=f"lockstep engine handover {project}"),
            Act(path="/projects/{project}/persist", title="Persist", summary="Have one engine write a snapshot",
                run=lambda asked: self._ask(asked, "persist", {}), preview=self._would_persist, done=done,
                cli=f"lockstep engine persist {project}"),
            Act(path="/projects/{project}/state", title="Stop or run", fields=(VALUE,), confirm="project", done=done,
                summary="Have a project take input, or leave it on its streams for later",
                run=lambda asked: self._ask(asked, "state", {"value": asked.values["value"]}),
                preview=self._would_turn, cli=f"lockstep engine state {{value}} {project}"),
            Act(path="/projects/{project}/trim", title="Trim", role=Role.ADMIN, confirm="project", done=done,
                summary="Remove what neither a snapshot nor a window needs any more, for good",
                run=lambda asked: self._ask(asked, "trim", {}), preview=self._would_trim,
                cli=f"lockstep engine trim {project}"),
            Act(path="/projects/{project}/reset", title="Reset", role=Role.ADMIN, confirm="project", done=done,
                summary="Start of day: empty all windows, and remove old messages; numbers go on", fields=(FORCE,),
                run=lambda asked: self._ask(asked, "reset", {"force": asked.values["force"]}),
                preview=self._would_reset, cli=f"lockstep engine reset {project}"),
        ]  # fmt: skip

    # views

    def projects(self, asked: Asked) -> Tree:
        """One page of projects; only those of the page are looked at."""
        shown, page = paged(self._watch.names(), asked)
        return {"projects": [self._project_row(name) for name in shown], "page": page}

    def _project_row(self, name: str) -> dict[str, Any]:
        try:
            status = self._watch.status(name)
        except LockstepError as error:  # not readable: the list goes on
            return {"name": name, "error": str(error), "problems": []}
        rates, worst = self._watch.rates(name), _worst_standby(status)
        return {
            "name": name, "error": None, "state": status.state, "active": status.active, "epoch": status.epoch,
            "published": status.published, "sequenced": status.sequenced, "takeovers": status.takeovers,
            "rate": None if rates is None else rates.events, "engines": len(status.engines),
            "lag_s": None if worst is None else worst.lag_s, "lag_blocks": None if worst is None else worst.lag_blocks,
            "problems": list(status.problems),
        }  # fmt: skip

    def project(self, asked: Asked) -> Tree:
        """Engines, takeovers, streams and problems."""
        status = self._watch.status(asked.names["project"])
        tree, rates = status.tree(), self._watch.rates(status.project)
        problems = self._watch.problems(status.project)
        del tree["windows"]
        return {
            **tree, "name": status.project, "problems": [problem.tree() for problem in problems],
            "rate": None if rates is None else rates.events, "has_standby": _worst_standby(status) is not None,
            **self._takeovers(status),
        }  # fmt: skip

    def _takeovers(self, status: ProjectStatus) -> dict[str, Any]:
        """Return who led when, and whether earlier epochs are no longer known."""
        leads, names = self._watch.history(status)
        now = {row.incarnation: row for row in status.engines}
        rows: list[dict[str, Any]] = []
        for lead in leads:
            past, row = names.get(lead.incarnation), now.get(lead.incarnation)
            is_now = row is not None and row.role == "active" and not any(known["is_now"] for known in rows)
            rows.append({
                "epoch": lead.epoch, "engine": lead.engine, "incarnation": lead.incarnation, "host": lead.host,
                "at_ms": None if lead.at_ns is None else lead.at_ns // 10**6,
                "is_now": is_now, "now": "leads" if is_now else _since_then(row, past.state if past else None),
            })  # fmt: skip
        oldest = leads[-1].epoch if leads else 0
        return {"leads": rows, "leads_left_out": max(0, oldest - 1)}

    def graph(self, asked: Asked) -> Tree:
        """The model in force."""
        from lockstep.console.project_graph import graph_tree

        status = self._watch.status(asked.names["project"])
        model = self._watch.model(status.project)
        rates = self._watch.rates(status.project)
        waiting = self._waiting(status, model)
        return {
            "name": status.project, "epoch": status.epoch, "state": status.state, "model": model.graph.fingerprint,
            "rate_s": None if rates is None else rates.seconds,
            **graph_tree(status, model.graph, frozenset(model.statement.publish), rates, waiting),
        }  # fmt: skip

    def _waiting(self, status: ProjectStatus, model: Model) -> dict[str, int]:
        """Records on the input of each source that are not published yet."""
        from lockstep.engine.runtime.sequence.beats import last_beat
        from lockstep.engine.runtime.sequence.streams import sources
        from lockstep.log.offsets import records_between

        streams = self._watch.streams(status.project)
        position = last_beat(self._watch.bus.open(streams.control)).position or {}
        ends, found = position.get("ends") or {}, {}
        for node in sources(model.graph):
            with suppress(LockstepError):  # a stream of another project may be gone
                log = self._watch.bus.open(streams.input(node))
                bounds = log.bounds()
                found[node.path] = records_between(log, max(bounds.first, ends.get(node.path, 0)), bounds.next)
        return found

    def windows(self, asked: Asked) -> Tree:
        """One page of windows, in the order of evaluation."""
        status = self._watch.status(asked.names["project"])
        model = self._watch.model(status.project)
        nodes = {node.path: node for node in model.graph.nodes}
        shown, page = paged(list(nodes), asked)
        rows = [self._window_row(status, model, nodes[path]) for path in shown]
        return {"name": status.project, "windows": rows, "page": page}

    def _window_row(self, status: ProjectStatus, model: Model, node: Node) -> dict[str, Any]:
        from lockstep.console.project_graph import window_link
        from lockstep.console.project_watch import counts_of

        dumped, rates = status.counts.get(node.path), self._watch.rates(status.project)
        counts = None if dumped is None else counts_of(dumped)
        return {
            "window": node.path, "kind": node.window.kind, "schema": str(node.schema),
            "link": window_link(status.project, node), "is_published": node.path in model.statement.publish,
            "rows": None if counts is None else counts.rows, "in": None if counts is None else counts.taken,
            "out": None if counts is None else counts.made, "bad": None if counts is None else dict(counts.bad),
            "in_rate": None if rates is None else rates.taken.get(node.path),
            "out_rate": None if rates is None else rates.made.get(node.path),
        }  # fmt: skip

    def window(self, asked: Asked) -> Tree:
        """Schema, rows, rates, bad records and connectors of one window."""
        status = self._watch.status(asked.names["project"])
        model = self._watch.model(status.project)
        node = _node(model, f"{asked.names['query']}/{asked.names['window']}")
        streams = self._watch.streams(status.project)
        return {
            "name": status.project, **self._window_row(status, model, node), "block": status.published,
            "fields": [{"name": field.name, "type": field.type.value, "key": field.key} for field in node.schema],
            "parents": [model.graph.nodes[parent.node].path for parent in node.parents],
            "input": streams.input(node) if node.is_source else None,
            "output": streams.output(node) if node.path in model.statement.publish else None,
            "connectors": _connectors(node), "held": self._held(asked, model, node),
            "bad_stream": streams.bad, "bad_records": self._bad_records(streams.bad, node.path),
        }  # fmt: skip

    def _held(self, asked: Asked, model: Model, node: Node) -> dict[str, Any]:
        """The rows of one page; or in words why they are not known."""
        if node.path not in model.statement.publish:
            known = ", ".join(model.statement.publish[:5]) or "none"
            why = f"The window is not published, so that its rows stay in the engines. Published: {known}."
            return _not_held(why, f"lockstep engine run MODEL --publish {node.path}")
        try:
            log = self._watch.bus.open(self._watch.streams(asked.names["project"]).output(node))
            block, rows = self._rows.now(log, node, model.graph.fingerprint)
        except RowsNotReady as error:
            done, total = error.params["done"], error.params["total"]
            why = f"The rows are being read from the out stream: {done:,} of {total:,} records so far."
            return _not_held(why, "")
        except LockstepError as error:
            follow = f"lockstep engine subscribe MODEL --window {node.path} --snapshot"
            return _not_held(type(error).template.format(**error.params), follow)
        return {"why": None, "command": None, "block": block, **_row_page(rows, node, asked)}

    def _bad_records(self, stream: str, path: str) -> list[dict[str, Any]]:
        """The newest bad records of a window, newest first, as far as the newest of the project hold any."""
        from lockstep.engine.runtime.sequence.reader import values_between
        from lockstep.log.offsets import step_back

        found = []
        with suppress(LockstepError):  # a project of an older version has no such stream
            log = self._watch.bus.open(stream)
            bounds = log.bounds()
            start = step_back(log, bounds.next, BAD_READ, bounds.first)
            found = [_bad_row(value) for _, value in values_between(log, start, bounds.next)]
        return [row for row in reversed(found) if row["window"] == path][:BAD_SHOWN]

    # acts

    def _ask(self, asked: Asked, kind: str, params: Mapping[str, Any]) -> Tree:
        """Send a request to the active engine; raises the error that it replies with."""
        from lockstep.engine.runtime.requests.channel import RequestClient

        status = self._watch.status(asked.names["project"])
        asker = RequestClient(self._watch.bus, self._watch.streams(status.project), self._site.runtime)
        return asker.ask(kind, params, timeout_s=ASK_S if status.active else ALONE_S).result

    def _would_hand_over(self, asked: Asked) -> Tree:
        status = self._watch.status(asked.names["project"])
        able = _able(status)
        if status.active is None:
            return {"effect": _nobody(status)}
        if not able:
            reason = "No standby is in step and was heard in the last seconds, so that it would be refused."
            return {"effect": reason, "rows": _roles(status, {})}
        after = {status.active: "standby"} | {row.engine: "active, or standby" for row in able}
        if len(able) == 1:
            after[able[0].engine] = "active"
        late = [row for row in able if row.lag_blocks]
        words = "".join(f" {row.engine} has {row.lag_blocks:,} blocks to compute first." for row in late)
        effect = f"{' or '.join(row.engine for row in able)} leads in a new epoch, and {status.active} follows."
        return {"effect": f"{effect}{words} Nothing is lost, and nothing comes out twice.",
                "rows": _roles(status, after)}  # fmt: skip

    def _would_persist(self, asked: Asked) -> Tree:
        status = self._watch.status(asked.names["project"])
        if status.active is None:
            return {"effect": _nobody(status)}
        able = [row.engine for row in _able(status)]
        writer = " or ".join(able) or f"{status.active}, which leads, as there is no standby: it pauses meanwhile"
        last = f"the newest one is of block {status.snapshot_block:,}" if status.snapshot_block else "there is none yet"
        effect = f"A snapshot of block {status.sequenced:,} or later is written by {writer}; {last}. Engines that were"
        return {"effect": f"{effect} started without --persist-to refuse."}

    def _would_turn(self, asked: Asked) -> Tree:
        status, value = self._watch.status(asked.names["project"]), asked.values["value"]
        rows = [{"project": status.project, "state before": status.state, "state after": value}]
        if status.active is None:
            return {"effect": _nobody(status), "rows": rows}
        if status.state == value:
            return {"effect": f"The project is {value} already: nothing changes.", "rows": rows}
        if value == "stopped":
            effect = "Nothing more is taken from the inputs. What comes in waits there; engines go on, and keep rows."
            return {"effect": effect, "rows": rows}
        count = sum(self._waiting(status, self._watch.model(status.project)).values())
        return {"effect": f"Input is taken again, beginning with {count:,} records that wait.", "rows": rows}

    def _would_trim(self, asked: Asked) -> Tree:
        status = self._watch.status(asked.names["project"])
        model, streams = self._watch.model(status.project), self._watch.streams(status.project)
        rows = self._records([streams.sequence, *self._own_inputs(model, status.project)])
        effect = ("Of these streams goes what neither the two newest snapshots nor the past of a window needs; the "
                  "engines know how much that is. Without two snapshots nothing goes.")  # fmt: skip
        return {"effect": effect if status.active else _nobody(status), "rows": rows}

    def _would_reset(self, asked: Asked) -> Tree:
        status = self._watch.status(asked.names["project"])
        model, streams = self._watch.model(status.project), self._watch.streams(status.project)
        out = [streams.output(node) for node in model.graph.nodes if node.path in model.statement.publish]
        rows = self._records([*self._own_inputs(model, status.project), *out])
        removed, held = sum(row["records"] for row in rows), sum(row["rows"] for row in status.windows())
        effect = (f"All {len(model.graph.nodes)} windows are emptied: {held:,} rows go, and {removed:,} records on the "
                  "inputs and out streams, for good.")  # fmt: skip
        if not asked.values["force"]:
            effect += " It is refused while something is being published."
        return {"effect": effect if status.active else _nobody(status), "rows": rows}

    def _own_inputs(self, model: Model, project: str) -> list[str]:
        from lockstep.engine.runtime.sequence.streams import own_sources

        return [self._watch.streams(project).input(node) for node in own_sources(model.graph)]

    def _records(self, streams: Sequence[str]) -> list[dict[str, Any]]:
        from lockstep.log.offsets import records_between

        present = self._site.names.present()
        rows = []
        for name in sorted(present.intersection(streams)):
            log = self._watch.bus.open(name)
            bounds = log.bounds()
            rows.append({"stream": name, "records": records_between(log, bounds.first, bounds.next)})
        return rows

    # the home page

    def figures(self) -> list[tuple[str, str, str]]:
        """How many there are, how many have an active engine, and the worst lag of a standby."""
        names = self._watch.names()
        found = [status for status in map(self._status_or_none, names[:PROJECTS_MAX]) if status is not None]
        figures = [(noun(len(names), "project"), f"{len(names):,}", "/projects")]
        if found:
            led = sum(status.active is not None for status in found)
            figures.append(("projects with an active engine", f"{led:,} of {len(found):,}", "/projects"))
        worst = max((row.lag_s for row in map(_worst_standby, found) if row is not None), default=None)
        if worst is not None:
            figures.append(("lag of the worst standby", f"{worst:,.1f} s", "/projects"))
        if found:
            figures.append(
                ("takeovers by engines that run", f"{sum(status.takeovers for status in found):,}", "/projects")
            )
        return figures

    def problems(self) -> list[Problem]:
        """Return the problems of the first projects, and a note that the others were not checked."""
        names = self._watch.names()
        found: list[Problem] = []
        for name in names[:PROJECTS_MAX]:
            try:
                found += self._watch.problems(name)
            except LockstepError as error:
                found.append(Problem(severity="warning", title=f"Project {name} can't be read", reason=str(error),
                                     link="/projects", command=f"lockstep status --project {name}",
                                     area="projects"))  # fmt: skip
        if len(names) > PROJECTS_MAX:
            reason = f"The home page looks at the first {PROJECTS_MAX} of {len(names):,}."
            found.append(Problem(severity="warning", title=f"{len(names) - PROJECTS_MAX:,} projects were not looked at",
                                 reason=reason, link="/projects", command="lockstep status",
                                 area="projects"))  # fmt: skip
        return found

    def _status_or_none(self, name: str) -> ProjectStatus | None:
        try:
            return self._watch.status(name)
        except LockstepError:
            return None


def _worst_standby(status: ProjectStatus) -> EngineRow | None:
    """The standby that lags most; None if there is none, which is not a lag of 0."""
    standbys = [row for row in status.engines if row.role == "standby"]
    return max(standbys, key=lambda row: (row.lag_s, row.lag_blocks), default=None)


def _since_then(row: EngineRow | None, said: str | None) -> str:
    """What became of an engine that led."""
    if row is not None:
        return {"active": "leads again", "standby": "runs as a standby", "silent": "is silent", "stopped": "ended"}[
            row.role
        ]
    return "ended" if said == "stopping" else "is gone" if said is not None else "not known"


def _able(status: ProjectStatus) -> list[EngineRow]:
    """Standbys that can lead at once, as the active engine sees it."""
    from lockstep.engine.runtime.control.reports import FRESH_S

    standbys = [row for row in status.engines if row.role == "standby" and row.said == "standby"]
    return [row for row in standbys if row.state == "running" and row.report_age_s < FRESH_S]


def _roles(status: ProjectStatus, after: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"engine": row.engine, "role before": row.role, "role after": after.get(row.engine, row.role)}
            for row in status.engines]  # fmt: skip


def _nobody(status: ProjectStatus) -> str:
    return f"No engine of {status.project} is active: one is waited for at most {ALONE_S:g} s, then it is refused."


def _node(model: Model, path: str) -> Node:
    from lockstep.engine.errors import WindowNotFound

    node = model.graph.find(path)
    if node is None or node.path != path:
        known = ", ".join(node.path for node in model.graph.nodes[:12])
        raise WindowNotFound(model=model.graph.project.name, what="window", name=path, known=known)
    return node


def _connectors(node: Node) -> list[dict[str, Any]]:
    """Connectors of a window without what is secret in them."""
    from lockstep.engine.model.values import shown

    return [
        {"kind": one.kind, "name": one.name, "active": one.active,
         "properties": [[name, shown(name, value)] for name, value in one.properties]}
        for one in node.window.connectors
    ]  # fmt: skip


def _not_held(why: str, command: str) -> dict[str, Any]:
    return {"why": why, "command": command, "block": None, "rows": None, "page": None}


def _row_page(rows: Sequence[Any], node: Node, asked: Asked) -> dict[str, Any]:
    """The rows of one page, as texts, whose key contains what is searched for."""
    from lockstep.engine.events.text import formatter

    writers = [formatter(field.type) for field in node.schema]
    wanted, keys = asked.values["q"].lower(), node.schema.keys
    if wanted:
        found = [
            row for row in rows if any(row[at] is not None and wanted in writers[at](row[at]).lower() for at in keys)
        ]
    else:
        found = list(rows)
    size = asked.values["size"]
    pages = max(1, -(-len(found) // size))
    page = min(asked.values["page"], pages)
    shown = [[None if value is None else write(value) for write, value in zip(writers, row, strict=True)]
             for row in found[(page - 1) * size : page * size]]  # fmt: skip
    told = {"page": page, "pages": pages, "size": size, "total": len(found), "all": len(rows)}
    return {"rows": shown, "page": told}


def _bad_row(value: bytes) -> dict[str, Any]:
    import json

    try:
        tree = json.loads(value)
        return {name: tree[name] for name in ("window", "block", "reason", "detail")}
    except (ValueError, KeyError, TypeError):  # a record that another program wrote
        return {"window": "", "block": None, "reason": "", "detail": ""}
