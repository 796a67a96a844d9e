"""Random cron expressions for the comparison with cron-utils, and what is known to differ for each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import Enum

from lockstep.cron.dialect import DEFINITIONS, Definition, Dialect, Field
from lockstep.cron.syntax import Always, Between, Every, Node, On, Open, Several

Shape = Callable[[Field], str]
_NOISE = "0123456789*/-,?LW#|+ \tMONSUNJANabcxyz!_.\x01é\uff15"
ODD_FIELDS = (
    "", "-", "--", ",", "/", "#", "L", "LW", "W", "?", "**", "*,*", "1,", ",1", "1,,2", "1-", "-1", "1--2", "1-2-3",
    "*/", "/5", "*/0", "0/0", "5/", "1/2/3", "*/2/", "//5", "1-5/", "1-/5", "1-5/2/3", "1-5/0", "1/2-5", "5/-2",
    "+5", "+5/+2", "99999999999", "*/99999999999", "L-", "L-3", "L-0", "L-31", "L-3-4", "L-3/2", "L5", "5L", "6LL",
    "1L5", "15W", "W15", "1W5", "LWLW", "LW5", "5#", "#5", "2#1", "2#6", "2#8", "2#0", "2#1#3", "MON#2", "2#MON",
    "FRIL", "MONTUE", "1-L", "L-L", "W-5", "NONE-5", "HASH-3", "MON/2", "*/MON", "?/5", "?,1", "1,?", "?,?", "1?",
    "*/1", "*/01", "0/1", "1/1", "7", "0", "7/2", "0-7", "5-7", "7-7", "60", "24", "32", "13", "8", "1970", "2099",
    "2100", "SUN", "JAN-MAR", "FRI-SUN", "SUN-TUE", "DEC-FEB", "22-2", "jan,Mar", "mon-FRI", "L,15", "15W,20",
    "1-5,10/3,20", "*/5,3", "1-10/3,8", "30/10", "25-31", "29/1",
)  # fmt: skip
"""What people type by mistake, or to see what happens; right in one field and wrong in another."""


class Known(Enum):
    """What differs from cron-utils on purpose: see docs/reference/cron.md, which names these."""

    WRAPPED_RANGE = "a range that ends before it begins goes on from the lowest value"
    STEP_START = "a step from a value has no values before it"
    STEP_IN_LIST = "a step in a list has all its values"
    WEEKDAY_STEP = "a step of weekdays means weekdays"
    DATE_LIST = "L, W and LW count in a list; ? adds nothing to it"
    LATE_WORKDAY = "the nearest weekday is never a Sunday, and months without the date are left out"
    LATE_STEP = "months without the first date of a step are left out"
    YEAR_STEP = "a step of years restricts the years"
    YEARS = "earlier years are found, and the first time of all matches"
    NEVER = "a search for a day that no month has ends"


def known_differences(nodes: tuple[Node, ...], definition: Definition) -> set[Known]:
    """Return what is expected to differ in the times of an expression that both accept."""
    found: set[Known] = set()
    for node, field in zip(nodes, definition.fields, strict=False):
        in_list = isinstance(node, Several)
        for item in node.items if isinstance(node, Several) else (node,):
            found.update(_of_item(item, field, in_list))
        if field.name == "year" and not isinstance(node, Always):
            found.add(Known.YEARS)
    return found


def _of_item(item: Node, field: Field, in_list: bool) -> Iterator[Known]:
    base = item.base if isinstance(item, Every) else item
    if isinstance(base, Between) and base.first > base.last:
        yield Known.WRAPPED_RANGE
    if field.name == "day of month":
        yield from _of_date(item, in_list)
    if not isinstance(item, Every):
        return
    if field.name == "day of week":
        yield Known.WEEKDAY_STEP
    if field.name == "year":
        yield Known.YEAR_STEP
    if isinstance(base, On) and base.value - field.low >= item.period:
        yield Known.STEP_START
    if in_list and not isinstance(base, Always):
        yield Known.STEP_IN_LIST


def _of_date(item: Node, in_list: bool) -> Iterator[Known]:
    if in_list and (isinstance(item, Open) or (isinstance(item, On) and item.special)):
        yield Known.DATE_LIST
    if isinstance(item, On) and item.special == "W" and item.value >= 28:
        yield Known.LATE_WORKDAY
    if isinstance(item, Every) and _first(item.base) >= 29:
        yield Known.LATE_STEP


def _first(base: Always | On | Between) -> int:
    if isinstance(base, On):
        return base.value
    return base.first if isinstance(base, Between) else 1


class Samples:
    """Draws expressions: most are valid, some have a field that is odd, some are noise."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def draw(self) -> tuple[Dialect, str]:
        """Return a dialect and an expression."""
        dialect = self.random.choice(list(Dialect))
        definition = DEFINITIONS[dialect]
        fields = definition.fields[: self.random.choice(definition.lengths)]
        texts = [self._field(field) for field in fields]
        if definition.monday == 2 and self.random.random() < 0.95:
            texts[self.random.choice((3, 5))] = "?"
            if texts[3] == texts[5] == "?":
                texts[3] = "*"
        kind = self.random.random()
        if kind < 0.12:
            texts[self.random.randrange(len(texts))] = self.random.choice(ODD_FIELDS)
        text = self.random.choice((" ", " ", " ", "  ", "\t")).join(texts)
        if 0.12 < kind < 0.2:
            text = self._noisy(text)
        return dialect, text.lower() if self.random.random() < 0.1 else text

    def instants(self) -> list[int]:
        """Return seconds since 1970 from which to look: any since 1980, and ends of months and years."""
        some = self.random.randrange(315_532_800, 2_208_988_800)
        return [some, self.random.choice((951_782_400, 1_709_164_799, 1_735_689_599, 1_767_225_600, 4_102_444_799))]

    def _noisy(self, text: str) -> str:
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(text) + 1)
            text = text[:at] + self.random.choice(_NOISE) + text[at + self.random.randint(0, 1) :]
        return text

    def _field(self, field: Field) -> str:
        kind = self.random.random()
        if kind < 0.3:
            return "*"
        if kind < 0.45:
            plain = [self._value, self._value, self._span] if self.random.random() < 0.8 else None
            return ",".join(self._item(field, plain) for _ in range(self.random.randint(2, 4)))
        return self._item(field)

    def _item(self, field: Field, plain: list[Shape] | None = None) -> str:
        shapes = plain or [self._value, self._value, self._value, self._span, self._step, self._step_of_span]
        if field.specials & {"L", "#"} and self.random.random() < (0.1 if plain else 0.4):
            return self._special(field)
        return self.random.choice(shapes)(field)

    def _number(self, field: Field) -> int:
        return self.random.randint(field.low, field.high)

    def _value(self, field: Field) -> str:
        if field.names and self.random.random() < 0.4:
            return self.random.choice(list(field.names))
        return str(self._number(field))

    def _span(self, field: Field) -> str:
        if field.names and self.random.random() < 0.3:
            return "-".join(self.random.sample(list(field.names), 2))
        ends = [self._number(field), self._number(field)]
        return "-".join(map(str, ends if self.random.random() < 0.05 else sorted(ends)))

    def _step(self, field: Field) -> str:
        period = self.random.randint(1, field.high - field.low)
        below = field.low + self.random.randrange(period)
        start = self.random.choice(["*", "*", "", str(field.low), str(below), str(below), str(self._number(field))])
        return f"{start}/{period}"

    def _step_of_span(self, field: Field) -> str:
        return f"{self._span(field)}/{self.random.randint(1, max(1, (field.high - field.low) // 3))}"

    def _special(self, field: Field) -> str:
        if field.name == "day of week":
            day = self._value(field)
            return self.random.choice(["L", f"{self._number(field)}L", f"{day}#{self.random.randint(1, 5)}"])
        if "W" not in field.specials:
            return self.random.choice(["L", f"L-{self.random.randint(1, 30)}"])
        nearest = f"{self.random.randint(1, 27)}W"
        return self.random.choice(["L", "LW", f"L-{self.random.randint(1, 30)}", nearest, f"{self._number(field)}L"])
