"""Every example runs by itself, as a user would run it, and checks what it claims."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES_MAX = 80
SAYS = {
    "total_order.py": "Two readers saw the same 1000 records in the same order",
    "partial_order.py": "For each of 30 customers the orders came in order.",
    "async_orders.py": "100 orders were cooked, those of each waiter in the order",
    "topic.py": "a newcomer that asks for it reads all 5 prices",
    "message_queue.py": "A worker that comes later finds nothing to do.",
    "fail_over.py": "All 40 jobs were handled, in order",
    "dead_letters.py": "Put aside: offset 2 of orders, 3 attempts",
    "engine_quickstart.py": "5 trades, 15 events out: the same as without Spark.",
    "spark_rows.py": "The last batch ran twice and was written once.",
    "custom_window.py": "kills gave the same.",
    "spark_windows.py": "Parquet has 2 rows, and the plot is drawn.",
    "request_reply.py": "3 questions, 3 answers on 2 reply streams.",
    "schedule_delayed_job.py": "One job ran once, after its delay; the cancelled one never will.",
    "schedule_backoff.py": "B was called 5 times: at once, and 1m, 10m, 1h and 12h after the try before.",
    "schedule_timeout.py": "Every question was either answered or timed out, and none was both.",
    "schedule_polling.py": "132 ticks fired once each, 6 were skipped because the cron was paused.",
    "schedule_notifications.py": "The mail about the parcel was tried 5 times, under one idempotency key.",
    "schedule_workflow.py": "Two orders were paid, one expired, and nothing is suspended any more.",
}


IN_SOAK = {"spark_rows.py", "spark_windows.py", "engine_quickstart.py"}


def test_every_example_is_run_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.slow
@pytest.mark.acceptance
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.soak] * (name in IN_SOAK)) for name in sorted(SAYS)]
)
def test_an_example_runs_and_tells_its_story(name, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[name] in done.stdout
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == [], "it left something behind"


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_is_short_explained_and_shadows_no_module(name):
    source = (EXAMPLES / name).read_text()
    assert len(source.splitlines()) < LINES_MAX
    assert ast.get_docstring(ast.parse(source))
    # `python examples/x.py` puts the folder first on the path: a file named like a module would hide that module.
    assert Path(name).stem not in sys.stdlib_module_names
