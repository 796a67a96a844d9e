"""The flags of the document's commands, and what they mean in ours."""

from __future__ import annotations

import logging
import socket
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lockstep.connectors.names import parse_window_url
from lockstep.errors import UsageError
from lockstep.esp import fs_adapter, xml_client, xml_server
from lockstep.esp.command import parsed
from lockstep.esp.fs_adapter import wish_of
from lockstep.esp.places import Place

URL = "dfESP://host:5555/tradesRMQ/trades/Aggregate24HR?snapshot=false"


def adapter(*words: str):
    return wish_of(parsed(fs_adapter.parser(), words))


def options(*words: str, sections=None):
    wish = adapter(*words)
    place = Place("lmdb:x", "host_5555")
    return fs_adapter.adapter_options(wish, parse_window_url(wish.url), place, sections or {})


def test_the_documents_subscriber():
    found = options("-k", "sub", "-h", URL, "-f", "out.csv", "-t", "csv", "-l", "rabbitmq")
    assert (found.bus, found.cluster, found.project) == ("lmdb:x", "host_5555", "tradesRMQ")
    assert (found.window, found.out, found.type, found.begin) == ("trades/Aggregate24HR", "out.csv", "csv", "new")
    assert options("-k", "sub", "-h", URL.replace("false", "true"), "-f", "o").begin == "snapshot"


def test_the_documents_publisher():
    found = options("-k", "pub", "-h", URL, "-f", "in.csv", "-t", "csv", "-l", "rabbitmq", "-b", "64", "-d", "%Y")
    assert (found.file, found.block, found.date_format, found.failover) == ("in.csv", 64, "%Y", None)


def test_settings_by_name():
    text = (f'type=pub,url="{URL}",fsname=/tmp/a.csv,fstype=csv,dateformat=%Y-%m-%d %H:%M:%S,header=2,'
            "growinginputfile=true,loglevel=trace,transport=kafka,transportconfigfile=/x/kafkapub.cfg")  # fmt: skip
    wish = adapter("-C", text)
    assert (wish.kind, wish.url, wish.file, wish.transport) == ("pub", URL, "/tmp/a.csv", "kafka")
    assert (wish.config_file, wish.date_format) == ("/x/kafkapub.cfg", "%Y-%m-%d %H:%M:%S")
    assert (wish.words, wish.ignored) == (("--header", "2", "--growing"), ("loglevel",))
    found = options("-C", "type=sub,fsname=o,collapse=true,rmretdel=false,header=full", "-h", URL)
    assert (found.collapse, found.rmretdel, found.header) == (True, False, "full")


@pytest.mark.parametrize(("given", "times"), [("repeatcount=0", 1), ("repeatcount=2", 3), ("header=0", 1)])
def test_repeatcount_is_how_often_a_file_is_read_again(given, times):
    assert options("-k", "pub", "-h", URL, "-f", "f", "-C", given).repeat == times


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ("transactional=true", "transactional", True),
        ("transactional=transactional", "transactional", True),
        ("transactional=normal", "transactional", False),
        ("transactional=false", "transactional", False),
        ("addcsvflags=normal", "add_flags", True),
        ("addcsvopcode=insert", "add_opcode", True),
        ("noautogenfield=true", "no_key", True),
        ("noautogenfield=false", "no_key", False),
    ],
)
def test_words_mean_what_they_mean_for_their_setting(given, name, expected):
    assert getattr(options("-k", "pub", "-h", URL, "-f", "f", "-C", given), name) is expected


def test_what_has_no_effect_is_named():
    found = adapter("-k", "sub", "-h", URL, "-f", "f", "-C", "maxfilesize=1,periodicity=2,rate=3,collapse=true")
    assert (found.ignored, found.words) == (("maxfilesize", "periodicity", "rate"), ("--collapse",))
    assert adapter("-k", "pub", "-h", URL, "-f", "f", "-C", "rate=3").words == ("--rate", "3")


