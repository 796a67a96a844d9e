"""The home from which Spark is started, and what its workers import."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from lockstep.engine.errors import SparkUnavailable
from lockstep.engine.spark import session
from lockstep.engine.spark.session import _chosen_home, check_shared, slim_home

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
    with pytest.raises(SparkUnavailable, match=f"on a, b do not see the folder {tmp_path}.*give --state a folder"):
        check_shared(Master("yarn"), tmp_path)
    assert asked == [True, True]
    assert list(tmp_path.iterdir()) == []
