"""The RabbitMQ bus without a server: names, settings, frames, answers, and what a URL may say."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import pytest
from rstream import schema
from rstream.encoding import encode_publish

from lockstep.errors import BadUrl, BatchDamaged, ServerRefused, ServerUnfit, UnsupportedByBackend
from lockstep.log.batch import NO_PRODUCER, pack
from lockstep.log.config import StreamConfig
from lockstep.log.network.address import Address
from lockstep.log.network.driver import Ends, TopicGone, bundle
from lockstep.log.network.retry import Deadline
from lockstep.log.rabbitmq import errors, frames
from lockstep.log.rabbitmq import topic as topic_module
from lockstep.log.rabbitmq.driver import (
    SEGMENT_LEAST,
    SEGMENT_MOST,
    check_replicas,
    check_version,
    frees_space,
    login_of,
    promises_of,
    read_address,
    server_name,
    stream_arguments,
)
from lockstep.log.rabbitmq.sender import Attempt, origin_of
from lockstep.log.rabbitmq.subscription import ReadAhead
from lockstep.log.rabbitmq.topic import RabbitTopic

IDENTITY = "0123456789abcdef" * 2
HERE = Address("rabbitmq", (("127.0.0.1", 5552),))


def address(**options):
    return Address("rabbitmq", (("127.0.0.1", 5552),), options={name: str(value) for name, value in options.items()})


class TestNames:
    @pytest.mark.parametrize("prefix", ["", "mine.", "a~b"])
    @pytest.mark.parametrize("name", ["orders", "_group.workers", "orders/3", "trades.S", "x.R.00ff", "a~b", "a" * 128])
    def test_a_name_on_the_server_holds_prefix_name_and_identity(self, prefix, name):
        full = server_name(prefix, name, IDENTITY, "rabbitmq:")
        assert full == f"{prefix}{name}~{IDENTITY[:12]}"

    def test_a_stream_made_anew_has_another_name_there(self):
        made = {server_name("", "orders", identity * 16, "rabbitmq:") for identity in ("ab", "cd")}
        assert len(made) == 2

    def test_a_name_that_is_too_long_is_refused(self):
        with pytest.raises(UnsupportedByBackend, match="255"):
            server_name("p" * 200, "x" * 100, IDENTITY, "rabbitmq:")


class TestSettingsOfNewStreams:
    def test_a_stream_without_limits_has_none_on_the_server(self):
        assert stream_arguments(StreamConfig(capacity=None), HERE) == {}
        assert stream_arguments(StreamConfig(capacity=100), HERE) == {}
        assert not frees_space(StreamConfig(capacity=100), HERE)

    @pytest.mark.parametrize("retain_bytes", [1000, 5 << 20, 20 << 20, 10**9, 10**12])
    def test_what_counts_is_there_when_a_new_segment_was_begun_and_half_of_the_rest_is_not_ours(self, retain_bytes):
        found = stream_arguments(StreamConfig(retain_bytes=retain_bytes), HERE)
        segment, most = int(found["stream-max-segment-size-bytes"]), int(found["max-length-bytes"])
        assert SEGMENT_LEAST <= segment <= SEGMENT_MOST
        # The last segment may be empty, and the first one that does not fit is dropped whole.
        assert most - segment >= 2 * retain_bytes

    @pytest.mark.parametrize("most", [1000, 40_000_000, 10**12])
    def test_a_bound_in_the_url_is_several_segments(self, most):
        for config in (StreamConfig(capacity=100), StreamConfig(retain_bytes=10**9)):
            found = stream_arguments(config, address(max_bytes=most))
            assert found["max-length-bytes"] == str(most)
            assert int(found["stream-max-segment-size-bytes"]) * 4 <= most

    def test_a_limit_of_age_has_slack(self):
        found = stream_arguments(StreamConfig(retain_age_s=0.3), HERE)
        assert found["max-age"] == "1s"
        assert "max-length-bytes" not in found
        assert frees_space(StreamConfig(retain_age_s=0.3), HERE)

    def test_the_url_goes_before_the_configuration(self):
        given = address(max_bytes=5000, max_age_s=7, segment_bytes=600)
        assert stream_arguments(StreamConfig(retain_bytes=10**9), given) == {
            "max-length-bytes": "5000",
            "max-age": "7s",
            "stream-max-segment-size-bytes": "600",
        }


class TestFrames:
    def test_a_message_is_sent_as_the_client_does(self):
        ours = frames.publish(3, 77, b"hello")
        theirs = encode_publish(schema.Publish(3, [schema.Message(77, None, b"hello")]))
        assert ours == theirs

    def test_credit_is_given_as_the_client_does(self):
        assert frames.credit(5, 300) == frames.encode(schema.Credit(5, 300))

    def test_a_chunk_is_read_as_the_client_does_and_cut_where_it_begins_too_early(self):
        payload = chunk_payload(40, [b"a", b"", b"ccc"])
        chunk = frames.read_chunk(payload)
        assert (chunk.subscription, chunk.first, chunk.end) == (9, 40, 43)
        assert [message.data for message in chunk.messages()] == frames.decode(payload).get_messages()
        assert [(message.number, message.data) for message in chunk.messages(41)] == [(41, b""), (42, b"ccc")]

    def test_frames_are_split_wherever_the_pieces_end(self):
        whole = frames.credit(1, 2) + frames.publish(1, 2, b"x" * 50) + frames.encode(schema.Heartbeat())
        for cut in range(len(whole) + 1):
            buffer = bytearray()
            found = []
            for piece in (whole[:cut], whole[cut:]):
                buffer += piece
                found += frames.split(buffer)
            assert [frames.key_of(payload) for payload in found] == [9, 2, 23]
            assert not buffer

    def test_refusals_are_read(self):
        sent = schema.PublishError(4, [schema.PublishingError(7, 18), schema.PublishingError(8, 16)])
        assert frames.read_refusals(frames.encode(sent)[4:]) == (4, [(7, 18), (8, 16)])


def chunk_payload(first, messages):
    data = b"".join(len(message).to_bytes(4, "big") + message for message in messages)
    deliver = schema.Deliver(
        9, 80, 0, len(messages), len(messages), 0, 1, first, zlib.crc32(data), len(data), 0, 0, data
    )
    return frames.encode(deliver)[4:]


def alien_payload(first):
    """A chunk of one entry that is a batch of the protocol's own, as other clients write it."""
    data = b"\x80\x00\x05" + bytes(8) + b"hello"
    return frames.encode(schema.Deliver(9, 80, 0, 1, 5, 0, 1, first, zlib.crc32(data), len(data), 0, 0, data))[4:]


