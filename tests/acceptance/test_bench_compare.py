from __future__ import annotations

import json

import pytest

import lockstep
from lockstep.bench.streams import ON_SERVERS, BenchOptions, run
from lockstep.cli.bench import COMPARE, compare
from lockstep.cli.output import Output
from lockstep.cli.parser import Noun, build, parse

pytestmark = [pytest.mark.slow, pytest.mark.acceptance, pytest.mark.timeout(300)]

TINY = "--publishers 2 --subscribers 2 --records 2000 --seconds 5 --wakes 5"


def command(line: str, capfdbinary) -> str:
    options = parse(
        build((Noun(name="bench", purpose="x.", verbs=(COMPARE,)),), "1"), ["bench", "compare", *line.split()]
    )
    output = Output(json=options.json)
    compare(options, output)
    output.flush()
    return capfdbinary.readouterr().out.decode()


@pytest.mark.soak
def test_a_tiny_comparison_on_a_server_of_the_user_tells_every_side_and_leaves_nothing(
    redis_server, tmp_path, capfdbinary
):
    picture = tmp_path / "buses.png"
    found = json.loads(command(f"--bus {redis_server.url} {TINY} --plot {picture} --json", capfdbinary))

    assert [(side["bus"], side["by"]) for side in found["sides"]] == [
        ("embedded", "lockstep"), ("embedded-relaxed", "lockstep"), ("redis", "redis"), ("redis", "lockstep"),
    ]  # fmt: skip
    for side in found["sides"]:
        assert (side["lost"], side["doubled"], side["reordered"]) == (0, 0, 0)
        assert (side["published"], side["delivered"]) == (2000, 4000)
        assert 0 < side["wake_ms"]["p50"] <= side["wake_ms"]["p99"]
        assert side["settings"]
    assert [(ratio["bus"], ratio["target"]) for ratio in found["ratios"]] == [("redis", 0.9)]
    assert picture.stat().st_size > 1000
    with lockstep.connect(redis_server.url) as bus:
        assert not [name for name in bus.streams() if name.startswith("bench-")]


@pytest.mark.soak
def test_a_named_server_is_started_and_the_table_printed(capfdbinary):
    shown = command(f"--bus redis {TINY}", capfdbinary).splitlines()
    assert shown[0].startswith("BUS")
    assert [line.split()[:2] for line in shown[1:]] == [
        ["embedded", "lockstep"],
        ["embedded-relaxed", "lockstep"],
        ["redis", "redis"],
        ["redis", "lockstep"],
    ]


def test_the_streams_bench_runs_on_a_server_and_leaves_nothing(redis_server):
    options = BenchOptions(bus=redis_server.url, publishers=2, subscribers=2, seconds=1.0, **ON_SERVERS)

    result = run(options)

    assert (result["lost"], result["doubled"], result["reordered"]) == (0, 0, 0)
    assert result["delivered"] == 2 * result["published"] > 0
    assert result["durability"] == "fsync"
    assert "bus" not in result, "a URL may hold a password"
    with lockstep.connect(redis_server.url) as bus:
        assert not [name for name in bus.streams() if name.startswith("bench-")]
