"""Models whose sources take the records of streams that are not the project's own, and records for them."""

from __future__ import annotations

from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.project import ContinuousQuery, Edge, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import AggregateWindow, CopyWindow, Retention, SourceWindow
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.port import Log

PLAIN = Schema.parse("shard*:int32,offset*:int64,key:string,value:string,time:stamp")
ORDERS = Schema.parse("ID*:int64,symbol:string,quantity:int32")
WANTED = frozenset({"q/Orders", "q/Counts"})


def records_graph(schema: Schema = PLAIN, by: str = "key", **source: object) -> Graph:
    """A source over stream `orders`, its last three rows, and how many of them there are for each key."""
    given: dict[str, object] = {"insert_only": True, **source}
    counts = Schema.parse(f"{by}*:string,n:int64")
    windows = (
        SourceWindow(name="Orders", schema=schema, form="records", stream="orders", **given),  # type: ignore[arg-type]
        CopyWindow(name="Last", retention=Retention(kind="bycount_sliding", limit=3)),
        AggregateWindow(name="Counts", schema=counts, fields=("ESP_aCount()",)),
    )
    edges = (Edge(source="Orders", target="Last"), Edge(source="Last", target="Counts"))
    return compile_project(Project(name="p", queries=(ContinuousQuery(name="q", windows=windows, edges=edges),)))


def put_batch(
    log: Log,
    *values: bytes,
    producer: bytes = NO_PRODUCER,
    sequence: int = 0,
    keys: list[bytes | None] | None = None,
    created_ns: int = 5_000,
) -> None:
    """Several records as one stored batch."""
    log.append([pack(values, producer=producer, sequence=sequence, created_ns=created_ns, keys=keys)])
