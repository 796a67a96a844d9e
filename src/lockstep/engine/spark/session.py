"""A Spark session of our own: quiet, on this machine by default, and gone when we are. Or one lent to us."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from shutil import which
from typing import Any
from uuid import uuid4

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lockstep.engine.errors import SparkInUse, SparkNotStarted, SparkSettingRefused, SparkUnavailable, StateNotShared

_STATE = "spark.sql.streaming.stateStore"
_STREAMING = "org.apache.spark.sql.execution.streaming"
CRASH_FILE = "hs_err_pid"
"""How the files begin that a crashed JVM leaves; then comes its process id."""
_QUIET = """status = off
rootLogger.level = off
rootLogger.appenderRef.none.ref = none
appender.none.type = Null
appender.none.name = none
"""
"""A logger needs an appender, or Spark brings its own."""

_FIXED = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STATE}.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STATE}.rocksdb.trackTotalNumberOfRows": "false",
    f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
    f"{_STATE}.rocksdb.maxMemoryUsageMB": "128",
}


_NEEDED = {
    "spark.sql.shuffle.partitions": ("1", "each shard is one task, so that it meets the worker that has its state"),
    "spark.python.worker.reuse": ("true", "workers keep the state of their shards between batches"),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": (
        "false", "Spark would give the source of a shard a worker of its own"
    ),
}  # fmt: skip
"""Settings without which every batch begins with a snapshot and a replay, and why."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def check_engine(given: Mapping[str, str]) -> None:
    """Raise SparkSettingRefused for settings with which engines would work, but lose what they hold hot."""
    for name, (wanted, reason) in _NEEDED.items():
        value = str(given.get(name, wanted)).strip()
        if value.lower() != wanted:
            raise SparkSettingRefused(name=name, value=value, reason=f"it must be {wanted}: {reason}")


def runtime_settings() -> dict[str, str]:
    """Ours that a session takes while Spark runs."""
    return {name: value for name, value in _FIXED.items() if name.startswith("spark.sql.")}


def default_master() -> str:
    """Every core of this machine; a task that failed is tried again twice."""
    return f"local[{os.cpu_count() or 1},3]"


