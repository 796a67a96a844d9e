"""Hypothesis strategies: random models of all kinds of windows, and random scripts of blocks for them.

`models()` gives compiled graphs, `scripts(graph)` the blocks to feed them: all opcodes, nulls, duplicate and unknown
keys, late stamps, transactional blocks, ticks and empty blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import reject
from hypothesis import strategies as st

from lockstep.engine.errors import ModelInvalid
from lockstep.engine.events.event import Event, Flag, InputBlock, Opcode
from lockstep.engine.events.schema import FieldType, Schema
from lockstep.engine.model.graph import Graph, Node
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import (
    AggregateWindow,
    ComputeWindow,
    CopyWindow,
    CounterWindow,
    FilterWindow,
    Initializer,
    JoinField,
    JoinWindow,
    Pattern,
    PatternEvent,
    PatternOutput,
    PatternWindow,
    RemoveStateWindow,
    Retention,
    SourceWindow,
    Splitter,
    UnionWindow,
    Window,
)

SECOND = 1_000_000
SOURCES = (
    "id*:int32,s:string,n:int64,x:double,t:date",
    "id*:int64,s:string,n:int64,x:double,t:stamp",
    "id*:string,s:string,n:int64,x:double,t:date",
    "id*:int64,s*:string,n:int64,x:double,t:date",
)
"""All have the same field names, so that every window below can stand below any of them."""
GROUPINGS = ("s*:string", "n*:int64", "s*:string,n*:int64", "s*:string")
FUNCTIONS = {
    "ESP_aCount()": "int64",
    "ESP_aCountNonNull(x)": "int64",
    "ESP_aCountNull(n)": "int64",
    "ESP_aSum(x)": "double",
    "ESP_aSum(n)": "int64",
    "ESP_aSum(x + n)": "double",
    "ESP_aAve(x)": "double",
    "ESP_aAve(n)": "double",
    "ESP_aWAve(n, x)": "double",
    "ESP_aStd(x)": "double",
    "ESP_aVar(n)": "double",
    "ESP_aMin(x)": "double",
    "ESP_aMax(n)": "int64",
    "ESP_aMax(x)": "double",
    "ESP_aMin(n * 2)": "int64",
    "ESP_aSum(x) / ESP_aCount()": "double",
    "ESP_aCount(x)": "int32",
}
ROW_FUNCTIONS = {
    "ESP_aLast(x)": "double",
    "ESP_aFirst(s)": "string",
    "ESP_aMedian(x)": "double",
    "ESP_aCountDistinct(s)": "int64",
    "ESP_aSum(n)": "int32",
    "ESP_aSumTimed(x, 3)": "double",
}
CONDITIONS = ("x > 1.5", "n >= 2", "s == 'a'", "x > 0 and n < 3", "isnull(x)")
DERIVED = (("s", "s"), ("n", "n + 1"), ("x", "x * 2"), ("t", "t"))
TIME_LIMITS = (1, 2, 4, 9)


@dataclass
class Draft:
    """A model on its way: windows so far, and which of them have the fields of a source."""

    windows: list[Window] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    schemas: dict[str, str] = field(default_factory=dict)
    """For windows whose rows look like a source's: its schema."""

    def add(
        self, window: Window, parents: list[str], schema: str | None = None, slots: list[int] | None = None
    ) -> None:
        self.windows.append(window)
        for place, parent in enumerate(parents):
            self.edges.append(Edge(source=parent, target=window.name, slot=-1 if slots is None else slots[place]))
        if schema is not None:
            self.schemas[window.name] = schema


@st.composite
def retentions(draw, *, on_field: bool | None = None) -> Retention:
    kind = draw(st.sampled_from(["bytime_sliding"] * 3 + ["bytime_jumping", "bytime_jumping_lookback"]))
    if on_field is None:
        kind = draw(st.sampled_from([kind, kind, "bycount_sliding", "bycount_jumping"]))
    if kind.startswith("bycount"):
        return Retention(kind=kind, limit=draw(st.integers(1, 5)))
    uses_field = draw(st.booleans()) if on_field is None else on_field
    unit = draw(st.sampled_from(TIME_LIMITS)) * SECOND if kind.endswith("lookback") else None
    limit = draw(st.sampled_from(TIME_LIMITS)) * SECOND
    return Retention(kind=kind, limit=limit, field="t" if uses_field else None, unit_us=unit)


