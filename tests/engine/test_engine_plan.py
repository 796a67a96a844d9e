"""What may be divided over shards, what is kept where, and why."""

from __future__ import annotations

import pytest
from validation_models import SECOND, chain, project, query, sliding, source, summing, trades_model

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.plan import make_plan
from lockstep.engine.model.project import Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CounterWindow,
    FieldPlug,
    FilterWindow,
    Initializer,
    JoinField,
    JoinWindow,
    PatternWindow,
    Retention,
    Splitter,
    UnionWindow,
)


def plan_of(model):
    return make_plan(compile_project(model))


def step(plan, name):
    node = plan.graph.find(name)
    return next(step for step in plan.steps if step.node == node.index)


def divided(plan):
    return {plan.graph.nodes[index].window.name for split in plan.splits for index in split.divided}


def tape(name="src", **options):
    return source(name, insert_only=True, **options)


def copy(name="copy", **options):
    return CopyWindow(name=name, **{"retention": sliding(), **options})


class TestTrades:
    def test_are_divided_by_symbol(self):
        plan = plan_of(trades_model())
        (split,) = plan.splits
        assert plan.graph.nodes[split.source].window.name == "TradesSource"
        assert split.fields == ("symbol",)
        assert divided(plan) == {
            "Copy5MinRet", "Copy1HRRet", "Copy24HRRet", "Aggregate5Min", "Aggregate1HR", "Aggregate24HR"
        }  # fmt: skip
        assert plan.max_shards is None
        assert "by symbol" in plan.reason
        assert len(plan.components) == 1

    def test_every_shard_reads_the_source_for_the_clock(self):
        assert step(plan_of(trades_model()), "TradesSource").mode == "whole"
        assert "clock" in step(plan_of(trades_model()), "TradesSource").why

    def test_keep_no_second_copy_of_the_log(self):
        made = step(plan_of(trades_model()), "Copy24HRRet")
        assert (made.mode, made.members, made.clock, made.form) == ("divided", "log", "field time", "columns")
        assert made.state == "clock and tail position; its rows are read from the log"

    def test_keep_a_row_per_group(self):
        made = step(plan_of(trades_model()), "Aggregate1HR")
        assert (made.mode, made.clock, made.form) == ("divided", "none", "columns")
        assert made.state.startswith("one row per group")
        assert "symbol" in made.why

    def test_are_one_task_if_rows_can_change(self):
        plan = plan_of(trades_model(insert_only=False))
        assert plan.splits == ()
        assert plan.max_shards == 1
        assert "not insert-only" in plan.reason
        assert step(plan, "Copy5MinRet").members == "state"
        assert step(plan, "Copy5MinRet").state == "its rows by key"

    def test_are_one_task_if_nobody_checks_the_keys(self):
        plan = plan_of(trades_model(index="pi_EMPTY"))
        assert plan.splits == ()
        assert "does not check them" in plan.reason


def test_a_sum_needs_no_members():
    made = step(plan_of(chain(tape(), copy(), summing("sum"))), "sum")
    assert (made.members, made.state) == ("none", "one row per group")


def test_a_source_that_makes_its_keys_keeps_only_the_last():
    model = chain(
        source(schema="id*:int64,symbol:string,price:double,time:stamp", insert_only=True, autogen_key=True),
        copy(),
        summing("sum"),
    )
    plan = plan_of(model)
    assert step(plan, "src").state == "the last key it made"
    # The log has the rows without their keys, so the copy has to keep them.
    assert step(plan, "copy").members == "state"
    assert divided(plan) == {"copy", "sum"}


def test_the_split_is_by_what_all_groups_have_in_common():
    # Given groups by symbol and venue, by symbol, and by symbol again through an aggregate
    both = summing("both", "symbol*:string,venue*:int32")
    again = summing("again", "symbol*:string", expression="ESP_aMax(total)")
    model = project(tape(), both, summing("one"), again, links=["src both", "src one", "both again"])
    # Then rows are divided by the symbol alone
    plan = plan_of(model)
    assert plan.splits[0].fields == ("symbol",)
    assert divided(plan) == {"both", "one", "again"}


def test_several_fields_keep_the_order_of_the_source():
    plan = plan_of(chain(tape(), summing("both", "venue*:int32,symbol*:string")))
    assert plan.splits[0].fields == ("symbol", "venue")


def test_a_chain_with_other_groups_runs_whole_beside_the_divided_ones():
    model = project(tape(), summing("a"), summing("b", "venue*:int32"), links=["src a", "src b"])
    plan = plan_of(model)
    assert divided(plan) == {"a"}
    assert step(plan, "b").mode == "whole"
    assert "other fields than symbol" in step(plan, "b").why