class TestReadingAgain:
    """A topic on a server that shows the chunks of `shown`, one each time it is asked for a message."""

    @pytest.fixture
    def shown(self, monkeypatch):
        shown = []
        monkeypatch.setattr(topic_module, "peek_chunks", lambda *_: [shown.pop(0)])
        return shown

    @pytest.fixture
    def topic(self):
        topic = RabbitTopic(SimpleNamespace(), "orders", "orders", None, "me")
        topic._ends = lambda deadline: Ends(0, 42)
        return topic

    def test_a_message_that_a_new_leader_does_not_show_yet_is_not_lost(self, topic, shown):
        shown += [None, frames.read_chunk(chunk_payload(40, [b"a", b"b"]))]
        with pytest.raises(errors.NotReady):
            topic._reread(41, None)
        assert topic._reread(41, None).data == b"b"

    def test_there_is_nothing_after_the_end(self, topic, shown):
        shown += [None]
        assert topic._reread(42, None) is None

    def test_where_a_stream_begins_is_asked_for_again_if_a_message_is_missing(self, topic, shown):
        topic._first = 0
        shown += [frames.read_chunk(chunk_payload(40, [b"a", b"b"]))] * 2
        assert topic._reread(40, None).number == 40
        assert topic._first == 0
        assert topic._reread(39, None).number == 40
        assert topic._first is None


class TestWhatCameAhead:
    """A subscription to which nothing more comes; what did come is taken."""

    @pytest.fixture
    def feed(self):
        feed = ReadAhead(None, "orders", lambda: None)
        feed.is_lost = True
        return feed

    def arrive(self, feed, first, *messages):
        feed.on_chunk(frames.read_chunk(chunk_payload(first, messages)))

    def take(self, feed, number, max_bytes=1 << 20):
        return [message.number for message in feed.take(number, max_bytes, None)]

    def test_what_follows_without_a_gap_is_taken_at_once(self, feed):
        self.arrive(feed, 40, b"a", b"b")
        self.arrive(feed, 42, b"c")
        assert self.take(feed, 41) == [41, 42]

    def test_a_gap_ends_what_is_taken_and_stands_in_front_of_the_next(self, feed):
        self.arrive(feed, 98, b"a", b"b")
        self.arrive(feed, 500, b"c", b"d")
        assert self.take(feed, 98) == [98, 99]
        feed.is_lost = False
        assert feed.covers(100)
        feed.is_lost = True
        assert self.take(feed, 100) == [500, 501]

    def test_what_can_not_be_read_is_told_each_time_and_never_passed_over(self, feed):
        self.arrive(feed, 40, b"a")
        feed.on_chunk(frames.read_chunk(alien_payload(41)))
        self.arrive(feed, 42, b"c")
        assert self.take(feed, 40, 1) == [40]
        for _ in range(3):
            with pytest.raises(BatchDamaged, match="another client"):
                feed.take(41, 1, None)

    def test_a_chunk_that_is_cut_off_is_damaged(self):
        payload = chunk_payload(40, [b"abc", b"defghi"])
        for end in (-1, -7, -12):
            with pytest.raises(BatchDamaged, match="cut off"):
                frames.read_chunk(payload[:end]).messages()


