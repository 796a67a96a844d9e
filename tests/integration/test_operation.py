"""What the page about operation promises: rights, read-only folders, signals to a process group, the systemd unit."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lockstep import errors
from lockstep.cli.commands import NOUNS
from lockstep.cli.parser import build, parse

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "operate.md").read_text()
[UNIT] = re.findall(r"^```ini\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
NOBODY = 65534
COMMAND = (sys.executable, "-m", "lockstep.cli.main")
SPARKLESS = Path(__file__).parents[1] / "acceptance" / "sparkless_engine.py"
READS_ALL = "+dac_read_search"
"""Lets the user read a Python that is installed in somebody's home; it allows no writing."""
MODEL = """
name: small
queries:
  - name: q
    windows:
      - {kind: source, name: S, insert_only: true, schema: "id*:int32,x:double"}
      - {kind: aggregate, name: T, schema: "id*:int32,s:double", fields: {s: ESP_aSum(x)}}
    edges: [S -> T]
"""


def setting(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)


def as_nobody() -> list[str]:
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    user = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    return ["setpriv", *user, "--inh-caps", READS_ALL, "--ambient-caps", READS_ALL, "--no-new-privs"]


@pytest.fixture
def places():
    """A working folder that can't be written to, and a folder for state that can; both can be reached by anybody."""
    base = Path(tempfile.mkdtemp(prefix="lockstep-rights-"))
    base.chmod(0o755)
    work, state = base / "work", base / "state"
    work.mkdir()
    state.mkdir(mode=0o700)
    (work / "m.yaml").write_text(MODEL)
    (work / "in.csv").write_text("i,n,1,2.5\n")
    if os.geteuid() == 0:
        os.chown(state, NOBODY, NOBODY)
    work.chmod(0o555)
    yield work, state
    work.chmod(0o755)
    shutil.rmtree(base)


def test_a_user_without_rights_in_read_only_folders_needs_the_state_alone(places):
    work, state = places

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        given = {**os.environ, "HOME": "/nonexistent", "LOCKSTEP_BUS": f"lmdb:{state / 'bus'}", "TMPDIR": str(state)}
        command = [*as_nobody(), *COMMAND, *arguments]
        return subprocess.run(command, cwd=work, env=given, capture_output=True, text=True, timeout=60, check=False)

    done = run("stream", "publish", "orders", "hello")
    assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
    done = run("model", "run", "m.yaml", "--in", "S=in.csv", "--out", "T=-", "--runner", "reference")
    assert done.stdout == "I,N,1,2.5\n", done.stderr
    done = run("model", "run", "m.yaml", "--in", "S=in.csv", "--out", "T=t.csv", "--runner", "reference")
    assert done.returncode == errors.Forbidden.exit_code, done.stderr
    assert {item.name for item in work.iterdir()} == {"m.yaml", "in.csv"}


def test_an_engine_of_a_user_without_rights_writes_to_its_folders_alone(places):
    """With a stand-in for Spark, whose files are in the state folder as well."""
    work, state = places
    given = {**os.environ, "HOME": "/nonexistent", "LOCKSTEP_BUS": f"lmdb:{state / 'bus'}", "TMPDIR": str(state),
             "NUMBA_CACHE_DIR": str(state / "numba"), "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    publish = [*as_nobody(), *COMMAND, "engine", "publish", "m.yaml", "in.csv"]
    folders = ["--state", str(state / "engine"), "--persist-to", str(state / "kept")]
    engine = [*as_nobody(), sys.executable, str(SPARKLESS), "engine", "run", "m.yaml", "--until-idle", *folders]
    for command in (publish, engine):
        done = subprocess.run(command, cwd=work, env=given, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
    assert {item.name for item in work.iterdir()} == {"m.yaml", "in.csv"}
    assert {"bus", "engine"} <= {item.name for item in state.iterdir()}
    assert (state / "engine").stat().st_mode & 0o777 == 0o700


def test_a_stop_sent_to_the_process_group_ends_a_command_in_order(tmp_path):
    given = {**os.environ, "LOCKSTEP_BUS": f"lmdb:{tmp_path / 'bus'}", "PYTHONUNBUFFERED": "1"}
    subprocess.run([*COMMAND, "stream", "publish", "orders", "hello"], env=given, check=True, capture_output=True)
    tail = [*COMMAND, "stream", "tail", "orders", "--from-start"]
    child = subprocess.Popen(tail, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert b"hello" in child.stdout.readline()
        os.killpg(child.pid, signal.SIGTERM)
        _, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert (child.returncode, b"Traceback" in err) == (143, False)


def test_the_unit_starts_a_command_that_exists_with_options_that_exist():
    [start] = setting("ExecStart")
    options = parse(build(NOUNS, version=""), shlex.split(start.replace("%i", "node1"))[1:])
    assert (options.name, options.trim, options.persist_every) == ("node1", True, 300.0)
    [ready] = setting("ExecStartPost")
    assert "lockstep status --quiet" in ready


def test_the_unit_does_not_start_again_what_would_fail_again():
    lasting = [errors.UsageError, errors.NotFound, errors.Conflict, errors.Forbidden]
    assert setting("RestartPreventExitStatus") == [" ".join(str(kind.exit_code) for kind in lasting)]
    assert errors.Unavailable.exit_code == 6
    assert setting("SuccessExitStatus") == [f"{128 + signal.SIGINT} {128 + signal.SIGTERM}"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path):
    unit = tmp_path / "lockstep@.service"
    unit.write_text(UNIT.replace("/opt/lockstep/bin/lockstep", sys.executable).replace("User=lockstep", "User=root"))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    about_it = [line for line in (done.stdout + done.stderr).splitlines() if "lockstep@" in line]
    assert about_it == []
