"""check_window: sound windows pass, and a window that is broken in one way is told where it first differs."""

from __future__ import annotations

import random

import custom_classes as c
import pytest

from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.model.builder import ProjectBuilder
from lockstep.errors import BadArgument
from lockstep.testing import WindowDiffers, WindowReport, check_window

NAMES = ("anna", "bob", "carl", "dora", "emil", "Zoë, x")


def script(seed=3, events=50, amounts=(-1, 30)):
    chance = random.Random(seed)
    lines = []
    for number in range(events):
        name, amount = chance.choice(NAMES), chance.randint(*amounts)
        lines.append(f'Orders,P,N,{number % 20},"{name}",{amount}')
        if chance.random() < 0.4:
            lines.append("")
        if chance.random() < 0.2:
            lines.append(f"tick,{number + 1}000000" + chance.choice(("", "", ",lagging")))
    return "\n".join(lines)


def check(cls, text=None, *, schema=c.TOTALS, second_process=False, runs=6, **more) -> WindowReport:
    inputs = {"Orders": c.ORDERS}
    return check_window(
        cls, text or script(), inputs=inputs, schema=schema, second_process=second_process, runs=runs, **more
    )


@pytest.mark.parametrize("cls", [c.Totals, c.Paged])
def test_a_sound_window_passes(cls):
    report = check(cls, tick="20 seconds", properties={"limit": "50"}, runs=12)
    assert report.restarts > 3
    assert report.kills > 3
    assert report.blocks > 20


def test_a_sound_column_form_passes():
    report = check(c.Doubled, schema="id*:int64,double:double")
    assert any("window q/Doubled" in answer for answer in report.answers)


def test_a_column_form_with_notices_passes_and_one_with_others_is_told():
    text = script(amounts=(1, 20))
    report = check(c.Telling, text, schema="id*:int64,double:double")
    assert any("notices of q/Telling" in answer for answer in report.answers)
    with pytest.raises(WindowDiffers, match=r"(?s)notices of q/TellingOthers, number 0 differs in the run in pieces"):
        check(c.TellingOthers, text, schema="id*:int64,double:double")


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (c.Clock, r"Block 1, window q/Clock, number 0 differs in the same run again in this process"),
        (c.Hidden, r"(?s)window q/Hidden, number 0 differs in the run in pieces.*row form in one go:.*here:"),
        (c.Unmarked, r"(?s)(window q/Unmarked|page q/Unmarked:page)"),
    ],
)
def test_a_broken_window_is_told_with_the_first_difference(cls, words):
    with pytest.raises(WindowDiffers, match=words):
        check(cls)


def test_a_page_that_is_not_marked_is_found_also_if_no_answer_shows_it():
    text = "\n\n".join(f"Orders,P,N,1,anna,{number}" for number in range(1, 8))
    with pytest.raises(WindowDiffers, match=r"page q/Unmarked:page.anna|window q/Unmarked"):
        check(c.Unmarked, text)


def test_the_order_in_which_pages_are_loaded_must_not_show():
    with pytest.raises(WindowDiffers, match=r"(?s)window q/PageOrder.*differs in the run in pieces"):
        check(c.PageOrder, tick="1 second", runs=12)


def test_a_column_form_that_differs_is_told():
    with pytest.raises(WindowDiffers, match=r"window q/Tripled, number 0 differs in the run in pieces"):
        check(c.Tripled, schema="id*:int64,double:double")


def test_the_order_of_a_set_is_found_by_a_second_process_and_a_sound_window_passes_there_too():
    with pytest.raises(WindowDiffers, match=r"window q/SetOrder.*in another process, with another hash seed"):
        check(c.SetOrder, second_process=True, runs=0)
    check(c.Totals, second_process=True, tick="5 seconds", runs=0)


def test_a_whole_model_and_blocks_are_taken_too():
    project = ProjectBuilder("shop")
    orders = project.query("q").source("Orders", c.ORDERS)
    orders.custom("Sums", c.TOTALS, c.Totals).filter("Large", "total > 20")
    orders.copy("Last", retain="bycount_sliding 7").aggregate("Mean", by="customer", mean="ESP_aAve(amount)")
    blocks = [
        InputBlock(0, "Orders", (Event(Opcode.UPSERT, Flag.NORMAL, (n % 3, NAMES[n % 3], float(n))),))
        for n in range(20)
    ]
    report = check_window(project.build(), blocks, second_process=False, runs=8)
    assert report.blocks == 20


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "give the schemas"), ({"inputs": {"Orders": c.ORDERS}}, "give the schemas")],
)
def test_a_class_needs_schemas(given, words):
    with pytest.raises(BadArgument, match=words):
        check_window(c.Totals, "", **given)


def test_a_class_that_can_not_be_found_by_name_and_a_wrong_source_are_refused():
    class Local(c.Totals):
        pass

    with pytest.raises(BadArgument, match="put it into a module"):
        check(Local)
    with pytest.raises(BadArgument, match="there are Orders"):
        check(c.Totals, "Nowhere,I,N,1,a,1")


def test_nothing_at_all_is_no_difference():
    assert check(c.Totals, "# nothing").blocks == 0
