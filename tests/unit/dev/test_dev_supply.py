"""Where servers come from: packages, jars, and what is said when they can't be had."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.cli.main import main
from lockstep.dev.errors import ServerNotAvailable
from lockstep.dev.recipe import Jars, Plan, Program, Recipe
from lockstep.dev.supply import Supply, cache_folder

JARS = Jars(name="thing", group="org.thing", artifact="thing_2", version="1.2")
COPIES = """\
for word in "$@"; do case $word in -DoutputDirectory=*) out=${word#*=};; esac; done
mkdir -p $out; echo jar > $out/thing.jar; echo run >> $CALLS
"""


def recipe(*programs, jars=None):
    return Recipe(
        name="thing", port_count=1, plan=lambda site: Plan(url="", processes=()), programs=programs, jars=jars
    )


class Machine:
    """A path with programs that are shell scripts."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.calls, self.told = folder / "bin", folder / "calls", []
        self.bin.mkdir()
        self.calls.touch()
        self.environ = {"PATH": f"{self.bin}:/bin:/usr/bin", "HOME": str(folder), "CALLS": str(self.calls)}

    def add(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def supply(self, *, may_install: bool = False) -> Supply:
        return Supply(self.environ, self.told.append, may_install=may_install)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_missing_program_is_named_with_its_package(machine):
    with pytest.raises(ServerNotAvailable, match=r"thingd is missing.*apt-get install thing-server") as caught:
        machine.supply().provide(recipe(Program(name="thingd", package="thing-server")))
    assert caught.value.exit_code == 6


def test_a_missing_package_is_installed_where_that_is_allowed(machine):
    machine.add("apt-get", 'echo "$@" >> $CALLS')
    machine.supply(may_install=True).provide(recipe(Program(name="thingd", package="thing-server")))
    update, install = machine.calls.read_text().splitlines()
    assert update.endswith("update")
    assert install.endswith("install --no-install-recommends thing-server")
    assert machine.told == ["Installing thing-server with apt-get"]


def test_what_would_be_installed_is_known_before(machine, tmp_path):
    wanted = [recipe(Program(name="thingd", package="thing-server"), jars=JARS), recipe(jars=JARS)]
    machine.environ["PATH"] = str(machine.bin)
    assert machine.supply(may_install=True).packages(wanted) == []  # there is no apt-get
    machine.add("apt-get", "exit 1")
    assert machine.supply(may_install=True).packages(wanted) == ["thing-server", "maven"]
    assert machine.supply().packages(wanted) == []
    (tmp_path / ".cache" / "lockstep" / "jars" / "thing-1.2").mkdir(parents=True)
    machine.add("thingd", "")
    assert machine.supply(may_install=True).packages(wanted) == []


def test_dev_up_says_as_root_what_it_installs_before_it_does_anything(machine, tmp_path, monkeypatch, capsys):
    machine.add("apt-get", "echo E: no network; exit 100")
    monkeypatch.setenv("PATH", str(machine.bin))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["dev", "up", "redis", "--folder", str(tmp_path / "servers")]) == 6
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "This installs Debian packages on this machine, as root: redis-server (with apt-get)."
    assert said[-1].startswith("lockstep: [SERVER_NOT_AVAILABLE]")


def test_a_failed_install_says_what_apt_said(machine):
    machine.add("apt-get", "echo E: no network; exit 100")
    with pytest.raises(ServerNotAvailable, match="E: no network"):
        machine.supply(may_install=True).provide(recipe(Program(name="thingd", package="thing-server")))


def test_jars_are_fetched_once_and_kept_outside_the_clone(machine, tmp_path):
    machine.add("mvn", COPIES)
    kept = machine.supply().provide(recipe(jars=JARS))
    assert kept == tmp_path / ".cache" / "lockstep" / "jars" / "thing-1.2"
    assert machine.supply().provide(recipe(jars=JARS)) == kept
    assert [file.name for file in kept.iterdir()] == ["thing.jar"]
    assert machine.calls.read_text() == "run\n"
    assert [file.name for file in kept.parent.iterdir()] == ["thing-1.2"]


def test_one_process_installs_at_a_time_and_the_next_finds_what_it_needs(machine, tmp_path):
    machine.add("apt-get", 'echo "$@" >> $CALLS')
    looked = threading.Event()
    supply = Supply(machine.environ, machine.told.append, may_install=True)
    supply._has = lambda program, has=supply._has: (looked.set(), has(program))[1]
    with holding_the_lock(tmp_path):
        waiting = threading.Thread(target=supply.provide, args=(recipe(Program(name="thingd", package="thing")),))
        waiting.start()
        assert looked.wait(30)
        machine.add("thingd", "")
    waiting.join(30)
    assert machine.calls.read_text() == ""


@contextmanager
def holding_the_lock(home):
    folder = cache_folder({"HOME": str(home)})
    folder.mkdir(parents=True)
    with (folder / "fetch.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_failed_fetch_leaves_nothing_behind(machine, tmp_path):
    machine.add("mvn", f"{COPIES}\necho no route to host; exit 1")
    with pytest.raises(ServerNotAvailable, match=r"could not fetch org\.thing:thing_2:1\.2: no route to host"):
        machine.supply().provide(recipe(jars=JARS))
    assert [*(tmp_path / ".cache" / "lockstep" / "jars").iterdir()] == []


def test_a_second_fetch_at_the_same_time_does_no_harm(machine, tmp_path):
    kept = tmp_path / ".cache" / "lockstep" / "jars" / "thing-1.2"
    machine.add("mvn", f"{COPIES}\nmkdir {kept}; echo other > {kept}/thing.jar")
    assert machine.supply().provide(recipe(jars=JARS)) == kept
    assert (kept / "thing.jar").read_text() == "other\n"


def test_the_cache_folder_is_where_the_system_wants_it():
    assert cache_folder({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/lockstep")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/lockstep")
