"""What everything that calls others over a network shares: which addresses may be called, and signatures."""
