"""A last-value queue on RabbitMQ: it holds the last message that was published to a topic, and nothing else."""

from __future__ import annotations

from typing import Any


class LastValueQueue:
    """Made when it is missing, and bound to the topic; from then on it holds the last message.

    Whoever reads looks at it alone: give each reader a queue of its own name.
    """

    def __init__(self, channel: Any, exchange: str, routing_key: str, name: str) -> None:
        """`channel` is a blocking channel of pika, and the exchange exists."""
        self._channel, self.name = channel, name
        arguments = {"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "drop-head"}
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.queue_bind(name, exchange, routing_key)

    def last(self) -> bytes | None:
        """The last message, which stays where it is; None if there was none since the queue was made."""
        method, _, body = self._channel.basic_get(self.name)
        if method is None:
            return None
        self._channel.basic_nack(method.delivery_tag, requeue=True)
        self._channel.queue_declare(self.name, passive=True)  # answered when it is back
        return bytes(body)

    def delete(self) -> None:
        """Remove the queue."""
        self._channel.queue_delete(self.name)
