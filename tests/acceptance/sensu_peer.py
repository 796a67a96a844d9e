"""A client of the old shape: pika and Sensu's bytes, and nothing of this project.

It declares what the document says: exchanges that do not last, one queue of its own for all subscriptions, which goes
with its last consumer, and no acknowledgement of check requests.
"""

from __future__ import annotations

import json
import threading
import time

import pika

VERSION = "0.26.5"


class SensuPeer:
    """Publishes keepalives and results with confirms, and notes the requests that it gets."""

    def __init__(self, port, name="old-1", subscriptions=("linux",), durable=False):
        self.name, self.subscriptions = name, list(subscriptions)
        parameters = pika.ConnectionParameters("127.0.0.1", port)
        self._connection, self._listening = (pika.BlockingConnection(parameters) for _ in range(2))
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        for pipe in ("keepalives", "results"):
            self._channel.exchange_declare(pipe, "direct", durable=durable)
        self.queue = f"{name}-{VERSION}-{int(time.time())}"
        self.requests = []
        self._durable = durable
        self._subscribe()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _subscribe(self):
        channel = self._listening.channel()
        channel.queue_declare(self.queue, auto_delete=True)
        for subscription in (*self.subscriptions, f"client:{self.name}"):
            if subscription.startswith("roundrobin:"):
                channel.queue_declare(subscription, auto_delete=True)
                channel.exchange_declare(subscription, "direct", durable=self._durable)
                channel.queue_bind(subscription, subscription, "")
                channel.basic_consume(subscription, self._came, auto_ack=True)
            else:
                channel.exchange_declare(subscription, "fanout", durable=self._durable)
                channel.queue_bind(self.queue, subscription, "")
        channel.basic_consume(self.queue, self._came, auto_ack=True)

    def _came(self, _channel, method, _properties, body):
        self.requests.append((method.exchange, json.loads(body)))

    def _listen(self):
        while not self._ended.is_set():
            self._listening.process_data_events(0.05)

    def keepalive(self):
        subscriptions = [*self.subscriptions, f"client:{self.name}"]
        client = {
            "name": self.name, "address": "10.0.0.7", "subscriptions": subscriptions, "version": VERSION,
            "timestamp": int(time.time()),
        }  # fmt: skip
        self._publish("keepalives", client)

    def result(self, name, status, output, client=None, **more):
        now = int(time.time())
        check = {"name": name, "issued": now, "executed": now, "duration": 0.012, "output": output, "status": status}
        self._publish("results", {"client": client or self.name, "check": {**check, **more}})

    def _publish(self, pipe, document):
        """Returns when the broker confirmed it; one that no queue takes is an error."""
        self._channel.basic_publish(
            pipe, "", json.dumps(document, separators=(",", ":")).encode(),
            pika.BasicProperties(delivery_mode=2 if self._durable else None), mandatory=True,
        )  # fmt: skip

    def close(self):
        self._ended.set()
        self._thread.join()
        self._listening.close()
        self._connection.close()