@st.composite
def sources(draw, name: str, schema: str) -> SourceWindow:
    shape = draw(
        st.sampled_from(["unique"] * 9 + ["keyed"] * 3 + ["autogen"] * 2 + ["passing", "unresolved", "retaining"])
    )
    if shape == "autogen" and not schema.startswith(("id*:int64,s:", "id*:string")):
        shape = "unique"
    return SourceWindow(
        name=name,
        schema=Schema.parse(schema),
        insert_only=shape in ("unique", "autogen", "passing"),
        autogen_key=shape == "autogen",
        index="pi_EMPTY" if shape in ("passing", "unresolved") else None,
        retention=draw(retentions()) if shape == "retaining" else None,
    )


@st.composite
def options(draw) -> dict[str, object]:
    kind = draw(st.sampled_from([""] * 12 + ["inserts", "collapse", "pulse"]))
    if kind == "inserts":
        return {"output_insert_only": True}
    if kind == "collapse":
        return {"collapse_updates": True}
    return {"pulse_us": 2 * SECOND} if kind == "pulse" else {}


@st.composite
def aggregates(draw, name: str, *, columns_only: bool = False) -> AggregateWindow:
    functions = FUNCTIONS if columns_only or draw(st.integers(0, 4)) else {**FUNCTIONS, **ROW_FUNCTIONS}
    chosen = draw(st.lists(st.sampled_from(sorted(functions)), min_size=1, max_size=5))
    grouping = "s*:string" if columns_only else draw(st.sampled_from(GROUPINGS))
    fields = ",".join(f"f{place}:{functions[text]}" for place, text in enumerate(chosen))
    return AggregateWindow(name=name, schema=Schema.parse(f"{grouping},{fields}"), fields=tuple(chosen))


def _compute(name: str, schema: str) -> ComputeWindow:
    made = [text for field, text in DERIVED if not Schema.parse(schema)[field].key]
    return ComputeWindow(name=name, schema=Schema.parse(schema), fields=tuple(made))


def _rekeyed(name: str, schema: str, index: str | None, *, is_wider: bool) -> ComputeWindow:
    """Rows under another key: n instead of what it was, or beside it."""
    parts = [
        f"{each.name}{'*' if each.name == 'n' or (each.key and is_wider) else ''}:{each.type.value}"
        for each in Schema.parse(schema)
    ]
    made = Schema.parse(",".join(parts))
    return ComputeWindow(name=name, schema=made, fields=tuple(each.name for each in made if not each.key), index=index)


@st.composite
def _one_parent(draw, name: str, kind: str, parent: str, schema: str) -> tuple[Window, str | None]:
    """A window below one that looks like a source; and the schema if it looks like one, too."""
    if kind == "copy":
        retention = draw(st.none() | retentions() | retentions(on_field=True) | retentions(on_field=False))
        index = draw(st.sampled_from([None, None, "pi_EMPTY"])) if retention is None else None
        return CopyWindow(name=name, retention=retention, index=index), schema
    if kind == "filter":
        return FilterWindow(name=name, expression=draw(st.sampled_from(CONDITIONS))), schema
    if kind == "stateful":
        first = Initializer(text="integer k; k = 0")
        return FilterWindow(name=name, expression="k = k + 1 return k < 6", initialize=first), schema
    if kind == "compute":
        return _compute(name, schema), schema
    if kind == "rekeyed":
        index = draw(st.sampled_from([None, None, "pi_EMPTY"]))
        return _rekeyed(name, schema, index, is_wider=draw(st.booleans())), None
    if kind == "narrow":
        keys = ",".join(str(each) for each in Schema.parse(schema) if each.key)
        return ComputeWindow(name=name, schema=Schema.parse(f"{keys},w:int32"), fields=("n * 1000000000",)), None
    if kind == "counter":
        return CounterWindow(name=name), None
    if kind == "pattern":
        return _pattern(name, parent), None
    if kind == "remove-state":
        return RemoveStateWindow(name=name, remove=draw(st.sampled_from([(), ("deletes",)]))), None
    return draw(aggregates(name)), None


