"""Bits of Spark's checkpoint change between a kill and a restart: the output is the same, or an error tells why not."""

from __future__ import annotations

import random
import re
import shutil
import signal
from pathlib import Path

import pytest
from cli_command import Command
from test_engine_kill import TIMEOUT_S, TRADES, WINDOWS, Feed, run_engine, wait_for

from lockstep.streams.client import connect

VISIBLE = {"SPARK_FAILED", "SPARK_NOT_STARTED", "SNAPSHOT_DAMAGED"}
"""What an engine may end with then, as docs/failover.md says."""
STATE = Path(".lockstep-engine") / "local.trades"
EVENTS, STEP = 6_000, 20

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]


def test_the_page_on_failover_names_what_an_engine_may_end_with():
    page = (Path(__file__).parents[2] / "docs" / "failover.md").read_text()
    row = next(line for line in page.splitlines() if "test_engine_bit_flips_spark.py" in line)
    assert [code for code in VISIBLE if f"`{code}`" not in row] == []


def killed_engine(folder: Path) -> None:
    """A bus with all trades, and the state folder of an engine that was killed after it had stored a snapshot."""
    lockstep, fed = Command(folder), 0
    lockstep("data", "trades", "--events", str(EVENTS), "--seed", "4", "-o", "trades.csv")
    wanted = [part for name in WINDOWS for part in ("--out", f"{name}={name}.expected.csv")]
    lockstep("model", "run", str(TRADES), "--runner", "reference", "--in", "TradesSource=trades.csv", *wanted)
    url = f"lmdb:{folder / 'bus'}"
    with connect(url) as client:
        feed, engine = Feed(folder, client, EVENTS), run_engine(lockstep, url)

        def has_snapshot() -> bool:
            nonlocal fed
            fed = min(fed + STEP, EVENTS // 2)
            feed.up_to(fed)
            return (folder / STATE / "kept-0.msgpack").exists()

        wait_for(has_snapshot, engine)
        engine.send_signal(signal.SIGKILL)
        engine.communicate()
        feed.up_to(EVENTS)


def newest_of_each_kind(checkpoint: Path) -> list[Path]:
    """Of the files whose paths differ by numbers and ids only, the one written last."""
    found: dict[str, Path] = {}
    for path in sorted(checkpoint.rglob("*"), key=lambda path: path.stat().st_mtime_ns):
        if path.is_file() and path.stat().st_size:
            kind = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "", str(path.relative_to(checkpoint)))
            found[kind] = path.relative_to(checkpoint)
    return list(found.values())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_bit_of_a_file_of_the_checkpoint_changes_between_a_kill_and_a_restart(tmp_path):
    # Given the folder of an engine that was killed
    killed, chance = tmp_path / "killed", random.Random(5)
    killed.mkdir()
    killed_engine(killed)
    files = newest_of_each_kind(killed / STATE / "checkpoint")
    assert len(files) > 5
    told = {}
    for number, name in enumerate(files):
        # When one bit of one file changes
        folder = shutil.copytree(killed, tmp_path / str(number))
        path = folder / STATE / "checkpoint" / name
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        # Then a new start brings what it would have brought, or says why it can't
        lockstep = Command(folder)
        engine = run_engine(lockstep, f"lmdb:{folder / 'bus'}", "--until-idle", "--restarts", "0")
        _, errors = engine.communicate(timeout=TIMEOUT_S)
        told[str(name)] = code_in(errors.decode()) if engine.returncode else "the same"
        assert told[str(name)] in {"the same", *VISIBLE}, (told, errors)
        if engine.returncode:
            shutil.rmtree(folder / STATE)
            again = run_engine(lockstep, f"lmdb:{folder / 'bus'}", "--until-idle")
            again.communicate(timeout=TIMEOUT_S)
            assert again.returncode == 0, told
        check_output(lockstep, folder)
        shutil.rmtree(folder)
    print(told)


def code_in(errors: str) -> str:
    found = re.findall(r"\[([A-Z_]+)\]", errors)
    return found[-1] if found else errors


def check_output(lockstep: Command, folder: Path) -> None:
    for name in WINDOWS:
        url = f"lmdb:{folder / 'bus'}"
        lockstep("engine", "subscribe", str(TRADES), "--url", url, "--window", name, "-o", f"{name}.csv")
        assert (folder / f"{name}.csv").read_bytes() == (folder / f"{name}.expected.csv").read_bytes()
