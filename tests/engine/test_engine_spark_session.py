"""The home from which Spark is started, and what its workers import."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from lockstep.engine.errors import SparkInUse, SparkNotStarted, SparkSettingRefused, SparkUnavailable, StateNotShared
from lockstep.engine.spark import session
from lockstep.engine.spark.session import (
    _chosen_home,
    _our_python,
    check_engine,
    check_shared,
    is_here,
    settings,
    slim_home,
    start_session,
)

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def shared(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return tmp_path / "share" / "lockstep"


def test_it_has_sparks_commands_and_jars_and_no_python_files(shared):
    home = slim_home()
    assert home.parent == shared
    assert {part.name: part.resolve() for part in home.iterdir()} == {
        "bin": INSTALLED / "bin",
        "jars": INSTALLED / "jars",
    }
    assert slim_home() == home


def test_links_to_an_installation_that_is_gone_are_made_anew(shared, tmp_path):
    home = slim_home()
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path / "gone")
    assert (slim_home() / "jars").resolve() == INSTALLED / "jars"


def test_it_is_chosen_for_the_start_alone(shared):
    with _chosen_home("local[2,3]"):
        assert os.environ["SPARK_HOME"] == str(slim_home())
    assert "SPARK_HOME" not in os.environ


def test_a_home_that_the_user_has_chosen_stays(shared, monkeypatch):
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with _chosen_home("local"):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"


def test_workers_of_a_cluster_have_homes_of_their_own(shared):
    with _chosen_home("spark://127.0.0.1:7077"):
        assert "SPARK_HOME" not in os.environ


def test_where_nothing_can_be_written_spark_starts_from_its_own_home(shared, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(session.Path, "mkdir", refuse)
    with _chosen_home("local"):
        assert "SPARK_HOME" not in os.environ


class Master:
    """A session of Spark whose workers are elsewhere."""

    def __init__(self, master):
        self.sparkContext = SimpleNamespace(master=master)


def test_workers_elsewhere_have_to_see_the_folder(tmp_path, monkeypatch):
    asked = []

    def look(_spark, mark):
        asked.append(mark.exists())
        return {"b", "a"} if len(asked) > 1 else set()

    monkeypatch.setattr(session, "hosts_without", look)
    check_shared(Master("local[2]"), tmp_path)
    assert asked == []
    check_shared(Master("spark://127.0.0.1:7077"), tmp_path)
    with pytest.raises(StateNotShared, match=f"on a, b do not see the folder {tmp_path}.*Give --state a folder"):
        check_shared(Master("yarn"), tmp_path)
    assert asked == [True, True]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.sql.shuffle.partitions", "4"),
        ("spark.python.worker.reuse", "False"),
        ("spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "true"),
    ],
)
def test_settings_that_would_make_every_batch_cold_are_refused(name, value):
    with pytest.raises(SparkSettingRefused, match=f"{name}={value} can't be used: it must be"):
        check_engine({name: value})
    check_engine({"spark.python.worker.reuse": "TRUE", "spark.sql.shuffle.partitions": "1"})


def test_nothing_listens_to_the_network_unless_the_host_is_named():
    assert [is_here(master) for master in ("local[4,3]", "local-cluster[2,1,1024]", "spark://127.0.0.1:7077")] == [
        True
    ] * 3
    elsewhere = ("spark://node1:7077", "spark://127.0.0.1:7077,node2:7077", "yarn", "k8s://https://127.0.0.1:443")
    assert [is_here(master) for master in elsewhere] == [False] * 4
    for master in elsewhere:
        with pytest.raises(
            SparkSettingRefused, match=r"spark\.driver\.host=127\.0\.0\.1 can't be used.*name this machine"
        ):
            settings(master)
    assert settings("local")["spark.driver.bindAddress"] == "127.0.0.1"
    given = settings("yarn", {"spark.driver.host": "node1"})
    assert (given["spark.driver.host"], "spark.driver.bindAddress" in given) == ("node1", False)


def test_a_master_that_is_not_there_is_told_at_once(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(SparkNotStarted, match=rf"master {master}: no master answers at 127.*Connection refused"):
            start_session(tmp_path, master=master)


def launch_of(java: str, words: str):
    def launch(_conf, popen):
        popen["stderr"].write(words.encode())
        popen["stderr"].flush()
        raise session.PySparkRuntimeError(java)

    return launch


def test_a_jvm_that_ends_at_once_is_told_with_its_last_words_and_not_as_a_missing_java(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "launch_gateway", launch_of("", "Error: HADOOP_CONF_DIR must be set"))
    with pytest.raises(
        SparkNotStarted, match=r"master yarn: its JVM ended: Error: HADOOP_CONF_DIR must be set\. Check that"
    ):
        start_session(tmp_path, master="yarn", own={"spark.driver.host": "node1"})


@pytest.mark.parametrize(("says", "found"), [('openjdk version "11.0.2"', "is Java 11"), ("broken", "says: broken")])
def test_an_old_or_broken_java_is_told(tmp_path, monkeypatch, says, found):
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(session, "check_java", lambda: str(java))
    monkeypatch.setattr(session, "launch_gateway", launch_of("", "ended"))
    with pytest.raises(SparkUnavailable, match=rf"{java} {found}.*Java 17"):
        start_session(tmp_path)


def test_a_program_of_spark_submit_gives_its_session_to_the_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    with pytest.raises(SparkInUse, match=r"started by spark-submit.*EngineOptions\(session=spark\)"):
        start_session(tmp_path)


def test_the_users_python_for_spark_is_there_again_after_the_start(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    with _our_python():
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ["PYSPARK_PYTHON"] == "/usr/bin/python3"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ
