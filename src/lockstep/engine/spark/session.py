"""A Spark session of our own: quiet, on this machine unless told otherwise, and gone when we are."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from shutil import which
from uuid import uuid4

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lockstep.engine.errors import SparkUnavailable
from lockstep.engine.spark.settings import java_options, settings

JVM_LOG = "spark.log"
_NICE = 5


def check_java() -> str:
    """The java command, or an error that says what to install."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else which("java")
    if java is None or not Path(java).exists():
        raise SparkUnavailable(reason="no java command was found")
    return java


def archive_path() -> Path:
    """Where the archive of loaded classes is kept that makes the JVM start in half the time: one for each Java.

    It fits the jars of one installation, so it lives with it; where that can't be written, in the user's cache.
    """
    java = sha256(str(Path(check_java()).resolve()).encode()).hexdigest()[:8]
    return _shared_folder() / f"spark-{pyspark.__version__}-{java}.jsa"


def slim_home() -> Path:
    """Make a home of Spark without its ZIP file of PySpark, and return it.

    Spark puts that file in front of the path of its Python processes, and what is imported from a ZIP file is compiled
    anew in each of them: half a second for each of nine. Without it they import the installed PySpark, the same files.
    """
    installed = Path(pyspark.__file__).parent
    known_by = sha256(str(installed).encode()).hexdigest()[:8]  # a cache folder may serve several installations
    home = _shared_folder() / f"spark-{pyspark.__version__}-{known_by}"
    home.mkdir(parents=True, exist_ok=True)
    for part in ("bin", "jars", "conf"):
        link = home / part
        if (installed / part).is_dir() and not link.is_dir():
            fresh = home / f".{part}-{uuid4().hex}"
            fresh.symlink_to(installed / part)
            fresh.replace(link)
    return home


def _shared_folder() -> Path:
    place = Path(sys.prefix) / "share"
    if not os.access(sys.prefix, os.W_OK):
        place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return place / "lockstep"


@contextmanager
def _chosen_home(master: str) -> Iterator[None]:
    """Have Spark start from the slim home, if its workers run here and nobody has chosen another home."""
    if not master.startswith("local") or "SPARK_HOME" in os.environ:
        yield
        return
    try:
        os.environ["SPARK_HOME"] = str(slim_home())  # Spark takes it from here only
    except OSError:  # a disk that is full or read-only: it starts, if more slowly
        yield
        return
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def start_session(
    folder: Path,
    *,
    master: str | None = None,
    own: Mapping[str, str] | None = None,
    inherit: Sequence[int] = (),
    verbose: bool = False,
) -> SparkSession:
    """Start Spark. `folder` takes the JVM's words; `inherit` are descriptors that it holds as long as it lives.

    The JVM ends when its standard input does, so also when this process is killed. It is in a session of its own: a
    Ctrl-C, or a signal to our process group, is for this process, which then ends Spark in order.
    """
    check_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # workers run the same Python; Spark takes it from here only
    os.environ["PYSPARK_DRIVER_PYTHON"] = "none"  # with this one Spark would look for packages that bring sources
    given = settings(master, own)
    java = java_options(folder, archive_path(), verbose=verbose)
    given["spark.driver.extraJavaOptions"] = f"{java} {given.get('spark.driver.extraJavaOptions', '')}".strip()
    given.setdefault("spark.local.dir", str(folder / "tmp"))
    given.setdefault("spark.sql.warehouse.dir", str(folder / "warehouse"))
    conf = SparkConf(loadDefaults=False).setAppName("lockstep").setAll(list(given.items()))
    with (folder / JVM_LOG).open("ab") as words:
        where = {} if verbose else {"stdout": words, "stderr": words}
        try:
            started = {**where, "pass_fds": tuple(inherit), "start_new_session": True}
            with _chosen_home(given["spark.master"]):
                gateway = launch_gateway(conf, started)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise SparkUnavailable(reason=f"its JVM ended at once: {_last_words(folder / JVM_LOG)}") from error
    give_way(gateway.proc.pid)
    try:
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("WARN" if verbose else "OFF")
    except (OSError, Py4JNetworkError) as error:
        raise SparkUnavailable(reason=f"its JVM ended while it started: {_last_words(folder / JVM_LOG)}") from error
    return SparkSession(context)


def check_shared(spark: SparkSession, folder: Path) -> None:
    """Raise SparkUnavailable if Spark's workers run elsewhere and do not see the engine's folder.

    They leave their results there for the driver, which would wait for ever.
    """
    if str(spark.sparkContext.master).startswith("local"):
        return
    mark = folder / f"shared-{uuid4().hex}"
    mark.touch()
    try:
        hosts = hosts_without(spark, mark)
    finally:
        mark.unlink()
    if hosts:
        reason = (
            f"its workers on {', '.join(sorted(hosts))} do not see the folder {folder}, where they leave their results:"
            " give --state a folder that the driver and all workers share"
        )
        raise SparkUnavailable(reason=reason)


def hosts_without(spark: SparkSession, path: Path) -> set[str]:
    """Names of the hosts whose workers do not see a file."""
    context, name = spark.sparkContext, str(path)
    looks = range(2 * context.defaultParallelism)  # so that each executor gets at least one

    def look(_: int) -> tuple[str, bool]:
        return socket.gethostname(), os.path.exists(name)  # noqa: PTH110 - in a process that may lack this module

    found = context.parallelize(looks, len(looks)).map(look).collect()
    return {host for host, is_there in found if not is_there}


def give_way(pid: int, nice: int = _NICE) -> None:
    """Let the JVM, and the workers it will start, give way to the driver.

    The driver says that the engine lives, decides and publishes: little work that must not wait behind much. Linux
    keeps this for each thread; those that come later have it from the one that makes them.
    """
    with suppress(OSError):  # a thread ended meanwhile, or this is no Linux
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


def stop_session(spark: SparkSession, timeout: float = 120.0) -> None:
    """Stop Spark and wait until its JVM has ended."""
    gateway = spark.sparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    with suppress(OSError, Py4JError):  # it may have ended before us
        spark.stop()
    if gateway is not None:
        with suppress(OSError, Py4JError):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(timeout)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
