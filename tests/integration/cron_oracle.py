"""cron-utils 7.0.2 itself, in a JVM of its own: what it says of an expression.

The jar comes through Maven, as those of servers do. `java/CronOracle.java` is run by Janino, which PySpark brings, so
that no compiler is needed. cron-utils hangs for some expressions: each of its calls is watched, and the JVM is ended
and started again.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyspark
import pytest

from lockstep.dev.errors import ServerNotAvailable
from lockstep.dev.recipe import JAVA, Jars, Plan, Recipe, Site
from lockstep.dev.supply import Supply

SOURCES = Path(__file__).parent / "java"
CALL_MS, PATIENT_MS = 1_000, 20_000
_ANSWER_S = 60.0
_COMPILER = ("janino", "commons-compiler")


def _no_server(_site: Site) -> Plan:
    message = "a library is not started"
    raise AssertionError(message)


CRON_UTILS = Recipe(
    name="cron-utils",
    port_count=0,
    plan=_no_server,
    programs=(JAVA,),
    jars=Jars(name="cron-utils", group="com.cronutils", artifact="cron-utils", version="7.0.2"),
)


class Oracle:
    """Answers from cron-utils; starts its JVM when it is asked, and again after a call that hung."""

    def __init__(self, jars: Path, call_ms: int = CALL_MS) -> None:
        compiler = [str(path) for name in _COMPILER for path in _pyspark_jars().glob(f"{name}-*.jar")]
        options = (
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xmx128m",
            "-Duser.language=en",
            "-Duser.timezone=UTC",
        )
        launcher = (
            "org.codehaus.janino.JavaSourceClassLoader",
            "-sourcepath",
            str(SOURCES),
            "CronOracle",
            str(call_ms),
        )
        self._command = ("java", *options, "-cp", os.pathsep.join([f"{jars}/*", *compiler]), *launcher)
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, dialect: str, expression: str, instants: Sequence[int] = (0,), calls: str = "d") -> dict[str, Any]:
        """Return what it says; `calls` are letters: d describe, n five next, p two previous, m match, for each instant.

        Keys are these letters, `refused` with the root cause if it can't be parsed, `hangs` with the call that hung.
        """
        units = memoryview(expression.encode("utf-16-le", "surrogatepass")).cast("H")
        text = "".join(f"{unit:04x}" for unit in units)
        answer = self._answer(f"{calls}\t{dialect}\t{','.join(map(str, instants))}\t{text}\n")
        if "hangs" in answer:
            self.close()
        return answer

    def _answer(self, line: str) -> dict[str, Any]:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line.encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], _ANSWER_S)
        answered = process.stdout.readline() if ready else b""
        assert answered, f"cron-utils did not answer: {line!r}"
        found: dict[str, Any] = json.loads(answered)
        return found

    def close(self) -> None:
        """End the JVM."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _pyspark_jars() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _not_available(error: ServerNotAvailable) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(str(error))
    pytest.skip(str(error))


@contextmanager
def cron_utils(call_ms: int = CALL_MS) -> Iterator[Oracle]:
    """cron-utils, ended afterwards; skips the test without it, or fails it where CI=true."""
    try:
        jars = Supply(os.environ, lambda _: None).provide(CRON_UTILS)
    except ServerNotAvailable as error:
        _not_available(error)
    assert jars is not None
    oracle = Oracle(jars, call_ms)
    try:
        yield oracle
    finally:
        oracle.close()
