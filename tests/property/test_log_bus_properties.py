"""Embedded buses against the slowest and most obvious bus there could be: lists."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from lockstep.errors import ConfigMismatch, OffsetConflict, StreamNotFound, Trimmed
from lockstep.log.batch import BatchView, pack
from lockstep.log.config import StreamConfig
from lockstep.log.memory import MemoryBroker
from lockstep.log.urls import open_bus
from lockstep.runtime import ThreadRuntime
from lockstep.testing.contract import records

NAMES = st.sampled_from(["a", "ab", "b"])
PRODUCERS = st.sampled_from([b"p" * 16, b"q" * 16])
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=3)
CAPACITIES = st.sampled_from([None, 1, 3, 10])


@dataclass
class ListLog:
    """A log as a list of values, with an offset for each."""

    capacity: int | None
    values: list[bytes] = field(default_factory=list)
    first: int = 0
    sequences: dict[bytes, int] = field(default_factory=dict)

    def retain(self):
        if self.capacity is not None:
            self.first = max(self.first, len(self.values) - self.capacity)

    def readable(self):
        return list(enumerate(self.values))[self.first :]


class BusMachine(RuleBasedStateMachine):
    sent = Bundle("sent")

    def __init__(self):
        super().__init__()
        self.logs: dict[str, ListLog] = {}
        self.identities: dict[str, str] = {}
        self.serial = 0

    def open(self):
        raise NotImplementedError

    @initialize()
    def start(self):
        self.bus = self.open()

    @rule()
    def reopen(self):
        self.bus.close()
        self.bus = self.open()

    @rule(name=NAMES, capacity=CAPACITIES)
    def create(self, name, capacity):
        config = StreamConfig(capacity=capacity)
        if name in self.logs and self.logs[name].capacity != capacity:
            with pytest.raises(ConfigMismatch):
                self.bus.create(name, config)
            return
        log = self.bus.create(name, config)
        if name not in self.logs:
            assert log.identity not in self.identities.values()
            self.logs[name], self.identities[name] = ListLog(capacity), log.identity
        assert log.identity == self.identities[name]

    @rule(name=NAMES)
    def delete(self, name):
        if name in self.logs:
            self.bus.delete(name)
            del self.logs[name]
        else:
            with pytest.raises(StreamNotFound):
                self.bus.delete(name)

    @rule(target=sent, name=NAMES, producer=PRODUCERS, sizes=SIZES)
    def append(self, name, producer, sizes):
        if name not in self.logs:
            return (None, None, [], [])
        model = self.logs[name]
        batches, bases = [], []
        for size in sizes:
            batches.append(self.batch(model, producer, size))
            bases.append(len(model.values))
            model.values += self.values_of(batches[-1])
        model.retain()
        assert self.bus.open(name).append(batches) == bases
        return (name, self.identities[name], batches, bases)

    @rule(sent=sent)
    def append_again(self, sent):
        name, identity, batches, bases = sent
        if name not in self.logs or identity != self.identities[name]:
            return
        again = self.bus.open(name).append(batches)
        for found, base, batch in zip(again, bases, batches, strict=True):
            if base + batch.count > self.logs[name].first:
                assert found == base

    @rule(sent=consumes(sent), expected=st.integers(0, 5))
    def append_on_condition(self, sent, expected):
        name = sent[0]
        if name not in self.logs:
            return
        model = self.logs[name]
        batch = self.batch(model, b"r" * 16, 1, count=False)
        if expected == len(model.values):
            model.sequences[batch.producer] = batch.sequence + 1
            assert self.bus.open(name).append([batch], expected_next=expected) == [expected]
            model.values += self.values_of(batch)
            model.retain()
        else:
            with pytest.raises(OffsetConflict):
                self.bus.open(name).append([batch], expected_next=expected)

    @rule(name=NAMES, before=st.integers(0, 40))
    def trim(self, name, before):
        if name in self.logs:
            model = self.logs[name]
            model.first = max(model.first, min(before, len(model.values)))
            self.bus.open(name).trim(before)

    @rule(name=NAMES, offset=st.integers(0, 40))
    def read(self, name, offset):
        if name not in self.logs:
            with pytest.raises(StreamNotFound):
                self.bus.open(name)
            return
        model, log = self.logs[name], self.bus.open(name)
        if offset < model.first:
            with pytest.raises(Trimmed):
                log.read(offset)
        else:
            expected = [pair for pair in model.readable() if pair[0] >= offset]
            assert records(log, offset) == expected

    @invariant()
    def the_bus_holds_what_the_lists_hold(self):
        if not hasattr(self, "bus"):
            return
        assert self.bus.names() == sorted(self.logs)
        for name, model in self.logs.items():
            log = self.bus.open(name)
            bounds = log.bounds()
            assert (bounds.first, bounds.next) == (model.first, len(model.values))
            assert records(log) == model.readable()

    def batch(self, model, producer, size, *, count=True):
        values = [b"%d" % (self.serial + number) for number in range(size)]
        self.serial += size
        sequence = model.sequences.get(producer, 0)
        if count:
            model.sequences[producer] = sequence + size
        return pack(values, producer=producer, sequence=sequence, created_ns=0)

    @staticmethod
    def values_of(batch):
        return BatchView(0, batch.seal(0), "").values()

    def teardown(self):
        if hasattr(self, "bus"):
            self.bus.close()


class MemoryMachine(BusMachine):
    def __init__(self):
        super().__init__()
        self.grid = MemoryBroker()

    def open(self):
        return self.grid.bus(ThreadRuntime())


class LmdbMachine(BusMachine):
    options = ""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def open(self):
        options = self.options.format(folder=self.folder.name)
        return open_bus(f"lmdb:{self.folder.name}/bus?durability=relaxed{options}", ThreadRuntime())

    def teardown(self):
        super().teardown()
        self.folder.cleanup()


class ReplicaMachine(LmdbMachine):
    options = "&replica={folder}/copy"


def case(machine, examples):
    test = machine.TestCase
    test.settings = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    return test


TestMemory = case(MemoryMachine, 80)
TestLmdb = case(LmdbMachine, 15)
TestReplica = case(ReplicaMachine, 10)
