"""The plan in words: a table for people, a tree for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.engine.model.graph import Graph
from lockstep.engine.model.guard import ClockUse, clock_dependence
from lockstep.engine.model.plan import Plan

_HEADINGS = ("window", "kind", "stage", "runs", "clock", "state", "rows in", "works on", "why")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The same twice: lines to be printed, and what they say as data."""

    lines: tuple[str, ...]
    data: dict[str, Any]


def explain(plan: Plan) -> Explanation:
    """Stages, shards, state and clock of each window, and why."""
    uses = clock_dependence(plan.graph)
    return Explanation(tuple(_lines(plan, uses)), _data(plan, uses))


def stages_of(graph: Graph) -> tuple[int, ...]:
    """For each node how many windows lie on the longest way to it: 1 for a source."""
    stages: list[int] = []
    for node in graph.nodes:
        stages.append(1 + max((stages[parent.node] for parent in node.parents), default=0))
    return tuple(stages)


def shards_in_words(plan: Plan) -> str:
    """How many shards the plan allows."""
    if plan.max_shards is None:
        return "any number of shards"
    return "1 shard" if plan.max_shards == 1 else f"up to {plan.max_shards} shards"


def _lines(plan: Plan, uses: Sequence[ClockUse]) -> list[str]:
    project = plan.graph.project
    lines = [f"{project.name}: {shards_in_words(plan)}", f"  {plan.reason}"]
    lines += [f"  not divided: {reason}" for reason in plan.obstacles if reason != plan.reason]
    lines += [""]
    lines += _table([_HEADINGS, *_rows(plan)])
    slow = [step for step in plan.steps if step.form_why]
    if slow:
        lines += ["", "Row by row, with the same answer:"]
        lines += [f"  {plan.graph.nodes[step.node].path}: {step.form_why}." for step in slow]
    if uses:
        lines += ["", "Answers that depend on a wall clock:"]
        lines += [f"  {use.path}: {use.why}. {use.remedy}" for use in uses]
    return lines


def _rows(plan: Plan) -> list[tuple[str, ...]]:
    stages = stages_of(plan.graph)
    rows: list[tuple[str, ...]] = []
    for step in plan.steps:
        node = plan.graph.nodes[step.node]
        stage = str(stages[step.node])
        row = (node.path, node.window.kind, stage, step.mode, step.clock, step.state, step.members, step.form, step.why)
        rows.append(row)
    return rows


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _data(plan: Plan, uses: Sequence[ClockUse]) -> dict[str, Any]:
    nodes, stages = plan.graph.nodes, stages_of(plan.graph)
    return {
        "project": plan.graph.project.name,
        "fingerprint": plan.graph.fingerprint,
        "max_shards": plan.max_shards,
        "reason": plan.reason,
        "not_divided": list(plan.obstacles),
        "splits": [
            {
                "source": nodes[split.source].path,
                "fields": list(split.fields),
                "divided": [nodes[index].path for index in sorted(split.divided)],
            }
            for split in plan.splits
        ],
        "components": [[nodes[index].path for index in sorted(part)] for part in plan.components],
        "windows": [
            {
                "window": nodes[step.node].path,
                "kind": nodes[step.node].window.kind,
                "schema": str(nodes[step.node].schema),
                "stage": stages[step.node],
                "mode": step.mode,
                "clock": step.clock,
                "state": step.state,
                "members": step.members,
                "form": step.form,
                "why": step.why,
                "form_why": step.form_why,
            }
            for step in plan.steps
        ],
        "clock_dependence": [use._asdict() for use in uses],
    }
