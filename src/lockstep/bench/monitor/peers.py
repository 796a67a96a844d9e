"""Other monitors beside ours: Debian's packages, unpacked below the cache folder on request only, never installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from lockstep.bench.compare_servers import Served, family
from lockstep.bench.monitor import peer_settings
from lockstep.dev.supply import cache_folder
from lockstep.errors import Unavailable

Say = Callable[[str], None]
NAGIOS, ICINGA, ALERTMANAGER = "Nagios 4", "Icinga 2", "Alertmanager pair"
PACKAGES: Mapping[str, tuple[str, ...]] = {
    NAGIOS: ("nagios4-core",),
    ICINGA: (
        "icinga2-bin", "icinga2-common", "libboost-context1.74.0", "libboost-coroutine1.74.0", "libboost-thread1.74.0",
        "libboost-filesystem1.74.0", "libboost-program-options1.74.0", "libboost-regex1.74.0",
        "libboost-iostreams1.74.0", "libboost-system1.74.0",
    ),
    ALERTMANAGER: ("prometheus-alertmanager",),
}  # fmt: skip
_FETCH_S, _START_S, _LOOK_S = 300.0, 60.0, 0.02
_TAIL = 1_000


class PeerMissing(Unavailable):
    """Another monitor can't be had on this machine."""

    code = "BENCH_MONITOR_MISSING"
    template = "{name} can't be had here: {reason}."
    advice = "It needs apt-get, dpkg and the packages of Debian 12; the other rows do not."


class Result(NamedTuple):
    """What is handed in: the status of a service of a host."""

    host: str
    service: str
    status: int
    output: str


