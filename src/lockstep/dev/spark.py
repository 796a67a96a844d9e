"""The recipe for a Spark cluster: a master and workers, from the jars that PySpark brings."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from lockstep.dev import probes
from lockstep.dev.errors import ServerNotAvailable
from lockstep.dev.recipe import HOST, JAVA, LOG4J, Plan, Process, Recipe, Site

_DEPLOY = "org.apache.spark.deploy"
_SLOTS, _MEMORY = 2, "2g"
"""What each worker offers: with two engines, a slot for each of them."""
_HEAP = "256m"


def spark(workers: int = 2) -> Recipe:
    """A master and its workers."""

    def plan(site: Site) -> Plan:
        return _plan(site, workers)

    return Recipe(name="spark", port_count=2 + workers, plan=plan, programs=(JAVA,))


def _plan(site: Site, workers: int) -> Plan:
    port, page, *pages = site.ports
    url = f"spark://{HOST}:{port}"
    master = Process(
        name="master",
        command=_command("master.Master", "--port", str(port), "--webui-port", str(page)),
        port=page,
        probe=probes.spark_master,
        environment=_environment(site),
        is_helper=True,
    )
    return Plan(
        url=url,
        files={"log4j2.properties": LOG4J},
        processes=(master, *(_worker(site, number, its, url) for number, its in enumerate(pages[:workers], 1))),
    )


def _worker(site: Site, number: int, page: int, url: str) -> Process:
    name = f"worker-{number}"
    offer = ("--cores", str(_SLOTS), "--memory", _MEMORY, "--work-dir", str(site.folder / name))
    return Process(
        name=name,
        command=_command("worker.Worker", "--webui-port", str(page), *offer, url),
        port=page,
        probe=probes.spark_worker,
        environment=_environment(site),
    )


def _command(kind: str, *words: str) -> tuple[str, ...]:
    return (str(_home() / "bin" / "spark-class"), f"{_DEPLOY}.{kind}", "--host", HOST, *words)


def _environment(site: Site) -> dict[str, str]:
    return {
        "SPARK_HOME": str(_home()),
        "SPARK_DAEMON_MEMORY": _HEAP,
        "SPARK_DAEMON_JAVA_OPTS": f"-Dlog4j2.configurationFile=file:{site.folder}/log4j2.properties -XX:+UseSerialGC",
        "SPARK_LOCAL_IP": HOST,
        "PYSPARK_PYTHON": sys.executable,
    }


def _home() -> Path:
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ServerNotAvailable(name="spark", reason="PySpark is missing", remedy="Install it: pip install pyspark.")
    return Path(found.origin).parent
