"""Where adapters read from and write to: files that may grow, standard input and output, and sockets."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lockstep.cli.model_files import STANDARD
from lockstep.errors import Conflict, TimedOut, Unavailable, UsageError

if TYPE_CHECKING:
    from lockstep.events.positions import Position

TCP, LISTEN = "tcp://", "listen://"
LOOK_S = 0.05
"""The longest wait, so that a stop is noticed soon and standbys can do their own work."""
_READ = 1 << 20
_CONNECT_S = _SEND_S = 30.0

Rest = Callable[[], None]
Say = Callable[[str], None]


class Stopping:
    """The first signal asks for an end at the next good place; a second one ends at once."""

    def __init__(self) -> None:
        self.code = 0

    def __bool__(self) -> bool:
        return self.code != 0

    @contextmanager
    def watching(self) -> Iterator[Stopping]:
        """Take the signals."""
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def asked(number: int, _frame: object) -> None:
            self.code = 128 + number
            for known, handler in before.items():
                signal.signal(known, handler)

        for number in before:
            signal.signal(number, asked)
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Inlet:
    """Bytes as they come. `read` gives what is there, at least one byte, and nothing at the end.

    A file that grows has no end until `stopping`, or until nothing came for `idle_s`.
    """

    def __init__(self, fd: int, *, grows: bool, idle_s: float | None, rest: Rest, stopping: Stopping) -> None:
        self._fd, self._grows, self._idle_s, self._rest, self._stopping = fd, grows, idle_s, rest, stopping
        self._is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        self._buffer = b""

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; with -1 everything up to the end."""
        if size < 0:
            return b"".join(iter(lambda: self.read(_READ), b""))
        if not self._buffer:
            self._buffer = self._more()
        given, self._buffer = self._buffer[:size], self._buffer[size:]
        return given

    def readline(self) -> bytes:
        """A line with its end, or what is left."""
        while b"\n" not in self._buffer and (more := self._more()):
            self._buffer += more
        line, end, self._buffer = self._buffer.partition(b"\n")
        return line + end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def _more(self) -> bytes:
        began = time.monotonic()
        while not self._stopping:
            if self._is_ready():
                data = os.read(self._fd, _READ)
                if data or not (self._is_file and self._grows):
                    return data
            if self._idle_s is not None and time.monotonic() - began >= self._idle_s:
                return b""
            self._rest()
        return b""

    def _is_ready(self) -> bool:
        return self._is_file or bool(select.select([self._fd], [], [], LOOK_S)[0])


@contextmanager
def opened_inlet(
    name: str, *, grows: bool, idle_s: float | None, rest: Rest, stopping: Stopping, say: Say
) -> Iterator[Inlet]:
    """The bytes of a file, of standard input, or of a socket."""
    with _descriptor(name, rest, stopping, say) as fd:
        yield Inlet(fd, grows=grows, idle_s=idle_s, rest=rest, stopping=stopping)


@contextmanager
def _descriptor(name: str, rest: Rest, stopping: Stopping, say: Say) -> Iterator[int]:
    from lockstep.engine.runtime.files import open_input

    if name == STANDARD:
        yield 0
    elif is_socket(name):
        with connected(name, rest, stopping, say) as link:
            yield link.fileno()
    else:
        with open_input(Path(name)) as file:
            yield file.fileno()


def is_socket(name: str) -> bool:
    """Whether it names a socket."""
    return name.startswith((TCP, LISTEN))


@contextmanager
def connected(name: str, rest: Rest, stopping: Stopping, say: Say) -> Iterator[socket.socket]:
    """A socket that is connected: to the other side, or the first that comes."""
    address = _address(name)
    try:
        if name.startswith(TCP):
            link = socket.create_connection(address, timeout=_CONNECT_S)
        else:
            link = _accepted(address, rest, stopping, say)
    except OSError as error:
        raise _unreachable(name, error) from error
    with link:
        link.settimeout(_SEND_S)
        yield link


