"""Connectors in a model: files, sockets, Kafka and RabbitMQ to and from its windows, while an engine leads."""
