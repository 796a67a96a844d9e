"""The profiles of the properties: what `make soak` runs of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROPERTIES = """
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

counts = {}

def count(name):
    counts[name] = counts.get(name, 0) + 1

@settings(max_examples=7)
@given(st.integers())
def test_named(number):
    count("named")

@pytest.mark.parametrize("kind", ["a", "b"])
@settings(max_examples=5)
@given(number=st.integers())
def test_twice(kind, number):
    count(kind)

class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        count("machine")
    @rule()
    def step(self):
        pass

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=4, stateful_step_count=2)

def test_z(record_property):
    print(counts["named"], counts["a"], counts["b"], counts["machine"])
"""


@pytest.mark.parametrize(
    ("profile", "counts"), [((), "7 5 5 4"), (("--hypothesis-profile", "soak"), "21 15 15 12")], ids=["test", "soak"]
)
def test_a_profile_multiplies_every_count(tmp_path, profile, counts):
    (tmp_path / "test_properties.py").write_text(PROPERTIES)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "example_counts", "-o", "timeout=20", *profile]
    environ = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}", "LOCKSTEP_EXAMPLES": "3", "CI": "true"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout
    assert counts in done.stdout
