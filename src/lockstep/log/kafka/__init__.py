"""Kafka as a bus: a stream is a partition, an append is a message."""
