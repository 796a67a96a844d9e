"""Real servers on this machine, for tests and for trying out a bus: started, killed and stopped by pid."""