def test_filters_and_computes_that_hand_the_field_on_are_divided():
    view = ComputeWindow(
        name="view", schema=Schema.parse("ID*:int32,code:string,price:double"), fields=("symbol", "price * 2")
    )
    model = chain(tape(), copy(), FilterWindow(name="f", expression="price > 1"), view, summing("sum", "code*:string"))
    plan = plan_of(model)
    assert plan.splits[0].fields == ("symbol",)
    assert divided(plan) == {"copy", "f", "view", "sum"}


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (chain(tape(), copy(retention=Retention(kind="bycount_sliding", limit=5)), summing("sum")), "counts rows"),
        (chain(tape(), copy(retention=sliding(field=None)), summing("sum")), "model's clock"),
        (chain(tape(), copy(retention=None), summing("sum")), "keeps all rows by key"),
        (chain(tape(), FilterWindow(name="f", expression="price > 1"), copy(), summing("sum")), "not fed by a source"),
        (chain(tape(retention=sliding()), summing("sum")), "retention of its own"),
        (chain(tape(), copy(pulse_us=SECOND), summing("sum")), "pulse-interval"),
        (chain(tape(), copy(collapse_updates=True), summing("sum")), "collapses updates"),
        (chain(tape(), copy(splitter=Splitter(expression="1")), summing("sum")), "has a splitter"),
        (chain(tape(), copy(), CounterWindow(name="n")), "counter window"),
        (
            chain(
                tape(),
                FilterWindow(name="f", expression="n > 1", initialize=Initializer(text="integer n; n = 0;")),
                summing("sum"),
            ),
            "more than the row",
        ),
        (
            chain(
                tape(),
                ComputeWindow(name="c", schema=Schema.parse("ID*:int32,low:string"), fields=("lower(symbol)",)),
                summing("sum", "low*:string", expression="ESP_aSum(ID)"),
            ),
            "not those of src",
        ),
        (chain(tape(), copy()), "no window groups"),
    ],
)
def test_what_is_not_divided_and_why(model, why):
    plan = plan_of(model)
    assert plan.splits == ()
    assert plan.max_shards == 1
    assert {made.mode for made in plan.steps} == {"whole"}
    assert why in plan.reason
    assert why in plan.steps[-1].why


def test_joins_and_unions_are_not_divided():
    window = JoinWindow(
        name="j",
        type="inner",
        conditions=(("symbol", "symbol"),),
        fields=(JoinField(name="ID", source="l_ID"), JoinField(name="total", source="r_total")),
    )
    model = project(tape(), summing("sum"), window, links=["src sum", "src j", "sum j"])
    plan = plan_of(model)
    assert plan.splits == ()
    assert "join window" in plan.reason
    assert step(plan, "j").state == "the rows of both sides by key"
    union = project(tape("a"), tape("b"), UnionWindow(name="u"), summing("s"), links=["a u", "b u", "u s"])
    assert plan_of(union).max_shards == 1


def test_a_divided_chain_may_stand_beside_one_that_is_not():
    model = project(tape(), copy(), summing("sum"), CounterWindow(name="n"), links=["src copy", "copy sum", "src n"])
    plan = plan_of(model)
    assert divided(plan) == {"copy", "sum"}
    assert step(plan, "n").mode == "whole"


def test_what_is_not_divided_has_only_parents_that_are_not():
    model = project(tape(), copy(), summing("sum"), CounterWindow(name="n"), links=["src copy", "copy sum", "copy n"])
    assert plan_of(model).splits == ()


def test_parts_that_have_nothing_to_do_with_each_other_run_apart():
    first, second = query(source("a"), summing("s"), name="one", links=["a s"]), query(source("b"), name="two")
    plan = plan_of(Project(name="p", queries=(first, second)))
    assert [sorted(part) for part in plan.components] == [[0, 1], [2]]
    assert plan.max_shards == 2
    assert {made.mode for made in plan.steps} == {"component"}
    assert "2 parts" in plan.reason
    assert "part 2 of 2" in step(plan, "b").why


def test_a_split_goes_before_parts():
    model = project(tape("a"), summing("s"), source("b"), links=["a s"])
    plan = plan_of(model)
    assert divided(plan) == {"s"}
    assert plan.max_shards is None
    assert step(plan, "b").mode == "whole"
    assert len(plan.components) == 2


def test_plugs_need_their_members():
    plug = AggregateWindow(
        name="g", schema=Schema.parse("symbol*:string,x:double"), fields=(FieldPlug(module="m", function="f"),)
    )
    made = step(plan_of(chain(tape(), plug)), "g")
    assert (made.members, made.form, made.state) == ("state", "rows", "one row per group, and its members")


def test_clocks():
    plan = plan_of(chain(source(), copy(retention=sliding(field=None)), FilterWindow(name="f", expression="ID > 1")))
    assert step(plan, "copy").clock == "model clock"
    assert step(plan, "f").clock == "none"
    assert step(plan_of(project(source(pulse_us=5))), "src").clock == "model clock"


