"""Colours of the pages: every pair of text and background of both themes meets WCAG AA, as computed here."""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import pytest

CSS = (files("lockstep.console") / "static" / "console.css").read_text()
BLOCKS = {
    "light": re.search(r"^:root \{(.*?)\}", CSS, re.DOTALL | re.MULTILINE),
    "dark by the system": re.search(r':root:not\(\[data-theme="light"\]\) \{(.*?)\}', CSS, re.DOTALL),
    "dark by choice": re.search(r'^:root\[data-theme="dark"\] \{(.*?)\}', CSS, re.DOTALL | re.MULTILINE),
}
THEMES = {name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", found.group(1))) for name, found in BLOCKS.items()}
RULES = re.sub(r"/\*.*?\*/", "", CSS, flags=re.DOTALL)[CSS.index("color-scheme: light dark") :]
PLAIN = ("page", "panel", "raised")
"""Backgrounds on which every text may stand."""
TEXTS = ("text", "soft", "link", "bad", "warn", "unknown", "good")
TINTED = {"bad-back": ("bad", "text"), "warn-back": ("warn", "text", "soft", "link"), "unknown-back": ("unknown",),
          "good-back": ("good", "text"), "main": ("main-text",), "main-hover": ("main-text",),
          "action": ("main-text",)}  # fmt: skip
"""Backgrounds that have texts of their own."""
GRAPHICS = ("edge", "chart", "link", "bad", "warn", "unknown", "good")
"""Borders of fields, lines of charts, marks of badges."""
PAIRS = [*itertools.product(TEXTS, PLAIN), *((text, back) for back, texts in TINTED.items() for text in texts)]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_recommendation():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("text", "back"), PAIRS)
def test_text_can_be_read(theme, text, back):
    assert contrast(THEMES[theme][text], THEMES[theme][back]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("mark", "back"), [*itertools.product(GRAPHICS, ("page", "panel")), ("chart", "chart-back")])
def test_graphics_can_be_seen(theme, mark, back):
    least = 1.5 if back == "chart-back" else 3.0  # the line of a chart is seen beside its area, which repeats it
    assert contrast(THEMES[theme][mark], THEMES[theme][back]) >= least


def test_both_ways_to_the_dark_theme_are_the_same_and_name_every_colour():
    assert THEMES["dark by the system"] == THEMES["dark by choice"]
    assert THEMES["dark by choice"].keys() == THEMES["light"].keys()


def test_rules_name_no_colour_that_is_not_a_variable():
    rules = RULES.replace("rgb(0 0 0 / 45%)", "")  # what a dialog darkens
    assert not re.findall(r"#[0-9a-f]{3,8}\b(?![\w-]* \{)|rgba?\(|hsl", rules)
    used = set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", rules)) | set(
        re.findall(r"fill: var\(--([\w-]+)\)", rules)
    )
    assert used <= {*TEXTS, "main-text", "edge", "chart", "chart-back", "panel", "raised", "bad-back"}
    backs = set(re.findall(r"background: var\(--([\w-]+)\)", rules))
    assert backs <= {*PLAIN, *TINTED, *GRAPHICS}


def test_variables_that_rules_use_are_there():
    assert set(re.findall(r"var\(--([\w-]+)\)", CSS)) == THEMES["light"].keys()
