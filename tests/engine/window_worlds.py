"""A project on a disk whose windows were published to by hand, and its windows as Spark's processes would read them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

import lockstep
from lockstep.engine.events.schema import Schema
from lockstep.engine.model.graph import Graph
from lockstep.engine.model.loading import to_yaml
from lockstep.engine.model.project import ContinuousQuery, Project
from lockstep.engine.model.validation import compile_project
from lockstep.engine.model.windows import SourceWindow
from lockstep.engine.runtime.sequence.streams import ProjectStreams
from lockstep.engine.spark.rows import LockstepSource
from lockstep.log.batch import NO_PRODUCER, pack

EVERY = Schema.parse(
    "id*:int64,i:int32,d:double,s:string,day:date,at:stamp,m:money,b:blob,xs:array(i32),ys:array(i64),zs:array(dbl)"
)
SMALL = Schema.parse("ID*:int64,name:string")


def source_graph(schema: Schema, **more: object) -> Graph:
    """A project `desk` with one source window `w`."""
    query = ContinuousQuery(name="q", windows=(SourceWindow(name="w", schema=schema, **more),), edges=())
    return compile_project(Project(name="desk", queries=(query,)))


class WindowWorld:
    """One window that is published, on a bus of its own."""

    def __init__(self, folder: Path, schema: Schema, **more: object) -> None:
        self.graph = source_graph(schema, **more)
        self.model = folder / "desk.yaml"
        self.model.write_text(to_yaml(self.graph.project))
        self.connection = lockstep.connect(f"lmdb:{folder / 'bus'}?durability=relaxed")
        self.bus = self.connection.bus
        self.url = self.bus.url.partition("?")[0]
        self.streams = ProjectStreams(cluster="local", project="desk")
        self.streams.create(self.bus, self.graph, frozenset({"q/w"}))
        [self.node] = self.graph.nodes
        self.out = self.bus.open(self.streams.output(self.node))

    def put(self, *values: bytes) -> None:
        """Records of the out stream, one append each."""
        for value in values:
            self.out.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0)])

    def source(self, **options: object) -> LockstepSource:
        """The data source, as each of Spark's processes makes it."""
        given = {"url": self.url, "project": "desk", "window": "w", "model": self.model, **options}
        return LockstepSource({name: str(value) for name, value in given.items()})

    def read(self, asked: StructType | None = None, **options: object) -> pa.Table:
        """Everything that a batch job reads."""
        source = self.source(**options)
        schema = asked or source.schema()
        reader = source.reader(schema)
        return table([part for one in reader.partitions() for part in sent(reader).read(sent(one))], reader)

    def close(self) -> None:
        self.connection.close()


def sent(thing):
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(thing))


def table(parts: Sequence[pa.RecordBatch], reader) -> pa.Table:
    """Batches as one table, whose schema is to the letter what Spark asked for."""
    for part in parts:
        part.validate(full=True)
    return pa.Table.from_batches(parts, schema=reader._blocks.schema)