def test_the_clock_of_a_pattern():
    from lockstep.engine.model.windows import Pattern, PatternEvent, PatternOutput

    def model(logic, **more):
        event = PatternEvent(name="e", source="src", expression="price > 1")
        output = (PatternOutput(node="e", field="ID"),)
        window = Pattern(events=(event,), logic=logic, output=output, **more)
        return chain(source(), PatternWindow(name="w", schema=Schema.parse("id*:int32"), patterns=(window,)))

    assert step(plan_of(model("e")), "w").clock == "none"
    assert step(plan_of(model("fby{1 hour}(e, e)")), "w").clock == "model clock"
    timed = model("fby{1 hour}(e, e)", time_fields=(("time", "src"),))
    assert step(plan_of(timed), "w").clock == "field time"


def test_groups_that_need_their_members_are_divided_too():
    plan = plan_of(chain(tape(), copy(), summing("sum", expression="ESP_aMedian(price)")))
    assert divided(plan) == {"copy", "sum"}
    assert step(plan, "sum").form == "rows"


def test_a_chain_without_groups_runs_whole_beside_a_divided_one():
    model = project(tape(), copy(), summing("sum"), copy("alone"), links=["src copy", "copy sum", "src alone"])
    plan = plan_of(model)
    assert divided(plan) == {"copy", "sum"}
    assert "nothing to divide them by" in step(plan, "alone").why


def test_an_aggregate_with_variables_is_not_divided():
    window = AggregateWindow(
        name="g",
        schema=Schema.parse("symbol*:string,x:double"),
        fields=("ESP_aSum(price) + n",),
        initialize=Initializer(text="integer n; n = 0;"),
    )
    assert "variables" in plan_of(chain(tape(), window)).reason


@pytest.mark.parametrize(
    ("model", "members", "form", "state"),
    [
        (chain(tape(), copy(retention=Retention(kind="bycount_jumping", limit=5))), "log", "columns", "clock and tail"),
        (chain(tape(), copy(retention=sliding(field=None))), "state", "columns", "its rows in the order they came"),
        (chain(tape(), copy(retention=None)), "none", "columns", "nothing"),
        (chain(source(), copy()), "state", "rows", "its rows by key"),
        (chain(source(), copy(retention=None)), "state", "rows", "its rows by key"),
        (chain(source(), copy(retention=None, index="pi_EMPTY")), "none", "columns", "nothing"),
        (chain(tape(), summing("g", expression="ESP_aMax(price)")), "none", "columns", "one row per group"),
        (chain(source(), summing("g", expression="ESP_aMax(price)")), "state", "rows", "one row per group, and its m"),
        (chain(source(), summing("g", expression="ESP_aSum(price)")), "none", "columns", "one row per group"),
        (
            chain(tape(), copy(), summing("g", expression="ESP_aMax(price)")),
            "state",
            "columns",
            "one row per group, with q",
        ),
    ],
)
def test_what_the_last_window_keeps(model, members, form, state):
    made = plan_of(model).steps[-1]
    assert (made.members, made.form) == (members, form)
    assert made.state.startswith(state)


def test_every_kind_of_window_has_a_state_in_words():
    from lockstep.engine.model.plan_state import _PLAIN
    from lockstep.engine.model.windows import Window

    told = {"source", "copy", "union", "aggregate", "filter", "compute", "idle", "unread"}  # the last is in no graph
    assert set(_PLAIN) | told == {kind.kind for kind in Window.__subclasses__()}


def test_the_plan_knows_which_windows_the_fast_path_runs_on_columns():
    # The evaluator chooses for itself; the plan must say the same.
    from lockstep.engine.columns.evaluator import Builder, duty_of
    from lockstep.engine.columns.rows import RowOperator

    models = [
        trades_model(),
        trades_model(insert_only=False),
        trades_model(index="pi_EMPTY"),
        chain(tape(), copy(retention=None), summing("g")),
        chain(tape(), FilterWindow(name="f", expression="price > 1"), copy(), summing("g", expression="ESP_aMin(ID)")),
        chain(source(), copy(), summing("g", "symbol*:string", field="n:int32", expression="ESP_aCount()")),
        chain(tape(), summing("g", "symbol*:string", field="n:int32", expression="ESP_aSum(quantity)")),
        chain(tape(), summing("g", "price*:double", expression="ESP_aSum(ID)")),
        chain(tape(), copy(), summing("g", expression="ESP_aMedian(price)")),
        *(
            chain(tape(), summing("g", "symbol*:string", field=field, expression=expression))
            for field in ("n:int32", "n:int64", "n:double")
            for expression in (
                "ESP_aCount()+abs(1)",
                "abs(ESP_aCount())",
                "ESP_aCount()*ESP_aCount()",
                " ESP_aCount() ",
            )
        ),
    ]
    for model in models:
        graph = compile_project(model)
        operators, _ = Builder(graph, duty_of(graph, 0, 1), None).build(frozenset())
        rows = {index for index, operator in operators.items() if isinstance(operator, RowOperator)}
        assert {made.node for made in make_plan(graph).steps if made.form == "rows"} == rows
