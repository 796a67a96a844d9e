"""Whatever a model looks like: its faults are found and told, or it can be planned and started."""

from __future__ import annotations

from itertools import pairwise

import pytest
from forms_strategies import projects
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from validation_models import chain, edges, project, sliding, source, summing, trades_model

from lockstep.engine.model.graph import evaluation_order, find_cycles
from lockstep.engine.model.plan import explain, make_plan
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.validation import compile_project, faults
from lockstep.engine.model.windows import CopyWindow, FilterWindow, UnionWindow
from lockstep.engine.reference.interpreter import Interpreter

calm = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def starts(model):
    """Everything that is made of a sound model can be made."""
    graph = compile_project(model)
    Interpreter(graph)
    assert len(explain(make_plan(graph)).data["windows"]) == len(graph.nodes)
    return graph


@pytest.mark.slow
@settings(calm, max_examples=25)
@given(projects)
def test_any_project_is_told_its_faults_or_can_be_started(model):
    found = faults(model)
    assert all(fault.place and fault.problem and fault.remedy for fault in found)
    assert len(set(found)) == len(found)
    if not found:
        starts(model)


@st.composite
def graphs(draw):
    """Parents of each of a few windows, cycles included."""
    size = draw(st.integers(1, 8))
    return [draw(st.lists(st.integers(0, size - 1), max_size=3)) for _ in range(size)]


@calm
@given(graphs())
def test_windows_are_either_ordered_or_on_or_behind_a_cycle(parents):
    order, cycles = evaluation_order(parents), find_cycles(parents)
    assert all(order.index(parent) < order.index(index) for index in order for parent in parents[index])
    assert (len(order) == len(parents)) == (cycles == [])
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        assert all(a in parents[b] for a, b in pairwise(cycle))


@calm
@given(graphs())
def test_ties_are_in_the_order_of_declaration(parents):
    # Then at every step the first window whose parents are all there comes next
    done: list[int] = []
    for index in evaluation_order(parents):
        ready = [w for w in range(len(parents)) if w not in done and set(parents[w]) <= set(done)]
        assert index == ready[0]
        done.append(index)


@st.composite
def sound_models(draw):
    """Layers of windows that fit: copies, filters, unions and sums, of one source."""
    windows, links = [source(insert_only=draw(st.booleans()))], []
    for number in range(draw(st.integers(1, 5))):
        name = f"w{number}"
        made = draw(st.sampled_from(["copy", "kept", "filter", "union"]))
        options = {
            "copy": lambda name: CopyWindow(name=name),
            "kept": lambda name: CopyWindow(name=name, retention=sliding()),
            "filter": lambda name: FilterWindow(name=name, expression="price > 1"),
            "union": lambda name: UnionWindow(name=name),
        }
        above = draw(st.lists(st.sampled_from(windows), min_size=1, max_size=2 if made == "union" else 1, unique_by=id))
        links += [f"{window.name} {name}" for window in above]
        windows.append(options[made](name))
    below = draw(st.sampled_from(windows))
    return project(*windows, summing("sum"), links=[*links, f"{below.name} sum"])


@calm
@given(sound_models())
def test_models_that_fit_have_no_faults_and_a_plan_that_holds(model):
    assert faults(model) == []
    plan = make_plan(starts(model))
    divided = {index for split in plan.splits for index in split.divided}
    sources = {split.source for split in plan.splits}
    for node in plan.graph.nodes:
        # A divided window is fed by divided ones or by the source of the split, a whole one by whole ones.
        feeders = {parent.node for parent in node.parents}
        assert feeders <= divided | sources if node.index in divided else not feeders & divided
    assert sorted(index for part in plan.components for index in part) == list(range(len(plan.graph.nodes)))


@calm
@given(st.permutations(range(7)))
def test_the_order_in_which_windows_are_declared_changes_no_plan(order):
    model = trades_model()
    (query,) = model.queries
    turned = ContinuousQuery(name="q", windows=tuple(query.windows[place] for place in order), edges=query.edges)
    plan = make_plan(compile_project(Project(name="trades", queries=(turned,))))
    assert plan.splits[0].fields == ("symbol",)
    assert len(plan.splits[0].divided) == 6


def test_the_helpers_write_edges_with_slots():
    assert [(edge.source, edge.target, edge.slot) for edge in edges("a b", "a c:2")] == [("a", "b", -1), ("a", "c", 2)]
    assert len(chain(source("x"), CopyWindow(name="y")).queries[0].edges) == 1
