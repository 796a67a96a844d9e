"""Where a scheduler keeps its rows: the port, and its backends."""
