"""The roles of a join's edges decide its sides, in all forms of a model."""

from __future__ import annotations

import pytest

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.model.loading import parse_xml, parse_yaml, run_model, to_python, to_xml, to_yaml
from lockstep.engine.model.project import Edge, Project
from lockstep.engine.model.validation import compile_project

XML = """
<project name="p" pubsub="auto"><contqueries><contquery name="q">
  <windows>
    <window-source name="names"><schema-string>symbol*:string,title:string</schema-string></window-source>
    <window-source name="trades"><schema-string>id*:int32,symbol:string</schema-string></window-source>
    <window-join name="j"><join type="leftouter">
      <conditions><fields left="symbol" right="symbol"/></conditions></join>
      <output><field-selection name="id" source="l_id"/><field-selection name="title" source="r_title"/></output>
    </window-join>
  </windows>
  <edges>EDGES</edges>
</contquery></contqueries></project>
"""
RIGHT, LEFT = '<edge source="names" target="j" ONE/>', '<edge source="trades" target="j" TWO/>'


def model(one: str, two: str) -> Project:
    edges = RIGHT.replace("ONE", one) + LEFT.replace("TWO", two)
    return parse_xml(XML.replace("EDGES", edges))


def sides(project: Project) -> list[str]:
    graph = compile_project(project)
    (join,) = (node for node in graph.nodes if node.window.name == "j")
    return [graph.nodes[parent.node].window.name for parent in join.parents]


@pytest.mark.parametrize(
    ("one", "two"), [('role="right"', 'role="left"'), ('role="RIGHT"', ""), ("", 'role="left"')], ids=str
)
def test_the_edge_with_the_role_right_is_the_right_side_although_it_comes_first(tmp_path, one, two):
    project = model(one, two)
    assert sides(project) == ["trades", "names"]
    assert sides(parse_yaml(to_yaml(project))) == ["trades", "names"]
    assert sides(parse_xml(to_xml(project))) == ["trades", "names"]
    (tmp_path / "model.py").write_text(to_python(project))
    assert sides(run_model(tmp_path / "model.py")) == ["trades", "names"]


@pytest.mark.parametrize("role", ["left", "right"])
def test_two_edges_for_one_side_are_a_fault(role):
    with pytest.raises(ModelInvalid, match=f"both edges that lead to it are its {role} side"):
        compile_project(model(f'role="{role}"', f'role="{role}"'))


def test_a_role_that_is_no_side_says_nothing():
    assert Edge(source="a", target="b", role="data").side is None
