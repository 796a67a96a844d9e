from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.engine.model.builder import ProjectBuilder, pattern, sliding
from lockstep.engine.model.drawing import draw_svg, lay_out
from lockstep.engine.model.loading import load_model
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.validation import compile_project

SVG = "{http://www.w3.org/2000/svg}"
TRADES = Path(__file__).parents[2] / "examples" / "trades" / "trades.py"


@pytest.fixture(scope="module")
def shop():
    """A model of fourteen windows whose edges skip columns, split and come together."""
    project = ProjectBuilder("shop")
    query = project.query("q")
    orders = query.source("Orders", "ID*:int64,customer:int32,item:string,price:double,time:stamp", insert_only=True)
    orders.options(splitter="customer % 2")
    customers = query.source("Customers", "ID*:int32,name:string")
    odd = orders.slot(1).copy("Odd", retain=sliding("5 minutes", field="time"))
    even = orders.slot(0).copy("Even", retain=sliding("1 hour", field="time"))
    dear = orders.filter("Dear", 'price > 100.0 and item != "a<b" and customer > 7 and customer < 99')
    named = dear.join("Named", customers, on={"customer": "ID"}, select="l_ID l_item l_price", name="r_name")
    both = odd.union("Both", even)
    sums = both.aggregate("Sums", by="customer", total="ESP_aSum(price)", orders="ESP_aCount()")
    sums.filter("Big", "total > 1000.0").counter("Counted", named, orders)
    named.remove_state("Numbered").copy("Kept")
    orders.pattern(
        "Twice",
        "n*:int64,a:int64,b:int64",
        pattern(
            "fby{10 seconds}(a, b)",
            events={"a": ("Orders", "c == customer"), "b": ("Orders", "c == customer")},
            output=["a.ID", "b.ID"],
            times={"time": "Orders"},
        ),
    ).copy("Pairs")
    return compile_project(project.build())


def rects(svg):
    """The boxes of the windows by their path."""
    root = ET.fromstring(svg)
    groups = [group for group in root.iter(f"{SVG}g") if group.get("class") == "window"]
    return {
        group.get("data-window"): [float(group.find(f"{SVG}rect").get(name)) for name in ("x", "y", "width", "height")]
        for group in groups
    }


def apart(one, other):
    (x1, y1, w1, h1), (x2, y2, w2, h2) = one, other
    return x1 + w1 <= x2 or x2 + w2 <= x1 or y1 + h1 <= y2 or y2 + h2 <= y1


def test_every_window_has_a_box_and_no_two_boxes_overlap(shop):
    boxes = rects(draw_svg(shop))
    assert set(boxes) == {node.path for node in shop.nodes}
    assert all(apart(one, other) for one, other in combinations(boxes.values(), 2))


def test_children_stand_right_of_their_parents(shop):
    boxes = rects(draw_svg(shop))
    for node in shop.nodes:
        for parent in node.parents:
            left = boxes[shop.nodes[parent.node].path]
            assert left[0] + left[2] < boxes[node.path][0]


def test_every_edge_is_an_arrow_and_slots_are_named(shop):
    root = ET.fromstring(draw_svg(shop))
    arrows = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == sum(len(node.parents) for node in shop.nodes)
    labels = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "label"]
    assert sorted(labels) == ["slot 0", "slot 1"]


def test_boxes_say_name_kind_and_what_matters(shop):
    texts = {text.text for text in ET.fromstring(draw_svg(shop)).iter(f"{SVG}text")}
    assert {"Odd", "copy", "sliding 5 minutes of time", "by customer", "leftouter on customer = ID"} <= texts
    assert "shop: 14 windows" in texts
    assert any(text.endswith("…") and text.startswith("price > 100.0") for text in texts)


def test_letters_fit_into_their_boxes(shop):
    root = ET.fromstring(draw_svg(shop))
    for group in root.iter(f"{SVG}g"):
        if group.get("class") == "window":
            width = float(group.find(f"{SVG}rect").get("width"))
            assert all(len(text.text or "") * 7 < width for text in group.iter(f"{SVG}text"))


def test_the_picture_is_as_large_as_what_is_in_it(shop):
    svg = draw_svg(shop)
    _, _, width, height = map(float, ET.fromstring(svg).get("viewBox").split())
    for x, y, across, down in rects(svg).values():
        assert x + across <= width
        assert y + down <= height


def test_a_plan_marks_the_windows_that_are_divided():
    graph = compile_project(load_model(TRADES))
    plan = make_plan(graph)
    texts = [text.text for text in ET.fromstring(draw_svg(graph, plan)).iter(f"{SVG}text")]
    divided = [step for step in plan.steps if step.mode == "divided"]
    assert sum(text.endswith("· divided") for text in texts) == len(divided)


def test_a_picture_is_the_same_every_time(shop):
    assert draw_svg(shop) == draw_svg(shop)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 14))
def test_no_line_of_a_random_graph_runs_through_a_box(data, count):
    nodes = {node: (data.draw(st.integers(40, 200)), data.draw(st.integers(30, 80))) for node in range(count)}
    pairs = list(combinations(range(count), 2))
    edges = data.draw(st.lists(st.sampled_from(pairs), max_size=20, unique=True)) if pairs else []
    drawn = lay_out(nodes, edges)
    for one, other in combinations(drawn.boxes.values(), 2):
        assert apart((one.x, one.y, one.width, one.height), (other.x, other.y, other.width, other.height))
    for route in drawn.routes:
        # Lines bend between the columns only: within a column they are level, at the height of one of their points.
        for x, y in route[1:-1]:
            for box in drawn.boxes.values():
                assert not (box.x <= x <= box.x + box.width and box.y < y < box.y + box.height)


def test_an_awkward_name_is_escaped(shop):
    graph = replace(shop, project=replace(shop.project, name='a"<&>\x01'))
    svg = draw_svg(graph)
    assert "\x01" not in svg
    assert ET.fromstring(svg).find(f"{SVG}title").text == 'a"<&>�: 14 windows'
