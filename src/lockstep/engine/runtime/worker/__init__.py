"""Evaluating ranges of the sequence for one shard."""
