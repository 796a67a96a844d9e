"""What the monitor decides: pure, without clock, threads, files or random numbers."""
