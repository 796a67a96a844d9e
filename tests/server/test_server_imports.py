"""Only an engine that is told to serve REST pays for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules", ["lockstep.cli.main", "lockstep.cli.status, lockstep.engine.runtime.control.status"]
)
def test_the_command_line_does_not_wait_for_a_web_server(modules):
    code = f"import sys, {modules}; print(sorted({{'fastapi', 'uvicorn', 'pyspark', 'pydantic'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
