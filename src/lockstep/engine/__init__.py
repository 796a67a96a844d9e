"""Window models over ordered streams: defined exactly, run on Spark."""
