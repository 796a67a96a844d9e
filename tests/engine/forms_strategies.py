"""Random projects with windows of every kind: as full as the dataclasses allow, though few of them could run."""

from __future__ import annotations

from hypothesis import strategies as st

from lockstep.engine.events.schema import Field, FieldType, Schema
from lockstep.engine.model import project as p
from lockstep.engine.model import windows as w

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
texts = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cn"), exclude_characters="\ufeff\ufffe\uffff")
    | st.sampled_from("\n\t ,;:#'\"<>&->|{}[]=$"),
    max_size=20,
)
awkward = st.sampled_from(
    ["true", "null", "~", "", "007", "1", "1.5", "yes", "=", "<<", "- a", "a: b", "  x", "x\n", "*"]
)
free = texts | awkward
full = free.filter(bool)
numbers = st.integers(0, 2**63 - 1)
micros = st.integers(1, 10**6).map(lambda n: n * 1_000_000) | st.integers(0, 2**62)
maybe = st.none() | names
types = st.sampled_from(FieldType)
pairs = st.lists(st.tuples(names, free), max_size=3).map(tuple)
indexes = st.none() | st.sampled_from(w.INDEXES)


@st.composite
def schemas(draw, min_size=0):
    found = draw(st.lists(names, unique=True, min_size=min_size, max_size=4))
    return Schema(tuple(Field(name, draw(types), draw(st.booleans())) for name in found))


@st.composite
def retentions(draw):
    kind = draw(st.sampled_from(w.RETENTION_KINDS))
    by_time = kind.startswith("bytime")
    return w.Retention(
        kind=kind,
        limit=draw(micros if by_time else st.integers(0, 10**9)),
        field=draw(maybe),
        unit_us=draw(st.none() | micros),
    )


def some(item, size=3):
    return st.lists(item, max_size=size).map(tuple)


functions = st.builds(w.UserFunction, name=names, text=free, type=types)
initializers = st.builds(w.Initializer, text=free, type=types, functions=some(functions, 2))
splitters = st.builds(w.Splitter, expression=free, initialize=st.none() | initializers)
connectors = st.builds(
    w.Connector,
    kind=names,
    name=names | st.just(""),
    properties=pairs,
    direction=st.none() | st.sampled_from(["publish", "subscribe"]),
    active=st.booleans(),
    description=free,
)
plugs = st.builds(
    w.FieldPlug,
    module=names,
    function=names,
    fields=some(names),
    additive=st.none() | st.booleans(),
    additive_insert_only=st.none() | st.booleans(),
)
join_fields = st.builds(
    w.JoinField, name=names, source=st.none() | names, expression=st.none() | free, type=st.none() | types
)
pattern_events = st.builds(w.PatternEvent, name=names, source=names, expression=free)
pattern_outputs = st.builds(w.PatternOutput, node=names, field=names) | st.builds(
    w.PatternOutput, node=maybe, field=maybe, expression=st.none() | free
)
patterns = st.builds(
    w.Pattern,
    name=names | st.just(""),
    events=some(pattern_events),
    logic=free,
    output=some(pattern_outputs),
    index=some(names),
    time_fields=st.lists(st.tuples(names, names), max_size=2).map(tuple),
    is_active=st.booleans(),
)


@st.composite
def context_properties(draw):
    kind = draw(st.sampled_from(["xml", "json", "map", "list", "set", "string"]))
    dividers = {"outer": draw(st.none() | free), "inner": draw(st.none() | free)}
    return w.ContextProperty(name=draw(names), kind=kind, text=draw(free), **dividers)


@st.composite
def loops(draw):
    kind = draw(st.sampled_from(["regex", "xml", "json"]))
    return w.EventLoop(
        name=draw(names),
        use=draw(free),
        item=draw(free),
        kind=kind,
        functions=draw(pairs),
        properties=draw(some(context_properties(), 2)),
        data=draw(names),
        group=draw(st.integers(0, 9)),
    )


@st.composite
def channels(draw):
    kind = draw(st.sampled_from(["email", "sms", "mms"]))
    return w.Channel(
        kind=kind,
        sender=draw(free),
        to=draw(free),
        subject=draw(free),
        body=draw(free),
        deliver=draw(st.none() | free),
        throttle_us=draw(st.none() | micros),
        name=draw(names | st.just("")),
        gateway=draw(free),
        shown_sender=draw(free),
        shown_to=draw(free),
        html=draw(free),
        image=draw(free),
        unresolved=draw(st.none() | free),
        test=draw(st.booleans()),
    )


smtp = st.builds(w.SmtpServer, host=names, port=st.integers(1, 65535), user=st.none() | full, password_variable=maybe)

