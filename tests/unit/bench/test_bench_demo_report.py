from __future__ import annotations

from lockstep import connect
from lockstep.bench.demo import table
from lockstep.bench.demo_processes import BURST, PUBLISHERS, RESULTS, SIZE, SOURCE, Plan, check_results
from lockstep.bench.numbered import Numbered

CLEAN = {"lost": 0, "doubled": 0, "reordered": 0}
BURSTS = 2


def checked(change) -> dict[str, int]:
    """What the check says if the group's results were the source with a change made to it."""
    bursts = [Numbered(number, SIZE, BURST) for number in range(PUBLISHERS)]
    source = [value for _ in range(BURSTS) for numbered in bursts for value in numbered.next_run()]
    results = list(source)
    change(results)
    with connect("memory:") as bus:
        for stream, values in ((SOURCE, source), (RESULTS, results)):
            with bus.publisher(stream) as publisher:
                publisher.publish_many(values).wait()
        return check_results(Plan(url="memory:", bursts=BURSTS, publish_s=1.0), bus)


def test_results_like_the_source_are_clean():
    assert checked(lambda values: None) == {"results": 300, **CLEAN}


def test_a_lost_result_is_found():
    assert checked(lambda values: values.pop(120))["lost"] == 1


def test_a_doubled_result_is_found():
    assert checked(lambda values: values.insert(120, values[120]))["doubled"] == 1


def test_results_that_changed_places_are_found_within_a_publisher():
    def swap(values):
        values[10], values[11] = values[11], values[10]

    assert checked(swap)["reordered"] > 0


def test_results_that_changed_places_are_found_across_publishers():
    def swap(values):
        values[BURST - 1], values[BURST] = values[BURST], values[BURST - 1]

    assert checked(swap)["reordered"] > 0


def test_the_table_tells_a_clean_run_from_a_failed_one():
    result = {
        "ok": True, "published": 300, "subscribers": [{"delivered": 300, **CLEAN}],
        "group": {"results": 300, **CLEAN, "handed_out": 350, "handed_out_again": 50, "refused_as_too_late": 1},
        "takeovers": [{"what": "killed with -9", "seconds": 1.1}], "deliveries_per_s": 1000, "seconds": 1.0,
    }  # fmt: skip

    assert "50 of them again" in table(result)
    assert table(result).endswith("nothing lost, duplicated or out of order")
    assert table({**result, "ok": False}).endswith("FAILED")
