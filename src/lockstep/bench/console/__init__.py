"""The console at scale and under load."""
