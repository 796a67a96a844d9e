"""The one stateful operator: hands work orders to a worker, and keeps its snapshots in Spark's state store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

RESULT = (
    "shard int, stop bigint, first_block bigint, last_block bigint, events bigint, output_bytes bigint,"
    " pages int, page_bytes bigint"
)
"""One row for each batch of a shard: what was done, for Spark's own figures."""
_NAME = StructType([StructField("name", StringType())])
_PAGE = StructType([StructField("page", BinaryType())])


class WindowProcessor(StatefulProcessor):
    """Its plan does not depend on the model: whatever the windows are, Spark sees shards, orders and pages."""

    def __init__(self, setup: str) -> None:
        self._setup = setup

    def init(self, handle: StatefulProcessorHandle) -> None:
        """See StatefulProcessor."""
        self._pages = handle.getMapState("pages", _NAME, _PAGE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002
        """Evaluate the orders of one shard."""
        # Here, not at the top: of the processes that Spark makes for this class only one does the work.
        from lockstep.engine.runtime.setup import EngineSetup
        from lockstep.engine.spark.hot import run_orders_patiently

        shard, orders = key[0], sorted((row["start"], row["stop"]) for row in rows)
        pages, done = run_orders_patiently(EngineSetup.of(self._setup), shard, orders, self._stored, self._stored_head)
        for name, page in pages.items():
            if page is not None:
                self._pages.updateValue((name,), (page,))
            elif self._pages.containsKey((name,)):
                self._pages.removeKey((name,))
        size = sum(len(page) for page in pages.values() if page is not None)
        yield Row(
            shard=shard, stop=orders[-1][1], first_block=done.first, last_block=done.last, events=done.events,
            output_bytes=done.output_bytes, pages=len(pages), page_bytes=size,
        )  # fmt: skip

    def _stored(self) -> dict[str, bytes]:
        return {name[0]: bytes(page[0]) for name, page in self._pages.iterator()}

    def _stored_head(self) -> bytes | None:
        from lockstep.engine.runtime.snapshots.snapshot import HEAD

        found = self._pages.getValue((HEAD,)) if self._pages.containsKey((HEAD,)) else None
        return None if found is None else bytes(found[0])

    def close(self) -> None:
        """See StatefulProcessor."""
