"""Every example of the help does what it says, as it stands there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_command import PROGRAM, TIMEOUT_S, Command

from lockstep.cli.commands import NOUNS

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ENDLESS = "lockstep stream tail orders"
LONG = "lockstep bench streams --publishers 4 --subscribers 16 --size 100 --seconds 10 --json"
EXAMPLES = [example for noun in NOUNS for verb in noun.verbs for example in verb.examples]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    lockstep = Command(folder)
    lockstep("stream", "publish", "orders", "order {n}", "--count", "50", "--quiet")
    lockstep("stream", "tail", "orders", "--group", "billing", "--max", "5")
    lockstep("stream", "publish", "orders.dlq", "bad", "-H", "dlq-stream=orders")
    return folder


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example not in (ENDLESS, LONG)])
def test_an_example_runs(example, prepared, tmp_path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    is_new = example.startswith("lockstep stream create orders")
    environ = {**os.environ, "PATH": f"{Path(PROGRAM).parent}{os.pathsep}{os.environ['PATH']}"}
    environ["LOCKSTEP_BUS"] = "lmdb:new" if is_new else "lmdb:.lockstep"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", example], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    asks = b"add --yes" in done.stderr
    assert done.returncode == (2 if asks else 0), done.stderr
    assert asks or done.stdout