def unpacked(name: str, environ: Mapping[str, str]) -> Path:
    """The folder of a monitor's files, as they would be below /; fetched if it is not there yet."""
    folder = cache_folder(environ) / "monitor-peers" / name.lower().replace(" ", "-")
    if folder.is_dir():
        return folder
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    made.mkdir(parents=True)
    try:
        _run(name, ["apt-get", "download", *PACKAGES[name]], made)
        for package in made.glob("*.deb"):
            _run(name, ["dpkg", "-x", str(package), str(made)], made)
            package.unlink()
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def _run(name: str, command: Sequence[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=_FETCH_S)  # noqa: S603 - ours
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise PeerMissing(name=name, reason=said[-1] if said else f"{command[0]} failed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerMissing(name=name, reason=str(error)) from None


class Peer(ABC):
    """A monitor that runs in a folder. It notifies by adding a line to a file: what the result said."""

    settle_s = 5.0
    """So long after the last notification nothing more is expected."""

    def __init__(self, root: Path, folder: Path, services: Sequence[tuple[str, str]]) -> None:
        self.root, self.folder, self.services = root, folder, services
        self.processes: list[subprocess.Popen[bytes]] = []

    @abstractmethod
    def start(self) -> None:
        """Start it, or what was killed of it, and return when it takes results."""

    @abstractmethod
    def hand_in(self, results: Sequence[Result]) -> None:
        """Hand results in; return when they are accepted."""

    def is_idle(self) -> bool:
        """Whether everything that was handed in was taken."""
        return True

    def told(self) -> list[str]:
        """What was notified of, in order."""
        path = self.folder / "told"
        return path.read_text().split() if path.exists() else []

    def kill(self) -> None:
        """Kill the (first) process with all that it started, as a machine dies."""
        _kill(self.processes.pop(0))

    def pids(self) -> set[int]:
        """All its processes."""
        return set(family(tuple(process.pid for process in self.processes)))

    def cpu_s(self) -> float:
        """Processor time of all that run."""
        return Served("", tuple(process.pid for process in self.processes)).cpu_s()

    def close(self) -> None:
        """End all."""
        while self.processes:
            _kill(self.processes.pop())

    def _spawn(self, command: Sequence[str | Path], log: str) -> subprocess.Popen[bytes]:
        libraries = self.root / "usr" / "lib" / "x86_64-linux-gnu"
        with (self.folder / log).open("ab") as out:
            return subprocess.Popen(  # noqa: S603 - a package of Debian's
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            )  # fmt: skip

    def _until(self, condition: Callable[[], bool], log: str) -> None:
        end = time.monotonic() + _START_S
        while not condition():
            if time.monotonic() > end or any(process.poll() is not None for process in self.processes):
                said = (self.folder / log).read_text(errors="replace")[-_TAIL:]
                message = f"{type(self).__name__} did not start: {said}"
                raise RuntimeError(message)
            time.sleep(_LOOK_S)


def _kill(process: subprocess.Popen[bytes]) -> None:
    for pid in family((process.pid,)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


class Nagios(Peer):
    """Results go into its spool, many in a file."""

    def __init__(self, root: Path, folder: Path, services: Sequence[tuple[str, str]]) -> None:
        super().__init__(root, folder, services)
        self._spool, self._files = folder / "spool", 0
        for each in (self._spool, folder / "var"):
            each.mkdir()
        (folder / "objects.cfg").write_text(peer_settings.nagios_objects(folder, services))
        (folder / "nagios.cfg").write_text(peer_settings.nagios_main(folder))

    def start(self) -> None:
        """Start it."""
        log = self.folder / "var" / "nagios.log"
        before = log.stat().st_size if log.exists() else 0
        self.processes.append(self._spawn([self.root / "usr/sbin/nagios4", self.folder / "nagios.cfg"], "out"))
        self._until(lambda: log.exists() and b"launched command file worker" in log.read_bytes()[before:], "out")

    def hand_in(self, results: Sequence[Result]) -> None:
        """Hand results in."""
        now = int(time.time())
        self._files += 1
        path = self._spool / f"c{self._files:06d}"
        path.write_text(f"### results\nfile_time={now}\n\n" + "".join(_nagios_result(each, now) for each in results))
        path.with_suffix(".ok").touch()

    def is_idle(self) -> bool:
        """Whether the spool is empty."""
        return not any(self._spool.glob("*.ok"))


def _nagios_result(result: Result, now: int) -> str:
    return (
        f"host_name={result.host}\nservice_description={result.service}\ncheck_type=1\ncheck_options=0\n"
        f"scheduled_check=0\nlatency=0\nstart_time={now}.0\nfinish_time={now}.0\nearly_timeout=0\nexited_ok=1\n"
        f"return_code={result.status}\noutput={result.output}\\n\n\n"
    )


class Icinga(Peer):
    """Results go through its command pipe, which is there while it runs."""

    def __init__(self, root: Path, folder: Path, services: Sequence[tuple[str, str]]) -> None:
        super().__init__(root, folder, services)
        for name in ("data", "run", "log", "spool", "cache"):
            (folder / name).mkdir()
        (folder / "icinga2.conf").write_text(peer_settings.icinga(folder, services))
        self._pipe = folder / "run" / "icinga2.cmd"

    def start(self) -> None:
        """Start it."""
        self._pipe.unlink(missing_ok=True)
        binary = self.root / "usr/lib/x86_64-linux-gnu/icinga2/sbin/icinga2"
        words: list[str | Path] = [
            binary,
            "daemon",
            "-c",
            self.folder / "icinga2.conf",
            "-I",
            self.root / "usr/share/icinga2/include",
        ]
        for name, value in peer_settings.icinga_constants(self.folder).items():
            words += ["-D", f"{name}={value}"]
        self.processes.append(self._spawn(words, "out"))
        self._until(self._pipe.is_fifo, "out")

    def hand_in(self, results: Sequence[Result]) -> None:
        """Hand results in."""
        now = int(time.time())
        lines = [
            f"[{now}] PROCESS_SERVICE_CHECK_RESULT;{each.host};{each.service};{each.status};{each.output}\n"
            for each in results
        ]
        with self._pipe.open("w") as pipe:
            pipe.writelines(lines)


class Alertmanager(Peer):
    """Two that know of each other; each alert goes to both, as Prometheus sends it. Only what fails is an alert."""

    settle_s = 20.0
    """The second one waits 15 s for the first."""

    def __init__(self, root: Path, folder: Path, services: Sequence[tuple[str, str]]) -> None:
        super().__init__(root, folder, services)
        self._ports, self._gossip = (_free_port(), _free_port()), (_free_port(), _free_port())
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._told: list[str] = []
        self._hook = _webhook(self._told)
        url = f"http://127.0.0.1:{self._hook.server_address[1]}/"
        (folder / "alertmanager.yml").write_text(peer_settings.alertmanager(url))

    def start(self) -> None:
        """Start it."""
        for number in range(2):
            if number in self._running:
                continue
            words: list[str | Path] = [
                *self._with_template(), self.root / "usr/bin/prometheus-alertmanager",
                f"--config.file={self.folder / 'alertmanager.yml'}",
                f"--storage.path={self.folder / f'data-{number}'}",
                f"--web.listen-address=127.0.0.1:{self._ports[number]}",
                f"--cluster.listen-address=127.0.0.1:{self._gossip[number]}",
                f"--cluster.peer=127.0.0.1:{self._gossip[1 - number]}", "--cluster.settle-timeout=5s",
            ]  # fmt: skip
            self._running[number] = self._spawn(words, "out")
        self.processes = [*self._running.values()]
        self._until(lambda: all(map(self._is_ready, range(2))), "out")

    def _with_template(self) -> list[str]:
        """Debian's build reads a template below /usr/share: it sees one there, and nobody else does."""
        if Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
            return []
        if os.geteuid() != 0:
            raise PeerMissing(name=ALERTMANAGER, reason="only root can show it its template below /usr/share")
        layers = f"lowerdir={self.root}/usr/share:/usr/share"
        script = 'mount -t overlay overlay -o "$0" /usr/share && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, layers]

    def kill(self) -> None:
        """Kill one of the two."""
        number = min(self._running)
        _kill(self._running.pop(number))
        self.processes = [*self._running.values()]

    def hand_in(self, results: Sequence[Result]) -> None:
        """Hand results in."""
        alerts = [{"labels": {"alertname": each.service, "host": each.host, "output": each.output}} for each in results]
        for number in [*self._running]:
            request = urllib.request.Request(
                f"http://127.0.0.1:{self._ports[number]}/api/v2/alerts", json.dumps(alerts).encode(),
                {"Content-Type": "application/json"},
            )  # fmt: skip
            with urllib.request.urlopen(request, timeout=30):  # noqa: S310
                pass

    def told(self) -> list[str]:
        """What the webhook got."""
        return [*self._told]

    def close(self) -> None:
        """End both, and the webhook."""
        super().close()
        self._hook.shutdown()
        self._hook.server_close()

    def _is_ready(self, number: int) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[number]}/-/ready", timeout=5):
                return True
        except OSError:
            return False


def _webhook(told: list[str]) -> ThreadingHTTPServer:
    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            tree = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.extend(alert["labels"]["output"] for alert in tree["alerts"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, name="lockstep-bench-webhook", daemon=True).start()
    return server


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


KINDS: Mapping[str, type[Peer]] = {NAGIOS: Nagios, ICINGA: Icinga, ALERTMANAGER: Alertmanager}


@contextmanager
def running(name: str, folder: Path, services: Sequence[tuple[str, str]], environ: Mapping[str, str]) -> Iterator[Peer]:
    """A monitor that takes results."""
    peer = KINDS[name](unpacked(name, environ), folder, services)
    try:
        peer.start()
        yield peer
    finally:
        peer.close()
