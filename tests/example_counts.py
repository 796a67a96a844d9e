"""How many examples the properties run: few in `make test`, fifty times as many in `make soak`.

pytest --hypothesis-profile soak -m hypothesis

runs every property with the counts of the soak run. A count that a test names is the one of `make test`; in another
profile it is multiplied, and so is the test's time limit. `make test` draws the same examples in every run; `make soak`
draws new ones, and says how to draw a failing one again.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

SOAK = "soak"
FACTORS = {"test": 1, SOAK: int(os.environ.get("LOCKSTEP_EXAMPLES", "50"))}
"""By profile."""
_SETTINGS = "_hypothesis_internal_use_settings"

settings.register_profile("test", deadline=None, derandomize=True)
settings.register_profile(SOAK, deadline=None, print_blob=True)
settings.load_profile("test")


def factor() -> int:
    """By how much more is looked at than in `make test`; for counts of seeds and of rounds too."""
    return FACTORS.get(settings.get_current_profile_name(), 1)


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis takes a profile of its own where CI is set; ours is the same everywhere."""
    settings.load_profile(config.getoption("--hypothesis-profile") or "test")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Multiply the counts that tests name."""
    by = factor()
    if by == 1:
        return
    scaled: set[object] = set()
    for item in items:
        if item.get_closest_marker("hypothesis") is None:
            continue
        limit = item.get_closest_marker("timeout")
        seconds = limit.args[0] if limit is not None else float(config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(seconds * by))
        _scale(item, by, scaled)


def _scale(item: pytest.Item, by: int, scaled: set[object]) -> None:
    """Tests with several parameters share a function, and are scaled once."""
    machine = getattr(item, "cls", None)
    function = getattr(item.obj, "__func__", item.obj)  # type: ignore[attr-defined]
    is_machine = isinstance(getattr(machine, "settings", None), settings)
    place, name = (machine, "settings") if is_machine else (function, _SETTINGS)
    if place not in scaled:
        scaled.add(place)
        named = getattr(place, name, settings.default)
        setattr(place, name, settings(named, max_examples=named.max_examples * by))