BODIES = {
    w.SourceWindow: {
        "schema": schemas(),
        "insert_only": st.booleans(),
        "autogen_key": st.booleans(),
        "retention": st.none() | retentions(),
    },
    w.CopyWindow: {"retention": st.none() | retentions()},
    w.AggregateWindow: {
        "schema": schemas(),
        "fields": some(free | plugs, 4),
        "initialize": st.none() | initializers,
    },
    w.FilterWindow: {"expression": free, "initialize": st.none() | initializers},
    w.ComputeWindow: {"schema": schemas(), "fields": some(free, 4), "initialize": st.none() | initializers},
    w.JoinWindow: {
        "type": st.sampled_from(w.JOIN_TYPES),
        "conditions": st.lists(st.tuples(names, names), max_size=3).map(tuple),
        "fields": some(join_fields, 4),
        "no_regenerates": st.booleans(),
        "left_index": indexes,
        "right_index": indexes,
    },
    w.UnionWindow: {"strict": st.booleans()},
    w.PatternWindow: {"schema": schemas(), "patterns": some(patterns, 2)},
    w.FunctionalWindow: {
        "schema": schemas(),
        "functions": pairs,
        "generate": st.none() | full,
        "opcode": st.none() | full,
        "loops": some(loops(), 2),
        "produces_only_inserts": st.booleans(),
        "properties": some(context_properties(), 2),
        "expressions": pairs,
    },
    w.CounterWindow: {"count_us": st.none() | micros, "clear_us": st.none() | micros},
    w.TransposeWindow: {
        "mode": st.sampled_from(["wide", "long"]),
        "tag_name": names,
        "tag_values": some(names),
        "tags_included": some(names),
        "group_by": some(names),
        "clear_us": st.none() | micros,
    },
    w.RemoveStateWindow: {"remove": some(st.sampled_from(w.REMOVABLE)), "add_log_fields": st.booleans()},
    w.NotificationWindow: {
        "smtp": smtp,
        "channels": some(channels()),
        "functions": pairs,
        "schema": st.none() | schemas(min_size=1),
        "properties": some(context_properties(), 2),
    },
    w.ProceduralWindow: {"schema": schemas(), "module": names, "handler": names},
    w.CustomWindow: {
        "schema": schemas(),
        "module": names,
        "class_": names,
        "version": names,
        "properties": some(st.tuples(names, free), 2),
        "tick_us": st.none() | micros,
    },
}


def windows_of(kind):
    """Random windows of one class."""
    return st.builds(
        kind,
        name=names,
        pubsub=st.none() | st.booleans(),
        index=indexes,
        pubsub_index=indexes,
        output_insert_only=st.booleans(),
        collapse_updates=st.booleans(),
        pulse_us=st.none() | micros,
        splitter=st.none() | splitters,
        connectors=some(connectors, 2),
        description=free,
        **BODIES[kind],
    )


windows = st.sampled_from(list(BODIES)).flatmap(windows_of)
edges = st.builds(p.Edge, source=names, target=names, role=maybe, slot=st.integers(-1, 9))


@st.composite
def queries(draw):
    """Queries whose edges are either any at all, or those a builder would draw: each window below earlier ones."""
    found = draw(st.lists(windows, max_size=4, unique_by=lambda window: window.name))
    if draw(st.booleans()):
        drawn = draw(some(edges, 4))
    else:
        drawn = tuple(
            p.Edge(source=before.name, target=window.name, slot=draw(st.integers(-1, 1)))
            for place, window in enumerate(found)
            for before in draw(st.permutations(found[:place]))[:2]
        )
    return p.ContinuousQuery(
        name=draw(names),
        windows=tuple(found),
        edges=drawn,
        trace=draw(some(names)),
        index=draw(indexes),
        timing_threshold=draw(st.none() | numbers),
        include_singletons=draw(st.none() | st.booleans()),
        metadata=draw(pairs),
        description=draw(free),
    )


groups = st.builds(
    p.ConnectorGroup,
    name=names,
    entries=some(st.builds(p.ConnectorEntry, connector=names, state=st.sampled_from(["running", "finished"]))),
)


def projects_with(inner):
    """Random projects of these queries."""
    flags = st.none() | st.booleans()
    return st.builds(
        p.Project,
        name=names,
        queries=some(inner, 2),
        pubsub=st.sampled_from(["auto", "manual", "none"]),
        threads=st.none() | numbers,
        index=st.sampled_from(w.INDEXES),
        heartbeat_us=micros,
        restore=st.none() | full,
        disk_store_path=st.none() | full,
        retention_tracking=flags,
        use_tagged_token=flags,
        compress_open_patterns=flags,
        port=st.none() | st.integers(0, 65535),
        connector_groups=some(groups, 2),
        connector_edges=some(st.builds(p.GroupEdge, source=names, target=names)),
        metadata=pairs,
        description=free,
    )


projects = projects_with(queries())


def project_of(window):
    """A project with this window only."""
    return p.Project(name="one", queries=(p.ContinuousQuery(name="q", windows=(window,)),))
