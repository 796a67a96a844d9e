"""What fills a field becomes of its type: the interpreter and the kernels agree, also about what does not fit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_worlds import bad_texts, interpret, make_span, texts

from lockstep.engine.columns.evaluator import Evaluator
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.windows import AggregateWindow, ComputeWindow, SourceWindow

DAY_US = 86_400_000_000
SOURCE = SourceWindow(name="s", schema=Schema.parse("id*:int64,g:string,x:double,t:stamp"), insert_only=True)
MADE = ComputeWindow(
    name="c",
    schema=Schema.parse("id*:int64,whole:int32,text:string,days:double,number:double"),
    fields=("x * 1000000000", "x", "t - tostamp(0)", "g"),
)
GROUPS = AggregateWindow(
    name="a",
    schema=Schema.parse("g*:string,mean:int64,count:string,half:int32"),
    fields=("ESP_aAve(x)", "ESP_aCount()", "ESP_aSum(x) / 2"),
)


def model():
    from engine_models import graph

    return graph(SOURCE, MADE, GROUPS, edges="s:c s:a")


ROWS = st.tuples(
    st.sampled_from(["a", "1.5", "", None]),
    st.none() | st.floats(-1e12, 1e12, allow_nan=False),
    st.none() | st.integers(-DAY_US, 10 * DAY_US),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_kernels_convert_as_the_interpreter_does(rows):
    graph = model()
    blocks = [
        InputBlock(number, window="q/s", events=(Event(Opcode.INSERT, Flag.NORMAL, (number, *row)),))
        for number, row in enumerate(rows, 1)
    ]
    expected = interpret(graph, blocks)
    results = Evaluator(graph, wanted=frozenset({"q/c", "q/a"})).evaluate(make_span(graph, blocks))
    for path in ("q/c", "q/a"):
        batch = results.outputs[path]
        pairs = zip(batch.block.tolist(), batch.events(), strict=True)
        assert [text for number, event in pairs for text in texts(number, [event])] == expected.answer[path]
    assert bad_texts(results.bad) == expected.bad


def test_a_compute_with_conversions_runs_on_columns():
    evaluator = Evaluator(model(), wanted=frozenset({"q/c"}))
    assert type(evaluator._by_path["q/c"].operator).__name__ == "ComputeColumns"
