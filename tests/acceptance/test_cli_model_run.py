"""A model over files with the plain interpreter: answers, counts, bad lines, and nothing half-written."""

from __future__ import annotations

import resource

import pytest
from cli_command import Command, InProcess
from cli_models import FAULTY, THREE_ROWS, put_trades, trade

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
REFERENCE = ("--runner", "reference")
TRADES = ("model", "run", "trades.yaml", *REFERENCE, "--in", "TradesSource=trades.csv")


@pytest.fixture
def lockstep(tmp_path) -> Command:
    put_trades(tmp_path)
    (tmp_path / "faulty.yaml").write_text(FAULTY)
    return InProcess(tmp_path)


def put(folder, lines) -> None:
    (folder / "trades.csv").write_text("".join(lines))


# The last sum of each block is the table's; those before it are of rows that are about to leave.
GOLDEN = [
    ("bycount_sliding", [[3], [8], [12], [18, 15], [17, 12], [20, 16], [17, 11]]),
    ("bycount_jumping", [[3], [8], [12], [18, 15, 10, 6], [8], [16], [17, 11, 9, 1]]),
]


@pytest.mark.parametrize(("kind", "sums"), GOLDEN)
def test_a_script_gives_the_sums_of_the_golden_table(lockstep, tmp_path, kind, sums) -> None:
    # Given three rows that are kept, and a block for each of seven values
    (tmp_path / "three.yaml").write_text(THREE_ROWS.replace("KIND", kind))
    values = (3, 5, 4, 6, 2, 8, 1)
    script = "# seven blocks\n" + "\n".join(f"S,I,N,{number},0,{value}\n" for number, value in enumerate(values))
    (tmp_path / "in.script").write_text(script)
    # When it is run block by block, with updates written as one line
    run = ("model", "run", "three.yaml", "--script", "in.script", "--collapse", *REFERENCE)
    lockstep(*run, "--out", "Total=sums.csv")
    # Then every block has its sums
    found = [line.split(",") for line in (tmp_path / "sums.csv").read_text().splitlines()]
    assert [opcode for opcode, *_ in found] == ["I", *["U"] * (len(found) - 1)]
    assert [int(fields[-1]) for fields in found] == [value for block in sums for value in block]


def test_counts_of_every_window_and_the_lines_that_were_written(lockstep, tmp_path) -> None:
    put(tmp_path, [trade(1), trade(2, symbol="BP", second=1), trade(3, price=102.5, second=400)])
    done = lockstep(*TRADES, "--out", "Aggregate5min=five.csv", "--out", "trades/Copy5MinRet=copy.csv", "--json").object
    rows = {row["window"]: (row["rows"], row["in"], row["out"]) for row in done["windows"]}
    assert rows["trades/TradesSource"] == (3, 3, 3)
    assert rows["trades/Copy5MinRet"] == (1, 3, 5)
    assert rows["trades/Aggregate5min"] == (1, 5, 7)
    assert rows["trades/Aggregate24HR"] == (2, 3, 4)
    assert done["lines"] == {"trades/Aggregate5min": 7, "trades/Copy5MinRet": 5}
    assert (done["events"], done["blocks"], done["bad_lines"]["total"]) == (3, 3, 0)
    assert len((tmp_path / "five.csv").read_text().splitlines()) == 7
    shown = lockstep(*TRADES, "--counts")
    assert shown.lines[0].split() == ["WINDOW", "KIND", "ROWS", "IN", "OUT", "BAD"]
    assert shown.lines[2].split() == ["trades/Copy5MinRet", "copy", "1", "3", "5", "0"]
    assert "3 events in 3 blocks" in shown.err


