"""Evaluating what is decided: the port, the planning of batches, hot workers, and batches in this process."""
