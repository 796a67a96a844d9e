from __future__ import annotations

from pathlib import Path

import forms_strategies as forms
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lockstep.engine.errors import BadSchema, ModelUnreadable
from lockstep.engine.model.loading import load_model, to_python
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.windows import CopyWindow

TRADES = Path(__file__).parents[2] / "examples" / "trades"

# Projects are large: finding a smaller one that fails too takes longer than reading the first.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
RANDOM = settings(max_examples=30, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("models") / "model.py"


@pytest.mark.slow
@pytest.mark.parametrize("kind", forms.BODIES, ids=lambda kind: kind.kind)
@settings(RANDOM, max_examples=15)
@given(data=st.data())
def test_every_kind_of_window_comes_back_from_python_as_it_was(kind, data, file):
    project = forms.project_of(data.draw(forms.windows_of(kind)))
    file.write_text(to_python(project), encoding="utf-8", newline="")
    assert load_model(file) == project


@pytest.mark.slow
@RANDOM
@given(project=forms.projects)
def test_projects_come_back_from_python_as_they_were(project, file):
    file.write_text(to_python(project), encoding="utf-8", newline="")
    assert load_model(file) == project


def refused(file, code):
    file.write_text(code, encoding="utf-8")
    with pytest.raises(ModelUnreadable) as caught:
        load_model(file)
    params = caught.value.params
    return params["line"], params["reason"]


def test_a_file_that_fails_is_named_with_the_line(file):
    assert refused(file, "x = 1\n\ny = x / 0\n") == (3, "it failed with ZeroDivisionError: division by zero")


def test_a_file_that_leaves_is_named_with_the_line(file):
    assert refused(file, "import sys\nsys.exit(3)\n") == (2, "it failed with SystemExit: 3")


def test_a_file_that_is_not_python_is_named_with_the_line(file):
    line, reason = refused(file, "x = 1\ny = (\n")
    assert line == 2
    assert "SyntaxError" in reason


def test_a_file_without_a_project_is_refused(file):
    assert refused(file, "model = 1\n") == (1, "it has no project")


def test_errors_of_the_model_keep_their_own_words(file):
    file.write_text(
        "from lockstep.engine.model.builder import ProjectBuilder\n"
        "project = ProjectBuilder('p')\n"
        "project.query('q').source('s', 'a:nothing')\n",
        encoding="utf-8",
    )
    with pytest.raises(BadSchema, match="must be NAME:TYPE"):
        load_model(file)


def test_a_project_may_be_built_or_not(file):
    text = "from lockstep.engine.model.builder import ProjectBuilder\nproject = ProjectBuilder('p'){}\n"
    for end in ("", ".build()"):
        file.write_text(text.format(end), encoding="utf-8")
        assert load_model(file) == Project(name="p", queries=())


def test_code_uses_the_builder_where_it_can(file):
    code = to_python(load_model(TRADES / "trades.xml"))
    assert 'trades_source.copy("Copy5MinRet", retain=sliding("5 minutes", field="time"))' in code
    assert 'vwap="ESP_aWAve(quantity,price)"' in code
    assert "edge(" not in code


def test_code_draws_edges_by_hand_where_their_order_asks_for_it(file):
    windows = tuple(CopyWindow(name=name) for name in "abc")
    edges = (Edge(source="b", target="c"), Edge(source="a", target="b"), Edge(source="c", target="c", slot=1))
    project = Project(name="p", queries=(ContinuousQuery(name="q", windows=windows, edges=edges),))
    code = to_python(project)
    assert 'query.edge("c", "c", slot=1)' in code
    file.write_text(code, encoding="utf-8")
    assert load_model(file) == project


def test_a_function_of_the_model_file_itself_is_refused(file):
    code = "from lockstep.engine.model.builder import plug\ndef f(rows):\n    return 1\nplug(f)\n"
    line, reason = refused(file, code)
    assert line == 4
    assert "must be in a module of its own" in reason