def _unreachable(name: str, error: OSError) -> Unavailable:
    return Unavailable(reason=f"{name} can't be used: {error.strerror or error}.")


def _address(name: str) -> tuple[str, int]:
    host, _, port = name.partition("://")[2].rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise UsageError(reason=f"{name!r} is not tcp://HOST:PORT or listen://HOST:PORT.")
    return host, int(port)


def _accepted(address: tuple[str, int], rest: Rest, stopping: Stopping, say: Say) -> socket.socket:
    with socket.create_server(address) as server:
        host, port = server.getsockname()[:2]
        say(f"{host}:{port}")
        while not select.select([server], [], [], LOOK_S)[0]:
            if stopping:
                raise SystemExit(stopping.code)
            rest()
        return server.accept()[0]


class Outlet(Protocol):
    """Where bytes go."""

    def write(self, data: bytes) -> None:
        """Hand them over."""


class SocketOutlet:
    """Writes to a socket; a side that takes nothing for long is an error."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self._link, self._name = link, name

    def write(self, data: bytes) -> None:
        """Send all bytes; raises TimedOut if the other side stops reading, Unreachable if the connection is lost."""
        try:
            self._link.sendall(data)
        except TimeoutError as error:
            raise TimedOut(what=f"Writing to {self._name}", seconds=_SEND_S) from error
        except OSError as error:
            raise _unreachable(self._name, error) from error

    def close(self) -> None:
        """Close the sending side, so that the other side sees the end."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)


SUFFIX = ".position"


class ResumedFile:
    """An output file and the position to which it was written.

    The position is replaced after the bytes it stands for are on the disk. What follows it is cut off at the next
    start, and written again.
    """

    def __init__(self, path: Path, form: Mapping[str, Any]) -> None:
        from lockstep.engine.events.atomic_files import unwritable

        self.path, self._form = path, dict(form)
        self._beside = path.with_name(path.name + SUFFIX)
        known = self._load()
        self.position: Position | None = None if known is None else known[0]
        self.size = 0 if known is None else known[1]
        with unwritable(path):
            self._file = path.open("r+b" if path.exists() else "w+b")
        self._cut()

    @property
    def is_resumed(self) -> bool:
        """Whether it goes on with a file that was begun before."""
        return self.position is not None

    def write(self, data: bytes) -> None:
        """Add to the file."""
        from lockstep.engine.events.atomic_files import unwritable

        with unwritable(self.path):
            self._file.write(data)
            self.size += len(data)

    def save(self, position: Position | None) -> None:
        """Record that everything up to a position is in the file; None means that the file starts over."""
        from dataclasses import asdict

        from lockstep.engine.events.atomic_files import new_file, unwritable

        tree = {"position": None if position is None else asdict(position), "bytes": self.size, "form": self._form}
        with unwritable(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
        with new_file(self._beside, sync=True) as file:
            file.write(json.dumps(tree).encode())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _load(self) -> tuple[Position | None, int] | None:
        from lockstep.engine.errors import PositionForeign
        from lockstep.events.positions import Position

        if not self._beside.exists():
            if self.path.exists() and self.path.stat().st_size:
                raise Conflict(reason=f"{self.path} has no position beside it ({self._beside.name}): begin a new file.")
            return None
        tree = json.loads(self._beside.read_bytes())
        if tree["form"] != self._form:
            raise PositionForeign(found=json.dumps(tree["form"]), wanted=json.dumps(self._form))
        position = tree["position"]
        return (None, 0) if position is None else (Position.of(position), tree["bytes"])

    def _cut(self) -> None:
        from lockstep.engine.errors import PositionForeign

        found = self._file.seek(0, os.SEEK_END)
        if found < self.size:
            self._file.close()
            raise PositionForeign(found=f"a file of {self.size} bytes", wanted=f"{self.path} with {found}")
        self._file.truncate(self.size)
        self._file.seek(self.size)
