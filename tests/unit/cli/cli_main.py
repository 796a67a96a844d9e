"""The command's own main function, in this process: what it printed and how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from lockstep.cli.main import main


@dataclass(frozen=True)
class Done:
    """What a run printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def object(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.err.splitlines()[-1])["error"]
        return found


class Cli:
    """Runs commands in a folder of its own, on a bus there."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *arguments: str, code: int = 0) -> Done:
        self._capture.readouterr()
        ended = main(arguments)
        out, err = self._capture.readouterr()
        assert ended == code, (arguments, ended, out, err)
        assert "Traceback" not in err
        return Done(ended, out, err)
