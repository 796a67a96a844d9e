"""An engine with connectors in its model: it reads the file, writes the file, and ends when both are done."""

from __future__ import annotations

import subprocess
import sys

import pytest
import sparkless_engine
from cli_command import Command

MODEL = """
name: summed
queries:
- name: q
  windows:
  - kind: source
    name: Trades
    schema: "ID*:int32,symbol:string,price:double"
    insert_only: true
    connectors:
    - {kind: fs, name: in, properties: {type: pub, fsname: in.csv, fstype: csv, blocksize: "10"}}
  - kind: aggregate
    name: Totals
    schema: "symbol*:string,total:double"
    fields: [ESP_aSum(price)]
    connectors:
    - {kind: fs, name: out, properties: {type: sub, fsname: out.csv, fstype: csv, snapshot: "false"}}
  edges: [Trades -> Totals]
"""


@pytest.fixture
def lockstep(tmp_path):
    command = Command(tmp_path)
    yield command
    command.close()


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_files_in_a_model_are_read_and_written_once_however_often_it_is_run(lockstep, tmp_path):
    # Given a file, and what the plain interpreter makes of it
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "in.csv").write_text("".join(f"i,n,{n},S{n % 7},{n / 4}\n" for n in range(1, 1001)))
    lockstep("model", "run", "model.yaml", "--runner", "reference", "--block", "10", "--in", "Trades=in.csv",
             "--out", "Totals=expected.csv")  # fmt: skip
    # When an engine runs the model, and another one after it
    for _ in range(2):
        run = [sys.executable, sparkless_engine.__file__, "engine", "run", "model.yaml", "--until-idle"]
        done = subprocess.run([*run, "--bus", "lmdb:bus"], cwd=tmp_path, capture_output=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        # Then the connector has written exactly that
        assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()
