"""Snapshots of the state of windows: their format, the folders they are in, and what they allow to trim."""
