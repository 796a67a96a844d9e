"""A project's logs: its streams, what is decided on the sequence log, and reading that as blocks of events."""