def test_publishers_that_stand_in_for_each_other():
    sas = {"hotfailover": "true", "failovergroup": "g", "numbufferedmsgs": "77", "dateformat": "%d"}
    found = options("-k", "pub", "-h", URL, "-f", "f", sections={"sas": sas})
    assert (found.failover, found.buffered, found.date_format) == ("g", 77, "%d")
    with pytest.raises(UsageError, match="failovergroup"):
        options("-k", "pub", "-h", URL, "-f", "f", sections={"sas": {"hotfailover": "true"}})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-k", "pub", "-h", URL], "-f is missing"),
        (["-h", URL, "-f", "f"], "-k is missing"),
        (["-k", "push", "-h", URL, "-f", "f"], "'push'"),
        (["-k", "pub", "-h", URL, "-f", "f", "-t", "hdat"], "'hdat' is not supported"),
        (["-k", "pub", "-h", URL, "-f", "f", "-C", "type=pub"], "twice"),
        (["-k", "pub", "-h", URL, "-f", "f", "-C", "colour=red"], "colour is unknown"),
        (["-k", "pub", "-h", URL, "-f", "f", "-b", "0"], "from 1 on"),
        (["-k", "pub", "-h", URL, "-f", "f", "-C", "repeatcount=x"], "from 0 on"),
        (["-k", "pub", "-h", URL, "-f", "f", "-C", "transactional=maybe"], "true or false or transactional or normal"),
        (["-k", "pub", "-h", URL, "-f", "f", "-z"], "'-z'"),
    ],
)
def test_wrong_usage_is_told(words, said):
    with pytest.raises(UsageError, match=said):
        adapter(*words)


def test_which_bus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    url = parse_window_url(URL)
    (tmp_path / "rabbitmq.cfg").write_text("rabbitmq { host = rh1 }")
    place, _ = fs_adapter.find_place(adapter("-k", "sub", "-h", URL, "-f", "f", "-l", "rabbitmq"), url, {})
    assert (place.url, place.cluster) == ("rabbitmq://guest@rh1:5552", "host_5555")
    native = adapter("-k", "sub", "-h", URL, "-f", "f")
    assert fs_adapter.find_place(native, url, {"LOCKSTEP_BUS": "lmdb:b"})[0] == Place("lmdb:b", "host_5555")
    local = parse_window_url(URL.replace("host", "localhost"))
    assert fs_adapter.find_place(native, local, {})[0] == Place("lmdb:.lockstep", "127.0.0.1_5555")
    for name, word in (("solace", "rabbitmq or -l kafka"), ("tervela", "ended by its vendor"), ("mq", "unknown")):
        with pytest.raises(UsageError, match=word):
            fs_adapter.find_place(adapter("-k", "sub", "-h", URL, "-f", "f", "-l", name), url, {})


def test_errors_are_sentences_with_exit_codes(capsys):
    assert fs_adapter.main(["-k", "pub"]) == 2
    assert "dfesp_fs_adapter: [USAGE] -h is missing" in capsys.readouterr().err
    assert xml_server.main([]) == 2
    said = capsys.readouterr().err
    assert "usage: dfesp_xml_server" in said
    assert "-model" in said
    assert xml_server.main(["-model", "http://x/model.xml"]) == 2
    assert xml_server.main(["-model", "file://missing.xml"]) in (2, 3)


# --- the server ---------------------------------------------------------------------------------------------------


class _Graph:
    class project:
        name = "trades"


def server(*words: str, place: Place | None = None):
    wish = parsed(xml_server.parser(), ["-model", "file://model.xml", *words])
    return xml_server.engine_options(wish, place or xml_server.native_place(wish.pubsub, {}), _Graph)


def test_the_documents_server():
    found = server("-http", "8181", "-pubsub", "5555", "-loglevel", "esp=info", "-exit", "-cleanup", "-messages", "d")
    assert (found.model, found.http, found.cluster, found.bus) == (
        "model.xml",
        8181,
        "127.0.0.1_5555",
        "lmdb:.lockstep",
    )
    assert found.state.endswith("127.0.0.1_5555.trades-8181")
    assert found.told_level == logging.INFO
    assert found.document_lines
    assert found.dies_on_interrupt
    assert found.files == str(Path.cwd()), "projectUrl=file://model-updated.xml is below the folder where it runs"


def test_a_failover_cluster_and_further_options():
    place = Place("kafka://b:9092", "esp_1", {}, frozenset({"q/w/c"}), "zk:2181", 700)
    found = server("-state", "s", "-engine", "lease=2", "trim", place=place)
    assert (found.bus, found.election, found.lease, found.trim) == (
        "kafka://b:9092",
        "zookeeper://zk:2181/ESP",
        2.0,
        True,
    )
    assert (found.bound_connectors, found.buffer_blocks) == ({"q/w/c"}, 700)
    assert server("-engine", "buffer-blocks=9", place=place).buffer_blocks == 9
    assert server().buffer_blocks == 1_000_000


