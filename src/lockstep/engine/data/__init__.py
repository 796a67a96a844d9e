"""Made-up data of a known shape, for examples, tests and benchmarks."""
