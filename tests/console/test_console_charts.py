"""Charts, graphs and the words around them: holes stay holes, axes have round numbers, times are the viewer's."""

from __future__ import annotations

import re

import pytest

from lockstep.console import charts
from lockstep.console.pages import count_text, menu_page, story
from lockstep.console.port import View

AT_MS = 1_798_761_600_000  # 2027-01-01T00:00:00Z


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_value_that_is_not_known_leaves_a_hole_and_is_called_unknown():
    chart = charts.line_chart([1.0, 2.0, None, 3.0, 4.0], "Lag", "records", 5.0, AT_MS)
    assert chart.count('class="line"') == 2
    assert re.findall(r'<td class="number">([^<]*)</td>', chart) == ["4.0", "3.0", "unknown", "2.0", "1.0"]


def test_a_single_value_is_a_dot_and_no_value_is_a_sentence():
    assert 'class="dot"' in charts.line_chart([3.0], "Lag", "records", 5.0, AT_MS)
    assert "nothing was measured yet" in charts.line_chart([None, None], "Lag", "records", 5.0, AT_MS)


def test_axes_have_round_numbers_and_times_that_the_values_cover():
    chart = charts.line_chart([0.0, 37.0, 20.0, 10.0, 5.0], "Appended", "records/s", 5.0, AT_MS)
    assert texts(chart) == ["0", "10", "20", "30", "40", "23:59:40", "23:59:45", "23:59:50", "23:59:55", "00:00:00"]
    assert [int(ms) for ms in re.findall(r'data-ms="(\d+)"', chart)] == [
        AT_MS - 5000 * back for back in (4, 3, 2, 1, 0)
    ]
    assert "now 5, between 0 and 37 records/s, over 20 s" in chart.replace('<span class="note">', "")


@pytest.mark.parametrize(("most", "top"), [(0.0, 4.0), (0.4, 1.0), (3.0, 4.0), (37.0, 40.0), (85.0, 100.0), (1e6, 1e6)])
def test_the_top_of_an_axis_is_a_round_number_above_all_values(most, top):
    assert charts._nice(most) == top


def test_the_table_of_a_chart_has_the_times_of_its_values():
    chart = charts.line_chart([1.0, 2.0], "Lag", "records", 5.0, AT_MS)
    assert re.findall(r'<time datetime="([^"]*)"', chart) == ["2027-01-01T00:00:00Z", "2026-12-31T23:59:55Z"]


def test_a_graph_marks_what_limits_what_is_published_and_what_is_bad_and_draws_rates():
    nodes = [
        {"id": "q/a", "label": "a", "note": "5 rows", "kind": "source", "state": "", "bad": 2},
        {"id": "q/b", "label": "b<", "kind": "copy", "state": "limiting", "is_published": True},
    ]  # fmt: skip
    drawn = charts.graph(nodes, [("q/a", "q/b", "199/s")])
    assert re.findall(r'<g class="node ([^"]*)"', drawn) == ["source bad ", "copy published limiting"]
    assert "199/s" in texts(drawn)
    assert 'class="edge busy"' in drawn
    assert "b&lt;" in drawn


def test_times_in_sentences_are_shown_as_the_viewer_has_chosen():
    told = story("It fired at 2027-01-01T00:00:00.250Z, <4 ms> late.")
    assert '<time datetime="2027-01-01T00:00:00.250Z">' in told
    assert "&lt;4 ms&gt;" in told


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (1200, "1,200 records"), (None, "- records")]
)
def test_numbers_and_nouns_agree(count, text):
    assert count_text(count, "record") == text


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("/fleet", ""),
        ("/fleet/hosts", ""),
        ("/fleet/hosts/web-1", "/fleet/hosts"),
        ("/fleet/why/a/b", "/fleet"),
        ("/x", ""),
    ],
)
def test_the_menu_marks_the_page_that_a_path_is_below(path, above):
    pages = [
        View(path=path, title="", summary="", load=lambda _: {}, template="") for path in ("/fleet", "/fleet/hosts")
    ]
    assert menu_page(path, pages) == above