class TestAnswers:
    def test_yes_is_no_error(self):
        errors.check(errors.OK, server="s", user="u", action="read")

    @pytest.mark.parametrize(("code", "error"), [(2, TopicGone), (6, errors.NotReady)])
    def test_what_others_handle(self, code, error):
        with pytest.raises(error):
            errors.check(code, server="s", user="u", action="read", stream="orders")

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (8, "password"),
            (11, "own machine"),
            (12, "virtual host 'orders'"),
            (16, "'u' has no right to read 'orders'"),
        ],
    )
    def test_a_refusal_says_what_is_refused(self, code, words):
        with pytest.raises(ServerRefused, match=words):
            errors.check(code, server="host:1", user="u", action="read", stream="orders")

    @pytest.mark.parametrize("code", [3, 15, 17, 99])
    def test_anything_else_names_the_server(self, code):
        with pytest.raises(ServerUnfit, match="host:1"):
            errors.check(code, server="host:1", user="u", action="read", stream="orders")


class TestUrls:
    def test_guest_is_who_opens_if_nobody_is_named(self):
        login = login_of(read_address("//127.0.0.1", {}, {}))
        assert (login.user, login.password.reveal(), login.vhost) == ("guest", "guest", "/")

    def test_a_name_has_no_password_but_its_own(self):
        login = login_of(read_address("//app@127.0.0.1/sales", {}, {"LOCKSTEP_RABBITMQ_PASSWORD": "hunter2"}))
        assert (login.user, login.password.reveal(), login.vhost) == ("app", "hunter2", "sales")
        assert login_of(read_address("//app@127.0.0.1", {}, {})).password.reveal() == ""
        assert "hunter2" not in repr(login)

    def test_the_port_is_the_stream_port(self):
        assert read_address("//host", {"amqp_port": "5672"}, {}).hosts == (("host", 5552),)

    @pytest.mark.parametrize("options", [{"max_bytes": "x"}, {"amqp_port": "x"}, {"prefix": "größe"}, {"other": "1"}])
    def test_what_makes_no_sense_is_refused_before_anything_is_asked(self, options):
        with pytest.raises(BadUrl):
            read_address("//host", options, {})


class TestChecks:
    @pytest.mark.parametrize("version", ["3.9.0", "3.10.8", "4.1.0-rc.1", "unknown", ""])
    def test_versions_with_streams(self, version):
        assert check_version("s", version) == []

    @pytest.mark.parametrize("version", ["3.8.34", "2.0.1"])
    def test_versions_without_streams(self, version):
        [finding] = check_version("s", version)
        assert finding.fatal
        assert version in finding.problem

    @pytest.mark.parametrize(("replicas", "before", "behind"), [(0, 0, 0), (1, 1, 0), (2, 1, 1), (4, 2, 2)])
    def test_the_promises_count_copies_of_a_majority(self, replicas, before, behind):
        made = promises_of(replicas)
        assert (made.sync_replicas, made.async_replicas) == (before, behind)
        assert not made.dedupe
        assert bool(check_replicas("s", replicas)) == (replicas == 0)


class TestKnowingAMessageAgain:
    def sealed(self, stamp, producer=b"p" * 16, sequence=5, values=(b"a",)):
        return pack(values, producer=producer, sequence=sequence, created_ns=1).seal(stamp)

    def test_a_message_sent_again_is_the_same_with_another_stamp(self):
        first = Attempt(1, self.sealed(1), origin_of(self.sealed(1)))
        assert first.is_again(self.sealed(2))
        assert not first.is_again(self.sealed(2, sequence=6))
        assert not first.is_again(self.sealed(2, values=(b"a", b"b")))
        assert not first.is_stored_as(self.sealed(2)), "a copy of somebody else is another message"
        first.is_retry = True
        assert first.is_stored_as(self.sealed(2))

    def test_bundles_are_known_by_their_first_batch(self):
        data = bundle([self.sealed(1), self.sealed(1, sequence=6)])
        assert origin_of(data) == (b"p" * 16, 5)

    def test_what_nobody_sends_again_has_no_origin(self):
        assert origin_of(self.sealed(1, producer=NO_PRODUCER)) is None
        assert origin_of(b'{"add": "orders"}') is None


def test_a_deadline_gives_shares_of_what_is_left():
    now = [10.0]
    deadline = Deadline(lambda: now[0], 4.0)
    assert deadline.part(0.5).left() == 2.0
    now[0] = 20.0
    assert deadline.left() == 0.0