@pytest.mark.parametrize(
    ("text", "level"),
    [("esp=info", logging.INFO), ("esp=trace", logging.DEBUG), ("x=off,DF.ESP=warn", logging.WARNING),
     ("http=trace", logging.WARNING)],
)  # fmt: skip
def test_levels(text, level):
    assert xml_server.level_of(text) == level


# --- the client ---------------------------------------------------------------------------------------------------


class _Answers(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status = int(self.path.rpartition("/")[2] or 200)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(f"<{self.command} {self.headers.get('Authorization')}>{body.decode()}".encode())

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def http():
    with HTTPServer(("127.0.0.1", 0), _Answers) as made:
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def test_a_request_and_its_answer(http, capsys, tmp_path):
    (tmp_path / "model.xml").write_text("<project/>")
    (tmp_path / "token").write_text("abc\n")
    assert xml_client.main(["-url", f"{http}/a/200"]) == 0
    assert xml_client.main(["-url", f"{http}/a/200", "-put", f"file://{tmp_path}/model.xml"]) == 0
    assert xml_client.main(["-url", f"{http}/a/\n200", "-put"]) == 0
    assert xml_client.main(["-url", f"{http}/a/200", "-post", "text", "-token", str(tmp_path / "token")]) == 0
    assert xml_client.main(["-url", f"{http}/a/200", "-delete"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "<GET None>", "<PUT None><project/>", "<PUT None>", "<POST Bearer abc>text", "<DELETE None>",
    ]  # fmt: skip


@pytest.mark.parametrize(("status", "code"), [(404, 3), (409, 4), (401, 5), (422, 2), (503, 6), (500, 1)])
def test_what_was_refused_has_an_exit_code(http, capsys, status, code):
    assert xml_client.main(["-url", f"{http}/a/{status}"]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "<GET None>\n")


def test_nobody_there_and_no_url(capsys):
    assert xml_client.main(["-url", "http://127.0.0.1:1/"]) == 6
    assert "SERVER_UNREACHABLE" in capsys.readouterr().err
    assert xml_client.main(["-url", "ftp://x"]) == 2
    assert xml_client.main(["-url", "http://127.0.0.1:1/", "-put", "file://missing"]) == 3


def test_no_proxy_is_asked_and_none_is_told_the_token(http, capsys, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("abc")
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert xml_client.main(["-url", f"{http}/a/200", "-put", "-token", str(tmp_path / "token")]) == 0
        assert xml_client.main(["-url", "http://127.0.0.1:1/", "-put"]) == 6
        with pytest.raises(BlockingIOError):
            proxy.accept()
    assert capsys.readouterr().out == "<PUT Bearer abc>\n"


@contextmanager
def answering(sent: bytes):
    """A server that says one thing, whatever it is asked."""

    def answer() -> None:
        asked, _ = made.accept()
        with asked:
            asked.recv(4096)
            asked.sendall(sent)

    with socket.create_server(("127.0.0.1", 0)) as made:
        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.getsockname()[1]}/"
        thread.join(10)


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [
        (b"nonsense\r\n\r\n", 6, "what it sent is not HTTP"),
        (b"", 6, "SERVER_UNREACHABLE"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 6, "its answer ended in the middle"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\nabc", 6, "its answer ended in the middle"),
        (b"HTTP/1.1 599 Odd\r\nContent-Length: 3\r\n\r\nodd", 1, "odd"),
        (b"HTTP/1.1 499 Odd\r\nContent-Length: 3\r\n\r\nodd", 2, "odd"),
        (b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:2/\r\nContent-Length: 4\r\n\r\naway", 2, "away"),
    ],
)
def test_an_answer_that_is_none_is_said_in_words(capsys, sent, code, said):
    with answering(sent) as url:
        assert xml_client.main(["-url", url]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://h:x/", "http://[::1/", "http://h:99999999/", "http://h/\u00e9", "http:///",
                                 "http://h/\x01", f"http://{'h' * 70}.x/"])  # fmt: skip
def test_a_url_that_is_none_is_said_in_words(capsys, url):
    assert xml_client.main(["-url", url]) in (2, 6)
    assert "[USAGE]" in (told := capsys.readouterr().err) or "[SERVER_UNREACHABLE]" in told


@pytest.mark.parametrize("text", ["", "two words", "two\nlines", "\u00e9"])
def test_a_file_without_a_token_is_refused_and_not_shown(capsys, tmp_path, text):
    (tmp_path / "token").write_text(text)
    assert xml_client.main(["-url", "http://127.0.0.1:1/", "-token", str(tmp_path / "token")]) == 2
    told = capsys.readouterr().err
    assert "holds no token" in told
    assert "words" not in told
