"""Hypothesis strategies: models with all kinds of joins and unions, over all kinds of sources, and more after them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from model_strategies import Draft, compiled, options, retentions

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.windows import (
    AggregateWindow,
    CopyWindow,
    FilterWindow,
    JoinField,
    JoinWindow,
    SourceWindow,
    UnionWindow,
)

FACTS = (
    "id*:int64,m:int64,s:string,x:double,t:stamp",
    "id*:string,m:int64,s:string,x:double,t:stamp",
    "id*:int64,s*:string,m:int64,x:double,t:stamp",
)
DIMENSIONS = (
    ("m*:int64,s:string,x:double", ("m",)),
    ("m*:int64,s:string,x:double", ("s", "m")),
    ("m*:int64,s*:string,x:double", ("m", "s")),
    ("m*:int64,s*:string,x:double", ("s", "m")),
    ("s*:string,m:int64,x:double", ("s",)),
)
MANY = ("s*:string,m:int64,x:double", ("m",))
"""A side that many facts meet, and that meets many of them."""
EXPRESSIONS = (
    ("l_x + r_x", "double"),
    ("coalesce(r_s, l_s)", "string"),
    ("isnull(r_x)", None),
    ("l_m * 2 + r_m", "int64"),
    ("r_m", "double"),
)
ODD_EXPRESSIONS = (("l_m * 1000000000", "int32"), ("toInteger(now() / 2)", "int64"))


@st.composite
def _source(draw, draft: Draft, name: str, schema: str) -> str:
    """A source, perhaps with a window after it; its name."""
    shape = draw(st.sampled_from(["keyed"] * 6 + ["unique"] * 4 + ["passing", "unresolved", "retaining"]))
    window = SourceWindow(
        name=name,
        schema=Schema.parse(schema),
        insert_only=shape in ("unique", "passing"),
        index="pi_EMPTY" if shape in ("passing", "unresolved") else None,
        retention=draw(retentions(on_field=None if "t:" in schema else False)) if shape == "retaining" else None,
    )
    draft.add(window, [], schema)
    after = draw(st.sampled_from(["", "", "", "copy", "filter", "inserts"]))
    if after == "copy":
        kept = draw(retentions(on_field="t:" in schema))
        draft.add(CopyWindow(name=f"{name}c", retention=kept), [name], schema)
    elif after == "filter":
        draft.add(
            FilterWindow(name=f"{name}f", expression=draw(st.sampled_from(["x > 1.5", "m >= 2"]))), [name], schema
        )
    elif after == "inserts":
        draft.add(CopyWindow(name=f"{name}i", output_insert_only=True), [name], schema)
    return draft.windows[-1].name


@st.composite
def _fields(draw, left: str, right: str) -> tuple[JoinField, ...]:
    names = [f"l_{each}" for each in Schema.parse(left).names] + [f"r_{each}" for each in Schema.parse(right).names]
    taken = draw(st.lists(st.sampled_from(names), min_size=1, max_size=5, unique=True))
    fields = [JoinField(name=f"f{place}", source=source) for place, source in enumerate(taken)]
    if not {"l_s", "r_s"} & set(taken):
        fields.append(JoinField(name="g", source=draw(st.sampled_from(["l_s", "r_s"]))))
    odd = draw(st.integers(0, 11)) == 0
    made = draw(st.lists(st.sampled_from(EXPRESSIONS + (ODD_EXPRESSIONS if odd else ())), max_size=2, unique=True))
    for place, (text, kind) in enumerate(made):
        declared = None if kind is None else Schema.parse(f"e:{kind}").fields[0].type
        fields.append(JoinField(name=f"e{place}", expression=text, type=declared))
    return tuple(fields)


@st.composite
def joins(draw) -> Graph:
    """A join of two sides; a fact side on the left or on the right."""
    draft = Draft()
    dimension, condition = draw(st.sampled_from(DIMENSIONS))
    kind = draw(st.sampled_from(["leftouter", "rightouter", "inner", "inner", "fullouter"]))
    if kind == "fullouter":
        dimension, condition = draw(
            st.sampled_from([each for each in DIMENSIONS if each[0].count("*") == len(each[1])])
        )
    is_many = kind == "inner" and draw(st.integers(0, 3)) == 0
    if is_many:
        dimension, condition = MANY
    fact = dimension if kind == "fullouter" else draw(st.sampled_from(FACTS))
    schemas = {"facts": fact, "dims": dimension}
    order = (
        ["dims", "facts"] if kind == "rightouter" or (kind == "inner" and draw(st.booleans())) else ["facts", "dims"]
    )
    sides = {name: draw(_source(draft, name, schema)) for name, schema in schemas.items()}
    left, right = (schemas[name] for name in order)
    indexes = st.just(None) if is_many else st.sampled_from([None, None, None, "pi_EMPTY"])
    window = JoinWindow(
        name="j",
        type=kind,
        conditions=tuple((name, name) for name in condition),
        fields=draw(_fields(left, right)),
        no_regenerates=not is_many and draw(st.integers(0, 3)) == 0,
        left_index=None if kind == "fullouter" else draw(indexes),
        right_index=None if kind == "fullouter" else draw(indexes),
    )
    draft.add(replace(window, **draw(options())), [sides[name] for name in order])
    _after(draw, draft)
    return compiled(draft)


def _after(draw, draft: Draft) -> None:
    """Windows over the join's rows."""
    if draw(st.booleans()):
        draft.add(CopyWindow(name="kept", retention=draw(retentions(on_field=False))), ["j"])
    if draw(st.booleans()):
        joined = next(window for window in draft.windows if isinstance(window, JoinWindow))
        group = next(field.name for field in joined.fields if field.source in ("l_s", "r_s"))
        made = AggregateWindow(name="sums", schema=Schema.parse(f"{group}*:string,n:int64"), fields=("ESP_aCount()",))
        draft.add(made, ["j"])


@st.composite
def unions(draw) -> Graph:
    """A union of two or three inputs, some of which are the same source in two forms."""
    draft, schema = Draft(), draw(st.sampled_from(FACTS))
    inputs = [draw(_source(draft, f"in{number}", schema)) for number in range(draw(st.integers(1, 3)))]
    if len(inputs) == 1 or draw(st.booleans()):
        draft.add(CopyWindow(name="last", retention=draw(retentions())), [inputs[0]], schema)
        inputs.append("last")
    window = UnionWindow(name="u", strict=draw(st.booleans()), index=draw(st.sampled_from([None, None, "pi_EMPTY"])))
    draft.add(replace(window, **draw(options())), draw(st.permutations(inputs)), schema)
    if draw(st.booleans()):
        draft.add(CopyWindow(name="kept", retention=draw(retentions())), ["u"], schema)
    if draw(st.booleans()):
        made = AggregateWindow(name="sums", schema=Schema.parse("s*:string,x:double"), fields=("ESP_aSum(x)",))
        draft.add(made, ["u"])
    return compiled(draft)
