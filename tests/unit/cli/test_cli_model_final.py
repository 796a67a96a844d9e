"""A plain CSV file in, the table at the end out: model run without opcodes and without the changes."""

from __future__ import annotations

from pathlib import Path

import pytest

MODEL = """
name: desk
queries:
  - name: q
    windows:
      - {kind: source, name: Orders, insert_only: true, schema: "id*:int64,customer:string,amount:double,time:stamp"}
      - {kind: copy, name: LastTwo, retention: bycount_sliding 2}
      - {kind: aggregate, name: Totals, schema: "customer*:string,total:double", fields: {total: ESP_aSum(amount)}}
    edges: [Orders -> LastTwo, LastTwo -> Totals]
"""
PLAIN = 'id,customer,amount,time\n1,anna,10,5000000\n2,,4,6000000\n3,"bert, jr",5,\n'
RUN = ("model", "run", "m.yaml", "--runner", "reference", "--in", "Orders=o.csv")
NO_OPCODES = ("--csv-header", "1", "--add-opcode", "--add-flags")


@pytest.fixture(autouse=True)
def _files(cli) -> None:
    Path("m.yaml").write_text(MODEL)
    Path("o.csv").write_text(PLAIN)


def test_a_plain_csv_file_is_read_and_the_rows_at_the_end_are_written(cli) -> None:
    done = cli(*RUN, *NO_OPCODES, "--final", "--out", "Totals=t.csv", "--out", "LastTwo=l.csv", "--json").object
    assert Path("t.csv").read_text() == 'customer,total\n,4.0\n"bert, jr",5.0\n'
    assert Path("l.csv").read_text() == 'id,customer,amount,time\n2,,4.0,6000000\n3,"bert, jr",5.0,\n'
    assert done["lines"] == {"q/Totals": 2, "q/LastTwo": 2}


def test_the_rows_at_the_end_can_be_printed(cli) -> None:
    assert cli(*RUN, *NO_OPCODES, "--final", "--out", "Totals=-").out.startswith("customer,total\n")


def test_without_final_all_changes_are_written(cli) -> None:
    cli(*RUN, *NO_OPCODES, "--out", "Totals=t.csv")
    assert [line.split(",")[0] for line in Path("t.csv").read_text().splitlines()] == ["I", "I", "I", "D"]


@pytest.mark.parametrize("wrong", [("--final", "--collapse"), ("--script", "s", "--add-opcode")])
def test_what_contradicts_is_wrong_usage(cli, wrong) -> None:
    assert cli(*RUN, *wrong, code=2).err
