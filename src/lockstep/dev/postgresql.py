"""The recipe for PostgreSQL: one server with the user lockstep, who needs no password on loopback."""

from __future__ import annotations

import os
from pathlib import Path
from signal import SIGINT

from lockstep.dev import probes
from lockstep.dev.recipe import HOST, Plan, Process, Program, Recipe, Site

USER, DATABASE = "lockstep", "postgres"
_VERSIONS = Path("/usr/lib/postgresql")
_DEBIAN = "15"
_UNPRIVILEGED = "postgres"
_SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": 50,
    "shared_buffers": "64MB",
    "log_min_messages": "warning",
}


def postgresql() -> Recipe:
    """One PostgreSQL."""
    program = Program(name="postgres", package="postgresql", path=str(_programs() / "postgres"))
    return Recipe(name="postgresql", port_count=1, plan=_plan, programs=(program,))


def _plan(site: Site) -> Plan:
    (port,) = site.ports
    programs = _programs()
    new = ("-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-instructions")
    settings = [word for name, value in {**_SETTINGS, "port": port}.items() for word in ("-c", f"{name}={value}")]
    return Plan(
        url=f"postgresql://{USER}@{HOST}:{port}/{DATABASE}",
        prepare=(_on_data(str(programs / "initdb"), *new),),
        processes=(
            Process(
                name="postgresql",
                command=_on_data(str(programs / "postgres"), *settings),
                port=port,
                probe=probes.postgresql,
                stop_signal=SIGINT,  # SIGTERM waits until the last client has gone
            ),
        ),
    )


def _on_data(program: str, *words: str) -> tuple[str, ...]:
    """A command on the folder `data`; if this is root, by another user, since PostgreSQL refuses to run as root.

    That user may not be allowed to reach the folder by its path, so the command gets it as an open descriptor.
    """
    setup, become = "mkdir -p -m 700 data", ""
    if os.geteuid() == 0:
        setup += f" && chown {_UNPRIVILEGED}: data"
        become = f"setpriv --reuid={_UNPRIVILEGED} --regid={_UNPRIVILEGED} --clear-groups "
    return ("sh", "-c", f'{setup} && exec {become}"$@" -D /proc/self/fd/3 3<data', "sh", program, *words)


def _programs() -> Path:
    """Where the newest PostgreSQL of this machine has its programs; where Debian puts them if there is none."""
    numbers = sorted((int(folder.name) for folder in _VERSIONS.glob("*") if folder.name.isdigit()), reverse=True)
    folders = [_VERSIONS / str(number) / "bin" for number in numbers]
    return next((folder for folder in folders if (folder / "postgres").exists()), _VERSIONS / _DEBIAN / "bin")
