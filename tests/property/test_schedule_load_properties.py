"""A load against a slow and obvious fold: the last line for a tenant and id counts, however files are cut and read."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.core.agenda import Upsert
from lockstep.schedule import requests
from lockstep.schedule.rows import routing_key
from lockstep.schedule.spark import requests as writes
from lockstep.schedule.spark.load import _line
from lockstep.schedule.spark.requests import REJECTED, LineCheck, last_of_each

CHECK = LineCheck(tenants=frozenset({"s", "t"}), shards=8, partitioner="crc32", run=b"run")
DAYS = [f"2027-01-0{day}T00:00Z" for day in range(1, 5)]

events = st.fixed_dictionaries(
    {"id": st.sampled_from("abcdef"), "tenant": st.sampled_from(["s", "t", "nobody"])},
    optional={
        "eventTime": st.sampled_from([*DAYS, "tomorrow"]), "payload": st.text("xyz", max_size=5),
        "mode": st.sampled_from(["UPSERT", "REMOVE"]),
        "deliveryOption": st.sampled_from(["FULL_EVENT", "PAYLOAD_ONLY"]),
    },
)  # fmt: skip
lines = st.one_of(events.map(json.dumps), st.sampled_from(["", "{", "[]", "null"]))
files = st.lists(st.lists(lines, max_size=12), min_size=1, max_size=4)


def parts_of(text: bytes, cuts: list[int]) -> list[tuple[int, list[bytes]]]:
    """Lines by parts of a file, as Spark reads them: a part reads on to the end of the line at its own end."""
    edges = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    begins = [0, *(at + 1 for at in range(len(text)) if text[at : at + 1] == b"\n" and at + 1 < len(text))]
    found = []
    for start, stop in pairwise(edges):
        own = [begin for begin in begins if (begin > start or start == 0) and begin <= stop]
        found.append((start, [text[begin:].partition(b"\n")[0] for begin in own]))
    return found


def fold(texts: dict[str, list[str]]) -> tuple[dict[bytes, tuple], int]:
    last: dict[bytes, tuple] = {}
    rejected = 0
    for place in sorted(texts):
        for number, text in enumerate(texts[place]):
            found = CHECK._checked(text.encode(), place, 0, number)
            if found is None:
                continue
            if found[0] == REJECTED:
                rejected += 1
                continue
            fields = json.loads(text)
            removes = fields.get("mode") == "REMOVE"
            what = None if removes else (fields["eventTime"], fields.get("payload"))
            last[routing_key(fields["tenant"], fields["id"])] = what
    return last, rejected


@settings(max_examples=150)
@given(files, st.lists(st.integers(0, 2000), max_size=5), st.randoms(use_true_random=False))
def test_the_last_line_counts_however_files_are_cut_and_read(given_files, cuts, chance: random.Random):
    texts = {f"file-{number}": own for number, own in enumerate(given_files)}
    parts = [
        (place, start, own)
        for place, listed in texts.items()
        for start, own in parts_of("\n".join(listed).encode(), cuts)
    ]
    assert sum(len(own) for _, _, own in parts) >= sum(map(len, given_files)) - len(given_files)
    chance.shuffle(parts)
    rows = []
    tasks = [parts[at :: 2 + len(parts) // 3] for at in range(2 + len(parts) // 3)]
    for task in tasks:
        flat = [(line, place, start, None) for place, start, own in task for line in own]
        size = chance.randint(1, 5)
        batches = [flat[at : at + size] for at in range(0, len(flat), size)]
        for batch in CHECK(iter(arrow(batch) for batch in batches)):
            rows += list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    rows.sort(key=lambda row: (row[0], row[1] or b"", row[2], row[3], row[4]))
    summary = writes._Summary(10)
    kept = {row[1]: row[6] for row in last_of_each(iter([row for row in rows if row[0] != REJECTED]), summary)}
    expected, rejected = fold(texts)
    assert kept.keys() == expected.keys()
    assert sum(row[0] == REJECTED for row in rows) == rejected
    for key, value in kept.items():
        request, ask = requests.decode(value)
        assert ask is None
        if expected[key] is None:
            assert not isinstance(request, Upsert)
        else:
            at, payload = expected[key]
            assert (request.at % 86_400_000, DAYS[request.at // 86_400_000 - 20_819]) == (0, at)
            assert request.payload == (None if payload is None else payload.encode())
    total = summary.counts
    assert total[writes.WRITTEN] + total[writes.REPLACED] == sum(row[0] != REJECTED for row in rows)


def arrow(batch: list[tuple]) -> pa.RecordBatch:
    kinds = (pa.binary(), pa.string(), pa.int64(), pa.int64())
    columns = [pa.array(column, kind) for column, kind in zip(zip(*batch, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=["value", "place", "start", "row"])


@settings(max_examples=100)
@given(st.lists(st.text("ab", max_size=6), min_size=1, max_size=30), st.lists(st.integers(0, 300), max_size=6))
def test_a_line_has_its_number_whichever_part_it_is_in(tmp_path_factory, texts, cuts):
    data = "\n".join(f"{number}{text}" for number, text in enumerate(texts, 1)).encode()
    path: Path = tmp_path_factory.getbasetemp() / "numbered"
    path.write_bytes(data)
    seen = []
    for start, own in parts_of(data, cuts):
        for row, line in enumerate(own):
            number = _line(str(path), start, row)
            assert line.decode() == f"{number}{texts[number - 1]}"
            seen.append(number)
    assert sorted(seen) == list(range(1, len(texts) + 1))
