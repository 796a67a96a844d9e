"""Request and reply: a question goes to one stream, its answer comes back on another, matched by a header.

The server belongs to a group, so several of them would share the questions and one that dies is replaced. It answers
and confirms in one transaction: each question gets exactly one answer on the log.
"""

from __future__ import annotations

import tempfile
import threading
import uuid

import lockstep


class Client:
    """Sends questions and waits for the answers that carry their id."""

    def __init__(self, bus: lockstep.Lockstep) -> None:
        self._reply_to = f"replies.{uuid.uuid4().hex}"
        self._requests = bus.publisher("requests")
        self._replies = bus.subscriber(self._reply_to)  # alone, from now on

    def ask(self, question: str, timeout: float = 5.0) -> str:
        request_id = uuid.uuid4().bytes
        headers = [("reply-to", self._reply_to.encode()), ("request-id", request_id)]
        self._requests.publish(question.encode(), headers=headers)
        for record in self._replies.records(idle_s=timeout):
            if record.header("request-id") == request_id:
                return str(record.value.decode())
        raise TimeoutError(question)


def serve(bus: lockstep.Lockstep, stop: threading.Event) -> None:
    with bus.subscriber("requests", group="servers") as subscriber:
        while not stop.is_set():
            for record in subscriber.poll(timeout=0.1):
                with bus.group_transaction(subscriber) as together:
                    answer = record.value[::-1]
                    headers = [("request-id", record.header("request-id") or b"")]
                    together.publish((record.header("reply-to") or b"").decode(), answer, headers=headers)
                    together.confirm(record)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, lockstep.connect(f"lmdb:{folder}/bus") as bus:
        stop = threading.Event()
        server = threading.Thread(target=serve, args=(bus, stop))
        server.start()

        anna, ben = Client(bus), Client(bus)
        for client, question in ((anna, "stressed"), (ben, "drawer"), (anna, "live")):
            answer = client.ask(question)
            print(f"{question} -> {answer}")
            assert answer == question[::-1]

        stop.set()
        server.join(timeout=10)
        replies = [name for name in bus.streams() if name.startswith("replies.")]
        answers = sum(bus.bounds(name).count for name in replies)
        print(f"3 questions, {answers} answers on {len(replies)} reply streams.")
        assert (answers, len(replies)) == (3, 2)


if __name__ == "__main__":
    main()