def _pattern(name: str, parent: str) -> PatternWindow:
    events = (
        PatternEvent(name="e1", source=parent, expression="x > 1.0"),
        PatternEvent(name="e2", source=parent, expression="x < 1.0"),
    )
    output = (PatternOutput(node="e1", field="x"), PatternOutput(node="e2", field="x"))
    pattern = Pattern(events=events, logic="fby(e1, e2)", output=output)
    return PatternWindow(name=name, schema=Schema.parse("k*:int64,a:double,b:double"), patterns=(pattern,))


ONE_PARENT = (
    ["copy"] * 5
    + ["aggregate"] * 5
    + ["filter", "compute", "stateful", "narrow", "counter", "remove-state", "pattern"]
    + ["rekeyed"]
)


@st.composite
def _child(draw, draft: Draft, number: int) -> None:
    name = f"w{number}"
    kind = draw(st.sampled_from([*ONE_PARENT, "union", "join", "slots"]))
    known = sorted(draft.schemas)
    parent = draw(st.sampled_from(known))
    schema = draft.schemas[parent]
    if kind in ("union", "join"):
        other = draw(st.sampled_from([each for each in known if draft.schemas[each] == schema]))
        window = UnionWindow(name=name) if kind == "union" else _join(name, schema)
        if other != parent:
            draft.add(window, [parent, other], schema if kind == "union" else None)
        return
    if kind == "slots":
        splitting = CopyWindow(name=f"{name}s", splitter=Splitter(expression="n"))
        draft.add(splitting, [parent])
        draft.add(CopyWindow(name=name), [splitting.name], schema, [draw(st.integers(-1, 2))])
        return
    window, made = draw(_one_parent(name, kind, parent, schema))
    draft.add(replace(window, **draw(options())), [parent], made)


def _join(name: str, schema: str) -> JoinWindow:
    keys = [each.name for each in Schema.parse(schema) if each.key]
    copied = [JoinField(name=key, source=f"l_{key}") for key in keys]
    fields = (*copied, JoinField(name="lx", source="l_x"), JoinField(name="rx", source="r_x"))
    return JoinWindow(name=name, conditions=tuple((key, key) for key in keys), fields=fields)


@st.composite
def models(draw) -> Graph:
    """Any model."""
    draft = Draft()
    schema = draw(st.sampled_from(SOURCES))
    for number in range(draw(st.integers(1, 2))):
        name = f"in{number}"
        draft.add(draw(sources(name, schema)), [], schema)
    for number in range(draw(st.integers(1, 6))):
        draw(_child(draft, number))
    return compiled(draft)


@st.composite
def shardable_models(draw) -> Graph:
    """A model whose plan divides it: an insert-only source, copies by a time field, aggregates by one field."""
    draft = Draft()
    schema = draw(st.sampled_from(SOURCES[:3]))
    window = SourceWindow(name="in0", schema=Schema.parse(schema), insert_only=True)
    draft.add(window, [], schema)
    for number in range(draw(st.integers(1, 3))):
        parent = "in0"
        if draw(st.integers(0, 3)):
            parent = f"c{number}"
            draft.add(CopyWindow(name=parent, retention=draw(retentions(on_field=True))), ["in0"], schema)
        if draw(st.booleans()):
            draft.add(FilterWindow(name=f"f{number}", expression=draw(st.sampled_from(CONDITIONS))), [parent], schema)
            parent = f"f{number}"
        draft.add(draw(aggregates(f"a{number}", columns_only=True)), [parent])
    return compiled(draft)


def compiled(draft: Draft) -> Graph:
    """The graph of a draft; drafts that validation refuses are not tried."""
    query = ContinuousQuery(name="q", windows=tuple(draft.windows), edges=tuple(draft.edges))
    try:
        return compile_project(Project(name="p", queries=(query,)))
    except ModelInvalid:
        reject()


