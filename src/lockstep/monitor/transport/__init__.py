"""Transports between agents and servers: a broker in memory, Lockstep streams, RabbitMQ."""
