"""The error of a drill that can't go on; what a finished drill found wrong is no error, but its result."""

from __future__ import annotations

from lockstep.errors import Unavailable


class DrillBroken(Unavailable):
    """A process of the drill failed where no fault was done to it."""

    code = "DRILL_BROKEN"
    template = "{what}: {name} (pid {pid}) {state}. Its last words:\n{words}\n"
    advice = "Run it again with --keep FOLDER: every log stays there."
