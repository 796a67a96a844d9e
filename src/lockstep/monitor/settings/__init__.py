"""Settings of the monitor: files and environment as one document, what is wrong with it, and what of it is shared."""
