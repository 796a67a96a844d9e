"""Part J: a pool of connections."""

from __future__ import annotations

import threading

import pytest

import lockstep
from lockstep.errors import BadArgument, Closed


@pytest.fixture(params=["memory", "lmdb"])
def url(request, tmp_path):
    return "memory:pooled" if request.param == "memory" else f"lmdb:{tmp_path / 'bus'}"


def test_j3_connections_are_handed_out_in_turn(url):
    # Given a pool of three
    with lockstep.Pool(url, size=3) as pool:
        # When seven are asked for
        given = [pool.next() for _ in range(7)]
        # Then there are three, in turn, and they see one bus
        assert given[:3] == given[3:6]
        assert given[6] is given[0]
        assert len(set(map(id, given))) == 3
        with given[0].publisher("orders") as publisher:
            publisher.publish(b"x").result()
        assert given[1].get("orders", 0).value == b"x"


def test_j3_prestart_opens_them_all_once(url):
    with lockstep.Pool(url, size=4) as pool:
        # Given a pool that was started
        pool.prestart()
        started = list(pool._places)
        # When it is used
        given = [pool.next() for _ in range(4)]
        # Then nothing more was opened
        assert None not in started
        assert given == started


def test_j3_threads_that_ask_at_once_get_no_more_connections_than_there_are(url):
    with lockstep.Pool(url, size=2) as pool:
        # Given threads that begin together
        together, found = threading.Barrier(8), []
        threads = [threading.Thread(target=lambda: (together.wait(10), found.append(pool.next()))) for _ in range(8)]
        # When they all ask
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        # Then each connection was given four times
        assert sorted(map(found.count, {id(one): one for one in found}.values())) == [4, 4]


def test_j3_a_closed_pool_says_so(url):
    pool = lockstep.Pool(url, size=1)
    connection = pool.next()
    pool.close()
    with pytest.raises(Closed, match="pool"):
        pool.next()
    with pytest.raises(Closed):
        connection.config("orders")


def test_j3_a_pool_of_none_is_refused(url):
    with pytest.raises(BadArgument, match="size = 0"):
        lockstep.Pool(url, size=0)