def test_broken_lines_in_the_middle_are_counted_and_shown_and_the_rest_is_read(lockstep, tmp_path) -> None:
    good = [trade(number) for number in range(1, 101)]
    broken = [*good[:40], "I,N,oops\n", trade(41).replace(",256,", ",99999999999,"), "Z,N,1\n", *good[43:], good[0]]
    put(tmp_path, broken)
    result = lockstep(*TRADES, "--out", "TradesSource=out.csv")
    assert result.err.splitlines()[:4] == [
        "Warning: trades.csv: 3 lines are no events and left out: 1 bad-opcode, 1 overflow, 1 unparsable.",
        "  trades.csv, line 41: unparsable: it has 1 fields, not 13: I,N,oops",
        f"  trades.csv, line 42: overflow: field msecs: 99999999999 does not fit int32: {broken[41].strip()}",
        "  trades.csv, line 43: bad-opcode: 'Z' is not an opcode: Z,N,1",
    ]
    assert (tmp_path / "out.csv").read_text() == "".join(good[:40] + good[43:])
    # a line that is an event, but of a known key, is refused by its window
    assert result.lines[1].split()[-5:] == ["97", "97", "1", "1", "duplicate-key"]
    bad = lockstep(*TRADES, "--json").object["bad_lines"]
    assert bad["files"] == [{"file": "trades.csv", "reasons": {"bad-opcode": 1, "overflow": 1, "unparsable": 1}}]
    assert [item["line"] for item in bad["first"]] == [41, 42, 43]


def test_transactional_blocks_are_taken_whole_or_not_at_all(lockstep, tmp_path) -> None:
    put(tmp_path, [trade(1), trade(2), trade(3), trade(1), trade(5), trade(6)])
    done = lockstep(*TRADES, "--block", "2", "--transactional", "--json").object
    assert done["blocks"] == 3
    assert done["windows"][0]["rows"] == 4
    assert done["windows"][0]["bad"] == {"duplicate-key": 1, "transaction": 1}


def test_files_are_fed_one_after_the_other_and_through_pipes(tmp_path) -> None:
    put_trades(tmp_path)
    lockstep = Command(tmp_path)
    put(tmp_path, ["a header\n", trade(1)])
    given = "another\n" + trade(2, symbol="BP")
    again = ("--in", "TradesSource=-", "--csv-header", "1", "--out", "TradesSource=-")
    result = lockstep(*TRADES, *again, "--counts", given=given)
    assert result.out == trade(1) + trade(2, symbol="BP")
    assert "trades/Aggregate24HR  aggregate     2   2    2" in result.err
    assert "trades/Aggregate24HR" not in lockstep(*TRADES, *again, given=given).err


def test_dates_are_read_and_written_as_they_are_wanted(lockstep, tmp_path) -> None:
    line = trade(1).replace(str(1_704_205_800 * 1_000_000), "2024-01-02 14:30:00")
    put(tmp_path, [line])
    result = lockstep(*TRADES, "--date-format", "%Y-%m-%d %H:%M:%S", "--out", "TradesSource=-")
    assert result.out == line


