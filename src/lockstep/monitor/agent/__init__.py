"""The agent on each machine: keepalives, checks, a local socket, and a spool while the bus is away."""