DOUBLES = st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.25, 0.1, -3.0, 1e17, 1e-9, 1.7e308, float("nan"), float("inf")])
FAR_TIMES = (-(2**63), -(2**61) - 1, -(2**61), 2**61 - 1, 2**61, 2**61 + 1, 2**61 + 10**6, 2**63 - 1)
CALM_DOUBLES = st.sampled_from([0.1, 0.2, 1.5, 2.25, 3.7, -4.0, 1e9])


@st.composite
def rows(draw, schema: Schema, now: int, *, calm: bool) -> tuple[object, ...]:
    """The values of a row, `now` seconds after the start."""
    values: list[object] = []
    for each in schema:
        if draw(st.integers(0, 30)) == 0:
            values.append(None)
        elif each.type is FieldType.DOUBLE:
            values.append(draw(CALM_DOUBLES if calm else DOUBLES))
        elif each.type is FieldType.STRING:
            values.append(draw(st.sampled_from("abcde" if each.name == "s" else "klmnopqr")))
        elif each.type.is_time:
            unit = SECOND if each.type is FieldType.STAMP else 1
            if draw(st.integers(0, 30)) == 0:
                values.append(draw(st.sampled_from(FAR_TIMES)) // (SECOND if draw(st.booleans()) else 1))
            else:
                values.append((now + draw(st.sampled_from([0, 0, 0, -1, -5]))) * unit)
        else:
            values.append(draw(st.integers(0, 12 if each.key else 4)))
    return tuple(values)


OPCODES = [Opcode.INSERT] * 6 + [Opcode.UPSERT] * 2 + [Opcode.UPDATE, Opcode.DELETE, Opcode.SAFEDELETE]


@st.composite
def _events(draw, source: Node, now: int, size: int, serial: list[int]) -> tuple[Event, ...]:
    made = []
    calm = draw(st.booleans())
    for _ in range(size):
        values = draw(rows(source.schema, now, calm=calm))
        opcode = draw(st.sampled_from(OPCODES))
        if source.window.insert_only and draw(st.integers(0, 9)):  # type: ignore[attr-defined]
            opcode = Opcode.INSERT
            values = (_fresh(source.schema, serial), *values[1:])
        flags = draw(st.sampled_from([Flag.NORMAL] * 6 + [Flag.PARTIAL]))
        made.append(Event(opcode, flags, values))
    return tuple(made)


def _fresh(schema: Schema, serial: list[int]) -> object:
    """A key that did not occur before."""
    serial[0] += 1
    return f"k{serial[0]}" if schema.fields[0].type is FieldType.STRING else 100 + serial[0]


@st.composite
def scripts(draw, graph: Graph) -> list[InputBlock]:
    """Blocks 1, 2, 3, ... for a model: mostly few events each, now and then a tick, a transaction or nothing."""
    inputs = [node for node in graph.nodes if node.is_source]
    blocks, now, clock, serial = [], 1000, 1000, [0]
    for number in range(1, draw(st.integers(1, 25)) + 1):
        now += draw(st.sampled_from([0, 0, 1, 1, 3, 12]))
        if draw(st.integers(0, 5)) == 0:
            clock += draw(st.sampled_from([-2, 0, 1, 2, 5]))
            is_far = draw(st.integers(0, 20)) == 0
            tick_us = draw(st.sampled_from((0, -SECOND, *FAR_TIMES))) if is_far else clock * SECOND
            blocks.append(InputBlock(number, tick_us=tick_us))
            continue
        source = draw(st.sampled_from(inputs))
        events = draw(_events(source, now, draw(st.sampled_from([0, 1, 1, 1, 2, 3, 6])), serial))
        blocks.append(InputBlock(number, source.path, events, draw(st.integers(0, 7)) == 0))
    return blocks


@st.composite
def cuts(draw, blocks: int) -> list[int]:
    """Where spans end: block numbers, the last one included; from one block each to everything at once."""
    inner = draw(st.sets(st.integers(1, max(1, blocks - 1)), max_size=6)) if blocks > 1 else set()
    if draw(st.integers(0, 5)) == 0:
        inner = set(range(1, blocks))
    return [*sorted(inner - {blocks}), blocks]