WRONG = [
    (("--in", "TradeSource=trades.csv"), 3, "Did you mean 'TradesSource'?"),
    (("--in", "Copy5MinRet=trades.csv"), 3, "has no source window 'Copy5MinRet'"),
    (("--in", "TradesSource=missing.csv"), 3, "'missing.csv' can't be read"),
    (("--in", "TradesSource=trades.csv", "--out", "Nothing=x.csv"), 3, "has no window 'Nothing'"),
    (("--in", "TradesSource=trades.csv", "--out", "Copy5MinRet=no/x.csv"), 3, "there is no folder 'no'"),
    (("--in", "TradesSource=trades.csv", "--out", "Copy5MinRet=trades.csv"), 2, "no input is overwritten"),
    (("--in", "TradesSource=trades.csv", "--script", "x"), 2, "leave out --in, or the script"),
    (("--in", "TradesSource"), 2, "'TradesSource' is not WINDOW=FILE"),
    ((), 2, "Say what to feed"),
    (("--in", "TradesSource=trades.csv", "--keep-state", "."), 2, "it must be a new or an empty folder"),
    (("--in", "TradesSource=trades.csv", "--cut", "none"), 2, "must be a positive integer, or all"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_what_is_wrong_is_said_and_nothing_is_written(lockstep, tmp_path, arguments, code, words) -> None:
    put(tmp_path, [trade(1)])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    first = ("--out", "Aggregate5min=five.csv")
    assert words in lockstep("model", "run", "trades.yaml", *REFERENCE, *first, *arguments, code=code).err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_model_with_faults_is_not_run(lockstep, tmp_path) -> None:
    put(tmp_path, [trade(1)])
    error = lockstep("model", "run", "faulty.yaml", "--in", "S=trades.csv", "--out", "S=x.csv", code=2).err
    assert "has 4 fault(s)" in error
    assert not (tmp_path / "x.csv").exists()


def test_a_script_with_an_unknown_window_leaves_no_file(lockstep, tmp_path) -> None:
    (tmp_path / "in.script").write_text(f"TradesSource,{trade(1)}\nNowhere,I,N,1\n")
    run = ("model", "run", "trades.yaml", *REFERENCE, "--script", "in.script", "--out", "TradesSource=x.csv")
    assert "has no source window 'Nowhere'" in lockstep(*run, code=3).err
    assert list(tmp_path.glob("x.csv*")) == []


def test_a_full_disk_is_said_in_words_and_what_was_there_stays(tmp_path) -> None:
    put_trades(tmp_path)
    lockstep = Command(tmp_path)  # the limit is for a process of its own
    put(tmp_path, [trade(number) for number in range(1, 2000)])
    (tmp_path / "out.csv").write_text("what was there\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        error = lockstep(*TRADES, "--out", "TradesSource=out.csv", "--json", code=6).error
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error["code"] == "FILE_UNWRITABLE"
    assert "File too large" in error["message"]
    assert (tmp_path / "out.csv").read_text() == "what was there\n"
    assert not list(tmp_path.glob("*.part"))


def test_links_stay_links(lockstep, tmp_path) -> None:
    put(tmp_path, [trade(1)])
    (tmp_path / "link.csv").symlink_to("real.csv")
    lockstep(*TRADES, "--out", "TradesSource=link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == trade(1)


def test_a_broken_line_refuses_its_transactional_block_and_no_other(lockstep, tmp_path) -> None:
    put(tmp_path, [trade(1), trade(2), trade(3), "I,N,oops\n", trade(5), trade(6)])
    run = (*TRADES, "--block", "2", "--transactional", "--out", "TradesSource=out.csv")
    done = lockstep(*run, "--json").object
    assert done["bad_lines"]["files"][0]["reasons"] == {"transaction": 1, "unparsable": 1}
    assert [(item["line"], item["reason"]) for item in done["bad_lines"]["first"]] == [
        (4, "unparsable"),
        (3, "transaction"),
    ]
    assert (done["blocks"], done["windows"][0]["in"]) == (2, 4)
    assert (tmp_path / "out.csv").read_text() == trade(1) + trade(2) + trade(5) + trade(6)
    assert "trades.csv: 2 lines are left out: 1 transaction, 1 unparsable." in lockstep(*run).err


def test_the_first_refused_events_are_listed(lockstep, tmp_path) -> None:
    put(tmp_path, [trade(1), trade(1), *[trade(2)] * 30])
    result = lockstep(*TRADES)
    said = [line for line in result.err.splitlines() if "duplicate-key" in line]
    assert said[0].startswith("  trades/TradesSource, block 2: duplicate-key: ")
    assert len(said) == 20
    refused = lockstep(*TRADES, "--json").object["refused"]
    assert [(item["window"], item["block"], item["reason"]) for item in refused[:2]] == [
        ("trades/TradesSource", 2, "duplicate-key"),
        ("trades/TradesSource", 4, "duplicate-key"),
    ]
    assert len(refused) == 20
    assert refused[0]["detail"]


def test_a_script_with_an_unknown_window_says_where(lockstep, tmp_path) -> None:
    (tmp_path / "in.script").write_text("# first\nTradesSuorce,I,N,1\n")
    done = lockstep("model", "run", "trades.yaml", *REFERENCE, "--script", "in.script", code=3)
    assert "in.script, line 2" in done.err