def settings(master: str | None, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """All settings of a session; `own` wins over ours.

    Nothing listens to the network unless an address is given: workers elsewhere call the driver back, so
    with a master elsewhere spark.driver.host must be given.
    """
    own = own or {}
    given = {**_FIXED, "spark.master": master or default_master(), **own}
    if "spark.driver.host" in own and "spark.driver.bindAddress" not in own:
        del given["spark.driver.bindAddress"]  # it binds to the host it names
    if not is_here(given["spark.master"]) and "spark.driver.host" not in own:
        reason = f"workers of {given['spark.master']} have to call this process back; name this machine as they know it"
        raise SparkSettingRefused(name="spark.driver.host", value=given["spark.driver.host"], reason=reason)
    return given


def is_here(master: str) -> bool:
    """Whether a master, and so its workers, are on this machine."""
    hosts = [place.rpartition(":")[0] for place in master.removeprefix("spark://").split(",")]
    return master.startswith("local") or (master.startswith("spark://") and all(host in _LOOPBACK for host in hosts))


def java_options(folder: Path, archive: Path | None, *, verbose: bool) -> str:
    """What the JVM is started with: a quick compiler and collector, no words unless asked for.

    What it leaves if it crashes goes into `folder`, and not to where the engine was started.
    """
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m"]
    options += [f"-XX:ErrorFile={folder}/{CRASH_FILE}%p.log", f"-XX:HeapDumpPath={folder}"]
    if archive is not None and archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    if not verbose:
        quiet = folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        options += ["-Xlog:disable", "-Xlog:all=error:stderr", f"-Dlog4j2.configurationFile=file:{quiet}"]
    return shlex.join(options)


def crash_files(folder: Path) -> set[Path]:
    """What JVMs that crashed have left in an engine's folder."""
    return set(folder.glob(f"{CRASH_FILE}*.log"))


JVM_LOG = "spark.log"
_NICE = 5
_JAVA = 17
"""The oldest Java that Spark runs on."""
_REACH_S = 5.0
"""How long the master of a cluster may take to answer."""


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


def lent_session(session: SparkSession) -> SparkSession:
    """A session with our settings in a Spark that the caller started and will stop; the caller's settings stay."""
    theirs = session.sparkContext.getConf().getAll()
    check_engine({name: value for name, value in theirs if name not in runtime_settings()})
    made = session.newSession()
    for name, value in runtime_settings().items():
        made.conf.set(name, value)
    return made


def _check_alone() -> None:
    """Raise SparkInUse where a second Spark can't be started."""
    if SparkContext._active_spark_context is not None:
        raise SparkInUse(reason="this process has a session of Spark already")
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        raise SparkInUse(reason="this program was started by spark-submit, which brings a JVM of its own")


def _check_master(master: str) -> None:
    """Raise SparkNotStarted if no master of a standalone cluster listens: Spark itself takes a minute to say so."""
    if not master.startswith("spark://"):
        return
    reasons = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
        except (OSError, ValueError) as error:
            reasons.append(f"{place}: {error}")
        else:
            return
    raise SparkNotStarted(master=master, reason=f"no master answers at {'; '.join(reasons)}", words="none")


@contextmanager
def _our_python() -> Iterator[None]:
    """Have Spark's workers run the same Python, which it takes from the environment while it starts."""
    ours = {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": "none",  # with this one Spark would look for packages that bring sources
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def start_session(
    folder: Path,
    *,
    app: str = "lockstep",
    master: str | None = None,
    own: Mapping[str, str] | None = None,
    inherit: Sequence[int] = (),
    verbose: bool = False,
    took_s: dict[str, float] | None = None,
) -> SparkSession:
    """Start Spark. `folder` takes the JVM's words; `inherit` are descriptors that it holds as long as it lives.

    `took_s` gets the seconds of each part of the start.

    The JVM ends when its standard input does, so also when this process is killed. It is in a session of its own: a
    Ctrl-C, or a signal to our process group, is for this process, which then ends Spark in order.
    """
    check_java()
    _check_alone()
    given = settings(master, own)
    _check_master(given["spark.master"])
    java = java_options(folder, archive_path(), verbose=verbose)
    given["spark.driver.extraJavaOptions"] = f"{java} {given.get('spark.driver.extraJavaOptions', '')}".strip()
    given.setdefault("spark.local.dir", str(folder / "tmp"))
    given.setdefault("spark.sql.warehouse.dir", str(folder / "warehouse"))
    times = [time.monotonic()]
    conf = SparkConf(loadDefaults=False).setAppName(app).setAll(list(given.items()))
    with _our_python(), (folder / JVM_LOG).open("ab") as words:
        where = {} if verbose else {"stdout": words, "stderr": words}
        try:
            started = {**where, "pass_fds": tuple(inherit), "start_new_session": True}
            with _chosen_home(given["spark.master"]):
                gateway = launch_gateway(conf, started)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise _not_started(given["spark.master"], folder) from error
        give_way(gateway.proc.pid)
        times.append(time.monotonic())
        try:
            context = SparkContext(conf=conf, gateway=gateway)
        except (OSError, Py4JError) as error:
            _end(gateway)
            raise _not_started(given["spark.master"], folder, error) from error
    context.setLogLevel("WARN" if verbose else "OFF")
    times.append(time.monotonic())
    if took_s is not None:
        took_s |= {"jvm": times[1] - times[0], "context": times[2] - times[1]}
    return SparkSession(context)


def _not_started(master: str, folder: Path, error: BaseException | None = None) -> SparkUnavailable | SparkNotStarted:
    """Why Spark did not start: because of its Java, or for another reason that it reported."""
    if (fault := _fault_of_java()) is not None:
        return SparkUnavailable(reason=fault)
    is_told = isinstance(error, Py4JError) and not isinstance(error, Py4JNetworkError)
    reason = first_words(error) if error is not None and is_told else f"its JVM ended: {_last_words(folder / JVM_LOG)}"
    return SparkNotStarted(master=master, reason=reason.rstrip("."), words=str(folder / JVM_LOG))


def _fault_of_java() -> str | None:
    """What is wrong with Java, if anything is; asked only when Spark did not start."""
    java = check_java()
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} can't be run: {error}"
    found = re.search(r'version "(\d+)', done.stderr)
    if done.returncode or found is None:
        return f"{java} says: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'nothing'}"
    return None if int(found[1]) >= _JAVA else f"{java} is Java {found[1]}"


def first_words(error: BaseException) -> str:
    """The error of the JVM in one line, without its stack; asked while the JVM can still answer."""
    lines = [line.strip(": ") for line in str(error).splitlines() if not line.startswith("\t")]
    return " ".join(lines[:2]).rstrip(".") or type(error).__name__


def is_local(spark: SparkSession) -> bool:
    """Whether Spark's workers are on this machine."""
    return str(spark.sparkContext.master).startswith("local")


def check_shared(spark: SparkSession, folder: Path) -> None:
    """Raise StateNotShared if Spark's workers run elsewhere and do not see the engine's folder.

    They leave their results there for the driver, which would wait for ever.
    """
    if is_local(spark):
        return
    mark = folder / f"shared-{uuid4().hex}"
    mark.touch()
    try:
        hosts = hosts_without(spark, mark)
    finally:
        mark.unlink()
    if hosts:
        raise StateNotShared(hosts=", ".join(sorted(hosts)), folder=folder)


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

    The driver says that the engine lives, decides and publishes: little work that must not wait for much. Linux
    keeps this for each thread; those that come later have it from the one that makes them.
    """
    with suppress(OSError):  # a thread ended meanwhile, or this is no Linux
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


def stop_session(spark: SparkSession, timeout: float = 120.0) -> None:
    """Stop Spark and wait until its JVM has ended."""
    gateway = spark.sparkContext._gateway
    with suppress(OSError, Py4JError):  # it may have ended before us
        spark.stop()
    _end(gateway, timeout)


def _end(gateway: Any, timeout: float = 120.0) -> None:
    """Wait until a JVM of ours has ended."""
    if gateway is not None:
        with suppress(OSError, Py4JError):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(timeout)


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
