from __future__ import annotations

import pytest

from lockstep.bench.streams import BenchOptions, run

pytestmark = [pytest.mark.slow, pytest.mark.acceptance]


@pytest.mark.parametrize("objects", [False, True])
def test_a_short_run_delivers_everything_to_everybody_and_reports_it(tmp_path, objects):
    said: list[str] = []
    options = BenchOptions(publishers=2, subscribers=2, seconds=1.0, objects=objects, folder=str(tmp_path))

    result = run(options, progress=said.append)

    assert (result["lost"], result["doubled"], result["reordered"]) == (0, 0, 0)
    assert result["delivered"] == 2 * result["published"] > 0
    assert set(result) >= {
        "publishes_per_s", "deliveries_per_s", "latency_ms", "processes", "durability", "materialised", "rss_mb",
        "cpu_s", "seconds", "size", "publishers", "subscribers", "codec",
    }  # fmt: skip
    assert set(result["latency_ms"]) == {"p50", "p99", "p999"}
    assert result["materialised"] == ("objects" if objects else "bytes")
    assert result["processes"] == 4
    assert said
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
