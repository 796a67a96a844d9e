"""Adapters as processes: files and sockets in and out, killed and started again. No engine runs here."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from cli_command import Command, InProcess, read_line, until

import lockstep as library
from lockstep.core.outputs import Barrier
from lockstep.engine.events.columns import EventBatch
from lockstep.engine.events.event import Event, Flag, Opcode
from lockstep.engine.events.frames import cut_frames, decode_frame
from lockstep.engine.events.schema import Schema
from lockstep.engine.runtime.output.outlet import encode_barrier
from lockstep.engine.runtime.sequence.beats import Beat
from lockstep.engine.runtime.sequence.reader import values_between
from lockstep.engine.runtime.sequence.streams import CONTROL_STREAM, EVENT_STREAM
from lockstep.log.batch import NO_PRODUCER, pack

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]
SCHEMA = Schema.parse("ID*:int64,symbol:string,price:double")
MODEL = """
name: desk
queries:
  - name: q
    windows:
      - {kind: source, name: Trades, schema: "ID*:int64,symbol:string,price:double"}
      - {kind: copy, name: Copy}
    edges: [Trades -> Copy]
"""
INPUT, OUTPUT = "local.desk.q.Trades.I", "local.desk.q.Copy.O"
PUBLISH = ("adapter", "publish", "--model", "desk.yaml")
SUBSCRIBE = ("adapter", "subscribe", "--model", "desk.yaml", "--window", "Copy")


@pytest.fixture
def lockstep(tmp_path):
    (tmp_path / "desk.yaml").write_text(MODEL)
    command = InProcess(tmp_path)
    yield command
    command.close()


@pytest.fixture
def bus(tmp_path, lockstep):
    with library.connect(f"lmdb:{tmp_path}/.lockstep") as client:
        for name, config in ((INPUT, EVENT_STREAM), (OUTPUT, EVENT_STREAM), ("local.desk.C", CONTROL_STREAM)):
            client.bus.create(name, config)
        yield client.bus


def line(number: int) -> str:
    return f"I,N,{number},s{number},{number / 4}\n"


def lines(*numbers: int) -> str:
    return "".join(line(number) for number in numbers)


def event(number: int, opcode: Opcode = Opcode.INSERT, flag: Flag = Flag.NORMAL) -> Event:
    return Event(opcode, flag, (number, f"s{number}", number / 4))


class Out:
    """Writes the out stream as engines do."""

    def __init__(self, bus) -> None:
        self.bus, self.log, self.last = bus, bus.open(OUTPUT), 0

    def put(self, *values: bytes) -> None:
        self.log.append([pack([value], producer=NO_PRODUCER, sequence=0, created_ns=0) for value in values])

    def frames(self, *blocks: tuple[int, list[Event]], previous: int, max_bytes: int = 1 << 20) -> list[bytes]:
        return cut_frames(EventBatch.of(SCHEMA, blocks), max_bytes, previous=previous)

    def single(self, *numbers: int) -> None:
        """A frame for each block of one event."""
        self.put(*(self.frames((number, [event(number)]), previous=number - 1)[0] for number in numbers))
        self.last = numbers[-1]

    def come(self, *blocks: tuple[int, list[Event]], max_bytes: int = 1 << 20) -> None:
        self.put(*self.frames(*blocks, previous=self.last, max_bytes=max_bytes))
        self.last = blocks[-1][0]

    def takeover(self) -> None:
        """A barrier, and a copy of what an old leader still had in hand."""
        self.put(encode_barrier(Barrier(2, "b")))
        self.put(*self.frames((self.last, [event(self.last)]), previous=self.last - 1))

    def beat(self) -> None:
        beat = Beat(published=self.last, last={"q/Copy": self.last}, offsets={"q/Copy": self.log.bounds().next})
        self.bus.open("local.desk.C").append([beat.batch(0)])


def blocks_in(bus) -> list[tuple[int, list[int]]]:
    log = bus.open(INPUT)
    found = []
    for _, value in values_between(log, log.bounds().first, log.bounds().next):
        found += [
            (number, [one.values[0] for one in events]) for number, events in decode_frame(value, SCHEMA).batch.blocks()
        ]
    return found


def counted(bus) -> list[list[int]]:
    """The blocks of a client that numbers them, as an engine takes them."""
    taken: list[list[int]] = []
    for number, ids in blocks_in(bus):
        if number == len(taken) + 1:
            taken.append(ids)
    return taken


# Publishing


def test_a_file_is_published_in_blocks(lockstep, bus, tmp_path) -> None:
    (tmp_path / "day.csv").write_text("a header\n" + lines(1, 2) + "I,N,oops\n" + lines(3))
    told = lockstep(*PUBLISH, "day.csv", "--block", "2", "--header", "1")
    assert told.lines == ["Published 3 events in 2 blocks to q/Trades."]
    assert "day.csv, line 4: unparsable" in told.err
    assert [ids for _, ids in blocks_in(bus)] == [[1, 2], [3]]
    done = lockstep(*PUBLISH, "day.csv", "--header", "1", "--repeat", "3", "--max-events", "7", "--rate", "1000",
                    "--ignore-parse-errors", "--json").object  # fmt: skip
    assert (done["events"], done["blocks"], done["bad_lines"]["total"]) == (7, 7, 3)


def test_lines_without_opcode_and_with_dates(lockstep, bus, tmp_path) -> None:
    (tmp_path / "day.csv").write_text("1;a;2.5\n2;b;3.5\n")
    lockstep(*PUBLISH, "day.csv", "--add-opcode", "--add-flags", "--upsert", "--delimiter", ";", "--transactional")
    log = bus.open(INPUT)
    frames = [decode_frame(value, SCHEMA) for _, value in values_between(log, 0, log.bounds().next)]
    assert [one.opcode for frame in frames for one in frame.batch.events()] == [Opcode.UPSERT] * 2
    assert all(len(frame.transactional) for frame in frames)


def test_a_client_may_send_its_file_again(lockstep, bus, tmp_path) -> None:
    (tmp_path / "day.csv").write_text(lines(1, 2))
    lockstep(*PUBLISH, "day.csv", "--client", "feed")
    with (tmp_path / "day.csv").open("a") as file:
        file.write(lines(3))
    lockstep(*PUBLISH, "day.csv", "--client", "feed")
    assert [number for number, _ in blocks_in(bus)] == [1, 2, 1, 2, 3]
    assert counted(bus) == [[1], [2], [3]]


def test_json_and_standard_input(lockstep, bus, tmp_path) -> None:
    Command(tmp_path)(*PUBLISH, "-", "--type", "json", "--block", "2", given='{"ID":1}\n[{"ID":2},{"ID":3}]\n')
    assert [ids for _, ids in blocks_in(bus)] == [[1, 2], [3]]


def test_a_growing_file_is_followed_until_it_is_told_to_end(lockstep, bus, tmp_path) -> None:
    file = tmp_path / "day.csv"
    file.write_text(lines(1) + "I,N,2,")
    process = lockstep.start(*PUBLISH, "day.csv", "--growing", "--json")
    until(lambda: len(blocks_in(bus)) == 1)
    with file.open("a") as more:
        more.write("s2,0.5\n" + lines(3) + "I,N,4,s4,1.0")
    until(lambda: len(blocks_in(bus)) == 3)
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert json.loads(out)["events"] == 4  # what was there without a line end is the last line
    assert [ids for _, ids in blocks_in(bus)] == [[1], [2], [3], [4]]
    done = lockstep(*PUBLISH, "day.csv", "--growing", "--idle", "0.2s", "--block", "3", "--json").object
    assert (done["events"], done["blocks"]) == (4, 2)


def test_sockets_on_both_sides(lockstep, bus) -> None:
    # Given an adapter that listens
    process = lockstep.start(*PUBLISH, "listen://127.0.0.1:0", "--json")
    address = json.loads(read_line(process))["address"]
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as link:
        link.sendall(lines(1, 2).encode())
    out, _ = process.communicate(timeout=60)
    assert json.loads(out)["events"] == 2
    # And one that calls
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = lockstep.start(*PUBLISH, f"tcp://127.0.0.1:{port}", "--json")
        link, _ = server.accept()
        with link:
            link.sendall(lines(3).encode())
    process.communicate(timeout=60)
    assert [ids for _, ids in blocks_in(bus)] == [[1], [2], [3]]


WRONG = [
    (("publish", "day.csv"), 2, "Say which project"),
    (("publish", "day.csv", "--project", "desk"), 3, "project 'desk'"),
    (("publish", "none.csv", "--model", "desk.yaml"), 3, "'none.csv' can't be read"),
    (("publish", "day.csv", "--model", "desk.yaml", "--window", "Trade"), 3, "Did you mean 'Trades'?"),
    (("publish", "-", "--model", "desk.yaml", "--repeat", "2"), 2, "--repeat needs a file"),
    (("publish", "day.csv", "--model", "desk.yaml", "--client", "a", "--failover", "b"), 2, "leave out --client"),
    (("publish", "tcp://nowhere", "--model", "desk.yaml"), 2, "is not tcp://HOST:PORT"),
    (("publish", "tcp://127.0.0.1:1", "--model", "desk.yaml"), 6, "can't be used"),
    (("publish", "day.csv", "--model", "desk.yaml", "--type", "binary"), 1, "byte 0 of day.csv"),
    (("subscribe", "--model", "desk.yaml", "--window", "Copi"), 3, "Did you mean 'Copy'?"),
    (("subscribe", "--model", "desk.yaml", "--window", "Trades", "-o", "x"), 3, "see --publish there"),
    (("subscribe", "--model", "desk.yaml", "--window", "Copy", "-o", "no/x"), 3, "there is no folder 'no'"),
    (("subscribe", "--model", "desk.yaml", "--window", "Copy", "--resume"), 2, "--resume needs a file"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=[words for *_, words in WRONG])
def test_what_is_wrong_is_said_and_no_file_is_made(lockstep, bus, tmp_path, arguments, code, words) -> None:
    (tmp_path / "day.csv").write_text("x" * 100)
    before = sorted(tmp_path.iterdir())
    assert words in lockstep("adapter", *arguments, code=code).err
    assert sorted(tmp_path.iterdir()) == before


# Subscribing


def test_everything_now_and_what_follows(lockstep, bus, tmp_path) -> None:
    out = Out(bus)
    out.come((1, [event(1)]), (2, [event(2), event(1, Opcode.DELETE, Flag.RETENTION)]))
    assert lockstep(*SUBSCRIBE, "--all", "--idle", "0s").out == lines(1, 2) + "D,R,1,s1,0.25\n"
    assert lockstep(*SUBSCRIBE, "--all", "--rmretdel", "--idle", "0s").out == lines(1, 2)
    assert lockstep(*SUBSCRIBE, "--snapshot", "--idle", "0s").out == line(2)
    assert lockstep(*SUBSCRIBE, "--no-snapshot", "--idle", "0s").out == ""
    process = lockstep.start(*SUBSCRIBE, "--snapshot", "--until-block", "4")
    assert read_line(process).decode() == line(2)
    out.come((4, [event(2, Opcode.UPDATE_BLOCK), event(2, Opcode.DELETE)]))
    rest, _ = process.communicate(timeout=60)
    assert rest.decode().splitlines() == ["UB,N,2,s2,0.5", "D,N,2,s2,0.5"]
    assert process.returncode == 0
    shown = lockstep(*SUBSCRIBE, "--all", "--collapse", "--count", "2", "--header", "names", "--idle", "0s").lines
    assert shown == ["opcode,flags,ID,symbol,price", *lines(1, 2).splitlines(), "D,R,1,s1,0.25"]


def test_it_ends_when_a_block_without_events_is_published(lockstep, bus) -> None:
    out = Out(bus)
    out.come((1, [event(1)]), (7, [event(7)]))
    out.beat()
    assert lockstep(*SUBSCRIBE, "--all", "--until-block", "5").out == line(1)
    assert lockstep(*SUBSCRIBE, "--all", "--until-block", "7").out == lines(1, 7)


def test_what_is_written_can_be_published(lockstep, bus, tmp_path) -> None:
    Out(bus).come((1, [event(1), event(2)]), (5, [event(2, Opcode.UPDATE_BLOCK), event(2, Opcode.DELETE)]))
    for kind in ("binary", "json", "csv"):
        ends = ("-o", "x", "--overwrite", "--idle", "0s", "--json")
        done = lockstep(*SUBSCRIBE, "--all", "--collapse", "--type", kind, *ends).object
        assert (done["events"], done["blocks"], done["last"]) == (3, 2, 5)
        told = lockstep(*PUBLISH, "x", "--type", kind, "--json").object
        assert (told["events"], told["blocks"]) == (3, 2 if kind == "binary" else 3)
    assert [ids for _, ids in blocks_in(bus)] == [[1, 2], [2], *[[1], [2], [2]] * 2]


def test_a_file_that_is_there_is_not_emptied_by_a_file_that_grows(lockstep, bus, tmp_path) -> None:
    # Given the file of an earlier run, without a position beside it
    Out(bus).come((1, [event(1)]))
    file = tmp_path / "day.csv"
    file.write_text("yesterday\n")
    growing = (*SUBSCRIBE, "--all", "-o", "day.csv", "--idle", "0s")
    # When it is named again, then nothing is lost, and the command says what to do
    assert "add --overwrite" in lockstep(*growing, code=4).err
    assert "choose one" in lockstep(*growing, "--resume", "--overwrite", code=2).err
    assert file.read_text() == "yesterday\n"
    lockstep(*growing, "--overwrite")
    assert file.read_text() == line(1)
    # And one that is empty, or is replaced when the new one is complete, is no question
    file.write_text("")
    lockstep(*growing)
    lockstep(*SUBSCRIBE, "--all", "-o", "day.csv", "--exit")
    assert file.read_text() == line(1)


def test_a_socket_gets_what_comes_out(lockstep, bus) -> None:
    Out(bus).come((1, [event(1)]))
    process = lockstep.start(*SUBSCRIBE, "--all", "-o", "listen://127.0.0.1:0", "--until-block", "1", "--json")
    host, _, port = json.loads(read_line(process))["address"].rpartition(":")
    with socket.create_connection((host, int(port))) as link, link.makefile("rb") as file:
        assert file.read().decode() == line(1)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_signal_ends_it_with_everything_written(lockstep, bus, tmp_path) -> None:
    Out(bus).come((1, [event(1)]))
    process = lockstep.start(*SUBSCRIBE, "--all", "-o", "day.csv")
    until(lambda: (tmp_path / "day.csv").exists() and (tmp_path / "day.csv").read_text() == line(1))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


@pytest.mark.parametrize("kind", ["csv", "binary"])
def test_a_killed_subscriber_goes_on_to_the_byte(lockstep, bus, tmp_path, kind) -> None:
    # Given a subscriber that writes a file, and is killed while an engine takes over from another
    out, file = Out(bus), tmp_path / "day"
    options = (*SUBSCRIBE, "--all", "-o", "day", "--resume", "--type", kind)
    out.single(*range(1, 401))
    process = lockstep.start(*options)
    until(lambda: file.exists() and file.stat().st_size > 0)
    process.kill()
    process.communicate()
    out.takeover()
    out.come((401, [event(one) for one in range(300)]), (402, [event(402)]), max_bytes=2000)
    # When the file has half a line behind its position, and it is started and killed again
    with file.open("ab") as more:
        more.write(b"I,N,half")
    process = lockstep.start(*options)
    known = json.loads((tmp_path / "day.position").read_text())["bytes"]
    until(lambda: json.loads((tmp_path / "day.position").read_text())["bytes"] > known or file.stat().st_size > known)
    process.kill()
    process.communicate()
    out.single(*range(403, 450))
    done = lockstep(*options, "--until-block", "449", "--json").object
    assert done["resumed"]
    # Then the file is that of one who was never killed
    lockstep(*SUBSCRIBE, "--all", "-o", "whole", "--type", kind, "--until-block", "449")
    assert file.read_bytes() == (tmp_path / "whole").read_bytes()
    assert lockstep(*options, "--until-block", "449", "--json").object["events"] == 0


def test_a_file_that_does_not_fit_its_position_is_refused(lockstep, bus, tmp_path) -> None:
    Out(bus).come((1, [event(1)]))
    options = (*SUBSCRIBE, "--all", "-o", "day", "--resume", "--idle", "0s")
    lockstep(*options)
    assert "[POSITION_FOREIGN]" in lockstep(*options, "--collapse", code=4).err
    (tmp_path / "day").write_text("I")
    assert "a file of 14 bytes" in lockstep(*options, code=4).err
    (tmp_path / "day.position").unlink()
    assert "no position beside it" in lockstep(*options, code=4).err
    (tmp_path / "day").unlink()
    lockstep(*options)
    assert (tmp_path / "day").read_text() == line(1)


# Standing in for each other


def active_of(*processes: subprocess.Popen[bytes]) -> dict:
    """The first of them that says it is active."""
    streams = {process.stdout: process for process in processes}
    ready, _, _ = select.select(list(streams), [], [], 60)
    process = streams[ready[0]]
    return {"process": process, **json.loads(read_line(process))}


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_standby_publisher_takes_over_when_the_active_one_is_killed(lockstep, bus, tmp_path) -> None:
    # Given two adapters that follow the same file
    file = tmp_path / "day.csv"
    file.write_text(lines(*range(1, 101)))
    options = (*PUBLISH, "day.csv", "--growing", "--failover", "feed", "--lease", "0.4", "--block", "3", "--json")
    pair = [lockstep.start(*options), lockstep.start(*options)]
    first = active_of(*pair)
    assert (first["event"], first["role"], first["last"]) == ("role", "active", 0)
    until(lambda: len(counted(bus)) == 33)
    # When the active one is killed, while the file grows
    first["process"].kill()
    append(file, lines(*range(101, 201)))
    (standby,) = [process for process in pair if process is not first["process"]]
    second = json.loads(read_line(standby))
    assert (second["role"], second["last"]) == ("active", 33)
    until(lambda: len(counted(bus)) == 66)
    # And a third one is started, which reads the file from its start, and the second is killed
    third = lockstep.start(*options)
    append(file, lines(*range(201, 301)))
    until(lambda: len(counted(bus)) == 100)
    standby.kill()
    append(file, lines(301, 302, 303, 304))  # the last one begins a block that others may still fill
    assert json.loads(read_line(third))["role"] == "active"
    until(lambda: len(counted(bus)) == 101)
    third.send_signal(signal.SIGTERM)
    third.communicate(timeout=60)
    # Then the input is the file, block by block
    assert counted(bus) == [[one, one + 1, one + 2] for one in range(1, 304, 3)]


def test_adapters_end_with_their_file_and_say_who_was_active(lockstep, bus, tmp_path) -> None:
    (tmp_path / "day.csv").write_text(lines(*range(1, 31)))
    options = (*PUBLISH, "day.csv", "--failover", "feed", "--lease", "0.4", "--json")
    pair = [lockstep.start(*options), lockstep.start(*options)]
    ends = [json.loads(process.communicate(timeout=60)[0].splitlines()[-1]) for process in pair]
    assert [(end["events"], end["last"]) for end in ends] == [(30, 30)] * 2
    assert counted(bus) == [[one] for one in range(1, 31)]


def test_an_adapter_that_did_not_read_its_source_from_the_start_is_refused(lockstep, bus, tmp_path) -> None:
    (tmp_path / "day.csv").write_text(lines(*range(1, 31)))
    (tmp_path / "rest.csv").write_text(lines(*range(11, 41)))
    options = ("--failover", "feed", "--lease", "0.4")
    first = lockstep(*PUBLISH, "day.csv", *options)
    assert "Hot failover state switched to active" in first.err
    error = lockstep(*PUBLISH, "rest.csv", *options, code=4).err
    assert "[SOURCE_DIFFERS]" in error
    assert "switched to active" not in error
    assert counted(bus) == [[one] for one in range(1, 31)]
