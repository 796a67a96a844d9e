"""Every error says what is wrong and what to do, under a code that never changes."""

from __future__ import annotations

import re
import string

import pytest

from lockstep import errors
from lockstep.engine import errors as engine_errors
from lockstep.errors import LockstepError

EXIT_CODES = {
    errors.UsageError: 2,
    errors.NotFound: 3,
    errors.Conflict: 4,
    errors.Forbidden: 5,
    errors.Unavailable: 6,
    errors.DataError: 1,
}


def all_errors(root=LockstepError):
    return [root, *(found for child in root.__subclasses__() for found in all_errors(child))]


def made(kind):
    names = {name.split("!")[0] for _, name, _, _ in string.Formatter().parse(f"{kind.template} {kind.advice}") if name}
    return kind(**{name: 1.5 if name == "seconds" else f"<{name}>" for name in names})


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_renders(kind):
    error = made(kind)
    text = str(error)
    assert text.startswith(f"[{kind.code}] ")
    assert "{" not in text
    for name in error.params:
        assert name == "seconds" or f"<{name}>" in text
    assert kind.__doc__


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_every_error_has_the_exit_code_of_its_family(kind):
    families = [code for family, code in EXIT_CODES.items() if issubclass(kind, family)]
    assert kind is LockstepError or families == [kind.exit_code]


def test_codes_are_unique_and_shouted():
    codes = [kind.code for kind in all_errors()]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code) for code in codes)


def test_the_drawing_on_top_names_every_class():
    drawings = f"{errors.__doc__.split('Each class')[0]} {engine_errors.__doc__}"
    drawn = set(re.findall(r"[A-Z][A-Za-z]+", drawings))
    ours = (errors.__name__, engine_errors.__name__)  # other parts have lists of their own, once they are imported
    assert {kind.__name__ for kind in all_errors() if kind.__module__ in ours} <= drawn


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.BadOffset, ValueError),
        (errors.BadArgument, ValueError),
        (errors.BadRecord, ValueError),
        (errors.StreamNotFound, LookupError),
        (errors.Forbidden, PermissionError),
        (errors.TimedOut, TimeoutError),
    ],
)
def test_errors_are_also_what_python_people_catch(error, builtin):
    assert isinstance(made(error), builtin)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            errors.Trimmed(offset=3, stream="orders", first=10),
            (
                "[TRIMMED] Offset 3 of orders was trimmed; the first readable one is 10. "
                "Seek to it, choose on_gap='skip', or give the stream a history store."
            ),
        ),
        (
            errors.OffsetConflict(stream="orders", expected=4, actual=6),
            (
                "[OFFSET_CONFLICT] Stream orders ends at offset 6, not 4. "
                "Read what was added, decide again, and retry with the new last offset. Nothing was written."
            ),
        ),
        (
            errors.StreamNotFound(name="orders", bus="lmdb:x"),
            (
                "[STREAM_NOT_FOUND] Stream 'orders' does not exist on lmdb:x. "
                "See what exists with 'lockstep stream ls', or create it with 'lockstep stream create orders'."
            ),
        ),
        (
            errors.TimedOut(what="Closing", seconds=2.0),
            "[TIMED_OUT] Closing did not finish within 2 s. It may still finish: treat the outcome as unknown.",
        ),
        (errors.Closed(what="Bus memory:"), "[CLOSED] Bus memory: is closed. Open a new one."),
    ],
)
def test_sentences(error, sentence):
    assert str(error) == sentence


def test_values_with_braces_are_shown_as_they_are():
    assert "'{x}'" in str(errors.BadName(what="Stream", name="{x}"))
