"""RabbitMQ streams as a bus: the stream protocol, on the frames of rstream."""
