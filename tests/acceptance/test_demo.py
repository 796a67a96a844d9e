from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]


def test_nothing_is_lost_doubled_or_out_of_order_while_readers_are_killed_and_paused():
    # Given the demonstration with few records
    command = [sys.executable, "-m", "lockstep.bench.demo", "--records", "3000", "--json"]

    # When it is played
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)

    # Then everybody got everything, the group's results hold each record once and in order, and both readers that
    # fell out were followed by another
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["published"] == 3000
    assert [each["delivered"] for each in result["subscribers"]] == [3000] * 3
    assert result["group"]["results"] == 3000
    assert (result["lost"], result["doubled"], result["reordered"]) == (0, 0, 0)
    assert [takeover["what"] for takeover in result["takeovers"]] == ["killed with -9", "paused longer than its lease"]
    assert all(takeover["seconds"] > 0 for takeover in result["takeovers"])
    assert result["delivered"] == 3 * 3000 + result["group"]["handed_out"]
    assert result["group"]["handed_out"] == 3000 + result["group"]["handed_out_again"]
    # And the progress came in plain lines, because nobody looks at a terminal
    assert "the group's reader" in done.stderr
    assert "\r" not in done.stderr
